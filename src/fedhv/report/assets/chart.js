// A chart of lines to explore: uPlot draws, a table below reads the values out; mouse, touch and arrow keys move the cursor.

const CHART_HEIGHT = 340;
const charts = [];
// Rounds are whole numbers, however few there are.
const WHOLE = Array.from({ length: 10 }, (_, k) => [1, 2, 5].map((factor) => factor * 10 ** k)).flat();

function translucent(colour, alpha) {
  const part = (i) => parseInt(colour.slice(i, i + 2), 16);
  return `rgba(${part(1)}, ${part(3)}, ${part(5)}, ${alpha})`;
}

// On a logarithmic axis 1, 2 and 5 of every decade are marked, or the powers of ten alone where decades are many.
function marked(_, splits) {
  const many = Math.log10(splits.at(-1) / splits[0]) >= 3;
  return splits.map((value) => {
    const leading = Math.round(value / 10 ** Math.floor(Math.log10(value) + 1e-9));
    return leading === 1 || (!many && (leading === 2 || leading === 5)) ? value : null;
  });
}

class Chart {
  // link: charts with the same word share cursor and zoom; onRead(round) is called instead of a table of its own.
  constructor(box, title, { link = null, onRead = null, height = CHART_HEIGHT } = {}) {
    Object.assign(this, { box, title, link, onRead, tall: height, zoom: null, plot: null, what: null });
    this.reset = el("button", { type: "button", class: "small", text: "Reset zoom", "aria-label": `Reset the zoom of ${title}`, hidden: true, onclick: () => this.unzoom() });
    this.tools = el("div", { class: "tools" }, this.reset, ...fileButtons(slug(title), title, () => this.svg(FILE_WIDTH)));
    this.plotBox = el("div", { class: "plot", tabindex: 0, role: "img" });
    this.paper = el("div", { class: "paper" });
    this.body = el("tbody");
    this.place = el("th", { scope: "col", text: "" });
    this.valueHead = el("th", { scope: "col", text: "" });
    const head = el("thead", {}, el("tr", {}, this.place, this.valueHead));
    this.readout = el("div", { class: "readouts", tabindex: 0, role: "region", "aria-label": `Values of ${title}` }, el("table", { class: "readout" }, head, this.body));
    this.empty = el("p", { class: "empty", text: "Nothing to draw: no evaluated run is switched on.", hidden: true });
    box.classList.add("chart");
    box.append(this.tools, this.plotBox, this.paper, this.empty, ...(onRead ? [] : [this.readout]));
    this.plotBox.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resize()).observe(box);
    charts.push(this);
  }

  // what: { curves, xTitle, yTitle, xKind, digits, log, lines: [{ label, value }] }
  draw(what) {
    if (this.what && this.what.xKind !== what.xKind) this.zoom = null;
    this.what = what;
    const nothing = !what.curves.length;
    this.empty.hidden = !nothing;
    this.plotBox.hidden = this.readout.hidden = this.tools.hidden = nothing;
    if (nothing) return this.destroy();
    [this.scale, this.unit] = unitOf(what.xKind, Math.max(...what.curves.map((curve) => curve.x.at(-1) ?? 0)));
    const { series, bands, tables } = this.layers(what);
    this.data = uPlot.join(tables);
    // Only new values: uPlot takes them as it is, so that a drag that has begun goes on.
    const shape = JSON.stringify([series, bands, what.log, what.xKind, what.xTitle, what.yTitle, this.unit, palette()]);
    if (this.plot && shape === this.shape) {
      this.plot.setData(this.data, !this.zoom);
    } else {
      this.destroy();
      this.plot = new uPlot(this.options(series, bands), this.data, this.plotBox);
    }
    this.shape = shape;
    this.plotBox.setAttribute("aria-label", `${what.yTitle} against ${what.xTitle}. Left and right arrow keys read values, Escape resets the zoom.`);
    if (this.zoom) this.plot.setScale("x", { min: this.zoom[0] / this.scale, max: this.zoom[1] / this.scale });
    this.showReset();
    this.read(this.plot.cursor.idx);
  }

  destroy() {
    this.plot?.destroy();
    this.plot = null;
  }

  // uPlot's series and data: for every curve its line, faint raw values where it is smoothed, and the edges of its band.
  layers(what) {
    const series = [{}], tables = [], bands = [];
    for (const curve of what.curves) {
      const ys = [this.fit(curve.y)];
      series.push({
        stroke: curve.style.colour, dash: curve.style.dash.map((length) => length * 1.4), width: curve.thin ? 1.4 : 2.2,
        spanGaps: true, points: { show: curve.x.length <= 40 && !curve.raw, size: 5, fill: curve.style.colour },
      });
      if (curve.raw) {
        ys.push(this.fit(curve.raw));
        series.push({ stroke: translucent(curve.style.colour, 0.3), width: 1, spanGaps: true, points: { show: false } });
      }
      if (curve.deviation?.some((value) => value !== null)) {
        const edge = (sign) => this.fit(curve.y.map((value, i) => (value === null || curve.deviation[i] === null ? null : value + sign * curve.deviation[i])));
        ys.push(edge(1), edge(-1));
        const hidden = { stroke: "transparent", width: 0, spanGaps: true, points: { show: false } };
        series.push(hidden, { ...hidden });
        bands.push({ series: [series.length - 2, series.length - 1], fill: translucent(curve.style.colour, 0.16) });
      }
      tables.push([this.distinct(curve.x.map((value) => value / this.scale)), ...ys]);
    }
    for (const line of what.lines ?? []) {
      series.push({ stroke: theme("quiet"), dash: [4, 4], width: 1.4, spanGaps: true, points: { show: false } });
      const low = Math.min(...tables.map(([x]) => x[0]));
      tables.push([[low, Math.max(low + 1e-9, ...tables.map(([x]) => x.at(-1)))], [line.value, line.value]]);
    }
    return { series, bands, tables };
  }

  // A logarithmic axis has no place for zero and below.
  fit(values) {
    return this.what.log ? values.map((value) => (value === null || value <= 0 ? null : value)) : values;
  }

  // uPlot wants x to ascend; equal values (two evaluations within one tick of the clock) are nudged apart.
  distinct(x) {
    let last = -Infinity;
    return x.map((value) => (last = value > last ? value : last + Math.abs(last) * 1e-12 + 1e-12));
  }

  options(series, bands) {
    const axis = { stroke: theme("quiet"), grid: { stroke: theme("grid"), width: 1 }, ticks: { stroke: theme("line"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "13px system-ui, sans-serif", labelSize: 20 };
    const label = this.unit ? `${this.what.xTitle} (${this.unit})` : this.what.xTitle;
    const numbers = (_, splits) => splits.map(tick);
    return {
      width: this.width(), height: this.height(), series, bands,
      legend: { show: false },
      scales: {
        x: { time: false, range: (plot, low, high) => [low === plot.data[0][0] ? 0 : low, high > low ? high : low + 1] },
        y: { distr: this.what.log ? 3 : 1, range: this.what.log ? undefined : (_, low, high) => (low === null ? [0, 1] : roomFor([low, high], 0.06)) },
      },
      axes: [{ ...axis, label, size: 30, values: numbers, ...(this.what.xKind === "round" ? { incrs: WHOLE } : {}) }, { ...axis, label: this.what.yTitle, size: 62, values: numbers, ...(this.what.log ? { filter: marked } : {}) }],
      cursor: {
        drag: { x: true, y: false, setScale: true },
        points: { size: 7 },
        dataIdx: (plot, index, hovered) => this.nearest(plot, index, hovered),
        ...(this.link ? { sync: { key: this.link, setSeries: false } } : {}),
      },
      hooks: { setCursor: [(plot) => this.read(plot.cursor.idx)], setScale: [(plot, key) => key === "x" && this.zoomed(plot)] },
    };
  }

  zoomed(plot) {
    const { min, max } = plot.scales.x, x = plot.data[0];
    const whole = min <= x[0] && max >= x.at(-1);
    this.zoom = whole ? null : [min * this.scale, max * this.scale];
    this.showReset();
  }

  showReset() {
    this.reset.hidden = !this.zoom;
  }

  unzoom() {
    for (const chart of this.link ? charts.filter((each) => each.link === this.link) : [this]) {
      chart.zoom = null;
      chart.plot?.setScale("x", { min: chart.data[0][0], max: chart.data[0].at(-1) });
      chart.showReset();
    }
    this.plotBox.focus();
  }

  // Curves that are not measured at the hovered place show their nearest value; beyond their ends they show none.
  nearest(plot, index, hovered) {
    const values = plot.data[index], known = (i) => values[i] !== null && values[i] !== undefined;
    if (known(hovered)) return hovered;
    let left = hovered, right = hovered;
    while (left >= 0 && !known(left)) left--;
    while (right < values.length && !known(right)) right++;
    if (left < 0 || right >= values.length) return null;
    const x = plot.data[0];
    return x[hovered] - x[left] <= x[right] - x[hovered] ? left : right;
  }

  // The table below the chart: values at the cursor, or the last ones.
  read(index) {
    const live = index !== null && index !== undefined;
    if (this.onRead) return this.onRead(live ? this.data[0][index] * this.scale : null);
    this.place.textContent = live ? `${this.what.xTitle} ${shown(this.data[0][index], 5)} ${this.unit}`.trim() : "last values";
    this.valueHead.textContent = this.what.yTitle;
    const rows = this.what.curves.map((curve) => {
      const j = live ? placeOf(curve.x, this.data[0][index] * this.scale) : curve.x.length - 1;
      const values = curve.raw ?? curve.y; // what was measured, not what was smoothed
      const spread = curve.deviation?.[j];
      const text = j < 0 ? "–" : fixed(values[j], this.what.digits) + (spread === null || spread === undefined ? "" : ` ± ${fixed(spread, this.what.digits)}`);
      return el("tr", {}, el("td", {}, named(curve.label, curve.style)), el("td", { text }));
    });
    for (const line of this.what.lines ?? []) {
      rows.push(el("tr", {}, el("td", {}, named(line.label, { colour: theme("quiet"), dash: [4, 4] })), el("td", { text: shown(line.value) })));
    }
    this.body.replaceChildren(...rows);
  }

  key(event) {
    if (!this.plot) return;
    const x = this.data[0];
    const { min, max } = this.plot.scales.x;
    const inside = x.map((value, i) => i).filter((i) => x[i] >= min && x[i] <= max);
    const now = inside.indexOf(this.plot.cursor.idx ?? -1);
    const next = { ArrowRight: now + 1, ArrowLeft: now < 0 ? inside.length - 1 : now - 1, Home: 0, End: inside.length - 1 }[event.key];
    if (event.key === "Escape") {
      this.unzoom();
      this.plot.setCursor({ left: -10, top: -10 });
      this.read(null);
    } else if (next !== undefined && inside.length) {
      event.preventDefault();
      const i = inside[Math.max(0, Math.min(inside.length - 1, next))];
      this.plot.setCursor({ left: this.plot.valToPos(x[i], "x"), top: this.plot.over.clientHeight / 2 });
    }
  }

  // The same chart as SVG, at the same zoom.
  svg(width) {
    const zoom = this.zoom && this.zoom.map((value) => value / this.scale);
    return linesSvg({ ...this.what, name: this.title, heading: this.title, zoom, key: slug(this.title) }, width, 400, palette());
  }

  // Paper gets a drawing with the names in it, since canvases do not follow the width of a sheet.
  print(width) {
    this.paper.replaceChildren(...(this.what?.curves.length ? [this.svg(width)] : []));
  }

  width() {
    return Math.max(240, this.plotBox.clientWidth || this.box.clientWidth - 24);
  }

  height() {
    return this.width() < 480 ? Math.min(260, this.tall) : this.tall;
  }

  resize() {
    if (this.plot && !this.plotBox.hidden && this.plot.width !== this.width()) {
      this.plot.setSize({ width: this.width(), height: this.height() });
    }
  }

  // Colours are read when a chart is drawn, so a change of theme draws anew.
  redraw() {
    if (this.what) this.draw(this.what);
  }
}

// The measured place that is nearest; -1 beyond either end.
function placeOf(x, target) {
  if (!x.length || target < x[0] * (1 - 1e-9) || target > x.at(-1) * (1 + 1e-9)) return -1;
  let low = 0, high = x.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (x[middle] <= target) low = middle;
    else high = middle;
  }
  return target - x[low] <= x[high] - target ? low : high;
}
