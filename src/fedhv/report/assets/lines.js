// A chart of lines as SVG: what is saved, printed, and shown where nothing has to be zoomed.

function linesSvg(what, width, height, colours) {
  const names = what.curves.map(({ label, style }) => ({ label, style }));
  const foot = legendHeight(names, width - 76);
  const picture = canvas(width, height + foot, what.name ?? `${what.yTitle} against ${what.xTitle}`);
  const [size, unit] = unitOf(what.xKind, Math.max(0, ...what.curves.map((curve) => curve.x.at(-1) ?? 0)));
  const inside = (value) => value !== null && (!what.log || value > 0);
  const [from, to] = what.zoom ?? [what.curves.some((curve) => curve.x[0] / size < 0) ? null : 0, Math.max(1e-9, ...what.curves.map((curve) => (curve.x.at(-1) ?? 0) / size))];
  const seen = what.curves.flatMap((curve) =>
    curve.y.flatMap((value, i) => {
      const at = curve.x[i] / size, spread = curve.deviation?.[i] ?? 0;
      return inside(value) && at >= from && at <= to ? [value - spread, value + spread].filter(inside) : [];
    }),
  ).concat((what.lines ?? []).map((line) => line.value));
  const box = { left: 66, right: width - 12, top: what.heading ? 32 : 12, bottom: height - 46 };
  const x = scale([from, to], [box.left, box.right]);
  if (what.xKind === "round") x.ticks = x.ticks.filter(Number.isInteger);
  const y = scale(what.log ? logRange(seen) : roomFor(seen, 0.06), [box.bottom, box.top], what.log);
  picture.append(axes(x, y, box, { x: unit ? `${what.xTitle} (${unit})` : what.xTitle, y: what.yTitle }, colours));
  if (what.heading) picture.append(svg("text", { x: box.left, y: 18, text: what.heading, fill: colours.ink, "font-size": 14, "font-weight": 600 }));
  const clip = `clip-${what.key ?? "lines"}-${width}`;
  picture.append(svg("clipPath", { id: clip }, svg("rect", { x: box.left, y: box.top - 2, width: box.right - box.left, height: box.bottom - box.top + 4 })));
  const drawn = svg("g", { "clip-path": `url(#${clip})`, fill: "none" });
  for (const line of what.lines ?? []) drawn.append(svg("line", { x1: box.left, x2: box.right, y1: y(line.value), y2: y(line.value), stroke: colours.quiet, "stroke-dasharray": "4 4" }));
  for (const curve of what.curves) {
    const places = curve.x.map((value) => x(value / size));
    if (curve.deviation?.some((value) => value !== null)) drawn.append(svg("path", { d: bandPath(curve, places, y, inside), fill: curve.style.colour, "fill-opacity": 0.16 }));
    if (curve.raw) drawn.append(svg("path", { d: linePath(curve.raw, places, y, inside), stroke: curve.style.colour, "stroke-opacity": 0.3 }));
    drawn.append(svg("path", { d: linePath(curve.y, places, y, inside), stroke: curve.style.colour, "stroke-width": curve.thin ? 1.4 : 2.2, "stroke-dasharray": curve.style.dash.join(" ") || null }));
  }
  picture.append(drawn, legend(names, box.left, height + 4, width - 76, colours).group);
  return background(picture, colours);
}

function linePath(values, places, y, inside) {
  let pen = "M";
  return values.map((value, i) => {
    if (!inside(value)) return "";
    const step = `${pen}${places[i].toFixed(1)} ${y(value).toFixed(1)}`;
    pen = "L";
    return step;
  }).join("");
}

function bandPath(curve, places, y, inside) {
  const up = [], down = [];
  curve.y.forEach((value, i) => {
    const spread = curve.deviation[i];
    if (spread === null || !inside(value) || !inside(value - spread)) return;
    up.push(`${places[i].toFixed(1)} ${y(value + spread).toFixed(1)}`);
    down.unshift(`${places[i].toFixed(1)} ${y(value - spread).toFixed(1)}`);
  });
  return up.length ? `M${up.join("L")}L${down.join("L")}Z` : "";
}

function logRange(values) {
  const known = values.filter((value) => value > 0);
  return known.length ? [Math.min(...known) / 1.2, Math.max(...known) * 1.2] : [0.1, 1];
}
