// The page: data comes in, choices are kept, sections are drawn.

let data = JSON.parse(byId("data").textContent);
const choices = new Map(); // what is switched off, by setting
const remembered = new Map(); // how tables are sorted
const opened = new Set(); // which runs are unfolded
const curveChart = new Chart(byId("curve-chart"), "curves");
const weightChart = new Chart(byId("weight-chart"), "weights");
const slackChart = new Chart(byId("slack-chart"), "slacks");

function currentSetting() {
  return data.settings.find((setting) => setting.name === byId("setting").value) ?? data.settings[0];
}

function choiceOf(setting) {
  if (!choices.has(setting.name)) {
    const ablations = setting.series.filter((series) => !series.compared).map((series) => series.label);
    choices.set(setting.name, { methodsOff: new Set(ablations), seedsOff: new Set(), tasksOff: firstTasksOff(setting) });
  }
  return choices.get(setting.name);
}

function draw() {
  const setting = currentSetting();
  for (const id of ["summary", "curves", "balance"]) byId(id).hidden = !setting;
  if (!setting) return;
  const choice = choiceOf(setting);
  showHighlights(setting);
  showCurveControls(data, setting, choice, draw);
  readCurveControls(choice);
  drawCurves(curveChart, data, setting, choice);
  showBalance(weightChart, slackChart, setting, choice, draw);
}

function drawAll() {
  showHeader(data, data.settings[0]);
  showHeader(data, currentSetting());
  draw();
  showTables(data, remembered);
  showRuns(data, opened);
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function redrawCharts() {
  for (const chart of [curveChart, weightChart, slackChart]) chart.redraw();
}

function showTheme() {
  byId("theme").textContent = isDark() ? "Light" : "Dark";
  redrawCharts();
}

for (const id of ["metric", "task", "against", "view", "log", "calibration", "balance-method", "slack-log"]) byId(id).addEventListener("change", draw);
byId("setting").addEventListener("change", () => {
  showHeader(data, currentSetting());
  draw();
});
byId("tasks-all").addEventListener("click", () => {
  choiceOf(currentSetting()).tasksOff.clear();
  draw();
});
byId("tasks-none").addEventListener("click", () => {
  currentSetting().tasks.forEach((task) => choiceOf(currentSetting()).tasksOff.add(task));
  draw();
});
byId("theme").addEventListener("click", () => {
  document.documentElement.dataset.theme = isDark() ? "light" : "dark";
  showTheme();
});
byId("download-csv").addEventListener("click", () => save(fileName(data.title, "csv"), "text/csv", asCsv(data)));
byId("download-json").addEventListener("click", () => save(fileName(data.title, "json"), "application/json", JSON.stringify(data)));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);

// Paper is white, whatever the screen is.
let beforePrint = null;
addEventListener("beforeprint", () => {
  beforePrint = document.documentElement.dataset.theme ?? "";
  document.documentElement.dataset.theme = "light";
  redrawCharts();
});
addEventListener("afterprint", () => {
  if (beforePrint) document.documentElement.dataset.theme = beforePrint;
  else delete document.documentElement.dataset.theme;
  redrawCharts();
});

drawAll();
showTheme();
if (data.live) {
  follow((news) => {
    data = news;
    drawAll();
  });
}
