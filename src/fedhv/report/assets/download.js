// The data of the page as files: nothing is fetched, the browser saves what the page holds.

function save(name, type, text) {
  saveBlob(name, new Blob([text], { type }));
}

function saveBlob(name, blob) {
  const url = URL.createObjectURL(blob);
  el("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10000);
}

// Quotes doubled; text that a spreadsheet would take for a formula gets an apostrophe.
function csvField(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

// One line for every run, round and task; evaluations are empty in rounds without one.
function asCsv(data) {
  const metrics = data.metrics.map((metric) => metric.key);
  const lines = [["setting", "run", "method", "seed", "round", "bytes", "seconds", ...metrics, "task", "accuracy", "loss", "weight", "slack", "report", "main_metric", "main"].join(",")];
  for (const setting of data.settings) {
    for (const run of setting.runs) {
      const rounds = [...new Set([...run.round, ...run.evaluated])].sort((a, b) => a - b);
      const atRound = new Map(run.round.map((round, i) => [round, i]));
      const atEvaluation = new Map(run.evaluated.map((round, i) => [round, i]));
      const columns = setting.tasks.map((_, task) => ({
        accuracy: column(run.accuracy, task, run.evaluated.length), loss: column(run.loss, task, run.evaluated.length),
        weights: column(run.weights, task, run.round.length), slack: column(run.slack, task, run.round.length), report: reportOf(run, task),
        main: setting.mains && column(run.main, task, run.evaluated.length),
      }));
      for (const round of rounds) {
        const t = atRound.get(round), e = atEvaluation.get(round);
        const ofRun = [setting.name, run.name, run.method, run.seed, round, run.bytes[e], run.seconds[e], ...metrics.map((key) => run[key][e])];
        setting.tasks.forEach((task, i) => {
          const c = columns[i];
          lines.push([...ofRun, task, c.accuracy?.[e], c.loss?.[e], c.weights?.[t], c.slack?.[t], c.report?.[t], setting.mains?.[i].name, c.main?.[e]].map(csvField).join(","));
        });
      }
    }
  }
  return lines.join("\n") + "\n";
}

function fileName(title, ending) {
  return `${title.replace(/[^A-Za-z0-9._-]+/g, "-").replace(/^[-.]+|[-.]+$/g, "") || "study"}.${ending}`;
}
