// What single clients have and get: labels of every task, and scores on the examples that they hold out.

const labelChart = new Picture(byId("label-chart"), "Labels of every client and task", labelSvg);
const clientChart = new Picture(byId("client-chart"), "Scores at the clients", clientSvg);

function showClients(setting, choice) {
  const labels = setting.labels;
  byId("labels-box").hidden = !labels;
  if (labels) {
    const rows = labels.tasks.map((n, i) => `${setting.tasks[i]} ${shown(labels.examples ? (100 * n) / labels.examples : n, 3)}${labels.examples ? " %" : ""}`);
    byId("labels-about").textContent = `${labels.examples ? "Share of training examples with a label" : "Labelled training examples"}: ${rows.join(", ")}.`;
    byId("label-chart").hidden = !labels.clients;
    if (labels.clients) labelChart.draw({ names: setting.tasks, clients: labels.clients, sizes: labels.sizes });
  }
  const groups = setting.series.filter((series) => series.clients && !choice.methodsOff.has(series.label));
  byId("clients-box").hidden = !groups.length;
  if (groups.length) clientChart.draw({ groups, names: setting.tasks });
  byId("clients-body").replaceChildren(...groups.flatMap((series) => series.clients.map((task) => el("tr", {},
    el("td", { class: "word" }, named(series.label, series)), el("td", { class: "word", text: task.task }), el("td", { class: "word", text: task.score }),
    el("td", { text: fixed(task.mean, task.digits) }), el("td", { text: fixed(task.worst_decile, task.digits) }), el("td", { text: fixed(task.deviation, task.digits) }), el("td", { text: String(task.clients) })))));
  byId("clients").hidden = !labels && !groups.length;
}

// A square for every client and task: the darker, the larger the share of labelled examples; a cross where there is none.
function labelSvg(what, width, colours) {
  const n = what.clients.length, m = what.names.length;
  const left = Math.min(140, 16 + 7 * Math.max(...what.names.map((name) => name.length)));
  const side = Math.min(22, (width - left - 16) / n), tall = Math.max(14, side), gap = side > 4 ? 1 : 0;
  const height = 30 + m * (tall + 2) + 34;
  const picture = canvas(width, height, `Share of labelled examples: ${what.names.map((name, i) => `${name} at ${what.clients.filter((row) => row[i]).length} of ${n} clients`).join(", ")}`);
  what.names.forEach((name, i) => {
    const y = 22 + i * (tall + 2);
    picture.append(svg("text", { x: left - 8, y: y + tall / 2 + 4, text: short(name, 18), fill: colours.ink, "text-anchor": "end" }, svg("title", { text: name })));
    what.clients.forEach((row, k) => {
      const share = what.sizes[k] ? row[i] / what.sizes[k] : 0, x = left + k * side;
      const title = svg("title", { text: `client ${k}, ${name}: ${row[i]} of ${what.sizes[k]} examples labelled` });
      picture.append(svg("rect", { class: "label", x, y, width: side - gap, height: tall, fill: colours.accent, "fill-opacity": (0.08 + 0.92 * share).toFixed(2), stroke: share ? "none" : colours.quiet, "stroke-width": 0.5 }, title));
      if (!share && side >= 8) picture.append(svg("path", { d: `M${x + 2} ${y + 2}L${x + side - 3} ${y + tall - 2}M${x + side - 3} ${y + 2}L${x + 2} ${y + tall - 2}`, stroke: colours.quiet }));
    });
  });
  picture.append(svg("text", { x: left, y: 14, text: "clients →", fill: colours.quiet }), svg("text", { x: 8, y: height - 12, text: "dark: all examples labelled; outlined: none", fill: colours.quiet }));
  return picture;
}

// Mean, worst decile and spread over clients, for every task and method.
function clientSvg(what, width, colours) {
  const row = 16, tasks = what.names.filter((name) => what.groups.some((series) => series.clients.some((each) => each.task === name)));
  const left = Math.min(150, 20 + 7 * Math.max(...tasks.map((name) => name.length)));
  const block = what.groups.length * row + 14, height = 16 + tasks.length * block + 56;
  const all = what.groups.flatMap((series) => series.clients);
  const picture = canvas(width, height, `Scores at the clients: ${what.groups.flatMap((series) => series.clients.map((task) => `${series.label}, ${task.task}: mean ${fixed(task.mean, task.digits)}, worst decile ${fixed(task.worst_decile, task.digits)}`)).join("; ")}`);
  const x = scale(roomFor(all.flatMap((task) => [task.worst_decile, task.mean - (task.deviation ?? 0), task.mean + (task.deviation ?? 0)]), 0.05), [left, width - 16]);
  for (const value of x.ticks) picture.append(svg("line", { x1: x(value), x2: x(value), y1: 8, y2: height - 56, stroke: colours.grid }), svg("text", { x: x(value), y: height - 42, text: tick(value), fill: colours.quiet, "text-anchor": "middle" }));
  tasks.forEach((name, t) => {
    picture.append(svg("text", { x: left - 8, y: 16 + t * block + block / 2, text: short(name, 19), fill: colours.ink, "text-anchor": "end" }, svg("title", { text: name })));
    what.groups.forEach((series, g) => {
      const task = series.clients.find((each) => each.task === name), y = 20 + t * block + g * row;
      if (!task) return;
      const title = `${series.label}, ${name}: mean ${fixed(task.mean, task.digits)}, worst decile ${fixed(task.worst_decile, task.digits)}, ${plural(task.clients, "client")}`;
      if (task.deviation !== null) picture.append(svg("line", { x1: x(task.mean - task.deviation), x2: x(task.mean + task.deviation), y1: y, y2: y, stroke: series.colour, "stroke-width": 2 }));
      picture.append(svg("circle", { cx: x(task.mean), cy: y, r: 5, fill: series.colour }, svg("title", { text: title })));
      picture.append(svg("path", { class: "worst", d: `M${x(task.worst_decile)} ${y - 5}l5 5l-5 5l-5 -5z`, fill: colours.paper, stroke: series.colour, "stroke-width": 2 }, svg("title", { text: title })));
    });
  });
  picture.append(svg("text", { x: 8, y: height - 22, text: "circle: mean over clients ± deviation", fill: colours.quiet }));
  picture.append(svg("text", { x: 8, y: height - 6, text: "diamond: mean of the worst tenth of them", fill: colours.quiet }));
  return picture;
}
