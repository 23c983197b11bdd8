// The list of runs.
import { address, element, link, say } from "./dom.js";
import { both } from "./figures.js";
import { NONE, count, percent, seconds } from "./format.js";
import { badge } from "./state.js";

const COLUMNS = [
  { title: "State" },
  { title: "Method", text: (row) => row.info?.method },
  { title: "Data", text: (row) => row.info?.data },
  { title: "Model", text: (row) => row.info?.model },
  { title: "Seed", text: (row) => row.info && String(row.info.seed), number: true },
  { title: "Round", text: (row) => row.info && `${count(row.round)} of ${count(row.info.rounds)}`, number: true },
  { title: "Accuracy, local", text: (row) => percent(row.local?.accuracy), number: true },
  { title: "Accuracy, shared", text: (row) => percent(both(row).shared?.accuracy), number: true },
  { title: "Worst tenth, local", text: (row) => percent(row.local?.worst), number: true },
  { title: "Time left", text: (row) => seconds(row.seconds_left), number: true },
];

/** The view of all runs. */
export function list() {
  const lines = new Map();
  const chosen = new Set();
  const body = element("tbody");
  const compare = element("button", { type: "button", class: "main", disabled: true }, "Compare");
  compare.addEventListener("click", () => (location.hash = address("compare", ...chosen)));
  const filter = element("input", { type: "search", placeholder: "name, method, state ...", oninput: () => sift(lines, filter.value) });
  const nothing = element("p", { class: "hint", hidden: true }, "No runs here yet. ", element("code", {}, "fedeq run"), " makes one; it will appear by itself.");
  const heading = COLUMNS.map((column) => element("th", { scope: "col", class: column.number && "number" }, column.title));
  const head = element("tr", {}, element("th", { scope: "col" }, "Run"), heading);
  const runs = element("table", { class: "runs cards" }, element("caption", { class: "unseen" }, "Runs"), element("thead", {}, head), body);
  const tools = element("div", { class: "tools" }, element("label", {}, "Find ", filter), compare);
  const choose = (run, is_chosen) => {
    chosen[is_chosen ? "add" : "delete"](run);
    compare.disabled = chosen.size < 1;
    say(compare, chosen.size > 0 ? `Compare ${chosen.size}` : "Compare");
  };
  const show = (rows) => {
    nothing.hidden = rows.length > 0;
    runs.hidden = tools.hidden = rows.length === 0;
    for (const run of [...lines.keys()].filter((run) => !rows.some((row) => row.run === run))) {
      lines.delete(run);
      choose(run, false);
    }
    for (const row of rows) {
      if (!lines.has(row.run)) lines.set(row.run, entry(row, choose));
      lines.get(row.run).show(row);
    }
    const wanted = rows.map((row) => lines.get(row.run).node);
    if (wanted.length !== body.children.length || wanted.some((node, index) => body.children[index] !== node)) body.replaceChildren(...wanted);
    sift(lines, filter.value);
  };
  return { title: "Runs", names: [], node: element("section", {}, element("h1", {}, "Runs"), tools, nothing, runs), runs: show };
}

/** One line of the list; it is changed in place, so that nobody loses their place in it. */
function entry(row, choose) {
  const tick = element("input", { type: "checkbox", "aria-label": `Choose ${row.run}` });
  tick.addEventListener("change", () => choose(row.run, tick.checked));
  const problem = element("p", { class: "problem", hidden: true });
  const name = element("th", { scope: "row" }, element("div", { class: "name" }, tick, link(["run", row.run], row.run)), problem);
  const cells = COLUMNS.map((column) => element("td", { class: column.number && "number", "data-label": column.title }));
  const node = element("tr", { "data-run": row.run }, name, cells);
  const show = (now) => {
    problem.hidden = !now.problem;
    say(problem, now.problem ?? "");
    tick.disabled = now.state === "malformed";
    COLUMNS.forEach((column, index) => fill(cells[index], column, now));
    const { method, data, model } = now.info ?? {};
    node.dataset.words = [now.run, now.state, method, data, model].join(" ").toLowerCase();
  };
  return { node, show };
}

function fill(cell, column, row) {
  if (column.text) {
    say(cell, column.text(row) ?? NONE);
    cell.classList.toggle("none", cell.textContent === NONE);
  } else if (cell.firstChild) {
    cell.firstChild.show(row.state);
  } else {
    cell.append(badge(row.state));
  }
}

/** Leaves only lines with all the words. */
function sift(lines, text) {
  const words = text.toLowerCase().split(/\s+/);
  for (const { node } of lines.values()) node.hidden = !words.every((word) => node.dataset.words.includes(word));
}
