// One run, followed closely.
import { actions } from "./actions.js";
import { Chart } from "./chart.js";
import { clients } from "./clients.js";
import { element, link, say } from "./dom.js";
import { FIGURES, MEASURES, both, phases, solver } from "./figures.js";
import { NONE, bytes, count, number, percent, seconds } from "./format.js";
import { badge, meaning } from "./state.js";
import { ask } from "./stream.js";
import { workers } from "./workers.js";

const TILES = [
  ["Accuracy, local", (row) => percent(row.local?.accuracy)],
  ["Accuracy, shared", (row) => percent(both(row).shared?.accuracy)],
  ["Worst tenth, local", (row) => percent(row.local?.worst)],
  ["Training loss", (_, story) => number(story.rounds.findLast((row) => row.loss != null)?.loss)],
  ["Sent", (_, story) => bytes(sent(story))],
  ["Peak memory", (_, story) => bytes(story.timings.at(-1)?.peak_memory)],
  ["Time left", (row) => seconds(row.seconds_left)],
];

function sent(story) {
  const last = story.rounds.at(-1);
  return last && last.up + last.down;
}

/** The view of a run. */
export function run(name) {
  const parts = { top: top(name), alarm: alarm(), tiles: tiles(), workers: workers(name), health: health(), charts: charts(), time: time(), clients: clients(name), settings: settings(name) };
  const body = element("div", {}, Object.values(parts).slice(1).map((part) => part.node));
  const node = element("div", {}, parts.top.node, body);
  let [row, story, judged] = [null, null, null];
  const show = () => {
    if (!row) return;
    parts.top.show(row);
    body.hidden = row.state === "malformed";
    if (!story || body.hidden) return;
    for (const part of ["alarm", "tiles", "health", "charts", "time"]) parts[part].show(row, story);
    parts.workers.show(story.activity, row.state);
    const news = `${story.evaluations.length} ${row.state}`;
    if (judged !== news) parts.clients.refresh();
    judged = news;
  };
  const runs = (rows) => {
    row = rows.find((one) => one.run === name) ?? { run: name, state: "malformed", problem: "There is no such run (any more)." };
    show();
  };
  const told = (_, news) => {
    story = news;
    show();
  };
  return { title: name, names: [name], node, runs, run: told, leave: parts.charts.leave };
}

/** What it is computed on, where that is not the CPU alone. */
function place({ device }) {
  return device === "cpu" ? "" : `, on ${device}`;
}

/** The name, the state, the buttons, and how far it is. */
function top(name) {
  const state = element("span", { role: "status" }, badge("malformed"));
  const what = element("p", { class: "hint" });
  const problem = element("p", { class: "notice bad", role: "alert", hidden: true });
  const bar = element("progress", { max: 1, value: 0, "aria-label": "Rounds" });
  const far = element("span", { class: "far" });
  const buttons = actions(name);
  const way = element("nav", { "aria-label": "Where you are" }, link([], "Runs"), " / ");
  const heading = element("h1", {}, name, " ", state);
  const node = element("section", { class: "head" }, way, heading, what, problem, element("p", { class: "way" }, bar, far), buttons.node);
  const show = (row) => {
    state.firstChild.show(row.state);
    const { info } = row;
    say(what, info ? `${info.method} on ${info.data} with ${info.model}, seed ${info.seed}, preset ${info.preset}${place(info)}. ${meaning(row.state)}` : meaning(row.state));
    const trouble = row.problem ?? (row.trouble && `It could not be resumed: ${row.trouble}`);
    problem.hidden = !trouble;
    say(problem, trouble ?? "");
    bar.hidden = far.hidden = !info;
    if (info) {
      bar.max = info.rounds;
      bar.value = row.round;
      say(far, `round ${count(row.round)} of ${count(info.rounds)}`);
    }
    buttons.show(row);
  };
  return { node, show };
}

