// The trade-off: task against task in a plane, or all tasks side by side; where every method stands at a round.

const PLANE_HEIGHT = 430;

function tradeoffSvg(what, width, colours) {
  return what.parallel ? parallelSvg(what, width, colours) : planeSvg(what, width, colours);
}

// what: { points, finals, tasks: [i, j], names, scores }; scores are unit, direction and digits of every task
function planeSvg(what, width, colours) {
  const [i, j] = what.tasks, across = what.scores[i], up = what.scores[j];
  const at = (values) => `${what.names[i]} ${fixed(values[i], Math.max(2, across.digits))}, ${what.names[j]} ${fixed(values[j], Math.max(2, up.digits))}`;
  const names = what.points.map(({ label, style }) => ({ label, style }));
  const foot = legendHeight(names, width - 76);
  const height = Math.min(PLANE_HEIGHT, Math.max(300, width * 0.8));
  const picture = canvas(width, height + foot, `${what.names[j]} against ${what.names[i]}: ${what.points.map((p) => `${p.label} ${fixed(p.mean[i], across.digits)} and ${fixed(p.mean[j], up.digits)}`).join("; ")}`);
  const box = { left: 66, right: width - 14, top: 14, bottom: height - 46 };
  // As far as the points of this round and of the last one reach: towards the end the view closes in on the finals.
  const reach = (task) => [...what.points, ...what.finals].flatMap((p) => [...p.seeds.map(({ values }) => values[task]), p.mean[task] - (p.deviation[task] ?? 0), p.mean[task] + (p.deviation[task] ?? 0)]);
  const x = scale(roomFor(reach(i), 0.12), [box.left, box.right]);
  const y = scale(roomFor(reach(j), 0.12), [box.bottom, box.top]);
  picture.append(axes(x, y, box, { x: `${what.names[i]} (${across.unit})`, y: `${what.names[j]} (${up.unit})` }, colours));
  const clip = `clip-plane-${width}`;
  picture.append(svg("clipPath", { id: clip }, svg("rect", { x: box.left, y: box.top, width: box.right - box.left, height: box.bottom - box.top })));
  const drawn = svg("g", { "clip-path": `url(#${clip})`, fill: "none" });
  const best = nonDominated(what.points.map((p) => [p.mean[i], p.mean[j]]), [across.higher, up.higher]);
  const front = what.points.filter((_, k) => best[k]).sort((a, b) => a.mean[i] - b.mean[i]);
  if (front.length > 1) drawn.append(svg("path", { class: "front", d: `M${front.map((p) => `${x(p.mean[i]).toFixed(1)} ${y(p.mean[j]).toFixed(1)}`).join("L")}`, stroke: colours.quiet, "stroke-width": 1.5, "stroke-dasharray": "2 4" }));
  for (const p of what.points) {
    const colour = p.style.colour, cx = x(p.mean[i]), cy = y(p.mean[j]);
    drawn.append(svg("path", { d: `M${p.trail.map((values) => `${x(values[i]).toFixed(1)} ${y(values[j]).toFixed(1)}`).join("L")}`, stroke: colour, "stroke-opacity": 0.45, "stroke-width": 1.5, "stroke-dasharray": p.style.dash.join(" ") || null }));
    for (const { seed, values } of p.seeds) drawn.append(svg("circle", { cx: x(values[i]), cy: y(values[j]), r: 3.2, fill: colour, "fill-opacity": 0.55 }, svg("title", { text: `${p.label}, seed ${seed}: ${at(values)}` })));
    if (p.deviation[i] !== null) drawn.append(svg("path", { class: "cross", d: `M${x(p.mean[i] - p.deviation[i])} ${cy}H${x(p.mean[i] + p.deviation[i])}M${cx} ${y(p.mean[j] - p.deviation[j])}V${y(p.mean[j] + p.deviation[j])}`, stroke: colour, "stroke-width": 2 }));
    drawn.append(svg("circle", { class: "final", cx, cy, r: 6.5, fill: colour, stroke: colours.paper, "stroke-width": 1.5 }, svg("title", { text: `${p.label}: ${at(p.mean)}` })));
  }
  picture.append(drawn);
  const labels = what.points.map((point, k) => {
    const wide = 7.5 * point.label.length, right = x(point.mean[i]) < box.right - 9 * point.label.length, start = x(point.mean[i]) + (right ? 10 : -10);
    return { label: point.label, first: best[k] || point.style.method === "fedhv", right, start, from: right ? start : start - wide, to: right ? start + wide : start, at: y(point.mean[j]) - 10 };
  });
  for (const { label, right, start, at } of spreadLabels(labels, box)) {
    picture.append(svg("text", { class: "name", x: start, y: at, text: label, fill: colours.ink, "font-weight": 600, "text-anchor": right ? "start" : "end", stroke: colours.paper, "stroke-width": 3, "paint-order": "stroke" }));
  }
  picture.append(svg("text", { x: across.higher ? box.right - 8 : box.left + 8, y: up.higher ? box.top + 14 : box.bottom - 8, text: across.higher ? `better ${up.higher ? "↗" : "↘"}` : `${up.higher ? "↖" : "↙"} better`, fill: colours.quiet, "text-anchor": across.higher ? "end" : "start" }));
  picture.append(legend(names, box.left, height + 4, width - 76, colours).group);
  return picture;
}

