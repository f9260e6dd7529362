// From runs to curves: the values of a run, and the mean and deviation over the runs that are switched on.

// A column that never changes comes as one number.
function column(values, index, length) {
  if (!values) return null;
  const found = values[index];
  return Array.isArray(found) ? found : new Array(length).fill(found ?? null);
}

// A metric of a run: x and y of every evaluation.
function evaluationCurve(run, choice) {
  const length = run.evaluated.length;
  const y = choice.metric === "accuracy" || choice.metric === "loss" ? column(run[choice.metric], choice.task, length) : run[choice.metric];
  if (!y || !length) return null;
  const [extraBytes, extraSeconds] = choice.calibration ? run.calibration : [0, 0];
  const x =
    choice.against === "bytes" ? run.bytes.map((value) => value + extraBytes)
    : choice.against === "seconds" ? run.seconds.map((value) => value + extraSeconds)
    : run.evaluated;
  return { at: run.evaluated, x, y };
}

// Weights or slacks of one task, round by round.
function roundCurve(run, kind, task) {
  const y = column(run[kind], task, run.round.length);
  return y && run.round.length ? { at: run.round, x: run.round, y } : null;
}

// Mean and sample deviation at every round that any of the runs has; x is averaged in the same way.
function average(curves) {
  const points = new Map();
  for (const { at, x, y } of curves) {
    at.forEach((round, i) => {
      if (y[i] === null) return;
      const point = points.get(round) ?? { x: 0, ys: [] };
      point.x += x[i];
      point.ys.push(y[i]);
      points.set(round, point);
    });
  }
  const rounds = [...points.keys()].sort((a, b) => a - b);
  const out = { at: rounds, x: [], y: [], deviation: [], count: [] };
  for (const round of rounds) {
    const { x, ys } = points.get(round);
    const mean = ys.reduce((a, b) => a + b, 0) / ys.length;
    const squares = ys.reduce((sum, value) => sum + (value - mean) ** 2, 0);
    out.x.push(x / ys.length);
    out.y.push(mean);
    out.deviation.push(ys.length > 1 ? Math.sqrt(squares / (ys.length - 1)) : null);
    out.count.push(ys.length);
  }
  return out;
}

// The curves of a chart: one for every method, or one for every run.
function curvesOf(setting, choice) {
  const chosen = [];
  for (const series of setting.series) {
    if (choice.methodsOff.has(series.label)) continue;
    const runs = series.runs.map((i) => setting.runs[i]).filter((run) => !choice.seedsOff.has(String(run.seed)));
    const found = runs.map((run) => [run, evaluationCurve(run, choice)]).filter(([, curve]) => curve);
    if (!found.length) continue;
    if (choice.view === "mean") {
      chosen.push({ label: series.label, style: series, ...average(found.map(([, curve]) => curve)) });
    } else {
      for (const [run, curve] of found) {
        chosen.push({ label: `${series.label}, seed ${run.seed}`, style: series, thin: true, ...curve });
      }
    }
  }
  return chosen;
}

// The curves of weights or slacks: one for every task of one method.
function taskCurves(setting, series, kind, choice) {
  const runs = series.runs.map((i) => setting.runs[i]).filter((run) => !choice.seedsOff.has(String(run.seed)));
  const chosen = [];
  setting.tasks.forEach((task, i) => {
    if (choice.tasksOff.has(task)) return;
    const found = runs.map((run) => roundCurve(run, kind, i)).filter((curve) => curve);
    if (found.length) chosen.push({ label: task, style: setting.taskStyles[i], ...average(found) });
  });
  return chosen;
}
