// The head of the page, the tiles of the best, and the curves, each drawn from the data and what the user chose.

function showHeader(data, setting) {
  const runs = data.settings.flatMap((each) => each.runs);
  const distinct = (values) => new Set(values).size;
  const done = runs.filter((run) => run.finished).length;
  const m = [...new Set(data.settings.map((each) => each.tasks.length))].sort((a, b) => a - b);
  const tasks = m.length > 1 ? ` of ${m.slice(0, -1).join(", ")} or ${m.at(-1)} tasks` : m.length ? ` of ${plural(m[0], "task")}` : "";
  byId("subtitle").textContent = [
    `${plural(runs.length, "run")}, ${done === runs.length ? "all finished" : `${done} finished`}`,
    `${plural(data.settings.length, "setting")}${tasks}`,
    plural(distinct(runs.map((run) => run.method)), "method"), plural(distinct(runs.map((run) => run.seed)), "seed"),
  ].join(" · ");
  const variants = setting ? setting.series.length - distinct(setting.series.map((series) => series.method)) : 0;
  byId("about-setting").hidden = data.settings.length < 2 || !setting;
  byId("about-setting").textContent = setting ? `${setting.name}: ${plural(setting.tasks.length, "task")}, ${plural(setting.runs.length, "run")}, ${plural(distinct(setting.series.map((series) => series.method)), "method")}${variants ? ` and ${plural(variants, "variant")}` : ""}, seeds ${[...new Set(setting.runs.map((run) => run.seed))].sort((a, b) => a - b).join(", ")}` : "";
  byId("missing").hidden = !data.notes.length;
  const [few, more] = data.notes.length > 4 ? [data.notes.slice(0, 2), data.notes.slice(2)] : [data.notes, []];
  for (const [id, notes] of [["notes", few], ["notes-rest", more]]) byId(id).replaceChildren(...notes.map((text) => el("li", { text })));
  byId("notes-more").hidden = !more.length;
  byId("notes-count").textContent = `${more.length} more`;
  byId("setting-box").hidden = data.settings.length < 2;
  fill(byId("setting"), data.settings.map((each) => [each.name, each.name]));
  byId("figures").hidden = !data.figures.length;
  byId("figure-list").replaceChildren(...data.figures.map((name) => el("li", {}, el("a", { href: `figures/${encodeURIComponent(name)}.png`, text: name }), " (", el("a", { href: `figures/${encodeURIComponent(name)}.pdf`, text: "PDF", "aria-label": `${name} as PDF` }), ")")));
}

function showHighlights(setting) {
  const style = new Map(setting.series.map((series) => [series.label, series]));
  byId("highlights").replaceChildren(
    ...setting.highlights.map((tile) =>
      el("div", { class: tile.clear ? "tile best" : "tile" },
        el("div", { class: "name", text: `${tile.clear ? "Best" : tile.word} ${tile.title.toLowerCase()}` }),
        el("div", { class: "value", text: tile.value }),
        named(tile.label, style.get(tile.label)),
        el("div", { class: "quiet", text: tile.note })),
    ),
  );
  byId("summary").hidden = !setting.highlights.length;
}

