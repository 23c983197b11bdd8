// Lines side by side: what came out, with scatter, and how far each is from the first.
import { last_of, value_at } from "./columns.js";
import { difference_text } from "./division.js";
import { element, framed, replace, section, table } from "./dom.js";
import { bytes, count, number, percent, scattered, seconds } from "./format.js";
import { mark } from "./legend.js";
import { at_the_end, full_name, sample, seconds_until } from "./lines.js";
import { PHASES } from "./measures.js";
import { swatch } from "./picture.js";
import { shared_of } from "./runs_columns.js";

const evaluated = (value) => (story, round) => value_at(story.evaluations, round, (at) => value(at, story.evaluations));

/** What came out: `of` a run's row, and `at` a round before its end. */
const RESULTS = [
  { title: "Accuracy, local", of: (row) => row.local?.accuracy, at: evaluated((at) => at("local")), format: percent, score: true },
  { title: "Accuracy, shared", of: (row) => shared_of(row)?.accuracy, at: evaluated((at, { shared }) => at(shared ? "shared" : "local")), format: percent, score: true },
  { title: "Worst tenth, local", of: (row) => row.local?.worst, at: evaluated((at) => at("local_worst")), format: percent, score: true },
  { title: "Sent", of: (row) => row.sent, at: evaluated((at) => at("up") + at("down")), format: bytes },
  { title: "Time", of: (row) => row.seconds, at: seconds_until, format: seconds },
  { title: "Memory", of: (row) => row.memory, at: (story, round) => value_at(story.timings, round, (at) => at("memory")), format: bytes },
];

/** The section and `show(lines)`. */
export function results_section() {
  const place = element("div");
  const about = element("p", { class: "note" }, "Mean ± one standard deviation over runs after the same number of rounds; unfinished runs are never put together with finished ones. Difference: to the first line, in points, ± its standard error; seed by seed where both lines have the same seeds and data, else said to be unpaired.");
  const node = section("results", "Results side by side", place, about);
  const show = (lines) => {
    node.hidden = lines.length === 0;
    replace(place, framed("Results side by side", results_table(lines)));
  };
  return { node, show };
}

function results_table(lines) {
  const none = (line) => (line.pooled.length > 0 ? "not reported" : "–");
  const column = (measure) => ({ title: measure.title, number: true, text: (line) => {
    const found = at_the_end(line, measure);
    return measure.score ? scattered(found, measure.format, none(line)) : measure.format(found?.mean);
  } });
  const difference = (title, measure) => ({ title, number: true, text: (line) => difference_text(lines[0], line, measure) });
  const line_name = (line) => element("span", {}, element("span", { class: "named" }, swatch(line.stroke), ` ${line.label}`), mark(line));
  const columns = [
    { title: "Line", text: line_name },
    { title: "Rounds", number: true, text: (line) => count(line.round) },
    ...RESULTS.map(column),
    ...(lines.length > 1 ? [difference("Difference, local", RESULTS[0]), difference("Difference, shared", RESULTS[1])] : []),
  ];
  return table("Lines, each with its runs", columns, lines);
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
      { title: "Line", text: full_name },
      ...Object.entries(PHASES).map(phase),
      { title: "One client's training, memory", number: true, text: (line) => bytes(over(line, (story) => last_of(story.timings, "client_memory"))) },
      { title: "Process, memory", number: true, text: (line) => bytes(over(line, (story) => last_of(story.timings, "memory"))) },
      { title: "Solver steps", number: true, text: (line) => number(over(line, (story) => last_of(story.rounds, "steps"))) },
    ];
    replace(place, framed("Time and memory", table("Seconds by phase, summed over clients, which may train in parallel; means over runs", columns, timed)));
  };
  return { node, show };
}
