// From runs to curves: the values of a run, and the mean and deviation over the runs that are switched on.

// A column that never changes comes as one number.
function column(values, index, length) {
  if (!values) return null;
  const found = values[index];
  return Array.isArray(found) ? found : new Array(length).fill(found ?? null);
}

// The runs of a series whose seeds are switched on.
function runsOf(setting, series, choice) {
  return series.runs.map((i) => setting.runs[i]).filter((run) => !choice.seedsOff.has(String(run.seed)));
}

// The kinds of values that every task has.
const OF_TASK = ["accuracy", "loss", "main"];

// What a run says about a metric: x and y of every evaluation.
function evaluationCurve(run, choice) {
  const length = run.evaluated.length;
  const y = OF_TASK.includes(choice.metric) ? column(run[choice.metric], choice.task, length) : run[choice.metric];
  if (!y || !length || y.every((value) => value === null)) return null;
  const [extraBytes, calibrating, compilingFirst] = choice.calibration ? run.calibration : [0, 0, 0];
  const x =
    choice.against === "bytes" ? run.bytes.map((value) => value + extraBytes)
    : choice.against === "seconds" ? run.seconds.map((value, i) => value + calibrating + (choice.compilation ? compilingFirst + (run.compilation?.[i] ?? 0) : 0))
    : run.evaluated;
  return { at: run.evaluated, x, y };
}

// Reports, slacks or weights of one task, round by round.
function roundCurve(run, kind, task) {
  const y = kind === "report" ? reportOf(run, task) : column(run[kind], task, run.round.length);
  return y && run.round.length ? { at: run.round, x: run.round, y } : null;
}

// The reported losses; where the reference never moves they are the reference minus the slack, and are not sent twice.
function reportOf(run, task) {
  if (run.report) return column(run.report, task, run.round.length);
  const slack = column(run.slack, task, run.round.length);
  return slack && run.reference ? slack.map((value) => (value === null ? null : run.reference[task] - value)) : null;
}

function mean(values) {
  return values.reduce((a, b) => a + b, 0) / values.length;
}

function deviation(values) {
  if (values.length < 2) return null;
  const middle = mean(values);
  const found = Math.sqrt(values.reduce((sum, value) => sum + (value - middle) ** 2, 0) / (values.length - 1));
  return found > 1e-12 * Math.abs(middle) ? found : 0; // equal values differ by rounding alone
}

// Mean and sample deviation at every round that any of the runs has; x is averaged in the same way.
function average(curves) {
  const points = new Map();
  for (const { at, x, y } of curves) {
    at.forEach((round, i) => {
      if (y[i] === null) return;
      const point = points.get(round) ?? { xs: [], ys: [] };
      point.xs.push(x[i]);
      point.ys.push(y[i]);
      points.set(round, point);
    });
  }
  const rounds = [...points.keys()].sort((a, b) => a - b);
  const found = rounds.map((round) => points.get(round));
  return {
    at: rounds, x: found.map(({ xs }) => mean(xs)), y: found.map(({ ys }) => mean(ys)),
    deviation: found.map(({ ys }) => deviation(ys)), count: found.map(({ ys }) => ys.length),
  };
}

// TensorBoard's smoothing: an exponential mean, corrected for where it begins. Measured values stay in `raw`.
function smoothed(curve, share) {
  if (!share) return curve;
  let sum = 0, weight = 0;
  const y = curve.y.map((value) => {
    if (value === null) return null;
    sum = share * sum + (1 - share) * value;
    weight = share * weight + 1 - share;
    return sum / weight;
  });
  return { ...curve, y, raw: curve.y, deviation: null, spread: curve.deviation };
}

// What is drawn as one curve: a method, or all runs that share the value of a hyper-parameter.
function curveGroups(setting, choice) {
  const on = setting.series.filter((series) => !choice.methodsOff.has(series.label));
  if (!choice.group || choice.group === "method") return on.map((series) => ({ label: series.label, style: series, runs: runsOf(setting, series, choice) }));
  const groups = new Map();
  for (const run of on.flatMap((series) => runsOf(setting, series, choice))) {
    const value = String(run.hyper[choice.group] ?? "–");
    groups.set(value, [...(groups.get(value) ?? []), run]);
  }
  const symbol = setting.hyper.find((each) => each.key === choice.group)?.symbol ?? choice.group;
  const values = [...groups.keys()].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  return values.map((value, i) => ({ label: `${symbol} = ${value}`, style: data.styles[i % data.styles.length], runs: groups.get(value) }));
}

