// Small helpers. Whatever a user named goes through textContent or an attribute, never through markup.

const byId = (id) => document.getElementById(id);

function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "text") node.textContent = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

// A piece of the curve itself: colour and dashes, so that colour is never the only difference.
function swatch(style) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const line = document.createElementNS("http://www.w3.org/2000/svg", "line");
  for (const [name, value] of Object.entries({ width: 28, height: 10, "aria-hidden": "true" })) svg.setAttribute(name, value);
  const drawn = { x1: 1, x2: 27, y1: 5, y2: 5, stroke: style.colour, "stroke-width": 2.5, "stroke-dasharray": style.dash.join(" ") };
  for (const [name, value] of Object.entries(drawn)) line.setAttribute(name, value);
  svg.append(line);
  return svg;
}

// A name beside its piece of a curve.
function named(label, style) {
  return el("span", { class: "who" }, swatch(style), el("span", { text: label }));
}

// Replace the options of a select and keep what was chosen if it is still there; options that are the same stay as they are.
function fill(select, options) {
  const same = options.length === select.options.length && options.every(([value, text], i) => select.options[i].value === value && select.options[i].text === text);
  const chosen = wanted.get(select.id) ?? select.value;
  if (!same) select.replaceChildren(...options.map(([value, text]) => el("option", { value, text })));
  if (options.some(([value]) => value === chosen)) {
    select.value = chosen;
    wanted.delete(select.id);
  }
}

// A row of buttons that switch things on and off; `off` is the set of what is switched off.
function chips(box, items, off, changed) {
  keyed(box, items, ({ key }) => key, ({ key }) => el("button", {
    type: "button",
    "data-key": key,
    onclick: () => {
      const [set, act] = box.chips;
      set.has(key) ? set.delete(key) : set.add(key);
      act();
    },
  }), (button, { key, label, style, hint }) => {
    button.setAttribute("aria-pressed", String(!off.has(key)));
    if (hint) button.title = hint;
    button.replaceChildren(...(style ? [swatch(style)] : []), el("span", { text: label }));
  });
  box.chips = [off, changed];
  box.hidden = items.length < 2;
}

// Children with keys: those that are still there stay, with their focus, and are only brought up to date.
function keyed(box, items, keyOf, make, update) {
  const there = new Map([...box.children].map((node) => [node.dataset.key, node]));
  const nodes = items.map((item) => {
    const key = String(keyOf(item));
    const node = there.get(key) ?? make(item);
    node.dataset.key = key;
    update(node, item);
    return node;
  });
  if (nodes.length !== box.children.length || nodes.some((node, i) => node !== box.children[i])) {
    const focused = box.contains(document.activeElement) ? document.activeElement : null;
    box.replaceChildren(...nodes);
    if (focused?.isConnected) focused.focus();
  }
}

function plural(n, noun) {
  return `${n} ${noun}${n === 1 ? "" : "s"}`;
}

// Numbers as people read them: thousands of millions as powers of ten, the rest with sensible digits.
function shown(value, digits = 4) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size >= 1e6 || size < 1e-3)) return value.toExponential(2);
  return value.toLocaleString("en-US", { maximumSignificantDigits: digits, useGrouping: false });
}

// The same number of decimals all the way down a column, as long as that says anything.
function fixed(value, digits) {
  if (value === null || value === undefined || Number.isNaN(value)) return "–";
  const size = Math.abs(value);
  return size >= 1e6 || (size !== 0 && size < 0.5 * 10 ** -digits) ? value.toExponential(2) : value.toFixed(digits);
}

const UNITS = {
  bytes: [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "bytes"]],
  seconds: [[3600, "h"], [60, "min"], [1, "s"]],
};

// The unit in which the largest value of an axis is easily read.
function unitOf(kind, largest) {
  if (!UNITS[kind]) return [1, ""];
  const enough = kind === "seconds" ? 3 : 1;
  return UNITS[kind].find(([size]) => largest >= enough * size) ?? UNITS[kind].at(-1);
}

// An amount in the unit that suits it: 1.24 GB, 3 min.
function amount(kind, value) {
  if (value === null || value === undefined) return "–";
  const [size, unit] = unitOf(kind, value);
  return `${shown(value / size, 3)} ${unit}`;
}
