// The table of runs: sorted by any column, with any setting as a column, sifted by words; runs can be chosen, hidden and kept.
import { board, choose } from "./board_state.js";
import { address, element, framed, link, say } from "./dom.js";
import { NONE, counted } from "./format.js";
import { columns_with, fits, sorted_by } from "./runs_columns.js";
import { source } from "./source.js";
import { badge } from "./state.js";

/** The table and its tools; `show(entries, keys)` takes `{ row, story }` and the settings that may be columns, and gives back the entries that are seen. `onhover(run)` is called while somebody points at one. */
export function runs_table(onhover = () => {}) {
  const lines = new Map();
  const [head, body] = [element("tr"), element("tbody")];
  const tools = runs_tools();
  const nothing = element("p", { class: "hint", hidden: true });
  const table = element("table", { class: "runs" }, element("caption", { class: "unseen" }, "Runs"), element("thead", {}, head), body);
  const frame = framed("Runs", table);
  const node = element("div", {}, tools.node, nothing, frame);
  let [columns_drawn, sort_drawn] = ["", null];
  const show = (entries, keys) => {
    // A column in which no run has anything is left out.
    const columns = columns_with(board.columns).filter(({ key, by }) => key !== "left" || entries.some((entry) => by(entry) != null));
    const drawn = JSON.stringify(columns.map(({ key }) => key));
    if (drawn !== columns_drawn) lines.clear();
    if (drawn !== columns_drawn || board.sort !== sort_drawn) {
      // Whoever sorts with the keyboard stays where they are.
      const held = head.contains(document.activeElement) ? document.activeElement.dataset.key : null;
      head.replaceChildren(...columns.map(heading));
      if (held) [...head.querySelectorAll("button")].find(({ dataset }) => dataset.key === held)?.focus();
    }
    [columns_drawn, sort_drawn] = [drawn, board.sort];
    const known = new Set(entries.map(({ row }) => row.run));
    for (const run of [...lines.keys()]) if (!known.has(run)) lines.delete(run);
    for (const run of [...board.chosen]) if (!known.has(run)) board.chosen.delete(run);
    for (const entry of entries) {
      if (!lines.has(entry.row.run)) lines.set(entry.row.run, run_line(entry.row.run, columns, onhover));
      lines.get(entry.row.run).show(entry);
    }
    const seen = entries.filter((entry) => fits(board.filter, entry) && !board.hidden.has(entry.row.run));
    const by = board.sort && columns.find(({ key }) => key === board.sort.key);
    const wanted = (by ? sorted_by(by, board.sort.down, seen) : seen).map(({ row }) => lines.get(row.run).node);
    if (wanted.length !== body.children.length || wanted.some((line, index) => body.children[index] !== line)) body.replaceChildren(...wanted);
    tools.show(entries, seen, keys);
    frame.classList.toggle("tall", seen.length > 14);
    frame.hidden = seen.length === 0;
    nothing.hidden = seen.length > 0;
    say(nothing, emptiness(entries));
    return seen;
  };
  return { node, show };
}

/** Why there is nothing to be seen. */
function emptiness(entries) {
  if (entries.length > 0) return `None of ${counted(entries.length, "run")} matches. Clear the words under Find, or show hidden runs.`;
  return source.is_live ? "No runs here yet. Start one with `fedeq run`: it will appear here." : "There are no runs in this report.";
}

