// Every task's final value by method, as bars from zero with deviations.

const MOST_TASKS = 10;

// what: { points, names, unit, higher }
function barsSvg(what, width, colours) {
  const order = what.names.map((name, i) => ({ name, i, gap: Math.max(...what.points.map((p) => p.mean[i])) - Math.min(...what.points.map((p) => p.mean[i])) }));
  const shownTasks = order.length > MOST_TASKS ? [...order].sort((a, b) => b.gap - a.gap).slice(0, MOST_TASKS) : order;
  const thick = Math.max(6, Math.min(13, 240 / Math.max(1, what.points.length * shownTasks.length)));
  const rowHeight = what.points.length * (thick + 2) + 8;
  const longest = Math.max(...shownTasks.map(({ name }) => name.length));
  const left = Math.min(130, 14 + 7 * longest);
  const note = shownTasks.length < order.length ? `the ${MOST_TASKS} of ${order.length} tasks in which methods differ most` : "";
  const top = note ? 22 : 4, height = top + shownTasks.length * rowHeight + 26;
  const picture = canvas(width, height, `Final values of every task: ${shownTasks.map(({ name, i }) => `${name}: ${what.points.map((p) => `${p.label} ${fixed(p.mean[i], 1)}`).join(", ")}`).join("; ")}`);
  if (note) picture.append(svg("text", { x: left, y: 13, text: note, fill: colours.quiet }));
  const most = Math.max(...shownTasks.flatMap(({ i }) => what.points.map((p) => p.mean[i] + (p.deviation[i] ?? 0))));
  const x = scale([0, most * 1.02 || 1], [left, width - 92]);
  for (const value of x.ticks) picture.append(svg("line", { x1: x(value), x2: x(value), y1: top, y2: height - 22, stroke: colours.grid }), svg("text", { x: x(value), y: height - 8, text: tick(value), fill: colours.quiet, "text-anchor": "middle" }));
  shownTasks.forEach(({ name, i }, row) => {
    const from = top + row * rowHeight;
    picture.append(svg("text", { x: left - 8, y: from + rowHeight / 2, text: name.length > 16 ? `${name.slice(0, 15)}…` : name, fill: colours.ink, "text-anchor": "end" }));
    what.points.forEach((p, n) => {
      const y = from + 4 + n * (thick + 2), spread = p.deviation[i];
      const text = fixed(p.mean[i], what.digits) + (spread === null ? "" : ` ± ${spread < 0.5 * 10 ** -what.digits ? shown(spread, 1) : fixed(spread, what.digits)}`);
      picture.append(svg("rect", { class: "bar", x: left, y, width: Math.max(0, x(p.mean[i]) - left), height: thick, fill: p.style.colour }, svg("title", { text: `${p.label}, ${name}: ${text}` })));
      if (spread !== null) picture.append(svg("path", { d: `M${x(p.mean[i] - spread)} ${y + thick / 2}H${x(p.mean[i] + spread)}`, stroke: colours.ink, "stroke-width": 1.5 }));
      picture.append(svg("text", { x: x(p.mean[i] + (spread ?? 0)) + 5, y: y + thick / 2 + 4, text, fill: colours.ink, "font-size": Math.min(11, thick + 3) }));
    });
  });
  return picture;
}
