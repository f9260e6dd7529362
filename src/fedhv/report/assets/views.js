// The sections of the page, each drawn from the data and what the user chose.

function showHeader(data, setting) {
  const runs = data.settings.flatMap((each) => each.runs);
  const count = (n, noun) => `${n} ${noun}${n === 1 ? "" : "s"}`;
  const seeds = new Set(runs.map((run) => run.seed)).size;
  const done = runs.filter((run) => run.state === "finished").length;
  const state = done === runs.length ? "all finished" : `${done} finished`;
  byId("subtitle").textContent = [
    `${count(runs.length, "run")}, ${state}`, count(data.settings.length, "setting"),
    setting ? count(setting.series.filter((series) => series.compared).length, "method") : null,
    count(seeds, "seed"), setting ? count(setting.tasks.length, "task") : null,
  ].filter(Boolean).join(" · ");
  byId("missing").hidden = !data.notes.length;
  byId("notes").replaceChildren(...data.notes.map((text) => el("li", { text })));
  byId("setting-box").hidden = data.settings.length < 2;
  fill(byId("setting"), data.settings.map((each) => [each.name, each.name]));
}

function showHighlights(setting) {
  const style = new Map(setting.series.map((series) => [series.label, series]));
  byId("highlights").replaceChildren(
    ...setting.highlights.map((tile) =>
      el("div", { class: "tile" },
        el("div", { class: "name", text: `Best ${tile.title.toLowerCase()}` }),
        el("div", { class: "value", text: tile.value }),
        el("div", { class: "who" }, swatch(style.get(tile.label)), el("span", { text: tile.label })),
        el("div", { class: "quiet", text: tile.note })),
    ),
  );
  byId("summary").hidden = !setting.highlights.length;
}

function showCurveControls(data, setting, choice, changed) {
  const ofTask = [["accuracy", "Accuracy of a task"], ["loss", "Loss of a task"]];
  fill(byId("metric"), [...data.metrics.map((metric) => [metric.key, metric.title]), ...ofTask]);
  fill(byId("task"), setting.tasks.map((task, i) => [String(i), task]));
  fill(byId("against"), [["round", "Rounds"], ["bytes", "Bytes sent"], ["seconds", "Seconds"]]);
  fill(byId("view"), [["mean", "Mean ± deviation"], ["runs", "Every run"]]);
  byId("task-box").hidden = !["accuracy", "loss"].includes(byId("metric").value);
  byId("calibration-box").hidden = byId("against").value === "round";
  chips(byId("methods"), setting.series.map((series) => ({ key: series.label, label: series.label, style: series })), choice.methodsOff, changed);
  const seeds = [...new Set(setting.runs.map((run) => run.seed))].sort((a, b) => a - b);
  chips(byId("seeds"), seeds.map((seed) => ({ key: String(seed), label: `seed ${seed}` })), choice.seedsOff, changed);
}

function readCurveControls(choice) {
  choice.metric = byId("metric").value;
  choice.task = Number(byId("task").value) || 0;
  choice.against = byId("against").value;
  choice.view = byId("view").value;
  choice.log = byId("log").checked;
  choice.calibration = byId("calibration").checked;
}

function drawCurves(chart, data, setting, choice) {
  const metric = data.metrics.find((each) => each.key === choice.metric);
  const task = setting.tasks[choice.task];
  const ofTask = { accuracy: `Accuracy of ${task} (%)`, loss: `Loss of ${task}` };
  chart.draw({
    curves: curvesOf(setting, choice),
    xTitle: { round: "Round", bytes: "Sent", seconds: "Time" }[choice.against],
    xKind: choice.against,
    yTitle: metric ? metric.title + (metric.unit ? " (%)" : "") : ofTask[choice.metric],
    digits: ["mean_accuracy", "worst_accuracy", "accuracy", "hypervolume"].includes(choice.metric) ? 2 : 3,
    log: choice.log,
  });
}

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

function showBalance(weights, slack, setting, choice, changed) {
  const options = balanceOptions(setting);
  byId("balance").hidden = !options.length;
  if (!options.length) return;
  fill(byId("balance-method"), options.map((series) => [series.label, series.label]));
  const series = options.find((each) => each.label === byId("balance-method").value) ?? options[0];
  chips(byId("balance-tasks"), setting.tasks.map((task, i) => ({ key: task, label: task, style: setting.taskStyles[i] })), choice.tasksOff, changed);
  weights.draw({ curves: taskCurves(setting, series, "weights", choice), xTitle: "Round", xKind: "round", yTitle: "Weight", digits: setting.tasks.length > 10 ? 4 : 3, log: false });
  const hasSlack = series.runs.some((i) => setting.runs[i].slack);
  byId("slack-box").hidden = byId("slack-log-box").hidden = !hasSlack;
  const log = byId("slack-log").checked;
  const lines = log && typeof series.floor === "number" ? [{ label: "floor", value: series.floor }] : [];
  slack.draw({ curves: hasSlack ? taskCurves(setting, series, "slack", choice) : [], xTitle: "Round", xKind: "round", yTitle: "Slack", digits: 3, log, lines });
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

function showTables(data, remembered) {
  byId("tables").hidden = !data.tables.length;
  byId("table-list").replaceChildren(...data.tables.map((table) => sortableTable(table, remembered)));
}

function showRuns(data, opened) {
  byId("runs").hidden = !data.settings.length;
  byId("run-list").replaceChildren(
    ...data.settings.flatMap((setting) =>
      setting.runs.map((run) => {
        const key = `${setting.name}/${run.name}`;
        const about = ` · ${setting.name}, ${run.method}, seed ${run.seed}, ${run.state}`;
        const details = el("details", { open: opened.has(key) },
          el("summary", {}, el("b", { text: run.name }), el("span", { class: "state", text: about })),
          el("pre", { text: run.config }));
        details.addEventListener("toggle", () => (details.open ? opened.add(key) : opened.delete(key)));
        return details;
      }),
    ),
  );
}
