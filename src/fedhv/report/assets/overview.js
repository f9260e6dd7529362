// The first screen: the verdict, the trade-off with its slider, bars for every task, and accuracy against bytes.

const tradeoff = new Picture(byId("trade-chart"), "Trade-off between tasks", tradeoffSvg);
const taskBars = new Picture(byId("bar-chart"), "Final value of every task", barsSvg);
const bytesChart = new Picture(byId("bytes-chart"), "Accuracy against bytes sent", (what, width, colours) => linesSvg(what, width, 230, colours));

// A front alone has no compared runs: its methods are told apart by the hypervolumes of their fronts.
function showVerdict(data, setting) {
  const front = frontOf(data, setting);
  const said = setting.verdicts.length || !front ? setting.verdicts.map(({ text }) => text) : frontSentences(front, "score");
  const [first, ...others] = said;
  byId("verdict").hidden = !first;
  byId("verdict").textContent = first ?? "";
  byId("verdict-more").hidden = !others.length;
  byId("verdict-list").replaceChildren(...others.map((text) => el("li", { text })));
  byId("rates").textContent = setting.rates;
  byId("rates").hidden = !setting.rates;
}

function lastRound(setting) {
  return Math.max(0, ...setting.runs.map((run) => run.evaluated.at(-1) ?? 0));
}

// The slider stays at the end while runs go on, unless it was moved.
function showSlider(setting) {
  const slider = byId("trade-round"), last = lastRound(setting);
  const atEnd = Number(slider.value) >= Number(slider.max);
  const step = Math.max(1, Math.min(...setting.runs.map((run) => run.evaluated[0] ?? 1)));
  Object.assign(slider, { min: Math.min(step, last), max: last, step: 1 });
  slider.dataset.default = String(last);
  if (wanted.has("trade-round")) {
    slider.value = wanted.get("trade-round");
    wanted.delete("trade-round");
  } else if (atEnd) slider.value = last;
  byId("trade-at").textContent = Number(slider.value) >= last ? `round ${last} (the last)` : `round ${slider.value}`;
  return Number(slider.value);
}

function showOverview(data, setting, choice) {
  showVerdict(data, setting);
  const m = setting.tasks.length, tasks = setting.tasks.map((task, i) => [String(i), task]);
  fill(byId("trade-kind"), [...(setting.mains ? [["main", "Main metric"]] : []), ["accuracy", "Accuracy"], ["loss", "Loss"]]);
  fill(byId("trade-view"), [["all", "All tasks"], ["two", "Two tasks"]]);
  fill(byId("trade-x"), tasks);
  fill(byId("trade-y"), [...tasks.slice(1), ...tasks.slice(0, 1)]);
  const kind = byId("trade-kind").value, parallel = m < 2 || (m > 2 && byId("trade-view").value === "all");
  byId("trade-view-box").hidden = m < 3;
  byId("trade-x-box").hidden = byId("trade-y-box").hidden = parallel || m < 3;
  const round = showSlider(setting);
  const points = standings(setting, choice, kind, round), finals = standings(setting, choice, kind, lastRound(setting));
  const scores = scoresOf(setting, kind);
  const chosen = m === 2 ? [0, 1] : [Number(byId("trade-x").value), Number(byId("trade-y").value)];
  byId("trade-about").textContent = parallel
    ? "Thick lines are means over seeds with one sample deviation, thin ones are seeds. A method is faint where another is at least as good in every task."
    : "Large points are means over seeds with one sample deviation, small ones are seeds, smoothed lines the way there. Methods that no other beats in both tasks are joined.";
  tradeoff.draw({ points, finals, names: setting.tasks, tasks: chosen, scores, parallel, empty: !points.length });
  taskBars.draw({ points, names: setting.tasks, scores, empty: !points.length });
  showBytes(setting, choice);
}

// The worst task by what tasks are judged by; where they are judged by different metrics, the mean loss.
function showBytes(setting, choice) {
  const common = setting.mains && oneScale(scoresOf(setting, "main")) ? setting.mains[0] : null;
  const [metric, title, yTitle] = !setting.mains ? ["worst_accuracy", "Worst-task accuracy", "Worst-task accuracy (%)"]
    : common ? ["worst_main", `Worst-task ${common.name}`, `Worst-task ${common.name}`] : ["mean_loss", "Mean loss", "Mean loss"];
  byId("bytes-title").textContent = `${metric === "mean_loss" ? "Mean loss" : "Worst task"} against bytes sent`;
  const curves = curvesOf(setting, { ...choice, metric, against: "bytes", view: "mean", calibration: true, smooth: 0, group: "method" });
  bytesChart.draw({ curves, xTitle: "Sent, calibration included", xKind: "bytes", yTitle, key: "bytes", name: `${title} against bytes sent`, empty: !curves.length });
}

// Plays the rounds, about four seconds from first to last; a second press stops.
let playing = null;

function playRounds(changed) {
  const slider = byId("trade-round"), button = byId("trade-play");
  const stop = () => {
    clearInterval(playing);
    playing = null;
    button.textContent = "Play";
  };
  if (playing) return stop();
  if (Number(slider.value) >= Number(slider.max)) slider.value = slider.min;
  button.textContent = "Stop";
  const stride = Math.max(1, Math.ceil((slider.max - slider.min) / 50));
  playing = setInterval(() => {
    slider.value = Number(slider.value) + stride;
    changed();
    if (Number(slider.value) >= Number(slider.max)) stop();
  }, 80);
}
