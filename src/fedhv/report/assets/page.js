// The page: data comes in, choices are kept, sections are drawn.

let data = null;
const choices = new Map(); // what is switched off, by setting
const firstChoices = new Map(); // what was switched off at first
const remembered = new Map(); // how tables are sorted
const curveChart = new Chart(byId("curve-chart"), "Curves");
let drawnSetting = null;

function currentSetting() {
  return data.settings.find((setting) => setting.name === byId("setting").value) ?? data.settings[0];
}

function choiceOf(setting) {
  if (!choices.has(setting.name)) {
    const compared = setting.series.some((series) => series.compared); // a front alone has points only
    const first = {
      methods: new Set(setting.series.filter((series) => compared && !series.compared).map((series) => series.label)),
      seeds: new Set(), tasks: firstTasksOff(setting),
    };
    firstChoices.set(setting.name, first);
    const of = (name) => wantedSet(name) ?? new Set(first[name]);
    choices.set(setting.name, { methodsOff: of("methods"), seedsOff: of("seeds"), tasksOff: of("tasks") });
  }
  return choices.get(setting.name);
}

// What was chosen goes to the address; a page of a front alone has no setting.
function remember() {
  const setting = currentSetting();
  writeState(setting ? choiceOf(setting) : null, setting ? firstChoices.get(setting.name) : null);
}

function draw() {
  const setting = currentSetting();
  for (const id of ["overview", "summary", "curves", "balance"]) byId(id).hidden = !setting;
  showFronts(data, setting, drawFronts);
  showPaper(data);
  if (!setting) return;
  if (drawnSetting !== setting.name) {
    for (const chart of charts) chart.zoom = null;
    byId("trade-round").value = byId("trade-round").max;
  }
  drawnSetting = setting.name;
  const choice = choiceOf(setting);
  showHighlights(setting);
  showCurveControls(data, setting, choice, draw);
  readCurveControls(choice);
  showOverview(data, setting, choice);
  drawCurves(curveChart, data, setting, choice);
  showBalance(setting, choice, draw);
  showClients(setting, choice);
  showFederation(setting);
  remember();
}

function drawAll() {
  showHeader(data, data.settings[0]);
  showHeader(data, currentSetting());
  draw();
  showTables(data, currentSetting(), remembered);
  showCards(data, currentSetting());
  redrawRuns();
  for (const link of document.querySelectorAll("nav a")) link.hidden = byId(link.hash.slice(1)).hidden;
}

function redrawRuns() {
  showRuns(data, redrawRuns);
  remember();
}

function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function redrawCharts() {
  for (const chart of [...charts, ...pictures]) chart.redraw();
}

function showTheme() {
  byId("theme").textContent = isDark() ? "Light" : "Dark";
  redrawCharts();
}

function drawFronts() {
  showFronts(data, currentSetting(), drawFronts);
  remember();
}

function drawPaper() {
  showPaper(data);
  remember();
}

// Only the first screen follows the slider; everything else stays as it is.
function drawRound() {
  showOverview(data, currentSetting(), choiceOf(currentSetting()));
  remember();
}

function listen() {
  for (const id of ["metric", "task", "against", "view", "group", "log", "calibration", "compilation", "balance-method", "balance-log"]) byId(id).addEventListener("change", draw);
  for (const id of ["front-kind", "front-x", "front-y"]) byId(id).addEventListener("change", drawFronts);
  for (const id of ["paper-table", "paper-contest"]) byId(id).addEventListener("change", drawPaper);
  for (const id of ["trade-kind", "trade-view", "trade-x", "trade-y"]) byId(id).addEventListener("change", drawRound);
  byId("trade-round").addEventListener("input", drawRound);
  byId("trade-play").addEventListener("click", () => playRounds(drawRound));
  byId("smooth").addEventListener("input", draw);
  byId("setting").addEventListener("change", drawAll);
  byId("tables-scope").addEventListener("change", drawAll);
  byId("run-search").addEventListener("input", redrawRuns);
  byId("run-group").addEventListener("change", redrawRuns);
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
    if (currentSetting()) drawRound();
  });
  byId("download-csv").addEventListener("click", () => save(fileName(data.title, "csv"), "text/csv", asCsv(data)));
  byId("download-json").addEventListener("click", () => save(fileName(data.title, "json"), "application/json", JSON.stringify(data)));
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", showTheme);
  // Places on the page are not written to the address, which holds what was chosen.
  for (const link of document.querySelectorAll("nav a, a.skip")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      const place = byId(link.hash.slice(1));
      place.scrollIntoView();
      place.tabIndex = -1;
      place.focus({ preventScroll: true });
    });
  }
}

// Paper is white, whatever the screen is, and has a width of its own.
const PAPER_WIDTH = 820;
let beforePrint = null;
addEventListener("beforeprint", () => {
  beforePrint = document.documentElement.dataset.theme ?? "";
  document.documentElement.dataset.theme = "light";
  for (const chart of [...charts, ...pictures]) chart.print(PAPER_WIDTH);
});
addEventListener("afterprint", () => {
  if (beforePrint) document.documentElement.dataset.theme = beforePrint;
  else delete document.documentElement.dataset.theme;
  for (const chart of charts) chart.paper.replaceChildren();
  redrawCharts();
});

// Without its data the page has nothing but a sentence that says why.
function tooOld() {
  for (const part of document.querySelectorAll("main > section, nav, header .actions")) part.hidden = true;
  byId("too-old").hidden = false;
}

async function open() {
  if (typeof DecompressionStream === "undefined") return tooOld();
  data = await unpack(byId("data").textContent);
  applyState();
  listen();
  drawAll();
  showTheme();
  document.body.dataset.ready = "yes";
  if (data.live) {
    follow((news) => {
      if (JSON.stringify(news) === JSON.stringify(data)) return;
      data = news;
      drawAll();
    });
  }
}

open();
