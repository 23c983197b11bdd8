// One run, followed closely.
import { actions } from "./actions.js";
import { Chart } from "./chart.js";
import { client_table } from "./client_table.js";
import { strokes } from "./colour.js";
import { height, last_of } from "./columns.js";
import { board, watch } from "./board_state.js";
import { curve_controls } from "./controls.js";
import { element, say, way_to } from "./dom.js";
import { NONE, bytes, count, number, percent, score, seconds } from "./format.js";
import { ABSCISSAE, called, smoothed } from "./lines.js";
import { FIGURES, MEASURES, PHASES, solver_health } from "./measures.js";
import { shared_of } from "./runs_columns.js";
import { source } from "./source.js";
import { badge, meaning } from "./state.js";
import { workers } from "./workers.js";

const TILES = [
  ["Accuracy, local", (row) => score(row.local?.accuracy, row.evaluated)],
  ["Accuracy, shared", (row) => score(shared_of(row)?.accuracy, row.evaluated)],
  ["Worst tenth, local", (row) => score(row.local?.worst, row.evaluated)],
  ["Training loss", (_, story) => number(last_of(story.rounds, "loss"))],
  ["Sent", (_, story) => bytes(sent_so_far(story))],
  ["Peak memory", (_, story) => bytes(last_of(story.timings, "memory"))],
  ["Time left", (row) => seconds(row.seconds_left)],
];

function sent_so_far({ rounds }) {
  return height(rounds) > 0 ? last_of(rounds, "up") + last_of(rounds, "down") : null;
}

/** The view of a run. */
export function run_page(name) {
  const parts = { top: run_head(name), alarm: alarm(), tiles: tiles(), workers: workers(name), health: health(), charts: run_charts(), time: time_by_phase(), clients: client_table(name), settings: experiment_text(name) };
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
    const news = `${height(story.evaluations)} ${row.state}`;
    if (judged !== news) parts.clients.refresh();
    judged = news;
  };
  const runs = (rows) => {
    row = rows.find((one) => one.run === name) ?? { run: name, state: "malformed", problem: "There is no run of this name; it may have been removed." };
    show();
  };
  const stories = (all) => {
    story = all.get(name) ?? story;
    show();
  };
  const unwatch = watch(show);
  const leave = () => {
    unwatch();
    parts.charts.leave();
  };
  return { title: name, names: [name], node, runs, stories, leave };
}

/** What it is computed on, where that is not the CPU alone. */
function computed_on({ device }) {
  return device === "cpu" ? "" : `, on ${device}`;
}

/** The name, the state, the buttons, and how far it is. */
function run_head(name) {
  const state = element("span", { role: "status" }, badge("malformed"));
  const what = element("p", { class: "hint" });
  const problem = element("p", { class: "notice bad", role: "alert", hidden: true });
  const bar = element("progress", { max: 1, value: 0, "aria-label": "Rounds" });
  const far = element("span", { class: "far" });
  const buttons = actions(name);
  const way = way_to([[[], source.is_live ? "Runs" : "Report"]], name);
  const heading = element("h1", {}, name, " ", state);
  const node = element("section", { class: "head" }, way, heading, what, problem, element("p", { class: "way" }, bar, far), source.is_live && buttons.node);
  const show = (row) => {
    state.firstChild.show(row.state);
    const { info } = row;
    say(what, info ? `${info.title} on ${info.data} with ${info.model}, seed ${info.seed}, preset ${info.preset}${computed_on(info)}. ${meaning(row.state)}` : meaning(row.state));
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
  const node = element("p", { class: "notice warn", role: "alert", hidden: true }, element("strong", {}, "The solver is not converging. "), text, advice);
  const show = (_, story) => {
    const found = solver_health(story)?.alarm;
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
    const found = solver_health(story);
    node.hidden = !found;
    if (!found) return;
    const { steps, residual, unconverged } = found;
    say(text, `${number(steps)} steps per sample, relative residual ${number(residual)}, ${percent(unconverged)} of samples not converged (mean of the last rounds).`);
  };
  return { node, show };
}

/** The curves. */
function run_charts() {
  const all = FIGURES.map((figure) => new Chart(figure));
  const hint = element("p", { class: "hint" }, "The first curves begin when the first round is over.");
  const grid = element("div", { class: "grid" }, all.map((chart) => chart.node));
  const node = element("section", { "aria-labelledby": "curves" }, element("h2", { id: "curves" }, "Curves"), curve_controls(), hint, grid);
  const show = (row, story) => {
    const { info } = row;
    // A picture that leaves this page says whose it is.
    all.forEach((chart) => Object.assign(chart, { subject: called(row) }));
    hint.hidden = height(story.rounds) > 0;
    const abscissa = ABSCISSAE[board.abscissa];
    const points = (measure) => smoothed(MEASURES[measure].of(story).map(([round, y]) => ({ x: abscissa.at(story, round), y })).filter(({ x }) => x != null), board.smoothing);
    FIGURES.forEach((figure, index) => {
      const pens = strokes(figure.measures.map(() => ({ info })));
      const series = figure.measures.map((measure, place) => ({ key: measure, name: MEASURES[measure].name, stroke: pens[place], points: points(measure) }));
      all[index].draw(series, abscissa, { x: board.log_x, y: board.log_y });
    });
  };
  return { node, show, leave: () => all.forEach((chart) => chart.remove()) };
}

/** Where the time goes. */
function time_by_phase() {
  const rows = new Map();
  const body = element("tbody");
  const heading = element("tr", {}, ["Phase", "", "Time"].map((title, index) => element("th", { scope: "col", class: index === 2 && "number" }, title)));
  const caption = element("caption", {}, "So far, summed over clients, which may train in parallel");
  const phased = element("table", { class: "phases" }, caption, element("thead", {}, heading), body);
  const node = element("section", { "aria-labelledby": "time" }, element("h2", { id: "time" }, "Time by phase"), phased);
  const show = (_, story) => {
    node.hidden = height(story.timings) === 0;
    const most = Math.max(...Object.keys(PHASES).map((phase) => story.totals[phase]), 1e-9);
    for (const [phase, name] of Object.entries(PHASES)) {
      if (!rows.has(name)) rows.set(name, phase_bar(name, body));
      rows.get(name)(story.totals[phase], most);
    }
  };
  return { node, show };
}

function phase_bar(name, body) {
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
function experiment_text(name) {
  const text = element("pre", { tabindex: "0" });
  const read = async () => {
    if (!details.open || text.textContent) return;
    try {
      say(text, await source.experiment(name));
    } catch (error) {
      say(text, error.message);
    }
  };
  const details = element("details", { class: "settings", ontoggle: read }, element("summary", {}, "The experiment, with all settings"), text);
  return { node: details };
}
