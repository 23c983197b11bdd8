// Several runs: the table of runs, their results side by side, curves, clients and settings. All runs of a dashboard or a report, or those that were chosen.
import { board, watch } from "./board_state.js";
import { on_theme } from "./colour.js";
import { confusion_section } from "./confusion.js";
import { contents } from "./contents.js";
import { curves_section, drawn_lines } from "./curves.js";
import { group_control } from "./controls.js";
import { differences_section } from "./differences.js";
import { element, section, way_to } from "./dom.js";
import { cost_section, results_section } from "./groups_table.js";
import { differing, grouped } from "./labels.js";
import { EACH, SEEDS, lines_of } from "./lines.js";
import { report_closing, report_opening } from "./report.js";
import { runs_table } from "./runs_table.js";
import { clients_section } from "./side_by_side.js";
import { source } from "./source.js";

/** The view of all runs (`names` is nothing), or of some. */
export function overview(names = null) {
  const is_whole = names === null;
  // In a report everything is looked at closely; in a dashboard what was chosen is.
  const is_close = !is_whole || !source.is_live;
  const parts = sections(is_whole, is_close);
  const node = element("div", { class: "board" }, ...parts.nodes);
  const toc = contents(node);
  if (is_close) node.prepend(toc.node);
  node.prepend(...title(names));
  let [rows, stories, due, took, ended] = [[], new Map(), false, 0, 0];
  const draw = () => {
    due = false;
    const begun = performance.now();
    const wanted = is_whole ? rows : rows.filter(({ run }) => names.includes(run));
    const entries = wanted.map((row) => ({ row, story: stories.get(row.run) }));
    parts.show(entries);
    toc.show();
    ended = performance.now();
    took = ended - begun;
  };
  // Many changes are drawn once, and what takes long to draw is not drawn all the time.
  const soon = () => {
    if (!due) setTimeout(draw, Math.max(0, ended + Math.min(took, 500) - performance.now()));
    due = true;
  };
  const [unwatch, forget_theme] = [watch(soon), on_theme(soon)];
  const leave = () => {
    unwatch();
    forget_theme();
    parts.leave();
  };
  const heard = { runs: (now) => { rows = now; soon(); }, stories: (now) => { stories = now; soon(); } };
  return { title: is_whole ? (source.report?.title ?? "Runs") : "Comparison", names: is_whole ? "all" : names, node, ...heard, leave };
}

function title(names) {
  if (names === null) return [element("h1", {}, source.report?.title ?? "Runs")];
  const name = `Comparison of ${names.length === 1 ? "one run" : `${names.length} runs`}`;
  return [way_to([[[], source.report ? "Report" : "Runs"]], name), element("h1", {}, name)];
}

function sections(is_whole, is_close) {
  let lines = [];
  const table = runs_table((run) => highlight(lines.find(({ members }) => members.some(({ row }) => row.run === run))?.key ?? null));
  const group = group_control();
  const highlight = (key) => {
    curves.highlight(key);
    clients?.highlight(key);
  };
  const curves = curves_section();
  const [results, differences, cost, clients, confusion] = is_close ? [results_section(), differences_section(), cost_section(), clients_section(highlight), confusion_section()] : [];
  // The page of a dashboard has that heading already.
  const runs = is_whole && source.is_live ? element("section", { "aria-label": "Runs" }, table.node) : section("runs", "Runs", table.node);
  const closely = [results, differences, curves, clients, confusion, cost].filter(Boolean);
  const grouping = element("div", { class: "tools" }, group.node);
  // A report begins with its findings, a dashboard with its runs.
  const inside = closely.map(({ node }) => node);
  const nodes = source.is_live ? [runs, grouping, ...inside] : [...(is_whole ? report_opening() : []), grouping, ...inside, runs, ...(is_whole ? report_closing() : [])];
  const show = (entries) => {
    const known = entries.filter(({ row, story }) => row.info && story);
    const keys = known.length > 0 ? differing(known.map(({ story }) => story.settings)) : [];
    const all_keys = [...keys, ...Object.keys(known[0]?.story.settings ?? {}).filter((key) => !keys.includes(key))];
    const seen = table.show(entries, all_keys);
    const by = board.group ?? usual_group(known);
    group.show(keys, by);
    grouping.hidden = known.length < 2;
    lines = drawn_lines(lines_of(seen, by));
    closely.forEach((part) => part.show(lines));
    curves.node.hidden = lines.length === 0;
  };
  return { nodes, show, leave: () => closely.forEach((part) => part.leave?.()) };
}

/** Seeds are put together where there are several of the same. */
function usual_group(entries) {
  const same = grouped(entries, ({ row, story }) => JSON.stringify([row.info.method, story.settings]));
  return [...same.values()].some((members) => members.length > 1) ? SEEDS : EACH;
}
