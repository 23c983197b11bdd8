// Curves that grow, drawn by uPlot: drag to zoom, point or use the arrow keys to read values; the same numbers can be read as a table, and saved.
import { ink_of, on_theme, theme } from "./colour.js";
import { element, framed, say, table } from "./dom.js";
import { export_buttons } from "./export.js";
import { picture, swatch } from "./picture.js";
import { readout_text, values_at } from "./readout.js";
import { powers, range, ticks } from "./scale.js";

const HEIGHT = 240;
/** Longer tables show every second line, or every third. */
const LINES = 200;
/** Fewer points than this are marked, for a line of one point is none. */
const MARKED = 25;
/** Of more lines than this only the one that is pointed at has its band: many hide each other. */
export const BANDED = 6;

/** A figure `{ title, note, format, log, zero, most, floor }`; `draw(series)` takes `[{ key, name, points, stroke }]`, where points are `{ x, y, low, high }`. `named`: whether it has a legend of its own. */
export class Chart {
  constructor(figure, { named = true, onhover = () => {} } = {}) {
    Object.assign(this, { figure, named, onhover, series: [], cursor: null, zoomed: null, axis: null, log: { x: false, y: false }, lit: null, subject: "", plotted: null, shape: "", extent: null, is_visible: false, is_stale: true });
    this.legend = element("ul", { class: "legend", hidden: !named });
    this.readout = element("p", { class: "readout", role: "status" });
    this.numbers = element("details", { class: "numbers", ontoggle: () => this.tabulate() }, element("summary", {}, "Numbers"));
    this.plot = element("div", { class: "plot", tabindex: "0", role: "group" });
    this.whole = element("button", { type: "button", class: "small", hidden: true, onclick: () => this.zoom(null) }, "Whole range");
    const note = figure.note && element("span", { class: "note" }, ` ${figure.note}`);
    const tools = element("div", { class: "chart-tools" }, this.whole, export_buttons(() => this.shown()));
    const caption = element("figcaption", {}, element("h3", {}, figure.title, note), tools, this.legend);
    this.node = element("figure", { class: "chart", "data-title": figure.title }, caption, this.plot, this.readout, this.numbers);
    this.node.hidden = true; // Until there is something to see.
    this.listen();
  }

  listen() {
    this.plot.addEventListener("keydown", (event) => this.press(event));
    this.plot.addEventListener("blur", () => this.look(null));
    this.observer = new ResizeObserver(() => this.fit());
    this.observer.observe(this.plot);
    // What nobody sees is not drawn: of many runs there are many charts. What will soon be seen is drawn when there is nothing else to do.
    // The last of several changes told at once is how it is.
    this.near = new IntersectionObserver((entries) => this.seen(entries.at(-1).isIntersecting, soon), { rootMargin: "300px" });
    this.sight = new IntersectionObserver((entries) => entries.at(-1).isIntersecting && this.seen(true, at_once));
    for (const observer of [this.near, this.sight]) observer.observe(this.node);
    this.forget_theme = on_theme(() => this.build());
    this.print = () => this.plot.append(element("div", { class: "printed" }, picture(this.shown())));
    this.unprint = () => this.plot.querySelectorAll(".printed").forEach((node) => node.remove());
    addEventListener("beforeprint", this.print);
    addEventListener("afterprint", this.unprint);
  }

  /** Draws curves over an axis `{ name, label, format }`; which axes are logarithmic, `{ x, y }`, on top of what the figure says. What is not above zero has no place on a logarithmic axis. */
  draw(all, axis, log = { x: false, y: false }) {
    const series = log.x ? all.map((one) => ({ ...one, points: one.points.filter(({ x }) => x > 0) })) : all;
    // FeDEQ on top of the others.
    this.series = series.filter((one) => one.points.length > 0).sort((a, b) => a.stroke.width - b.stroke.width);
    if (axis !== this.axis || log.x !== this.log.x) this.zoomed = null;
    Object.assign(this, { axis, log: { x: log.x, y: log.y || Boolean(this.figure.log) }, extent: null });
    this.node.hidden = this.series.length === 0;
    this.node.dataset.curves = this.series.length;
    this.node.dataset.points = this.series[0]?.points.length ?? 0;
    this.node.dataset.abscissa = axis.label;
    this.label();
    if (this.node.hidden) this.raze();
    else if (this.plotted && this.is_visible && !this.is_stale && this.shape === this.shape_of()) this.refresh();
    else this.build();
    this.tabulate();
  }

