// Fronts from front.json: every method's points along its preferences or its knob, beside each other in one plane.

const frontChart = new Picture(byId("front-chart"), "Fronts of methods", frontSvg, "Nothing to draw: switch on a method.");
const frontsOff = new Map(); // methods that are switched off, by front
let frontOff = null; // those of the front that is shown

function showFronts(data, setting, changed) {
  const front = frontOf(data, setting);
  byId("front").hidden = !front;
  frontOff = null;
  if (!front) return;
  const tasks = front.tasks.map((task, i) => [String(i), task]);
  const byAccuracy = front.metrics.every((metric) => metric.name === "accuracy");
  fill(byId("front-kind"), [["scores", byAccuracy ? "Accuracy" : "Main metric"], ["losses", "Test loss"]]);
  fill(byId("front-x"), tasks);
  fill(byId("front-y"), [...tasks.slice(1), ...tasks.slice(0, 1)]);
  byId("front-x-box").hidden = byId("front-y-box").hidden = front.tasks.length < 3;
  const kind = byId("front-kind").value, two = [Number(byId("front-x").value), Number(byId("front-y").value)];
  if (!frontsOff.has(front.setting)) frontsOff.set(front.setting, wantedSet("fronts") ?? new Set());
  const off = frontOff = frontsOff.get(front.setting);
  chips(byId("front-methods"), front.methods.map((each) => ({ key: each.label, label: each.label, style: each.style })), off, changed);
  // A metric may be undefined for a run: such a point has no place.
  const drawn = (each) => ({ ...each, points: each.points.filter((point) => two.every((task) => point[kind][task] !== null)) });
  const methods = front.methods.filter((each) => !off.has(each.label)).map(drawn).filter((each) => each.points.length);
  const higher = two.map((task) => kind === "scores" && front.metrics[task].higher);
  const units = two.map((task) => (kind === "losses" ? "test loss" : front.metrics[task].name === "accuracy" ? "accuracy, %" : `${front.metrics[task].name} ${front.metrics[task].higher ? "↑" : "↓"}`));
  frontChart.draw({ methods, kind, two, names: front.tasks, higher, units, empty: !methods.length });
  const space = kind === "scores" ? "score" : "loss";
  byId("front-body").replaceChildren(...front.methods.map((each) => {
    const volume = each.hypervolume[space];
    const interval = volume?.low === null || volume?.low === undefined ? "" : ` (${shown(volume.low)} to ${shown(volume.high)})`;
    const beaten = front.dominated.filter((one) => one.space === space && one.method === each.label).map((one) => `${one.dominated} of ${one.points} by ${one.by}`);
    return el("tr", {}, el("td", { class: "word" }, named(each.label, each.style)), el("td", { class: "word", text: each.over ?? "one point" }), el("td", { text: String(new Set(each.points.map(({ value }) => JSON.stringify(value))).size) }), el("td", { text: volume ? shown(volume.mean) + interval : "–" }), el("td", { class: "word", text: beaten.join("; ") || "–" }));
  }));
  byId("front-pairs").replaceChildren(...[...frontSentences(front, space), ...front.diverged.map(lostPoint)].map((text) => el("li", { text })));
}

// A point that is not in the front.
function lostPoint({ label, over, value, seeds }) {
  const at = over === null ? "" : ` at ${over} ${[value].flat().map((number) => shown(number)).join(", ")}`;
  return `${label}${at} is left out: its run diverged with seed${seeds.length > 1 ? "s" : ""} ${seeds.join(", ")}.`;
}

// The front of a setting, or the only one of a page without runs.
function frontOf(data, setting) {
  return data.fronts.find((each) => each.setting === setting?.name) ?? (setting ? null : data.fronts[0]);
}

