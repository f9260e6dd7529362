// What was chosen is in the address, after the #, so that a link or a reload shows the same; defaults are left out.

const REMEMBERED = [
  "setting", "metric", "task", "against", "view", "group", "smooth", "log", "calibration", "compilation", "trade-kind", "trade-x", "trade-y", "trade-view", "trade-round",
  "balance-method", "balance-log", "tables-scope", "run-search", "run-group", "front-kind", "front-x", "front-y", "paper-table", "paper-contest",
];
const wanted = readState(location.hash);

// "#curves" alone is a place on the page, not a state.
function readState(hash) {
  return new Map(hash.includes("=") ? new URLSearchParams(hash.slice(1)) : []);
}

function isDefault(control) {
  if (control.type === "checkbox") return control.checked === control.defaultChecked;
  if (control.tagName === "SELECT") return control.selectedIndex <= 0;
  return control.value === (control.dataset.default ?? control.defaultValue);
}

function valueOf(control) {
  return control.type === "checkbox" ? String(control.checked) : control.value;
}

// Controls that are not selects take their values at once; selects when they get their options.
function applyState() {
  for (const id of REMEMBERED) {
    const control = byId(id);
    if (!wanted.has(id) || control.tagName === "SELECT") continue;
    if (control.type === "checkbox") control.checked = wanted.get(id) === "true";
    else if (control.type !== "range" || id !== "trade-round") control.value = wanted.get(id);
    if (id !== "trade-round") wanted.delete(id);
  }
  if (["light", "dark"].includes(wanted.get("theme"))) document.documentElement.dataset.theme = wanted.get("theme");
  wanted.delete("theme");
}

// The sets of what is switched off, as the address has them; null where it says nothing.
function wantedSet(name) {
  const found = wanted.get(name);
  wanted.delete(name);
  return found === undefined ? null : new Set(found.split("|").filter(Boolean).map(decodeURIComponent));
}

function writeState(choice, firstOff) {
  const state = new URLSearchParams();
  for (const id of REMEMBERED) if (!isDefault(byId(id)) && byId(id).value !== "") state.set(id, valueOf(byId(id)));
  const theme = document.documentElement.dataset.theme;
  if (theme) state.set("theme", theme);
  for (const [name, set] of [["methods", choice?.methodsOff], ["seeds", choice?.seedsOff], ["tasks", choice?.tasksOff], ["fronts", frontOff]]) {
    const now = set && [...set].map(encodeURIComponent).join("|");
    if (set && now !== [...(firstOff?.[name] ?? [])].map(encodeURIComponent).join("|")) state.set(name, now);
  }
  const text = state.toString();
  if (`#${text}` !== location.hash && (text || location.hash.includes("="))) history.replaceState(null, "", `#${text}`);
}
