// One chart: uPlot draws, a table below reads the values out; mouse, touch and arrow keys move the cursor.

const CHART_HEIGHT = 340;

function theme(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function translucent(colour, alpha) {
  const part = (i) => parseInt(colour.slice(i, i + 2), 16);
  return `rgba(${part(1)}, ${part(3)}, ${part(5)}, ${alpha})`;
}

// On a logarithmic axis 1, 2 and 5 of every decade are marked, or the powers of ten alone where decades are many.
function marked(_, splits) {
  const decades = Math.log10(splits.at(-1) / splits[0]);
  return splits.map((value) => {
    const leading = Math.round(value / 10 ** Math.floor(Math.log10(value) + 1e-9));
    return leading === 1 || (decades < 3 && (leading === 2 || leading === 5)) ? value : null;
  });
}

function tick(value) {
  if (value === null) return "";
  const size = Math.abs(value);
  return size !== 0 && (size >= 1e6 || size < 1e-3) ? value.toExponential().replace("+", "") : shown(value, 6);
}

class Chart {
  constructor(box, name) {
    this.box = box;
    this.name = name;
    this.plotBox = el("div", { class: "plot", tabindex: 0, role: "img" });
    this.body = el("tbody");
    this.place = el("th", { scope: "col", text: "" });
    this.valueHead = el("th", { scope: "col", text: "" });
    const head = el("thead", {}, el("tr", {}, this.place, this.valueHead));
    this.readout = el("div", { class: "readouts", "aria-live": "polite" }, el("table", { class: "readout" }, head, this.body));
    this.empty = el("p", { class: "empty", text: "Nothing to draw: switch on a method and a seed.", hidden: true });
    box.classList.add("chart");
    box.append(this.plotBox, this.empty, this.readout);
    this.plotBox.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.resize()).observe(box);
  }

  // what: { curves, xTitle, yTitle, xKind, digits, log, lines: [{ label, value }] }
  draw(what) {
    this.what = what;
    this.destroy();
    this.empty.hidden = what.curves.length > 0;
    this.plotBox.hidden = this.readout.hidden = !what.curves.length;
    if (!what.curves.length) return;
    const largest = Math.max(...what.curves.map((curve) => curve.x.at(-1) ?? 0));
    [this.scale, this.unit] = unitOf(what.xKind, largest);
    const series = [{}];
    const tables = [];
    const bands = [];
    this.first = []; // for every curve the place of its mean among uPlot's series
    for (const curve of what.curves) {
      this.first.push(series.length);
      const ys = [this.fit(curve.y)];
      const few = curve.x.length <= 40;
      series.push({
        stroke: curve.style.colour, dash: curve.style.dash.map((length) => length * 1.4), width: curve.thin ? 1.4 : 2.2,
        spanGaps: true, points: { show: few, size: 5, fill: curve.style.colour },
      });
      if (curve.deviation && curve.deviation.some((value) => value !== null)) {
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
    this.data = uPlot.join(tables);
    this.plot = new uPlot(this.options(series, bands), this.data, this.plotBox);
    this.plotBox.setAttribute("aria-label", `${what.yTitle} against ${what.xTitle}. Left and right arrow keys read values, Escape shows everything again.`);
    this.read(null);
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
        y: { distr: this.what.log ? 3 : 1, range: this.what.log ? undefined : (_, low, high) => this.range(low, high) },
      },
      axes: [{ ...axis, label, values: numbers }, { ...axis, label: this.what.yTitle, size: 62, values: numbers, ...(this.what.log ? { filter: marked } : {}) }],
      cursor: {
        drag: { x: true, y: false, setScale: true },
        points: { size: 7 },
        dataIdx: (plot, index, hovered) => this.nearest(plot, index, hovered),
      },
      hooks: { setCursor: [(plot) => this.read(plot.cursor.idx)] },
    };
  }

  range(low, high) {
    if (low === null) return [0, 1];
    const room = (high - low || Math.abs(high) || 1) * 0.06;
    return [low >= 0 ? Math.max(0, low - room) : low - room, high + room];
  }

  // Curves that are not measured at the hovered place show their nearest value.
  nearest(plot, index, hovered) {
    const values = plot.data[index];
    if (values[hovered] !== null && values[hovered] !== undefined) return hovered;
    let left = hovered, right = hovered;
    while (left > 0 && (values[left] === null || values[left] === undefined)) left--;
    while (right < values.length - 1 && (values[right] === null || values[right] === undefined)) right++;
    const x = plot.data[0];
    const usable = [left, right].filter((i) => values[i] !== null && values[i] !== undefined);
    return usable.sort((a, b) => Math.abs(x[a] - x[hovered]) - Math.abs(x[b] - x[hovered]))[0] ?? hovered;
  }

  // The table below the chart: values at the cursor, or the last ones.
  read(index) {
    const live = index !== null && index !== undefined;
    this.place.textContent = live ? `${this.what.xTitle} ${shown(this.data[0][index], 5)} ${this.unit}` : "last values";
    this.valueHead.textContent = this.what.yTitle;
    const rows = this.what.curves.map((curve) => {
      let j = curve.x.length - 1;
      if (live) {
        const target = this.data[0][index] * this.scale;
        j = curve.x.reduce((best, value, k) => (Math.abs(value - target) < Math.abs(curve.x[best] - target) ? k : best), 0);
      }
      const spread = curve.deviation?.[j];
      const text = fixed(curve.y[j], this.what.digits) + (spread === null || spread === undefined ? "" : ` ± ${fixed(spread, this.what.digits)}`);
      const who = el("span", { class: "who" }, swatch(curve.style), el("span", { text: curve.label }));
      return el("tr", {}, el("td", {}, who), el("td", { text }));
    });
    for (const line of this.what.lines ?? []) {
      const who = el("span", { class: "who" }, swatch({ colour: theme("quiet"), dash: [4, 4] }), el("span", { text: line.label }));
      rows.push(el("tr", {}, el("td", {}, who), el("td", { text: shown(line.value) })));
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
      this.plot.setScale("x", { min: x[0], max: x.at(-1) });
      this.plot.setCursor({ left: -10, top: -10 });
      this.read(null);
    } else if (next !== undefined && inside.length) {
      event.preventDefault();
      const i = inside[Math.max(0, Math.min(inside.length - 1, next))];
      this.plot.setCursor({ left: this.plot.valToPos(x[i], "x"), top: this.plot.over.clientHeight / 2 });
    }
  }

  width() {
    return Math.max(240, this.plotBox.clientWidth || this.box.clientWidth - 24);
  }

  height() {
    return this.width() < 480 ? 260 : CHART_HEIGHT;
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

  destroy() {
    this.plot?.destroy();
    this.plot = null;
  }
}
