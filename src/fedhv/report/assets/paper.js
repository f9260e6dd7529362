// Our numbers beside the paper's: the colour says whether the difference is within what seeds explain.

const AGREEMENT = {
  agree: { word: "agrees", title: "the 95 % interval of the difference contains 0" },
  above: { word: "higher", title: "ours is higher: the 95 % interval of the difference excludes 0" },
  below: { word: "lower", title: "ours is lower: the 95 % interval of the difference excludes 0" },
  unknown: { word: "no interval", title: "the paper or we have no deviation" },
};

const paperChart = new Picture(byId("paper-chart"), "Ours beside the paper", paperSvg);

function showPaper(data) {
  const all = data.paper ?? [];
  fill(byId("paper-table"), [...new Set(all.map((entry) => entry.experiment))].map((name) => [name, name]));
  const own = all.filter((entry) => entry.experiment === byId("paper-table").value);
  const contests = [...new Set(own.map((entry) => entry.contest))];
  fill(byId("paper-contest"), [["", "all"], ...contests.map((name) => [name, name])]);
  const entries = own.filter((entry) => !byId("paper-contest").value || entry.contest === byId("paper-contest").value);
  byId("paper").hidden = !all.length;
  if (!all.length) return;
  const counts = Object.keys(AGREEMENT).map((key) => [key, entries.filter((entry) => entry.agreement === key).length]).filter(([, n]) => n);
  byId("paper-count").textContent = `${plural(entries.length, "number")}: ${counts.map(([key, n]) => `${n} ${key === "agree" && n > 1 ? "agree" : AGREEMENT[key].word}`).join(", ")}.`;
  byId("paper-body").replaceChildren(...entries.map((entry) => el("tr", { class: `paper-${entry.agreement}` },
    el("td", { class: "word", text: entry.contest }), el("td", { class: "word", text: entry.competitor }), el("td", { class: "word", text: entry.metric }),
    el("td", { text: entry.ours ?? "–" }), el("td", { text: entry.paper ?? "–" }), el("td", { text: entry.difference ?? "–" }),
    el("td", { class: "word mark", title: AGREEMENT[entry.agreement].title, text: AGREEMENT[entry.agreement].word }))));
  const drawn = entries.filter((entry) => entry.interval).slice(0, 60);
  paperChart.draw({ entries: drawn, empty: !drawn.length });
}

// Every difference with its interval; zero is the paper.
function paperSvg(what, width, colours) {
  const row = 17, left = Math.min(300, width * 0.45), height = 30 + row * what.entries.length + 40;
  const picture = canvas(width, height, `Differences from the paper: ${what.entries.map((entry) => `${entry.name} ${entry.difference}`).join("; ")}`);
  const x = scale(roomFor([0, ...what.entries.flatMap((entry) => entry.interval)], 0.04), [left, width - 16]);
  for (const value of x.ticks) picture.append(svg("line", { x1: x(value), x2: x(value), y1: 12, y2: height - 38, stroke: colours.grid }), svg("text", { x: x(value), y: height - 22, text: tick(value), fill: colours.quiet, "text-anchor": "middle" }));
  picture.append(svg("line", { x1: x(0), x2: x(0), y1: 8, y2: height - 38, stroke: colours.ink, "stroke-width": 1.5 }));
  what.entries.forEach((entry, n) => {
    const y = 24 + row * n, [low, middle, high] = entry.interval;
    const colour = theme({ agree: "good", above: "high", below: "bad", unknown: "quiet" }[entry.agreement]);
    const limit = Math.floor(left / 6.6);
    picture.append(svg("text", { x: left - 10, y: y + 4, text: entry.name.length > limit ? `${entry.name.slice(0, limit - 1)}…` : entry.name, fill: colours.ink, "text-anchor": "end", "font-size": 11 }));
    picture.append(svg("line", { x1: x(low), x2: x(high), y1: y, y2: y, stroke: colour, "stroke-width": 2.5 }));
    picture.append(svg(entry.agreement === "agree" ? "circle" : "rect", entry.agreement === "agree" ? { cx: x(middle), cy: y, r: 4, fill: colour } : { x: x(middle) - 4, y: y - 4, width: 8, height: 8, fill: colour }, svg("title", { text: `${entry.name}: ours ${entry.ours}, paper ${entry.paper}, ${AGREEMENT[entry.agreement].title}` })));
  });
  picture.append(svg("text", { x: (left + width) / 2, y: height - 4, text: "ours − paper, 95 % interval; circles agree, squares do not", fill: colours.quiet, "text-anchor": "middle" }));
  return picture;
}
