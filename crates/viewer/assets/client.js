// One client of a run.
import { Chart } from "./chart.js";
import { height, points_of } from "./columns.js";
import { confusion_details } from "./confusion.js";
import { strokes } from "./colour.js";
import { element, link, say, table, way_to } from "./dom.js";
import { count, counted, number, percent } from "./format.js";
import { ABSCISSAE, called } from "./lines.js";
import { source } from "./source.js";

const CLIENT_FIGURES = [
  { title: "Accuracy", format: percent, zero: true, most: 1 },
  { title: "Personal head", note: "‖wᵢ‖ after training", format: number, zero: true },
  { title: "Movement of the head", note: "‖wᵢ − wᵢ before‖", format: number, zero: true },
];

/** The view of a client. */
export function client_page(run, which) {
  const title = element("h1", {}, `Client ${which}`);
  const hint = element("p", { class: "hint", role: "status" }, "Reading ...");
  const labels = element("section", { "aria-labelledby": "labels" }, element("h2", { id: "labels" }, "Its data"), element("div"));
  const charts = CLIENT_FIGURES.map((figure) => new Chart(figure));
  const curves = element("section", { "aria-labelledby": "history" }, element("h2", { id: "history" }, "Over rounds"), element("div", { class: "grid" }, charts.map((chart) => chart.node)));
  const way = way_to([[[], source.is_live ? "Runs" : "Report"], [["run", run], run]], `client ${which}`);
  const others = element("nav", { class: "others", "aria-label": "Other clients" });
  const confusion = confusion_details(run, which);
  const node = element("div", {}, way, title, hint, others, labels, curves, confusion.node);
  let [drawn, row] = [null, null];
  // Curves have the colour of the run's method.
  const draw = () => {
    if (!drawn || !row?.info) return;
    charts.forEach((chart) => Object.assign(chart, { subject: `${drawn.name} of ${called(row)}` }));
    draw_client(charts, drawn, row.info);
  };
  const show = (classes, portrait, all) => {
    say(title, `Client ${portrait.name}`);
    say(hint, sentence(portrait));
    if (!labels.lastChild.hasChildNodes()) labels.lastChild.append(holdings(classes, portrait));
    others.replaceChildren(...neighbours(run, which, all));
    drawn = portrait;
    draw();
  };
  const refresh = async () => {
    try {
      const [{ classes, clients }, all] = await Promise.all([source.client(run, which), source.clients(run).catch(() => [])]);
      show(classes, clients[0], all);
    } catch (error) {
      labels.hidden = curves.hidden = confusion.node.hidden = true;
      say(hint, error.message);
    }
  };
  // News of the run means that there may be news of the client; who is at work changes more often than that.
  let seen = "";
  const stories = (all) => {
    const story = all.get(run);
    const now = story ? [story.rounds, story.evaluations, story.timings].map(height).join(" ") : "";
    if (now !== seen) refresh();
    seen = now;
  };
  const runs = (rows) => {
    const known = row?.info;
    row = rows.find((one) => one.run === run);
    if (row) confusion.show(row);
    else say(hint, `There is no run ${run}; it may have been removed.`);
    if (!known) draw();
  };
  return { title: `Client ${which} of ${run}`, names: [run], node, runs, stories, leave: () => charts.forEach((chart) => chart.remove()) };
}

function sentence({ unseen, rounds, holds }) {
  const samples = holds ? `${counted(holds.train.samples, "training sample")}, ${counted(holds.test.samples, "test sample")}` : "Sample counts are known to the client alone";
  if (unseen) return `${samples}. It was not part of training; its accuracy is in the run's summary.`;
  return `${samples}. It took part in ${counted(rounds, "round")}.`;
}

/** How many samples of each label. */
function holdings(classes, { holds }) {
  if (!holds) return element("p", {}, "This client's data is on its own device.");
  if (classes.length === 0) return element("p", {}, "Its samples do not have a single label each.");
  const held = classes.map((name, index) => ({ name, train: holds.train.by_class[index], test: holds.test.by_class[index] }));
  const rows = held.filter((row) => row.train + row.test > 0);
  const most = Math.max(1, ...rows.map((row) => row.train));
  const meter = (row) => element("meter", { min: 0, max: most, value: row.train, "aria-hidden": "true" });
  const columns = [
    { title: "Label", text: (row) => row.name },
    { title: "", text: meter },
    { title: "Training", text: (row) => count(row.train), number: true },
    { title: "Test", text: (row) => count(row.test), number: true },
  ];
  const drawn = table("Samples by label", columns, rows);
  drawn.className = "phases";
  return drawn;
}

function draw_client([accuracy, norm, moved], { evaluations, heads }, info) {
  const pens = strokes([{ info }, { info }]);
  const over = (name, place, columns, key) => ({ key: name, name, stroke: pens[place], points: points_of(columns, (at) => at(key)).map(([x, y]) => ({ x, y })) });
  accuracy.draw([over("own model", 0, evaluations, "local"), over("shared model", 1, evaluations, "shared")], ABSCISSAE.round);
  norm.draw([over("norm", 0, heads, "norm")], ABSCISSAE.round);
  moved.draw([over("moved by", 1, heads, "moved")], ABSCISSAE.round);
}

/** The clients before and after, of those that have a page. */
function neighbours(run, which, all) {
  const numbers = all.map(({ client }) => client).filter((client) => source.has_client(run, client));
  const to = (number, text) => number !== undefined && link(["run", run, "client", number], text);
  const [before, after] = [numbers.filter((number) => number < which).at(-1), numbers.find((number) => number > which)];
  return [to(before, "← previous"), " ", to(after, "next →")].filter(Boolean);
}
