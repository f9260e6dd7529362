// All runs with their metrics: searched, sorted and grouped; a run unfolds its configuration.

const RUN_COLUMNS = [
  { key: "name", heading: "Run", word: true, of: (run) => run.name },
  { key: "setting", heading: "Setting", word: true, of: (run, setting) => setting.name },
  { key: "method", heading: "Method", word: true, of: (run) => run.label },
  { key: "seed", heading: "Seed", of: (run) => run.seed },
  { key: "rates", heading: "Rates η_g/η_ℓ", word: true, of: (run) => run.rates },
  { key: "rounds", heading: "Rounds", of: (run) => run.rounds, text: (run) => (run.finished ? String(run.rounds) : `${run.rounds} of ${run.planned}`) },
  { key: "mean_accuracy", heading: "MeanAcc % ↑", higher: true, digits: 2 },
  { key: "worst_accuracy", heading: "WorstAcc % ↑", higher: true, digits: 2 },
  { key: "mean_loss", heading: "MeanLoss ↓", digits: 3 },
  { key: "hypervolume", heading: "HV ↑", higher: true, digits: 2 },
  { key: "bytes", heading: "Sent", of: (run) => (run.bytes.length ? run.bytes.at(-1) + run.calibration[0] : null), text: (run, value) => amount("bytes", value) },
  { key: "seconds", heading: "Time", of: (run) => (run.seconds.length ? run.seconds.at(-1) : null), text: (run, value) => amount("seconds", value) + (run.shared ? ` ${run.estimated ? "§?" : "§"}` : ""), ranked: (run) => !run.shared, hint: clockHint },
];

// How a run's time is to be read.
function clockHint(run) {
  const guess = run.estimated ? " (estimated)" : "";
  const compiling = run.compilation?.at(-1) ? `without ${amount("seconds", run.compilation.at(-1))} of compilation${guess}` : "";
  return [compiling, run.shared ? `a share of a clock with other runs${guess}: not ranked` : ""].filter(Boolean).join("; ");
}

function runValue(columnOf, run, setting) {
  return columnOf.of ? columnOf.of(run, setting) : run[columnOf.key]?.at(-1) ?? null;
}

function runText(columnOf, run, value) {
  return columnOf.text ? columnOf.text(run, value) : typeof value === "number" && columnOf.digits !== undefined ? fixed(value, columnOf.digits) : String(value ?? "–");
}

// Every word has to be somewhere in the run: "fedhv seed0", "K=5".
function matches(run, setting, words) {
  const text = [run.name, setting.name, run.label, `seed${run.seed}`, `seed ${run.seed}`, run.state, ...setting.hyper.map(({ key, symbol }) => `${symbol}=${run.hyper[key]}`)].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}

const runOrder = { column: "", direction: 0 };
const openRuns = new Set();

function showRuns(data, redraw) {
  const hyper = [...new Map(data.settings.flatMap((setting) => setting.hyper).map((each) => [each.key, each])).values()];
  fill(byId("run-group"), [["", "nothing"], ["method", "method"], ["setting", "setting"], ["seed", "seed"], ...hyper.map(({ key, title }) => [key, title])]);
  const group = byId("run-group").value;
  const words = byId("run-search").value.toLowerCase().replace(/\s*=\s*/g, "=").split(/\s+/).filter(Boolean);
  const all = data.settings.flatMap((setting) => setting.runs.map((run) => ({ run, setting })));
  const found = all.filter(({ run, setting }) => matches(run, setting, words));
  const by = RUN_COLUMNS.find(({ key }) => key === runOrder.column);
  if (by) found.sort((a, b) => compare(asCell(by, a), asCell(by, b), runOrder.direction));
  byId("runs").hidden = !all.length;
  byId("run-count").textContent = found.length === all.length ? plural(all.length, "run") : `${found.length} of ${plural(all.length, "run")}`;
  showRunHeads(redraw, all);
  const groups = group ? [...groupRuns(found, group, hyper)] : [["", found]];
  const rows = groups.flatMap(([name, members]) => [...(group ? [{ group: name, members }] : []), ...members.flatMap((each) => [each, ...(openRuns.has(keyOfRun(each)) ? [{ ...each, config: true }] : [])])]);
  keyed(byId("run-body"), rows, rowKey, () => el("tr"), (row, item) => updateRow(row, item, redraw));
  byId("run-shared").hidden = !all.some(({ run }) => run.shared);
  byId("run-estimated").hidden = !all.some(({ run }) => run.shared && run.estimated);
}

