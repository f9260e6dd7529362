// Drawing with SVG: elements, ticks and scales. Colours are attributes, so that a saved file looks like the page.

const SVG_SPACE = "http://www.w3.org/2000/svg";
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, Arial, sans-serif";

function svg(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG_SPACE, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") node.textContent = value;
    else node.setAttribute(name, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function theme(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// The colours of a drawing, read once for each: a change of theme draws anew.
function palette() {
  return { paper: theme("card"), ink: theme("ink"), quiet: theme("quiet"), line: theme("line"), grid: theme("grid"), accent: theme("accent") };
}

// An empty picture with its background and a name for screen readers.
function canvas(width, height, name) {
  return svg("svg", { xmlns: SVG_SPACE, width, height, viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": name, "font-family": FONT, "font-size": 12 });
}

function background(picture, colours) {
  picture.prepend(svg("rect", { width: "100%", height: "100%", fill: colours.paper }));
  return picture;
}

// About `most` round numbers between low and high.
function ticks(low, high, most = 6) {
  const span = high - low || Math.abs(high) || 1;
  const raw = span / most, power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 2.5, 5, 10].find((factor) => factor * power >= raw) * power;
  const found = [];
  for (let k = Math.ceil(low / step - 1e-9); k * step <= high + 1e-9 * span; k++) found.push(k * step || 0);
  return found.length < 2 && high > low ? ticks(low, high, 2 * most) : found; // one number is no scale
}

// A name, shortened to a number of letters.
function short(name, most) {
  return name.length > most ? `${name.slice(0, most - 1)}…` : name;
}

function decades(low, high) {
  const found = [];
  for (let k = Math.floor(Math.log10(low)); k <= Math.ceil(Math.log10(high)); k++) {
    for (const factor of [1, 2, 5]) if (factor * 10 ** k >= low && factor * 10 ** k <= high) found.push(factor * 10 ** k);
  }
  return found.length > 9 ? found.filter((value) => Math.abs(Math.log10(value) % 1) < 1e-9) : found;
}

// From values to places on paper.
function scale([low, high], [from, to], log = false) {
  const at = log ? Math.log10 : (value) => value;
  const width = at(high) - at(low) || 1;
  const place = (value) => from + ((at(value) - at(low)) / width) * (to - from);
  place.ticks = log ? decades(low, high) : ticks(low, high, Math.max(2, Math.abs(to - from) / 70));
  return place;
}

// The range of some values with a little room; never below zero where no value is.
function roomFor(values, share = 0.08) {
  const known = values.filter((value) => value !== null && value !== undefined && Number.isFinite(value));
  if (!known.length) return [0, 1];
  const low = known.reduce((a, b) => Math.min(a, b)), high = known.reduce((a, b) => Math.max(a, b));
  const room = (high - low || Math.abs(high) * 0.1 || 1) * share;
  return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
}

// Both axes with their grid and titles; box is { left, right, top, bottom }.
function axes(x, y, box, titles, colours) {
  const label = (text, attributes) => svg("text", { text, fill: colours.quiet, ...attributes });
  const parts = [];
  for (const value of x.ticks) {
    const at = x(value);
    parts.push(svg("line", { x1: at, x2: at, y1: box.top, y2: box.bottom, stroke: colours.grid }));
    parts.push(label(tick(value), { x: at, y: box.bottom + 16, "text-anchor": "middle" }));
  }
  for (const value of y.ticks) {
    const at = y(value);
    parts.push(svg("line", { x1: box.left, x2: box.right, y1: at, y2: at, stroke: colours.grid }));
    parts.push(label(tick(value), { x: box.left - 6, y: at + 4, "text-anchor": "end" }));
  }
  const middle = (box.top + box.bottom) / 2;
  parts.push(svg("path", { d: `M${box.left} ${box.top}V${box.bottom}H${box.right}`, fill: "none", stroke: colours.line }));
  parts.push(label(titles.x, { x: (box.left + box.right) / 2, y: box.bottom + 34, "text-anchor": "middle", "font-size": 13 }));
  parts.push(label(titles.y, { x: 14, y: middle, "text-anchor": "middle", "font-size": 13, transform: `rotate(-90 14 ${middle})` }));
  return svg("g", {}, ...parts);
}

function tick(value) {
  if (value === null) return "";
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e6 || size < 1e-3) ? value.toExponential().replace("+", "") : shown(value, 6);
}

// Names with a piece of their line, in as many rows as they need; returns the group and its height.
function legend(items, left, top, width, colours) {
  const group = svg("g");
  let x = left, y = top;
  for (const { label, style } of items) {
    const needed = 52 + 7.4 * label.length;
    if (x > left && x + needed > left + width) [x, y] = [left, y + 20];
    group.append(
      svg("line", { x1: x, x2: x + 26, y1: y - 4, y2: y - 4, stroke: style.colour, "stroke-width": 2.5, "stroke-dasharray": style.dash.join(" ") || null }),
      svg("text", { x: x + 32, y, text: label, fill: colours.ink }),
    );
    x += needed;
  }
  return { group, height: items.length ? y - top + 22 : 0 };
}

// How many rows a legend will need, before it is drawn.
function legendHeight(items, width) {
  return legend(items, 0, 0, width, { ink: "" }).height;
}
