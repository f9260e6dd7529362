// Every task's final value by method, as bars from zero with deviations.

const MOST_TASKS = 10;

// what: { points, names, scores }; tasks with different metrics have different scales, without ticks
function barsSvg(what, width, colours) {
  const order = what.names.map((name, i) => ({ name, i, gap: Math.max(...what.points.map((p) => p.mean[i])) - Math.min(...what.points.map((p) => p.mean[i])) }));
  const shownTasks = order.length > MOST_TASKS ? [...order].sort((a, b) => b.gap - a.gap).slice(0, MOST_TASKS) : order;
  const same = oneScale(what.scores), digits = (i) => what.scores[i].digits;
  // Where methods share a colour every bar has its method's name, and the task's name stands above its bars.
  const named = new Set(what.points.map(({ style }) => style.colour)).size < what.points.length;
  const thick = Math.max(named ? 10 : 6, Math.min(13, 240 / Math.max(1, what.points.length * shownTasks.length)));
  const head = named ? 18 : 0, rowHeight = what.points.length * (thick + 2) + 8 + head;
  const longest = Math.max(...shownTasks.map(({ name, i }) => Math.max(name.length, same ? 0 : what.scores[i].unit.length + 1)));
  const left = named ? Math.min(width * 0.45, 14 + 5.6 * Math.max(...what.points.map(({ label }) => label.length))) : Math.min(130, 14 + 7 * longest);
  const note = shownTasks.length < order.length ? `the ${MOST_TASKS} of ${order.length} tasks in which methods differ most` : "";
  const top = note ? 22 : 4, height = top + shownTasks.length * rowHeight + 26;
  const picture = canvas(width, height, `Final values of every task: ${shownTasks.map(({ name, i }) => `${name}: ${what.points.map((p) => `${p.label} ${fixed(p.mean[i], digits(i))}`).join(", ")}`).join("; ")}`);
  if (note) picture.append(svg("text", { x: left, y: 13, text: note, fill: colours.quiet }));
  const scaleOf = (tasks) => {
    const ends = tasks.flatMap(({ i }) => what.points.flatMap((p) => [p.mean[i] - (p.deviation[i] ?? 0), p.mean[i] + (p.deviation[i] ?? 0)]));
    const low = Math.min(0, ...what.points.flatMap((p) => tasks.map(({ i }) => p.mean[i])));
    return scale([low, Math.max(low, 0, ...ends) * 1.02 || 1], [left, width - 92]);
  };
  const common = scaleOf(shownTasks);
  if (same) for (const value of common.ticks) picture.append(svg("line", { x1: common(value), x2: common(value), y1: top, y2: height - 22, stroke: colours.grid }), svg("text", { x: common(value), y: height - 8, text: tick(value), fill: colours.quiet, "text-anchor": "middle" }));
  shownTasks.forEach(({ name, i }, row) => {
    const from = top + row * rowHeight, x = same ? common : scaleOf([{ i }]);
    if (named) picture.append(svg("text", { class: "task", x: left, y: from + 14, text: short(same ? name : `${name} (${what.scores[i].unit} ${what.scores[i].higher ? "↑" : "↓"})`, Math.floor((width - left) / 7.4)), fill: colours.ink, "font-weight": 600 }, svg("title", { text: name })));
    else picture.append(svg("text", { class: "task", x: left - 8, y: from + rowHeight / 2, text: short(name, 16), fill: colours.ink, "text-anchor": "end" }, svg("title", { text: name })));
    if (!same && !named) picture.append(svg("text", { class: "unit", x: left - 8, y: from + rowHeight / 2 + 13, text: `${what.scores[i].unit} ${what.scores[i].higher ? "↑" : "↓"}`, fill: colours.quiet, "font-size": 11, "text-anchor": "end" }));
    what.points.forEach((p, n) => {
      const y = from + head + 4 + n * (thick + 2), spread = p.deviation[i];
      if (named) picture.append(svg("text", { class: "name", x: left - 6, y: y + thick / 2 + 4, text: short(p.label, Math.floor((left - 10) / 5.6)), fill: colours.ink, "font-size": 10, "text-anchor": "end" }));
      const text = fixed(p.mean[i], digits(i)) + (spread === null ? "" : ` ± ${spread < 0.5 * 10 ** -digits(i) ? shown(spread, 1) : fixed(spread, digits(i))}`);
      picture.append(svg("rect", { class: "bar", x: Math.min(x(0), x(p.mean[i])), y, width: Math.abs(x(p.mean[i]) - x(0)), height: thick, fill: p.style.colour }, svg("title", { text: `${p.label}, ${name}: ${text}` })));
      if (spread !== null) picture.append(svg("path", { d: `M${x(p.mean[i] - spread)} ${y + thick / 2}H${x(p.mean[i] + spread)}`, stroke: colours.ink, "stroke-width": 1.5 }));
      picture.append(svg("text", { x: x(p.mean[i] + (spread ?? 0)) + 5, y: y + thick / 2 + 4, text, fill: colours.ink, "font-size": Math.min(11, thick + 3) }));
    });
  });
  return picture;
}