// Labels that would lie upon each other are pushed apart. Those that have no room near their points are left out: the
// legend has all names. Labels that come `first` are placed before the others.
function spreadLabels(items, box, room = 15) {
  const placed = [], top = box.top + 10, bottom = box.bottom - 4;
  for (const item of [...items].sort((a, b) => b.first - a.first || a.at - b.at)) {
    const near = Math.min(bottom, Math.max(top, item.at));
    const free = (at) => at >= top && at <= bottom && item.from >= 0 && placed.every((other) => Math.abs(other.at - at) >= room || other.from > item.to || item.from > other.to);
    const at = [0, 1, -1, 2, -2, 3, -3, 4, -4].map((k) => near + (k * room) / 2).find(free);
    if (at !== undefined) placed.push({ ...item, at });
  }
  return placed;
}

// One axis for every task, a line for every method; seeds are thin, methods that another beats everywhere are faint.
// Tasks with different metrics have different scales, with their ends written on the axes.
function parallelSvg(what, width, colours) {
  const m = what.names.length, same = oneScale(what.scores);
  const titles = what.names.map((name, k) => (same ? name : `${name}, ${what.scores[k].unit}`)), longest = same ? 18 : 28;
  const names = what.points.map(({ label, style }) => ({ label, style }));
  const foot = legendHeight(names, width - 40);
  const written = titles.map((name) => short(name, longest));
  const slanted = (width - 60) / m < 7 * Math.max(...titles.map((name) => name.length));
  const height = PLANE_HEIGHT, below = slanted ? 28 + 5 * Math.max(...written.map((name) => name.length)) : 40;
  // A slanted name reaches to the left of its axis, the first one beyond the chart.
  const left = slanted ? Math.max(46, ...written.map((name, k) => 7.6 * 0.77 * name.length - (k * (width - 66)) / Math.max(1, m - 1))) : 46;
  const picture = canvas(width, height + foot, `All tasks: ${what.points.map((p) => `${p.label} ${p.mean.map((value, k) => fixed(value, what.scores[k].digits)).join(", ")}`).join("; ")}`);
  const box = { left, right: width - 20, top: 24, bottom: height - below };
  const at = (k) => (m === 1 ? (box.left + box.right) / 2 : box.left + ((box.right - box.left) * k) / (m - 1));
  const reach = (task) => [...what.points, ...what.finals].flatMap((p) => [...p.seeds.map(({ values }) => values), p.mean, ...[-1, 1].map((side) => p.mean.map((value, k) => value + side * (p.deviation[k] ?? 0)))].flatMap((values) => (task === null ? values : [values[task]])));
  const scales = what.scores.map(({ higher }, k) => scale(roomFor(reach(same ? null : k), 0.05), higher ? [box.bottom, box.top] : [box.top, box.bottom]));
  if (same) for (const value of scales[0].ticks) {
    const y = scales[0](value);
    picture.append(svg("line", { x1: box.left, x2: box.right, y1: y, y2: y, stroke: colours.grid }), svg("text", { x: box.left - 6, y: y + 4, text: tick(value), fill: colours.quiet, "text-anchor": "end" }));
  }
  titles.forEach((name, k) => {
    if (!same) for (const value of new Set([scales[k].ticks[0], scales[k].ticks.at(-1)])) picture.append(svg("text", { class: "end", x: at(k) + (k === m - 1 ? -4 : 4), y: scales[k](value) + 4, text: tick(value), fill: colours.quiet, "font-size": 11, "text-anchor": k === m - 1 ? "end" : "start" }));
    picture.append(svg("line", { class: "axis", x1: at(k), x2: at(k), y1: box.top, y2: box.bottom, stroke: colours.line }));
    const place = slanted ? { transform: `rotate(-40 ${at(k)} ${box.bottom + 14})`, "text-anchor": "end" } : { "text-anchor": k === 0 ? "start" : k === m - 1 ? "end" : "middle" };
    picture.append(svg("text", { x: at(k), y: box.bottom + 16, text: written[k], fill: colours.ink, ...place }, svg("title", { text: name })));
  });
  picture.append(svg("text", { x: box.left, y: 14, text: same ? `${what.scores[0].unit}; up is better` : "every task has a scale of its own; up is better", fill: colours.quiet }));
  const best = nonDominated(what.points.map((p) => p.mean), what.scores.map(({ higher }) => higher));
  what.points.forEach((p, n) => {
    const line = (values) => `M${values.map((value, k) => `${at(k).toFixed(1)} ${scales[k](value).toFixed(1)}`).join("L")}`;
    for (const { values } of p.seeds) picture.append(svg("path", { d: line(values), fill: "none", stroke: p.style.colour, "stroke-opacity": 0.25, "stroke-width": 1 }));
    const strength = best[n] ? 1 : 0.45;
    picture.append(svg("path", { class: "method", d: line(p.mean), fill: "none", stroke: p.style.colour, "stroke-opacity": strength, "stroke-width": 2.5, "stroke-dasharray": p.style.dash.join(" ") || null },
      svg("title", { text: `${p.label}${best[n] ? "" : " (another method is at least as good in every task)"}: ${what.names.map((name, k) => `${name} ${fixed(p.mean[k], Math.max(2, what.scores[k].digits))}`).join(", ")}` })));
    p.mean.forEach((value, k) => {
      const spread = p.deviation[k];
      const offset = (n - (what.points.length - 1) / 2) * (m === 1 ? 14 : 3);
      // One task has no line.
      if (m === 1) for (const [text, of, r] of [[p.label, value, 6.5], ...p.seeds.map(({ seed, values }) => [`${p.label}, seed ${seed}`, values[0], 3.2])]) {
        picture.append(svg("circle", { class: "alone", cx: at(k) + offset, cy: scales[k](of), r, fill: p.style.colour, "fill-opacity": r > 5 ? 1 : 0.55 }, svg("title", { text: `${text}: ${fixed(of, Math.max(2, what.scores[k].digits))}` })));
      }
      if (spread !== null) picture.append(svg("line", { class: "cross", x1: at(k) + offset, x2: at(k) + offset, y1: scales[k](value - spread), y2: scales[k](value + spread), stroke: p.style.colour, "stroke-opacity": strength, "stroke-width": 2 }));
    });
  });
  picture.append(legend(names, box.left, height + 4, width - 60, colours).group);
  return picture;
}
