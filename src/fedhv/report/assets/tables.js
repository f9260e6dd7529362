// Tables whose headings sort: first click the better end first, second click the other, third the given order.

class SortableTable {
  constructor(part, remembered) {
    Object.assign(this, { part, remembered, columns: "" });
    this.title = el("h3");
    this.caption = el("p", { class: "quiet" });
    this.head = el("thead");
    this.body = el("tbody");
    this.grid = el("table", {}, this.head, this.body);
    // A region that scrolls sideways has to be reachable by keyboard.
    this.region = el("div", { class: "scroll", tabindex: 0, role: "region" }, this.grid);
    part.append(this.title, this.region, this.caption);
  }

  show(table) {
    this.table = table;
    if (!this.remembered.has(table.name)) this.remembered.set(table.name, { column: -1, direction: 0 });
    this.order = this.remembered.get(table.name);
    this.title.textContent = table.title;
    this.caption.textContent = table.caption;
    this.grid.dataset.name = table.name;
    this.region.setAttribute("aria-label", table.title);
    const columns = JSON.stringify(table.columns);
    if (columns !== this.columns) {
      this.columns = columns;
      this.heads = table.columns.map(({ heading, numeric }, i) => el("th", { scope: "col", class: numeric ? null : "word" }, el("button", { type: "button", text: heading, onclick: () => this.sort(i) })));
      this.head.replaceChildren(...[groupRow(table.columns), el("tr", {}, ...this.heads)].filter(Boolean));
    }
    this.rows();
  }

  sort(i) {
    const better = this.table.columns[i].higher === true ? -1 : 1;
    if (this.order.column !== i) Object.assign(this.order, { column: i, direction: better });
    else if (this.order.direction === better) this.order.direction = -better;
    else Object.assign(this.order, { column: -1, direction: 0 });
    this.rows();
  }

  rows() {
    const { table, order } = this;
    const rows = [...table.rows];
    if (order.column >= 0 && order.column < table.columns.length) rows.sort((a, b) => compare(a[order.column], b[order.column], order.direction));
    this.body.replaceChildren(...rows.map((row) => el("tr", {}, ...row.map((cell, i) => el("td", {
      text: cell.t,
      class: [table.columns[i].numeric ? "" : "word", cell.r ? `rank${cell.r}` : ""].join(" ").trim() || null,
    })))));
    this.heads.forEach((head, i) => {
      const state = { 1: "ascending", "-1": "descending" }[order.column === i ? order.direction : 0];
      state ? head.setAttribute("aria-sort", state) : head.removeAttribute("aria-sort");
    });
  }
}

// A line above the headings for columns that belong together.
function groupRow(columns) {
  if (!columns.some((columnOf) => columnOf.group)) return null;
  const cells = [];
  for (const { group } of columns) {
    const last = cells.at(-1);
    if (last && last.textContent === group) last.colSpan += 1;
    else cells.push(group ? el("th", { class: "group", text: group, scope: "colgroup" }) : el("td", { class: "group" }));
  }
  return el("tr", {}, ...cells);
}

// Numbers by value, words by alphabet; what has no value comes last in either direction.
function compare(a, b, direction) {
  if (a.v !== null && b.v !== null) return direction * (a.v - b.v);
  if (a.v !== null || b.v !== null) return a.v === null ? 1 : -1;
  return direction * a.t.localeCompare(b.t, "en", { numeric: true });
}
