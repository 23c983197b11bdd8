// Pictures and numbers of a chart as files.
import { element } from "./dom.js";
import { picture } from "./picture.js";

/** Buttons that save what `chart()` shows. */
export function export_buttons(chart) {
  const button = (ending, save) => element("button", { type: "button", class: "small", onclick: () => save(chart()), "aria-label": `Save ${chart().title} as ${ending}` }, ending);
  return element("span", { class: "exports" }, button("SVG", save_svg), button("PNG", save_png), button("CSV", save_csv));
}

function save_svg(chart) {
  save(`${file_name(chart)}.svg`, new Blob([svg_text(chart)], { type: "image/svg+xml" }));
}

function save_png(chart) {
  const drawn = picture(chart);
  const size = 2;
  const image = new Image();
  const address = URL.createObjectURL(new Blob([svg_text(chart)], { type: "image/svg+xml" }));
  image.addEventListener("load", () => {
    const canvas = element("canvas", { width: size * drawn.getAttribute("width"), height: size * drawn.getAttribute("height") });
    canvas.getContext("2d").drawImage(image, 0, 0, canvas.width, canvas.height);
    URL.revokeObjectURL(address);
    canvas.toBlob((blob) => save(`${file_name(chart)}.png`, blob), "image/png");
  });
  image.src = address;
}

/** One line a place on the axis, one column a curve; a band is two columns more. */
function save_csv(chart) {
  const places = [...new Set(chart.series.flatMap(({ points }) => points.map(({ x }) => x)))].sort((a, b) => a - b);
  const columns = chart.series.flatMap(({ name, points }) => {
    const at = new Map(points.map((point) => [point.x, point]));
    const column = (title, value) => ({ title, value: (x) => (at.has(x) ? value(at.get(x)) : "") });
    const banded = points.some(({ low }) => low !== undefined);
    return [column(name, ({ y }) => y), ...(banded ? [column(`${name}, low`, ({ low }) => low), column(`${name}, high`, ({ high }) => high)] : [])];
  });
  const lines = [[chart.x.label, ...columns.map(({ title }) => title)], ...places.map((x) => [x, ...columns.map(({ value }) => value(x))])];
  save(`${file_name(chart)}.csv`, new Blob([lines.map((line) => line.map(csv_cell).join(",")).join("\n"), "\n"], { type: "text/csv" }));
}

/** A text that a spreadsheet would take for a formula does not begin like one. */
export function csv_cell(value) {
  const text = typeof value === "number" ? String(value) : String(value).replace(/^[=+@-]/, "'$&");
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function svg_text(chart) {
  return new XMLSerializer().serializeToString(picture(chart));
}

function file_name({ title }) {
  return title.toLowerCase().replace(/[^a-z0-9]+/g, "-");
}

/** Lets the browser save something. */
function save(name, blob) {
  const address = URL.createObjectURL(blob);
  const link = element("a", { href: address, download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}