  /** What must be the same for a chart to be drawn again without being built anew. */
  shape_of() {
    return JSON.stringify([this.axis?.label, this.log, this.series.map(({ key, stroke, points }) => [key, stroke.light, stroke.dash, points[0].low === undefined])]);
  }

  /** What somebody hears who does not see the curves. */
  label() {
    const where = this.axis.name === "after" ? "after" : `at ${this.axis.name}`;
    const last = (one) => `${one.name} ${this.figure.format(one.points.at(-1).y)} ${where} ${this.axis.format(one.points.at(-1).x)}`;
    const named = this.series.slice(0, 6).map(last).join(", ");
    const more = this.series.length > 6 ? `, and ${this.series.length - 6} more` : "";
    const text = `${this.figure.title}: ${named}${more}. Arrow keys read single values, plus and minus zoom, 0 shows the whole.`;
    if (this.plot.getAttribute("aria-label") !== text) this.plot.setAttribute("aria-label", text);
    if (this.named) this.legend.replaceChildren(...this.series.map((one) => this.entry(one)));
  }

  entry(one) {
    return element("li", {}, swatch(one.stroke), ` ${one.name} `, element("b", {}, this.figure.format(one.points.at(-1).y)));
  }

  seen(is_visible, when) {
    this.is_visible = is_visible;
    when(() => this.is_visible && (!this.plotted || this.is_stale) && this.build());
  }

  raze() {
    this.plotted?.destroy();
    this.plotted = null;
  }

  build() {
    this.is_stale = !this.is_visible;
    if (this.is_stale) return;
    this.raze();
    const width = this.plot.clientWidth;
    if (width === 0 || this.node.hidden) return;
    this.shape = this.shape_of();
    this.plotted = new uPlot(this.options(width), this.data());
    this.plot.append(this.plotted.root);
    this.plotted.over.addEventListener("pointermove", (event) => this.point(event));
    this.plotted.over.addEventListener("pointerleave", () => this.look(null));
    this.dot = element("div", { class: "dot", hidden: true });
    this.plotted.over.append(this.dot);
    this.rescale();
    this.look(this.cursor);
  }

  refresh() {
    this.plotted.setData(this.data(), false);
    this.rescale();
  }

  fit() {
    const width = this.plot.clientWidth;
    if (!this.plotted) this.build();
    else if (width > 0 && width !== this.plotted.width) this.plotted.setSize({ width, height: HEIGHT });
  }

  data() {
    return [null, ...this.series.map(({ points }) => [points.map(({ x }) => x), points.map(({ y }) => y)])];
  }

