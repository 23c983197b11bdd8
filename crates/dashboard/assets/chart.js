// Curves that grow. Drawn as SVG in the colours of the page; the same numbers can be read as a table.
import { element, say, shape, table } from "./dom.js";
import { count } from "./format.js";
import { powers, range, scale, ticks } from "./scale.js";

const HEIGHT = 210;
const MARGIN = { top: 10, right: 12, bottom: 26, left: 58 };
/** More points than this cannot be told apart. */
const POINTS = 600;
/** Longer tables show every second line, or every third. */
const LINES = 200;
/** Fewer points than this are marked, for a line of one point is none. */
const MARKED = 25;

/** A figure `{ title, note, format, log, zero, most }`; `draw(series)` takes `[{ name, points, colour }]`. */
export class Chart {
  constructor(figure, axis = { name: "round", format: count }) {
    Object.assign(this, { figure, axis, series: [], cursor: null });
    this.legend = element("ul", { class: "legend" });
    this.picture = shape("svg", { "aria-hidden": "true", height: HEIGHT });
    this.readout = element("p", { class: "readout", role: "status" });
    this.numbers = element("details", { class: "numbers", ontoggle: () => this.tabulate() }, element("summary", {}, "Numbers"));
    this.plot = element("div", { class: "plot", tabindex: "0", role: "group" }, this.picture);
    this.listen();
    const note = figure.note && element("span", { class: "note" }, ` ${figure.note}`);
    const caption = element("figcaption", {}, element("h3", {}, figure.title, note), this.legend);
    this.node = element("figure", { class: "chart" }, caption, this.plot, this.readout, this.numbers);
    this.node.hidden = true; // Until there is something to see.
    this.observer = new ResizeObserver(() => this.paint());
    this.observer.observe(this.plot);
  }

  draw(series) {
    this.series = series.map((one, index) => ({ colour: index, ...one }));
    this.node.hidden = series.every((one) => one.points.length === 0);
    this.label();
    this.paint();
    this.tabulate();
  }

  listen() {
    this.plot.addEventListener("pointermove", (event) => this.point(event));
    this.plot.addEventListener("pointerleave", () => this.look(null));
    this.plot.addEventListener("blur", () => this.look(null));
    this.plot.addEventListener("keydown", (event) => this.step(event));
  }

  /** What somebody hears who does not see the curves. */
  label() {
    const last = (one) => `${one.name} ${this.figure.format(one.points.at(-1)[1])} at ${this.axis.name} ${this.axis.format(one.points.at(-1)[0])}`;
    const shown = this.series.filter((one) => one.points.length > 0);
    const text = `${this.figure.title}: ${shown.map(last).join(", ")}. Arrow keys read single values.`;
    if (this.plot.getAttribute("aria-label") !== text) this.plot.setAttribute("aria-label", text);
    this.legend.replaceChildren(...shown.map((one) => this.entry(one)));
  }

  entry(one) {
    const value = element("b", {}, this.figure.format(one.points.at(-1)[1]));
    const swatch = shape("svg", { width: 18, height: 10, "aria-hidden": "true" }, line(one.colour, "M1 5H17"));
    return element("li", {}, swatch, ` ${one.name} `, value);
  }

  paint() {
    const width = this.plot.clientWidth;
    if (width === 0 || this.node.hidden) return;
    this.picture.setAttribute("width", width);
    const all = this.series.flatMap((one) => one.points);
    const across = range(all.map(([x]) => x), { room: 1 });
    const up = range(all.map(([, y]) => y), this.figure);
    this.x = scale(across, [MARGIN.left, width - MARGIN.right]);
    this.y = scale(up, [HEIGHT - MARGIN.bottom, MARGIN.top], this.figure.log);
    this.mark = shape("g", { class: "mark" });
    this.picture.replaceChildren(this.levels(up, width), this.rounds(across, width), ...this.series.map((one) => this.curve(one)), this.mark);
    this.look(this.cursor);
  }

  levels(up, width) {
    const values = this.figure.log ? powers(...up, 5) : ticks(...up, 4);
    const level = (value) => {
      const y = this.y(value);
      return [
        shape("line", { x1: MARGIN.left, x2: width - MARGIN.right, y1: y, y2: y }),
        shape("text", { x: MARGIN.left - 6, y: y + 4, "text-anchor": "end" }, short(this.figure.format(value))),
      ];
    };
    return shape("g", { class: "axis" }, values.flatMap(level));
  }