/** A warning when samples stop converging. */
function alarm() {
  const text = element("span");
  const advice = " Allow more solver steps, lower the learning rate, or keep the cell contractive.";
  const node = element("p", { class: "notice warn", role: "alert", hidden: true }, element("strong", {}, "The solver struggles. "), text, advice);
  const show = (_, story) => {
    const found = solver(story)?.alarm;
    node.hidden = !found;
    say(text, found ?? "");
  };
  return { node, show };
}

/** The most important numbers. */
function tiles() {
  const values = TILES.map(() => element("dd", {}, NONE));
  const node = element("dl", { class: "facts" }, TILES.map(([title], index) => element("div", {}, element("dt", {}, title), values[index])));
  const show = (row, story) => TILES.forEach(([, text], index) => say(values[index], text(row, story)));
  return { node, show };
}

/** How the solver does. */
function health() {
  const text = element("p");
  const node = element("section", { "aria-labelledby": "solver" }, element("h2", { id: "solver" }, "Solver"), text);
  const show = (_, story) => {
    const found = solver(story);
    node.hidden = !found;
    if (!found) return;
    const { steps, residual, unconverged } = found;
    say(text, `${number(steps)} steps a sample, relative residual ${number(residual)}, ${percent(unconverged)} of samples not converged (mean of the last rounds).`);
  };
  return { node, show };
}

/** The curves. */
function charts() {
  const all = FIGURES.map((figure) => new Chart(figure));
  const hint = element("p", { class: "hint" }, "The first curves begin when the first round is over.");
  const grid = element("div", { class: "grid" }, all.map((chart) => chart.node));
  const node = element("section", { "aria-labelledby": "curves" }, element("h2", { id: "curves" }, "Curves"), hint, grid);
  const show = ({ info }, story) => {
    hint.hidden = story.rounds.length > 0;
    FIGURES.forEach((figure, index) => {
      const series = figure.measures.map((measure) => ({ name: MEASURES[measure].name, points: MEASURES[measure].of(story, info) }));
      all[index].draw(series.map((one, colour) => ({ ...one, colour })).filter((one) => one.points.length > 0));
    });
  };
  return { node, show, leave: () => all.forEach((chart) => chart.remove()) };
}

/** Where the time goes. */
function time() {
  const rows = new Map();
  const body = element("tbody");
  const heading = element("tr", {}, ["Phase", "", "Time"].map((title, index) => element("th", { scope: "col", class: index === 2 && "number" }, title)));
  const caption = element("caption", {}, "So far, summed over clients, which may work side by side");
  const phased = element("table", { class: "phases" }, caption, element("thead", {}, heading), body);
  const node = element("section", { "aria-labelledby": "time" }, element("h2", { id: "time" }, "Time by phase"), phased);
  const show = (_, story) => {
    node.hidden = story.timings.length === 0;
    const found = phases(story);
    const most = Math.max(...found.map((phase) => phase.seconds), 1e-9);
    for (const phase of found) {
      if (!rows.has(phase.name)) rows.set(phase.name, bar(phase.name, body));
      rows.get(phase.name)(phase.seconds, most);
    }
  };
  return { node, show };
}

function bar(name, body) {
  const meter = element("meter", { min: 0, "aria-hidden": "true" });
  const value = element("td", { class: "number" });
  body.append(element("tr", {}, element("th", { scope: "row" }, name), element("td", { class: "bar" }, meter), value));
  return (spent, most) => {
    meter.max = most;
    meter.value = spent;
    say(value, seconds(spent));
  };
}

/** The experiment, read when somebody wants to see it. */
function settings(name) {
  const text = element("pre", { tabindex: "0" });
  const read = async () => {
    if (!details.open || text.textContent) return;
    try {
      say(text, await (await ask("/api/experiment", { run: name })).text());
    } catch (error) {
      say(text, error.message);
    }
  };
  const details = element("details", { class: "settings", ontoggle: read }, element("summary", {}, "The experiment, with every choice"), text);
  return { node: details };
}
