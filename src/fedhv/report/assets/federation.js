// Who took part in the rounds of a run between real nodes: asked, taken, refused, and how long answers took.

function showFederation(setting) {
  const runs = setting.runs.filter((run) => run.nodes);
  byId("federation").hidden = !runs.length;
  keyed(byId("federation-list"), runs, (run) => run.name, (run) => el("details", { open: runs.length < 3 }, el("summary", {}, el("h3"), el("span", { class: "state" })),
    el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": `Nodes of ${run.name}` }, el("table", {},
      el("thead", {}, el("tr", {}, ...["Client", "Node", "Asked", "Taken", "Refused", "Mean time", "Last round", "Last reason"].map((text, i) => el("th", { scope: "col", class: i < 2 || i === 7 ? "word" : null, text })))),
      el("tbody")))), (part, run) => {
    const [{ children: [head, about] }, table] = part.children;
    head.textContent = run.name;
    about.textContent = run.nodes.about;
    keyed(table.querySelector("tbody"), run.nodes.clients, (node) => node.client, () => el("tr"), (row, node) => {
      const cells = [`client ${node.client}`, node.name ?? node.node ?? "–", node.asked, node.taken, node.refused, node.seconds === null ? "–" : amount("seconds", node.seconds), node.last ?? "–", node.reason ?? ""];
      row.replaceChildren(...cells.map((text, i) => el("td", { class: i < 2 || i === 7 ? "word" : null, text: String(text) })));
    });
  });
}
