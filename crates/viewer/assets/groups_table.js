// Lines side by side: what came out, with scatter, and how far each is from the first.
import { last_of } from "./columns.js";
import { element, framed, replace, section, table } from "./dom.js";
import { bytes, count, number, percent, scattered, seconds } from "./format.js";
import { mark } from "./legend.js";
import { at_the_end, sample } from "./lines.js";
import { PHASES } from "./measures.js";
import { swatch } from "./picture.js";
import { shared_of } from "./runs_columns.js";

const RESULTS = [
  { title: "Accuracy, local", of: (row) => row.local?.accuracy, column: "local", format: percent, score: true },
  { title: "Accuracy, shared", of: (row) => shared_of(row)?.accuracy, column: "shared", format: percent, score: true },
  { title: "Worst tenth, local", of: (row) => row.local?.worst, column: "local_worst", format: percent, score: true },
  { title: "Sent", of: (row) => row.sent, format: bytes },
  { title: "Time", of: (row) => row.seconds, format: seconds },
  { title: "Memory", of: (row) => row.memory, format: bytes },
];

/** The section and `show(lines)`. */
export function results_section() {
  const place = element("div");
  const about = element("p", { class: "note" }, "Mean ± one standard deviation over runs after the same number of rounds; unfinished runs are never put together with finished ones. Difference: to the first line, ± the standard error of a difference of means.");
  const node = section("results", "Results side by side", place, about);
  const show = (lines) => {
    node.hidden = lines.length === 0;
    replace(place, framed("Results side by side", results_table(lines)));
  };
  return { node, show };
}

function results_table(lines) {
  const none = (line) => (line.pooled.length > 0 ? "not told" : "–");
  const column = ({ title, of, column: name, format, score }) => ({ title, number: true, text: (line) => {
    const found = at_the_end(line, of, name);
    return score ? scattered(found, format, none(line)) : format(found?.mean);
  } });
  const line_name = (line) => element("span", {}, element("span", { class: "named" }, swatch(line.stroke), ` ${line.label}`), mark(line));
  const columns = [
    { title: "Line", text: line_name },
    { title: "Rounds", number: true, text: (line) => count(line.round) },
    ...RESULTS.map(column),
    ...(lines.length > 1 ? [{ title: "Difference, local", number: true, text: (line) => difference(lines[0], line, RESULTS[0]) }, { title: "Difference, shared", number: true, text: (line) => difference(lines[0], line, RESULTS[1]) }] : []),
  ];
  return table("Lines, each with its runs", columns, lines);
}

/** In points of a percent, with the standard error where both have scatter. */
function difference(first, line, { of, column }) {
  if (line === first) return "";
  const [one, other] = [at_the_end(line, of, column), at_the_end(first, of, column)];
  if (!one || !other) return "–";
  if (line.is_finished !== first.is_finished) return "not comparable: unfinished";
  const points = 100 * (one.mean - other.mean);
  const sign = points < 0 ? "−" : "+";
  const error = one.count > 1 && other.count > 1 ? ` ± ${(100 * Math.sqrt(one.deviation ** 2 / one.count + other.deviation ** 2 / other.count)).toFixed(1)}` : "";
  return `${sign}${Math.abs(points).toFixed(1)}${error}`;
}

/** Seconds by phase, and memory. */
export function cost_section() {
  const place = element("div");
  const node = section("cost", "Time and memory", place);
  const show = (lines) => {
    const timed = lines.filter(({ members }) => members.some(({ story }) => story.totals.round > 0));
    node.hidden = timed.length === 0;
    if (node.hidden) return;
    const over = (line, of) => sample((line.pooled.length > 0 ? line.pooled : line.members).map(({ story }) => of(story)))?.mean;
    const phase = ([key, title]) => ({ title, number: true, text: (line) => seconds(over(line, (story) => story.totals[key])) });
    const columns = [
      { title: "Line", text: (line) => line.label },
      ...Object.entries(PHASES).map(phase),
      { title: "One client's work, memory", number: true, text: (line) => bytes(over(line, (story) => last_of(story.timings, "client_memory"))) },
      { title: "Process, memory", number: true, text: (line) => bytes(over(line, (story) => last_of(story.timings, "memory"))) },
      { title: "Solver steps", number: true, text: (line) => number(over(line, (story) => last_of(story.rounds, "steps"))) },
    ];
    replace(place, framed("Time and memory", table("Seconds by phase, summed over clients that may work side by side; means over runs", columns, timed)));
  };
  return { node, show };
}