function showCurveControls(data, setting, choice, changed) {
  const ofTask = [["accuracy", "Accuracy of a task"], ["loss", "Loss of a task"]];
  const main = setting.mains ? [["main", "Main metric of a task"]] : [];
  fill(byId("metric"), [...main, ...data.metrics.map((metric) => [metric.key, metric.title]), ...ofTask]);
  fill(byId("task"), setting.tasks.map((task, i) => [String(i), task]));
  fill(byId("against"), [["round", "Rounds"], ["bytes", "Bytes sent"], ["seconds", "Seconds"]]);
  fill(byId("view"), [["mean", "Mean ± deviation"], ["runs", "Every run"]]);
  fill(byId("group"), [["method", "method"], ...setting.hyper.map(({ key, title }) => [key, title])]);
  byId("group-box").hidden = !setting.hyper.length;
  byId("task-box").hidden = !OF_TASK.includes(byId("metric").value);
  byId("calibration-box").hidden = byId("against").value === "round";
  byId("compilation-box").hidden = byId("against").value !== "seconds" || !setting.runs.some((run) => run.compilation || run.calibration[2]);
  byId("smooth-at").textContent = Number(byId("smooth").value) ? Number(byId("smooth").value).toFixed(2) : "off";
  const shared = byId("against").value === "seconds" && setting.runs.some((run) => run.shared);
  byId("clock").hidden = !shared;
  byId("clock-estimated").hidden = !setting.runs.some((run) => run.shared && run.estimated);
  byId("compilation-box").title = setting.runs.some((run) => run.compilation && run.estimated) ? "Estimated: what rounds of more than ten median rounds took beyond the median" : "As recorded";
  byId("thinned").hidden = data.thinned < 2;
  byId("thinned").textContent = `Curves and saved data have every ${data.thinned}th round, since all would not fit into a page; tables and figures use all of them.`;
  byId("download-csv").title = data.thinned < 2 ? "Every round of every run on this page, one line for each task" : `Every ${data.thinned}th round of every run, one line for each task`;
  // A wall of variants that are off at first would stand above the curves: more than a few of them are folded.
  const variants = setting.series.filter((series) => firstChoices.get(setting.name).methods.has(series.label));
  const folded = variants.length > 12 ? new Set(variants) : new Set();
  const chip = (series) => ({ key: series.label, label: series.label, style: series, hint: `learning rates (server/local): ${series.rates}` });
  chips(byId("methods"), setting.series.filter((series) => !folded.has(series)).map(chip), choice.methodsOff, changed);
  chips(byId("variants"), [...folded].map(chip), choice.methodsOff, changed);
  byId("variants-box").hidden = !folded.size;
  const on = variants.filter((series) => !choice.methodsOff.has(series.label)).length;
  byId("variants-count").textContent = `${plural(folded.size, "variant")} of ablations and searches${on ? `, ${on} shown` : ""}`;
  const seeds = [...new Set(setting.runs.map((run) => run.seed))].sort((a, b) => a - b);
  chips(byId("seeds"), seeds.map((seed) => ({ key: String(seed), label: `seed ${seed}` })), choice.seedsOff, changed);
}

function readCurveControls(choice) {
  choice.metric = byId("metric").value;
  choice.task = Number(byId("task").value) || 0;
  choice.against = byId("against").value;
  choice.view = byId("view").value;
  choice.group = byId("group").value;
  choice.smooth = Number(byId("smooth").value);
  choice.log = byId("log").checked;
  choice.calibration = byId("calibration").checked;
  choice.compilation = byId("compilation").checked;
}

function drawCurves(chart, data, setting, choice) {
  const metric = data.metrics.find((each) => each.key === choice.metric);
  const task = setting.tasks[choice.task];
  const ofTask = { accuracy: `Accuracy of ${task} (%)`, loss: `Loss of ${task}`, main: `${setting.mains?.[choice.task].name} of ${task}` };
  chart.draw({
    curves: curvesOf(setting, choice),
    xTitle: { round: "Round", bytes: "Sent", seconds: "Time" }[choice.against],
    xKind: choice.against,
    yTitle: metric ? metric.title + (metric.unit ? " (%)" : "") : ofTask[choice.metric],
    digits: ["mean_accuracy", "worst_accuracy", "accuracy", "hypervolume"].includes(choice.metric) ? 2 : 3,
    log: choice.log,
  });
}

function showTables(data, setting, remembered) {
  const several = data.settings.length > 1;
  fill(byId("tables-scope"), [["setting", "the chosen setting"], ["all", "all settings"]]);
  byId("tables-scope-box").hidden = !several;
  const shownTables = several && byId("tables-scope").value === "all" ? data.tables : setting?.tables ?? [];
  byId("tables").hidden = !shownTables.length;
  keyed(byId("table-list"), shownTables, (table) => table.name, () => el("div"), (part, table) => {
    part.table ??= new SortableTable(part, remembered);
    part.table.show(table);
  });
}