  options(width) {
    const { soft, grid } = theme();
    const font = "11.5px system-ui, sans-serif";
    const axis = (scale, size, splits, format) => ({ scale, size, font, stroke: soft, grid: { stroke: grid, width: 1 }, ticks: { show: false }, splits, filter: (_, values) => values, values: (_, values) => values.map(format) });
    const facets = [{ scale: "x", auto: false }, { scale: "y", auto: false }];
    const curve = ({ stroke, points }) => ({ facets, stroke: ink_of(stroke), fill: points[0].low === undefined ? null : band_colour(ink_of(stroke)), width: stroke.width, dash: stroke.dash, paths: (chart, place) => this.path(chart, place), points: { show: false } });
    return {
      mode: 2,
      width,
      height: HEIGHT,
      padding: [10, 12, 0, 0],
      legend: { show: false },
      focus: { alpha: 0.15 },
      cursor: { y: false, points: { show: false }, dataIdx: () => null, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => () => this.zoom(null) } },
      select: { show: true, left: 0, top: 0, width: 0, height: 0 },
      scales: { x: { time: false, auto: false, distr: this.log.x ? 3 : 1 }, y: { auto: false, distr: this.log.y ? 3 : 1 } },
      axes: [axis("x", 30, () => this.marks().x, (value) => brief(this.axis.format(value))), axis("y", 62, () => this.marks().y, (value) => brief(this.figure.format(value)))],
      series: [{}, ...this.series.map(curve)],
      hooks: { setSelect: [(chart) => this.chosen(chart)] },
    };
  }

  /** A curve and its band in pixels. */
  path(chart, place) {
    const { points } = this.series[place - 1];
    const usable = this.log.y ? points.filter(({ y }) => y > 0) : points;
    const floor = chart.scales.y.min;
    const [x, y] = [(value) => chart.valToPos(value, "x", true), (value) => chart.valToPos(this.log.y ? Math.max(value, floor) : value, "y", true)];
    const [stroke, fill] = [new Path2D(), new Path2D()];
    usable.forEach((point, index) => stroke[index ? "lineTo" : "moveTo"](x(point.x), y(point.y)));
    if (usable.length <= MARKED) {
      const radius = 1.5 * devicePixelRatio;
      for (const point of usable) {
        stroke.moveTo(x(point.x) + radius, y(point.y));
        stroke.arc(x(point.x), y(point.y), radius, 0, 2 * Math.PI);
      }
    }
    if (usable.length > 1 && this.is_banded(this.series[place - 1])) {
      usable.forEach((point, index) => fill[index ? "lineTo" : "moveTo"](x(point.x), y(point.high)));
      usable.toReversed().forEach((point) => fill.lineTo(x(point.x), y(point.low)));
      fill.closePath();
    }
    return { stroke, fill, clip: null, band: null, gaps: null, flags: 1 };
  }

  /** Whether a curve's band is drawn. */
  is_banded({ key, points }) {
    return points[0].low !== undefined && (this.series.length <= BANDED || key === this.lit);
  }

  /** All of the axis. */
  whole_range() {
    return range(this.series.flatMap(({ points }) => [points[0].x, points.at(-1).x]), { log: this.log.x });
  }

  /** The ranges that are seen now, found once for all who ask. */
  ranges() {
    this.extent ??= this.found_ranges();
    return this.extent;
  }

  found_ranges() {
    const across = this.zoomed ?? this.whole_range();
    const values = [];
    for (const { points } of this.series) {
      for (const { x, y, low, high } of points) {
        if (x < across[0] || x > across[1]) continue;
        values.push(y);
        if (low !== undefined) values.push(low, high);
      }
    }
    // A zoom is for details: there the axis need not begin at zero.
    const up = range(values, { ...(this.zoomed ? {} : this.figure), log: this.log.y });
    return { x: across, y: up };
  }

  marks() {
    const { x, y } = this.ranges();
    const wanted = Math.max(3, Math.floor((this.plot.clientWidth || 500) / 80));
    const whole = this.axis.name === "round" ? (value) => Number.isInteger(value) : () => true;
    return { x: (this.log.x ? powers(...x, wanted) : ticks(...x, wanted)).filter(whole), y: this.log.y ? powers(...y, 5) : ticks(...y, 5) };
  }

  rescale() {
    const { x, y } = this.ranges();
    this.plotted.batch(() => {
      this.plotted.setScale("x", { min: x[0], max: x[1] });
      this.plotted.setScale("y", { min: y[0], max: y[1] });
    });
    this.whole.hidden = !this.zoomed;
    this.node.dataset.zoomed = Boolean(this.zoomed);
  }

  /** Shows a part of the axis, or the whole. */
  zoom(part) {
    const whole = this.whole_range();
    this.zoomed = part && part[1] > part[0] ? [Math.max(part[0], whole[0]), Math.min(part[1], whole[1])] : null;
    this.extent = null;
    if (this.plotted) this.rescale();
  }

  /** A part was chosen by dragging. */
  chosen(chart) {
    const { left, width } = chart.select;
    if (width < 4) return;
    const part = [chart.posToVal(left, "x"), chart.posToVal(left + width, "x")];
    chart.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.zoom(part);
  }

  point(event) {
    const box = this.plotted.over.getBoundingClientRect();
    this.look(this.plotted.posToVal(event.clientX - box.left, "x"), event.clientY - box.top);
  }

  press(event) {
    const stops = this.stops();
    if (event.key === "Escape") this.look(null);
    if (["+", "-", "0"].includes(event.key)) return this.magnify(event);
    const at = this.cursor == null ? stops.length : stops.findIndex((x) => x >= this.cursor);
    const goal = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: stops.length - 1 }[event.key];
    if (goal === undefined || stops.length === 0) return;
    event.preventDefault();
    this.look(stops[Math.min(stops.length - 1, Math.max(0, goal))]);
  }

  magnify(event) {
    event.preventDefault();
    if (event.key === "0") return this.zoom(null);
    const [flat, back] = this.log.x ? [Math.log, Math.exp] : [(value) => value, (value) => value];
    const [low, high] = this.ranges().x.map(flat);
    const middle = this.cursor == null ? (low + high) / 2 : flat(this.cursor);
    const factor = event.key === "+" ? 0.5 : 2;
    this.zoom([middle - (middle - low) * factor, middle + (high - middle) * factor].map(back));
  }

  /** All places on the axis that have a value. */
  stops() {
    return [...new Set(this.series.flatMap(({ points }) => points.map(({ x }) => x)))].sort((a, b) => a - b);
  }

  /** Reads the values at a place; `height` is where a pointer is, whose nearest curve stands out. */
  look(x, height = null) {
    this.cursor = x;
    if (!this.plotted) return;
    const found = x == null ? [] : values_at(this.series, x);
    this.dot.hidden = found.length === 0;
    if (found.length === 0) {
      this.plotted.setCursor({ left: -10, top: -10 }, false);
      if (x == null && height == null) this.onhover(null);
      return say(this.readout, "");
    }
    const distance = ({ point }) => (height == null ? 0 : Math.abs(this.plotted.valToPos(point.y, "y") - height));
    found.sort((a, b) => distance(a) - distance(b));
    const [{ one, point }] = found;
    const [left, top] = [this.plotted.valToPos(point.x, "x"), this.plotted.valToPos(point.y, "y")];
    this.dot.style.transform = `translate(${left}px, ${top}px)`;
    this.dot.style.background = ink_of(one.stroke);
    if (height == null) this.plotted.setCursor({ left, top }, false);
    say(this.readout, readout_text(found, point.x, this.axis, this.figure.format));
    if (height != null) this.onhover(one.key);
  }

  /** Lets one curve stand out, or all. */
  highlight(key) {
    const place = this.series.findIndex((one) => one.key === key);
    if (this.series.length < 2 || (key != null && place < 0)) return;
    const had_band = this.series.some((one) => this.is_banded(one));
    this.lit = key;
    if (!this.plotted) return;
    // Paths are kept until there is another band to draw.
    if (this.series.length > BANDED && (had_band || this.series.some((one) => this.is_banded(one)))) this.plotted.redraw(true);
    this.plotted.setSeries(key == null ? null : place + 1, { focus: true }, false);
  }

  /** The chart as it is seen, for pictures and files. */
  shown() {
    const { x, y } = this.series.length > 0 ? this.ranges() : { x: [0, 1], y: [0, 1] };
    const marks = this.series.length > 0 ? this.marks() : { x: [], y: [] };
    const { title, note, format } = this.figure;
    return {
      title,
      note: [this.subject, note].filter(Boolean).join(": "),
      x: { range: x, ticks: marks.x, log: this.log.x, label: this.axis?.label ?? "", format: (value) => brief(this.axis.format(value)) },
      y: { range: y, ticks: marks.y, log: this.log.y, label: title, format: (value) => brief(format(value)) },
      series: this.series,
      is_banded: (one) => this.is_banded(one),
    };
  }

  /** The numbers as a table, as long as somebody reads it. */
  tabulate() {
    if (!this.numbers.open || this.series.length === 0) return;
    const at = new Map(this.series.map((one) => [one, new Map(one.points.map(({ x, y }) => [x, y]))]));
    const stops = this.stops();
    const every = Math.ceil(stops.length / LINES);
    const rows = stops.filter((_, index) => (stops.length - 1 - index) % every === 0);
    const first = { title: this.axis.name, text: this.axis.format, number: true };
    const column = (one) => ({ title: one.name, text: (x) => this.figure.format(at.get(one).get(x)), number: true });
    const caption = every > 1 ? `${this.figure.title}, every ${every}th line` : this.figure.title;
    const numbers = table(caption, [first, ...this.series.map(column)], rows);
    const scroll = framed(`Numbers: ${this.figure.title}`, numbers);
    scroll.classList.add("scroll");
    this.numbers.replaceChildren(this.numbers.firstChild, scroll);
  }

  remove() {
    this.observer.disconnect();
    this.near.disconnect();
    this.sight.disconnect();
    this.forget_theme();
    removeEventListener("beforeprint", this.print);
    removeEventListener("afterprint", this.unprint);
    this.raze();
  }
}

function at_once(work) {
  work();
}

/** When there is nothing else to do, or after half a second. */
function soon(work) {
  if (window.requestIdleCallback) requestIdleCallback(work, { timeout: 500 });
  else setTimeout(work, 50);
}

/** `50 %` for `50.0 %`: beside an axis numbers are round. */
function brief(text) {
  return text.replace(/\.0(?=\s)/, "");
}

/** A colour to fill a band with. */
function band_colour(colour) {
  return colour.startsWith("#") ? `${colour}26` : colour.replace(")", " / 15%)");
}