// Which method has the larger hypervolume, from paired intervals over seeds, for every pair.
function frontSentences(front, space) {
  return front.differences.filter((pair) => pair[space]).map((pair) => {
    const { mean: middle, low, high } = pair[space];
    const [one, other] = pair.methods;
    const clear = low !== null && low !== undefined && (low > 0 || high < 0);
    const number = (value) => shown(value).replaceAll("-", "−");
    const range = low === null || low === undefined ? "one seed, no interval" : `95 % interval ${number(low)} to ${number(high)}`;
    return clear ? `The hypervolume of ${middle > 0 ? one : other} is larger than that of ${middle > 0 ? other : one} by ${shown(Math.abs(middle))} (${range}).` : `The hypervolumes of ${one} and ${other} are not told apart: difference ${number(middle)} (${range}).`;
  });
}

// The means over seeds of a method's points, in the order of their values.
function frontMeans(method, kind) {
  const found = new Map();
  for (const point of method.points) {
    const key = JSON.stringify(point.value);
    found.set(key, [...(found.get(key) ?? []), point]);
  }
  return [...found.values()].map((points) => ({ value: points[0].value, values: points[0][kind].map((_, i) => mean(points.map((point) => point[kind][i]))) }));
}

function frontSvg(what, width, colours) {
  const [i, j] = what.two, [right, up] = what.higher;
  const names = what.methods.map(({ label, style }) => ({ label, style }));
  const height = Math.min(460, Math.max(300, width * 0.6)), foot = legendHeight(names, width - 76);
  const picture = canvas(width, height + foot, `Fronts of ${what.methods.map((each) => each.label).join(", ")}: ${what.names[j]} against ${what.names[i]}`);
  const box = { left: 66, right: width - 14, top: 14, bottom: height - 46 };
  const reach = (task) => what.methods.flatMap((each) => each.points.map((point) => point[what.kind][task]));
  const x = scale(roomFor(reach(i), 0.06), [box.left, box.right]), y = scale(roomFor(reach(j), 0.06), [box.bottom, box.top]);
  picture.append(axes(x, y, box, { x: `${what.names[i]} (${what.units[0]})`, y: `${what.names[j]} (${what.units[1]})` }, colours));
  for (const each of what.methods) {
    const means = frontMeans(each, what.kind), colour = each.style.colour;
    for (const point of each.points) picture.append(svg("circle", { class: "seed", cx: x(point[what.kind][i]).toFixed(1), cy: y(point[what.kind][j]).toFixed(1), r: 2.4, fill: colour, "fill-opacity": 0.4 }));
    const best = nonDominated(means.map(({ values }) => [values[i], values[j]]), what.higher);
    const front = means.filter((_, k) => best[k]).sort((a, b) => a.values[i] - b.values[i]);
    if (front.length > 1) picture.append(svg("path", { class: "front", d: `M${front.map(({ values }) => `${x(values[i]).toFixed(1)} ${y(values[j]).toFixed(1)}`).join("L")}`, fill: "none", stroke: colour, "stroke-width": 2, "stroke-dasharray": each.style.dash.join(" ") || null }));
    means.forEach(({ value, values }, k) => {
      const text = `${each.label}${value === null ? "" : `, ${each.over} ${[].concat(value).map((v) => (typeof v === "number" ? shown(v, 3) : v)).join(" / ")}`}: ${what.names[i]} ${fixed(values[i], 2)}, ${what.names[j]} ${fixed(values[j], 2)}`;
      picture.append(svg("circle", { class: "point", cx: x(values[i]).toFixed(1), cy: y(values[j]).toFixed(1), r: each.over ? 5 : 7, fill: best[k] ? colour : colours.paper, stroke: colour, "stroke-width": 2 }, svg("title", { text })));
    });
  }
  picture.append(svg("text", { x: right ? box.right - 8 : box.left + 8, y: up ? box.top + 14 : box.bottom - 8, text: right ? `better ${up ? "↗" : "↘"}` : `${up ? "↖" : "↙"} better`, fill: colours.quiet, "text-anchor": right ? "end" : "start" }));
  picture.append(legend(names, box.left, height + 4, width - 76, colours).group);
  return picture;
}
