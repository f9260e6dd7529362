// Reports, slacks and weights below one cursor: the weights of the next round are inverse to the slacks of this one.

const reportChart = new Chart(byId("report-chart"), "Reported losses", { link: "balance", onRead: (round) => readBalance(round), height: 220 });
const slackChart = new Chart(byId("slack-chart"), "Slacks of the reported losses", { link: "balance", onRead: (round) => readBalance(round), height: 220 });
const weightChart = new Chart(byId("weight-chart"), "Task weights", { link: "balance", onRead: (round) => readBalance(round), height: 240 });
let balanced = null; // what the charts show: { setting, series, choice }

// The method whose weights are worth looking at first: the one with slacks, else the first that adapts them.
function balanceOptions(setting) {
  const rank = (series) => {
    const runs = series.runs.map((i) => setting.runs[i]);
    if (runs.some((run) => run.slack)) return 0;
    return runs.some((run) => run.weights?.some(Array.isArray)) ? 1 : 2;
  };
  return setting.series
    .map((series, i) => [series, rank(series), i])
    .filter(([series]) => series.runs.some((i) => setting.runs[i].weights))
    .sort((a, b) => a[1] - b[1] || a[2] - b[2])
    .map(([series]) => series);
}

function showBalance(setting, choice, changed) {
  const options = balanceOptions(setting);
  byId("balance").hidden = !options.length;
  if (!options.length) return;
  fill(byId("balance-method"), options.map((series) => [series.label, series.label]));
  const series = options.find((each) => each.label === byId("balance-method").value) ?? options[0];
  chips(byId("balance-tasks"), setting.tasks.map((task, i) => ({ key: task, label: task, style: setting.taskStyles[i] })), choice.tasksOff, changed);
  balanced = { setting, series, choice };
  const log = byId("balance-log").checked;
  const floor = log && typeof series.floor === "number" ? [{ label: "floor", value: series.floor }] : [];
  for (const [chart, kind, yTitle, lines] of [[reportChart, "report", "Reported loss", []], [slackChart, "slack", "Slack", floor], [weightChart, "weights", "Weight", []]]) {
    const curves = taskCurves(setting, series, kind, choice);
    const known = kind === "weights" || setting.tasks.some((_, i) => runsOf(setting, series, choice).some((run) => roundCurve(run, kind, i)));
    byId(`${kind === "weights" ? "weight" : kind}-box`).hidden = !known;
    chart.draw({ curves, xTitle: "Round", xKind: "round", yTitle, digits: 3, log: log && kind === "slack", lines });
  }
  byId("balance-log-box").hidden = byId("slack-box").hidden;
  byId("balance-rule").textContent = series.preferred
    ? "FedHV sets the weights of the next round to w ∝ p/slack with the preferences p: the last column is then proportional to them."
    : "FedHV sets the weights of the next round to w ∝ 1/slack: the last column is then the same for every task.";
  showAbsent(setting, series);
  readBalance(null);
}

// One table for the three charts: a task's report, slack and weight in a round, and the next weight times the slack.
function readBalance(round) {
  if (!balanced) return;
  const { setting, series, choice } = balanced;
  const runs = runsOf(setting, series, choice);
  const last = Math.max(0, ...runs.map((run) => run.round.at(-1) ?? 0));
  const slacks = runs.some((run) => run.slack);
  const at = round === null ? last - (slacks && last > 1 ? 1 : 0) : Math.round(round); // the last round has no next weight
  byId("balance-place").textContent = `round ${at}`;
  byId("balance-heads").replaceChildren(...["Task", ...(slacks ? ["Report", "Slack"] : []), "Weight", ...(slacks ? ["Next weight × slack"] : [])].map((text) => el("th", { scope: "col", text })));
  byId("balance-body").replaceChildren(...setting.tasks.map((task, i) => {
    if (choice.tasksOff.has(task)) return null;
    const over = (value) => {
      const known = runs.map(value).filter((each) => each !== null && each !== undefined && Number.isFinite(each));
      const spread = deviation(known);
      return known.length ? fixed(mean(known), 3) + (spread === null ? "" : ` ± ${fixed(spread, 3)}`) : "–";
    };
    const values = (kind) => (run) => roundCurve(run, kind, i)?.y[run.round.indexOf(at)];
    const product = (run) => {
      const slack = roundCurve(run, "slack", i)?.y[run.round.indexOf(at)], next = run.round.indexOf(at + 1);
      return slack && next >= 0 ? slack * column(run.weights, i, run.round.length)[next] : null;
    };
    const cells = [...(slacks ? [over(values("report")), over(values("slack"))] : []), over(values("weights")), ...(slacks ? [over(product)] : [])];
    return el("tr", {}, el("td", { class: task.length > 16 ? "long" : null }, named(task, setting.taskStyles[i])), ...cells.map((text) => el("td", { text })));
  }).filter(Boolean));
}

// Rounds in which no client of the cohort had labels of a task.
function showAbsent(setting, series) {
  const runs = series.runs.map((i) => setting.runs[i]);
  const counts = setting.tasks.map((_, i) => runs.reduce((sum, run) => sum + (run.absent?.[i] ?? 0), 0));
  const rounds = runs.reduce((sum, run) => sum + run.rounds, 0);
  const gone = setting.tasks.map((task, i) => [task, counts[i]]).filter(([, n]) => n);
  byId("absent").hidden = !gone.length;
  byId("absent").textContent = gone.length ? `Rounds in which no client of the cohort had labels of a task, of ${rounds}: ${gone.map(([task, n]) => `${task} ${n}`).join(", ")}. The last report counted there.` : "";
}

// With many tasks only those whose weights differ most are switched on at first.
function firstTasksOff(setting, most = 8) {
  if (setting.tasks.length <= 12) return new Set();
  const run = setting.runs.find((each) => each.slack) ?? setting.runs[0];
  const last = setting.tasks.map((task, i) => [task, column(run.weights, i, run.round.length)?.at(-1) ?? 0]);
  last.sort((a, b) => b[1] - a[1]);
  const shownTasks = new Set([...last.slice(0, most / 2), ...last.slice(-most / 2)].map(([task]) => task));
  return new Set(setting.tasks.filter((task) => !shownTasks.has(task)));
}