// The curves of a chart: one for every group, or one for every run.
function curvesOf(setting, choice) {
  const chosen = [];
  for (const { label, style, runs } of curveGroups(setting, choice)) {
    const found = runs.map((run) => [run, evaluationCurve(run, choice)]).filter(([, curve]) => curve);
    if (!found.length) continue;
    if (choice.view === "mean") chosen.push({ label, style, ...average(found.map(([, curve]) => curve)) });
    else for (const [run, curve] of found) chosen.push({ label: `${label}, seed ${run.seed}`, style, thin: true, ...curve });
  }
  return chosen.map((curve) => smoothed(curve, choice.smooth));
}

// The curves of reports, slacks or weights: one for every task of one method.
function taskCurves(setting, series, kind, choice) {
  const runs = runsOf(setting, series, choice);
  const chosen = [];
  setting.tasks.forEach((task, i) => {
    if (choice.tasksOff.has(task)) return;
    const found = runs.map((run) => roundCurve(run, kind, i)).filter((curve) => curve);
    if (found.length) chosen.push({ label: task, style: setting.taskStyles[i], ...average(found) });
  });
  return chosen;
}

// The last evaluation of a run at or before a round; -1 before the first.
function evaluationAt(run, round) {
  let found = -1;
  run.evaluated.forEach((each, i) => { if (each <= round) found = i; });
  return found;
}

// The runs that stand for a method at a round: beside finished ones, as in the tables, only those that have come so far.
function standingRuns(runs, round) {
  return runs.some((run) => run.finished) ? runs.filter((run) => run.finished || (run.evaluated.at(-1) ?? -1) >= round) : runs;
}

// Every method's tasks at a round: mean and deviation over seeds, every seed, and the way there.
function standings(setting, choice, kind, round) {
  const m = setting.tasks.length;
  return setting.series.filter((series) => !choice.methodsOff.has(series.label)).map((series) => {
    const runs = standingRuns(runsOf(setting, series, choice).filter((run) => run[kind]), round);
    const columns = runs.map((run) => setting.tasks.map((_, i) => column(run[kind], i, run.evaluated.length)));
    const seeds = runs.flatMap((run, r) => {
      const e = evaluationAt(run, round);
      const values = columns[r].map((values) => values?.[e] ?? null);
      return e < 0 || values.includes(null) ? [] : [{ seed: run.seed, values }];
    });
    const rounds = [...new Set(runs.flatMap((run) => run.evaluated))].filter((each) => each <= round).sort((a, b) => a - b);
    const trail = rounds.map((each) => {
      const there = runs.map((run, r) => [r, run.evaluated.indexOf(each)]).filter(([, e]) => e >= 0);
      return Array.from({ length: m }, (_, i) => {
        const known = there.map(([r, e]) => columns[r][i][e]).filter((value) => value !== null);
        return known.length ? mean(known) : null;
      });
    }).filter((values) => !values.includes(null));
    if (!seeds.length) return null;
    const of = (f) => Array.from({ length: m }, (_, i) => f(seeds.map(({ values }) => values[i])));
    return { label: series.label, style: series, seeds, trail: smoothTrail(trail, of(mean)), mean: of(mean), deviation: of(deviation) };
  }).filter(Boolean);
}

// What the values of every task are: unit, direction and digits. Main metrics may differ from task to task.
function scoresOf(setting, kind) {
  if (kind !== "main") return setting.tasks.map(() => (kind === "accuracy" ? { unit: "accuracy, %", higher: true, digits: 1 } : { unit: "loss", higher: false, digits: 3 }));
  return setting.mains.map(({ name, higher, digits }) => (name === "accuracy" ? { unit: "accuracy, %", higher, digits: 1 } : { unit: name, higher, digits }));
}

// Whether all tasks can have one axis.
function oneScale(scores) {
  return scores.every(({ unit, higher }) => unit === scores[0].unit && higher === scores[0].higher);
}

// Whether no other point is at least as good in every task and better in one; `higher` may differ from task to task.
function nonDominated(points, higher) {
  const better = (a, b, i) => ((Array.isArray(higher) ? higher[i] : higher) ? a > b : a < b);
  return points.map((p) => !points.some((q) => q !== p && q.every((value, i) => !better(p[i], value, i)) && q.some((value, i) => better(value, p[i], i))));
}

// The way to a point without the noise of single evaluations; it ends where the point is.
function smoothTrail(trail, end, share = 0.7) {
  const columns = end.map((_, i) => smoothed({ y: trail.map((values) => values[i]) }, share).y);
  return [...trail.slice(0, -1).map((_, k) => columns.map((values) => values[k])), end];
}
