// Tables whose headings sort: first click the better end first, second click the other, third the given order.

function sortableTable(table, remembered) {
  const order = remembered.get(table.name) ?? { column: -1, direction: 0 };
  remembered.set(table.name, order);
  const heads = [];
  const body = el("tbody");

  function sort(i) {
    const better = table.columns[i].higher === true ? -1 : 1;
    if (order.column !== i) Object.assign(order, { column: i, direction: better });
    else if (order.direction === better) order.direction = -better;
    else Object.assign(order, { column: -1, direction: 0 });
    show();
  }

  function show() {
    const rows = [...table.rows];
    if (order.column >= 0) rows.sort((a, b) => compare(a[order.column], b[order.column], order.direction));
    body.replaceChildren(...rows.map((row) => el("tr", {}, ...row.map((cell, i) => el("td", {
      text: cell.t,
      class: [table.columns[i].numeric ? "" : "word", cell.r ? `rank${cell.r}` : ""].join(" ").trim() || null,
    })))));
    heads.forEach((head, i) => {
      const state = { 1: "ascending", "-1": "descending" }[order.column === i ? order.direction : 0];
      state ? head.setAttribute("aria-sort", state) : head.removeAttribute("aria-sort");
    });
  }

  table.columns.forEach((columnOf, i) => {
    const button = el("button", { type: "button", text: columnOf.heading, onclick: () => sort(i) });
    heads.push(el("th", { scope: "col", class: columnOf.numeric ? null : "word" }, button));
  });
  const head = el("thead", {}, groupRow(table.columns), el("tr", {}, ...heads));
  show();
  // A region that scrolls sideways has to be reachable by keyboard.
  const region = el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": table.title }, el("table", { "data-name": table.name }, head, body));
  return el("div", {}, el("h3", { text: table.title }), region, el("p", { class: "quiet", text: table.caption }));
}

// A line above the headings for columns that belong together.
function groupRow(columns) {
  if (!columns.some((columnOf) => columnOf.group)) return null;
  const cells = [];
  for (const { group } of columns) {
    const last = cells.at(-1);
    if (last && last.textContent === group) last.colSpan += 1;
    else cells.push(el("th", { class: "group", text: group, scope: "colgroup" }));
  }
  return el("tr", {}, ...cells);
}

// Numbers by value, words by alphabet; what has no value comes last in either direction.
function compare(a, b, direction) {
  if (a.v !== null && b.v !== null) return direction * (a.v - b.v);
  if (a.v !== null || b.v !== null) return a.v === null ? 1 : -1;
  return direction * a.t.localeCompare(b.t, "en", { numeric: true });
}
