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

// Replace the options of a select and keep what was chosen if it is still there.
function fill(select, options) {
  const chosen = select.value;
  select.replaceChildren(...options.map(([value, text]) => el("option", { value, text })));
  if (options.some(([value]) => value === chosen)) select.value = chosen;
}

// A row of buttons that switch things on and off; `off` is the set of what is switched off.
function chips(box, items, off, changed) {
  const focused = box.contains(document.activeElement) ? document.activeElement.dataset.key : null;
  box.replaceChildren(
    ...items.map(({ key, label, style }) =>
      el("button", {
        type: "button",
        "data-key": key,
        "aria-pressed": String(!off.has(key)),
        onclick: () => {
          off.has(key) ? off.delete(key) : off.add(key);
          changed();
        },
      }, style ? swatch(style) : null, el("span", { text: label })),
    ),
  );
  box.hidden = items.length < 2;
  if (focused !== null) [...box.children].find((chip) => chip.dataset.key === focused)?.focus();
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
