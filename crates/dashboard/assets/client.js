// One client of a run.
import { Chart } from "./chart.js";
import { element, link, say, table } from "./dom.js";
import { count, counted, number, percent } from "./format.js";
import { ask } from "./stream.js";

const FIGURES = [
  { title: "Accuracy", format: percent, zero: true, most: 1 },
  { title: "Personal head", note: "‖wᵢ‖ after training", format: number, zero: true },
  { title: "Movement of the head", note: "‖wᵢ − wᵢ before‖", format: number, zero: true },
];

/** The view of a client. */
export function client(run, which) {
  const title = element("h1", {}, `Client ${which}`);
  const hint = element("p", { class: "hint", role: "status" }, "Reading ...");
  const labels = element("section", { "aria-labelledby": "labels" }, element("h2", { id: "labels" }, "What it holds"), element("div"));
  const charts = FIGURES.map((figure) => new Chart(figure));
  const curves = element("section", { "aria-labelledby": "history" }, element("h2", { id: "history" }, "Its history"), element("div", { class: "grid" }, charts.map((chart) => chart.node)));
  const way = element("nav", { "aria-label": "Where you are" }, link([], "Runs"), " / ", link(["run", run], run), " / ");
  const others = element("nav", { class: "others", "aria-label": "Other clients" });
  const node = element("div", {}, way, title, hint, others, labels, curves);
  const show = (portrait, amount) => {
    say(title, `Client ${portrait.name}`);
    say(hint, sentence(portrait));
    if (!labels.lastChild.hasChildNodes()) labels.lastChild.append(holdings(portrait));
    others.replaceChildren(...neighbours(run, which, amount));
    draw(charts, portrait);
  };
  const refresh = async () => {
    try {
      const [portrait, all] = await Promise.all(["/api/client", "/api/clients"].map(async (path) => (await ask(path, { run, client: which })).json()));
      show(portrait, all.length);
    } catch (error) {
      labels.hidden = curves.hidden = true;
      say(hint, error.message);
    }
  };
  // News of the run means that there may be news of the client; who is at work changes more often than that.
  let seen = "";
  const told = (_, story) => {
    const now = `${story.rounds.length} ${story.evaluations.length} ${story.timings.length}`;
    if (now !== seen) refresh();
    seen = now;
  };
  const runs = (rows) => rows.some((row) => row.run === run) || say(hint, `There is no run ${run} (any more).`);
  return { title: `Client ${which} of ${run}`, names: [run], node, runs, run: told, leave: () => charts.forEach((chart) => chart.remove()) };
}

function sentence({ unseen, rounds, holds }) {
  const samples = holds ? `${counted(holds.train.samples, "training sample")}, ${count(holds.test.samples)} to test with` : "Only the client knows its samples";
  if (unseen) return `${samples}. It was not part of training; its accuracy is in the run's summary.`;
  return `${samples}. It has trained ${rounds === 1 ? "once" : `${count(rounds)} times`}.`;
}

/** How many samples of each label. */
function holdings({ classes, holds }) {
  if (!holds) return element("p", {}, "Its samples have never been here.");
  if (classes.length === 0) return element("p", {}, "Its samples do not have one label each.");
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

function draw([accuracy, norm, moved], { evaluations, heads }) {
  const judged = (name, key) => ({ name, points: evaluations.filter((row) => row[key] != null).map((row) => [row.round, row[key]]) });
  accuracy.draw([judged("own model", "local"), judged("shared model", "shared")].filter((one) => one.points.length > 0));
  norm.draw([{ name: "norm", points: heads.map((head) => [head.round, head.norm]) }]);
  moved.draw([{ name: "moved by", points: heads.map((head) => [head.round, head.moved]), colour: 1 }]);
}

function neighbours(run, which, amount) {
  const to = (number, text) => number >= 0 && number < amount && link(["run", run, "client", number], text);
  return [to(which - 1, "← previous"), " ", to(which + 1, "next →")].filter(Boolean);
}
