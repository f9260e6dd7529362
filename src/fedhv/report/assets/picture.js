// A chart that is SVG on the screen: drawn anew when its data, its width or the theme change.

class Picture {
  // paint(what, width, colours) returns an SVG; title names it for files and screen readers.
  constructor(box, title, paint, empty = "Nothing to draw: no evaluated run is switched on.") {
    Object.assign(this, { box, title, paint, what: null, width: 0, printed: false });
    this.sheet = el("div", { class: "sheet" });
    this.empty = el("p", { class: "empty", text: empty, hidden: true });
    this.tools = el("div", { class: "tools" }, ...fileButtons(slug(title), title, () => this.svg(FILE_WIDTH)));
    box.classList.add("chart");
    box.append(this.tools, this.sheet, this.empty);
    new ResizeObserver(() => this.resize()).observe(box);
    pictures.push(this);
  }

  draw(what) {
    this.what = what;
    this.redraw();
  }

  svg(width) {
    return background(this.paint(this.what, width, palette()), palette());
  }

  redraw() {
    this.printed = false;
    if (!this.what) return;
    const nothing = this.what.empty === true;
    this.empty.hidden = !nothing;
    this.sheet.hidden = this.tools.hidden = nothing;
    if (nothing) return;
    this.width = Math.max(240, this.sheet.clientWidth || this.box.clientWidth - 20 || FILE_WIDTH);
    this.sheet.replaceChildren(this.paint(this.what, this.width, palette()));
  }

  resize() {
    if (this.printed) return; // the width of the screen says nothing about paper
    if (this.what && !this.sheet.hidden && this.sheet.clientWidth && Math.abs(this.sheet.clientWidth - this.width) > 1) this.redraw();
  }

  // Paper has a width of its own.
  print(width) {
    this.printed = true;
    if (this.what && this.what.empty !== true) this.sheet.replaceChildren(this.paint(this.what, width, palette()));
  }
}

const pictures = [];

function slug(title) {
  return title.toLowerCase().replace(/[^a-z0-9]+/g, "-").replace(/^-|-$/g, "") || "chart";
}
