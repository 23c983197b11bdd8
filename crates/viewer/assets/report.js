// What a report has beside the runs: words, the table of results with its tests, what it left out, and how to do it again.
import { element, framed, section } from "./dom.js";
import { source } from "./source.js";

/** Text in which what stands in backticks is code. */
function prose(text) {
  const parts = text.split("`");
  if (parts.length % 2 === 0) return [text];
  return parts.map((part, index) => (index % 2 === 1 ? element("code", {}, part) : part));
}

function bullets(sentences) {
  return sentences.length > 0 && element("ul", {}, sentences.map((sentence) => element("li", {}, prose(sentence))));
}

/** A number stays on the line of its unit and of its scatter's sign. */
function unbroken(text) {
  return text.replace(/(±|\d) (?=[\dA-Za-z%†])/g, "$1\u00a0");
}

/** A table that was made with the report: `{ title, about, heading, rows, words, best }`. */
function given_table({ title, about, heading, rows, words, best }) {
  const kind = (column) => (column < words ? null : "number");
  const is_best = (row, column) => best.some(([x, y]) => x === row && y === column);
  const cell = (row) => (text, column) => element(column === 0 ? "th" : "td", { scope: column === 0 && "row", class: kind(column), "data-label": heading[column] }, is_best(row, column) ? element("strong", {}, unbroken(text)) : unbroken(text));
  const head = element("tr", {}, heading.map((name, column) => element("th", { scope: "col", class: kind(column) }, name)));
  const body = rows.map((cells, row) => element("tr", {}, cells.map(cell(row))));
  const table = element("table", { class: "given" }, element("caption", { class: "unseen" }, title), element("thead", {}, head), element("tbody", {}, body));
  return [framed(title, table), about && element("p", { class: "note" }, prose(about))];
}

/** The sections before the runs. */
export function report_opening() {
  const { report } = source;
  if (!report) return [];
  const unfinished = report.unfinished.length > 0 && element("div", { class: "notice warn", role: "note" }, bullets(report.unfinished));
  const words = report.words.map((text) => element("p", { class: "lead" }, prose(text)));
  return [unfinished, ...words, section("summary", "Summary", given_table(report.overview), bullets(report.findings))].filter(Boolean);
}

/** The sections after the runs. */
export function report_closing() {
  const { report } = source;
  if (!report) return [];
  const more = report.tables.map((given, index) => section(`given-${index}`, given.title, given_table(given)));
  const commands = element("pre", { tabindex: "0" }, report.commands);
  const again = section("again", "How to reproduce it", element("p", {}, `Run by ${report.programs}. The same experiment, version and seed give the same numbers, whatever the number of cores.`), commands);
  const left_out = report.left_out.length > 0 && element("p", { class: "note" }, `Left out to keep the file small: ${report.left_out.join("; ")}. `, element("code", {}, "fedeq dashboard"), " shows all of it.");
  return [...more, left_out, again].filter(Boolean);
}