function asCell(columnOf, { run, setting }) {
  const value = columnOf.ranked?.(run) === false ? null : runValue(columnOf, run, setting);
  return typeof value === "number" ? { v: value, t: "" } : { v: null, t: String(value ?? "") };
}

const keyOfRun = ({ run, setting }) => `${setting.name}/${run.name}`;
const rowKey = (row) => (row.group !== undefined ? `group ${row.group}` : `${keyOfRun(row)}${row.config ? " config" : ""}`);

function groupRuns(found, group, hyper) {
  const groups = new Map();
  for (const each of found) {
    const value = { method: each.run.label, setting: each.setting.name, seed: `seed ${each.run.seed}` }[group] ?? `${hyper.find(({ key }) => key === group)?.symbol ?? group} = ${each.run.hyper[group] ?? "–"}`;
    groups.set(value, [...(groups.get(value) ?? []), each]);
  }
  return [...groups].sort(([a], [b]) => a.localeCompare(b, "en", { numeric: true }));
}

function showRunHeads(redraw, all) {
  keyed(byId("run-heads"), RUN_COLUMNS, ({ key }) => key, (columnOf) => {
    const press = () => {
      const better = columnOf.higher ? -1 : 1;
      if (runOrder.column !== columnOf.key) Object.assign(runOrder, { column: columnOf.key, direction: better });
      else if (runOrder.direction === better) runOrder.direction = -better;
      else Object.assign(runOrder, { column: "", direction: 0 });
      redraw();
    };
    return el("th", { scope: "col", class: columnOf.word ? "word" : null }, el("button", { type: "button", text: columnOf.heading, onclick: press }));
  }, (head, { key, ranked }) => {
    head.firstElementChild.disabled = Boolean(ranked) && !all.some(({ run }) => ranked(run));
    const state = runOrder.column === key ? { 1: "ascending", "-1": "descending" }[runOrder.direction] : null;
    state ? head.setAttribute("aria-sort", state) : head.removeAttribute("aria-sort");
  });
}

function updateRow(row, item, redraw) {
  if (item.config) return row.replaceChildren(el("td", { colspan: RUN_COLUMNS.length, class: "word" }, el("pre", { text: item.run.config })));
  if (item.group !== undefined) return updateGroup(row, item);
  const key = keyOfRun(item), open = openRuns.has(key);
  if (!row.firstElementChild) {
    const button = el("button", { type: "button", class: "unfold", onclick: () => {
      openRuns.has(key) ? openRuns.delete(key) : openRuns.add(key);
      redraw();
    } });
    row.append(el("td", { class: "word" }, button), ...RUN_COLUMNS.slice(1).map((columnOf) => el("td", { class: columnOf.word ? "word" : null })));
  }
  const button = row.querySelector("button");
  button.textContent = item.run.name;
  button.setAttribute("aria-expanded", String(open));
  RUN_COLUMNS.slice(1).forEach((columnOf, i) => {
    const cell = row.children[i + 1];
    cell.textContent = runText(columnOf, item.run, runValue(columnOf, item.run, item.setting));
    if (columnOf.hint) cell.title = columnOf.hint(item.run);
  });
}

// The mean over a group, where its runs have numbers that can be averaged.
function updateGroup(row, { group, members }) {
  row.className = "of-group";
  row.replaceChildren(el("th", { scope: "rowgroup", class: "word", text: `${group} (${members.length})` }), ...RUN_COLUMNS.slice(1).map((columnOf) => {
    const values = members.map(({ run, setting }) => runValue(columnOf, run, setting)).filter((value) => typeof value === "number");
    const averaged = columnOf.digits !== undefined && values.length === members.length;
    const spread = averaged ? deviation(values) : null;
    return el("td", { text: averaged ? fixed(mean(values), columnOf.digits) + (spread === null ? "" : ` ± ${fixed(spread, columnOf.digits)}`) : "" });
  }));
}
