// A chart as a picture to keep: SVG in the colours of paper, with its title, its axes and its legend. The same is printed.
import { element, shape } from "./dom.js";

const FRAME = { width: 640, height: 400, top: 46, right: 16, bottom: 40, left: 80 };
const FONT = "system-ui, 'DejaVu Sans', sans-serif";
/** What bands are, wherever there are some. */
export const BANDS = "Bands: one standard deviation over runs.";
const INK = { paper: "#ffffff", ink: "#1c2328", soft: "#4a555c", grid: "#dfe4e7" };

/** The chart as it is seen now: `{ title, note, x, y, series, is_banded }`, where `x` and `y` are `{ range, ticks, format, label, log }`. */
export function picture(chart) {
  const entries = legend_entries(chart.series);
  const has_bands = chart.series.some(chart.is_banded);
  const height = FRAME.height + 18 * Math.ceil(entries.length / entries_a_row(entries)) + (has_bands ? 18 : 0);
  const [across, up] = [place(chart.x, FRAME.left, FRAME.width - FRAME.right), place(chart.y, FRAME.height - FRAME.bottom, FRAME.top)];
  const clip = `clip-${Math.round(performance.now() * 1000)}`;
  const area = { x: FRAME.left, y: FRAME.top, width: FRAME.width - FRAME.left - FRAME.right, height: FRAME.height - FRAME.top - FRAME.bottom };
  const frame = { xmlns: "http://www.w3.org/2000/svg", viewBox: `0 0 ${FRAME.width} ${height}`, width: FRAME.width, height, "font-family": FONT, "font-size": 12, role: "img", "aria-label": chart.title };
  return shape(
    "svg",
    frame,
    shape("rect", { width: FRAME.width, height, fill: INK.paper }),
    shape("clipPath", { id: clip }, shape("rect", area)),
    words(FRAME.left, 20, chart.title, { "font-size": 15, "font-weight": 600, fill: INK.ink }),
    words(FRAME.left, 37, chart.note ?? "", { fill: INK.soft }),
    axes(chart, across, up),
    shape("g", { "clip-path": `url(#${clip})` }, chart.series.map((one) => drawn(one, across, up, chart))),
    legend_of(entries),
    has_bands && words(FRAME.left, height - 6, BANDS, { fill: INK.soft }),
  );
}

function place({ range: [low, high], log }, from, to) {
  const flat = log ? Math.log10 : (value) => value;
  const [start, width] = [flat(low), flat(high) - flat(low) || 1];
  return (value) => Math.round(10 * (from + ((to - from) * (flat(value) - start)) / width)) / 10;
}

function words(x, y, text, attributes) {
  return shape("text", { x, y, ...attributes }, text);
}

function axes({ x, y }, across, up) {
  const level = (value) => [
    shape("line", { x1: FRAME.left, x2: FRAME.width - FRAME.right, y1: up(value), y2: up(value), stroke: INK.grid }),
    words(FRAME.left - 8, up(value) + 4, y.format(value), { "text-anchor": "end", fill: INK.soft }),
  ];
  const mark = (value) => words(across(value), FRAME.height - FRAME.bottom + 17, x.format(value), { "text-anchor": "middle", fill: INK.soft });
  const label = words((FRAME.left + FRAME.width - FRAME.right) / 2, FRAME.height - 6, x.label, { "text-anchor": "middle", fill: INK.ink });
  const middle = (FRAME.top + FRAME.height - FRAME.bottom) / 2;
  const upward = words(14, middle, y.label, { "text-anchor": "middle", transform: `rotate(-90 14 ${middle})`, fill: INK.ink });
  return shape("g", {}, y.ticks.flatMap(level), x.ticks.map(mark), label, upward);
}

function drawn(one, across, up, { y: { log }, is_banded }) {
  const { points, stroke } = one;
  const usable = log ? points.filter(({ y }) => y > 0) : points;
  const way = (value) => usable.map((point) => `${across(point.x)} ${up(Math.max(value(point), log ? Number.MIN_VALUE : -Infinity))}`);
  const banded = usable.length > 1 && is_banded(one);
  const lowest = log ? Math.min(...usable.map(({ y }) => y)) : 0;
  const low = way(({ low: value }) => (log && value <= 0 ? lowest : value));
  const band = banded && shape("path", { d: `M${way(({ high }) => high).join("L")}L${low.reverse().join("L")}Z`, fill: stroke.light, "fill-opacity": 0.15 });
  const line = shape("path", { d: usable.length > 0 ? `M${way(({ y }) => y).join("L")}` : "", fill: "none", stroke: stroke.light, "stroke-width": stroke.width, "stroke-dasharray": stroke.dash.join(" ") || null, "stroke-linejoin": "round" });
  const dots = usable.length <= 25 ? usable.map(({ x, y }) => shape("circle", { cx: across(x), cy: up(y), r: 2, fill: stroke.light })) : [];
  return shape("g", {}, band, line, dots);
}

/** More names than this would be larger than the picture. */
const MOST_NAMED = 40;

/** A single line is named, too: beside its picture nothing else says what it is. */
function legend_entries(series) {
  return series.slice(0, MOST_NAMED);
}

/** Two a row, where their names have room. */
function entries_a_row(entries) {
  return entries.every(({ name }) => name.length <= 36) ? 2 : 1;
}

function legend_of(entries) {
  const each = entries_a_row(entries);
  const entry = ({ name, stroke }, index) => {
    const [x, y] = [FRAME.left + (index % each) * 280, FRAME.height + 12 + 18 * Math.floor(index / each)];
    const line = shape("line", { x1: x, x2: x + 22, y1: y - 4, y2: y - 4, stroke: stroke.light, "stroke-width": stroke.width, "stroke-dasharray": stroke.dash.join(" ") || null });
    return [line, words(x + 28, y, name, { fill: INK.ink })];
  };
  return shape("g", {}, entries.flatMap(entry));
}

/** A line as it stands in a legend of the page, by day and by night. */
export function swatch(stroke) {
  const line = shape("line", { x1: 1, x2: 21, y1: 5, y2: 5, stroke: stroke.light, "stroke-width": stroke.width + 0.4, "stroke-dasharray": stroke.dash.join(" ") || null });
  line.style.stroke = `light-dark(${stroke.light}, ${stroke.dark})`;
  return element("span", { class: "swatch", "aria-hidden": "true" }, shape("svg", { width: 22, height: 10 }, line));
}