/** Finding, choosing, hiding, and more columns. */
function runs_tools() {
  const find = element("input", { type: "search", placeholder: "name, method, rho=0.1 ...", value: board.filter, oninput: () => choose({ filter: find.value }) });
  const add = element("select", { "aria-label": "Add a setting as a column", onchange: () => add.value && choose({ columns: [...board.columns, add.value] }) });
  const button = (title, press, kind = "") => element("button", { type: "button", class: kind, onclick: press }, title);
  const compare = button("Compare", () => (location.hash = address("compare", ...board.chosen)), "main");
  const hide = button("Hide", () => choose({ hidden: new Set([...board.hidden, ...board.chosen]), chosen: new Set() }));
  const keep = button("Keep only these", () => keep_only());
  const all = button("Show hidden", () => choose({ hidden: new Set() }));
  let [entries_now, offered] = [[], ""];
  const keep_only = () => choose({ hidden: new Set(entries_now.map(({ row }) => row.run).filter((run) => !board.chosen.has(run))), chosen: new Set() });
  const node = element("div", { class: "tools" }, element("label", {}, "Find ", find), add, element("span", { class: "buttons" }, all, hide, keep, compare));
  const show = (entries, seen, keys) => {
    entries_now = entries;
    node.hidden = entries.length === 0;
    const amount = board.chosen.size;
    compare.disabled = hide.disabled = keep.disabled = amount === 0;
    say(compare, amount > 0 ? `Compare ${amount}` : "Compare");
    all.hidden = board.hidden.size === 0;
    say(all, `Show ${board.hidden.size} hidden`);
    const left = keys.filter((key) => !board.columns.includes(key));
    if (JSON.stringify(left) === offered) return;
    offered = JSON.stringify(left);
    add.replaceChildren(element("option", { value: "" }, "Add a column ..."), ...left.map((key) => element("option", { value: key }, key)));
  };
  return { node, show };
}

/** A heading that sorts; a setting's can be removed. */
function heading(column) {
  const is_sorted = board.sort?.key === column.key;
  // Numbers are sorted from the largest first, names from the first.
  const press = () => choose({ sort: { key: column.key, down: is_sorted ? !board.sort.down : Boolean(column.number) } });
  const sign = is_sorted ? (board.sort.down ? " ▼" : " ▲") : "";
  const sort = element("button", { type: "button", class: "sort", "data-key": column.key, title: column.setting ?? null, onclick: press }, column.title, element("span", { "aria-hidden": "true" }, sign));
  const remove = column.setting && element("button", { type: "button", class: "sort", "aria-label": `Remove the column ${column.title}`, onclick: () => choose({ columns: board.columns.filter((key) => key !== column.setting) }) }, "×");
  return element("th", { scope: "col", class: column.number && "number", "aria-sort": is_sorted ? (board.sort.down ? "descending" : "ascending") : null }, sort, remove);
}

/** One line of the table; it is changed in place, so that nobody loses their place in it. */
function run_line(run, columns, onhover) {
  const tick = element("input", { type: "checkbox", "aria-label": `Choose ${run}` });
  tick.addEventListener("change", () => {
    const chosen = new Set(board.chosen);
    chosen[tick.checked ? "add" : "delete"](run);
    choose({ chosen });
  });
  const problem = element("p", { class: "problem", hidden: true });
  const name = element("th", { scope: "row" }, element("div", { class: "name" }, tick, link(["run", run], run)), problem);
  const cells = columns.slice(1).map((column) => element("td", { class: column.number && "number", "data-label": column.title }));
  const node = element("tr", { "data-run": run, onpointerenter: () => onhover(run), onpointerleave: () => onhover(null) }, name, cells);
  const show = (entry) => {
    const { row } = entry;
    problem.hidden = !row.problem;
    say(problem, row.problem ?? "");
    tick.disabled = row.state === "malformed";
    tick.checked = board.chosen.has(run);
    node.dataset.state = row.state;
    cells.forEach((cell, index) => fill_cell(cell, columns[index + 1], entry));
  };
  return { node, show };
}

/** Words in which no line break comes after a hyphen, as it would in a date. */
function whole_words(text) {
  return text.split(" ").flatMap((word, index) => [...(index > 0 ? [" "] : []), element("span", { class: "whole" }, word)]);
}

function fill_cell(cell, column, entry) {
  if (column.text) {
    const text = column.text(entry) ?? NONE;
    if (!column.whole) say(cell, text);
    else if (cell.textContent !== text) cell.replaceChildren(...whole_words(text));
    cell.classList.toggle("none", cell.textContent === NONE);
  } else if (cell.firstChild) {
    cell.firstChild.show(entry.row.state);
  } else {
    cell.append(badge(entry.row.state));
  }
}