  rounds(across, width) {
    const wanted = Math.max(3, Math.floor(width / 70));
    const whole = this.axis.name === "round" ? (value) => Number.isInteger(value) : () => true;
    const tick = (value) => shape("text", { x: this.x(value), y: HEIGHT - 8, "text-anchor": "middle" }, short(this.axis.format(value)));
    return shape("g", { class: "axis" }, ticks(...across, wanted).filter(whole).map(tick));
  }

  curve({ points, colour }) {
    const usable = thinned(this.figure.log ? points.filter(([, y]) => y > 0) : points);
    const places = usable.map(([x, y]) => [this.x(x).toFixed(1), this.y(y).toFixed(1)]);
    const path = line(colour, places.map(([x, y], index) => `${index ? "L" : "M"}${x} ${y}`).join(""));
    const dots = places.length > MARKED ? [] : places.map(([cx, cy]) => shape("circle", { class: `dot c${colour % 8}`, cx, cy, r: 2.5 }));
    return shape("g", {}, path, dots);
  }

  point(event) {
    const places = this.stops();
    if (places.length === 0 || !this.x) return;
    const x = event.clientX - this.plot.getBoundingClientRect().left;
    const nearest = places.reduce((best, value) => (Math.abs(this.x(value) - x) < Math.abs(this.x(best) - x) ? value : best));
    this.look(nearest);
  }

  step(event) {
    const places = this.stops();
    const at = this.cursor == null ? places.length : places.indexOf(this.cursor);
    const goal = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: places.length - 1 }[event.key];
    if (event.key === "Escape") this.look(null);
    if (goal === undefined || places.length === 0) return;
    event.preventDefault();
    this.look(places[Math.min(places.length - 1, Math.max(0, goal))]);
  }

  /** All places on the axis that have a value. */
  stops() {
    return [...new Set(this.series.flatMap((one) => one.points.map(([x]) => x)))].sort((a, b) => a - b);
  }

  /** Reads the values at a place. */
  look(cursor) {
    this.cursor = cursor;
    this.mark?.replaceChildren();
    if (cursor == null) return say(this.readout, "");
    const found = this.series.map((one) => [one, one.points.find(([x]) => x === cursor)]).filter(([, point]) => point);
    const x = this.x(cursor);
    this.mark?.append(
      shape("line", { x1: x, x2: x, y1: MARGIN.top, y2: HEIGHT - MARGIN.bottom }),
      ...found.map(([one, [, y]]) => shape("circle", { class: `dot c${one.colour % 8}`, cx: x, cy: this.y(y), r: 4 })),
    );
    const values = found.map(([one, [, y]]) => `${one.name} ${this.figure.format(y)}`);
    say(this.readout, `${this.axis.name} ${this.axis.format(cursor)}: ${values.join(", ")}`);
  }

  /** The numbers as a table, as long as somebody reads it. */
  tabulate() {
    if (!this.numbers.open) return;
    const at = new Map(this.series.map((one) => [one.name, new Map(one.points)]));
    const every = Math.ceil(this.stops().length / LINES);
    const rows = this.stops().filter((_, index, all) => (all.length - 1 - index) % every === 0);
    const first = { title: this.axis.name, text: this.axis.format, number: true };
    const column = (one) => ({ title: one.name, text: (x) => this.figure.format(at.get(one.name).get(x)), number: true });
    const caption = every > 1 ? `${this.figure.title}, every ${every}th line` : this.figure.title;
    const numbers = table(caption, [first, ...this.series.map(column)], rows);
    const scroll = element("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `Numbers: ${this.figure.title}` }, numbers);
    this.numbers.replaceChildren(this.numbers.firstChild, scroll);
  }

  remove() {
    this.observer.disconnect();
  }
}

function line(colour, path) {
  return shape("path", { class: `line c${colour % 8} d${Math.floor(colour / 8) % 3}`, d: path });
}

/** `50 %` for `50.0 %`: beside an axis numbers are round. */
function short(text) {
  return text.replace(/\.0(?= )/, "");
}

/** As many points as can be told apart, the last one always among them. */
function thinned(points) {
  const every = Math.ceil(points.length / POINTS);
  return points.filter((_, index) => (points.length - 1 - index) % every === 0);
}
