// Several runs laid over each other.
import { Chart } from "./chart.js";
import { element, link, table } from "./dom.js";
import { COMPARISONS, MEASURES, both } from "./figures.js";
import { bytes, count, number, percent, seconds } from "./format.js";

/** What the curves are drawn over; `of(story)` maps rounds to places. */
const AXES = {
  round: { name: "round", label: "rounds", format: count, of: () => (round) => round },
  bytes: { name: "after", label: "bytes sent", format: bytes, of: (story) => lookup(story.rounds, (row) => row.up + row.down) },
  time: { name: "after", label: "seconds of training", format: seconds, of: (story) => lookup(story.timings, (row) => row.spent) },
};

/** What was so at a round, or last before it: of very long runs not every round is told. */
function lookup(rows, value) {
  return (round) => {
    let [low, high] = [0, rows.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (rows[middle].round <= round) low = middle + 1;
      else high = middle;
    }
    return low > 0 ? value(rows[low - 1]) : undefined;
  };
}

/** The view of several runs. */
export function compare(names) {
  const [stories, rows] = [new Map(), new Map()];
  const grid = element("div", { class: "grid" });
  const place = element("div");
  const choice = element("select", { onchange: () => rebuild() }, Object.entries(AXES).map(([key, axis]) => element("option", { value: key }, axis.label)));
  const way = element("nav", { "aria-label": "Where you are" }, link([], "Runs"), " / ");
  const heading = element("h1", {}, `Comparison of ${names.length === 1 ? "one run" : `${names.length} runs`}`);
  const node = element("section", {}, way, heading, place, element("div", { class: "tools" }, element("label", {}, "Curves over ", choice)), grid);
  let charts = [];
  const leave = () => charts.forEach((chart) => chart.remove());
  const draw = () => COMPARISONS.forEach((figure, index) => charts[index].draw(series(figure, AXES[choice.value])));
  const series = (figure, axis) => names.flatMap((name, colour) => {
    const story = stories.get(name);
    if (!story) return [];
    const place = axis.of(story);
    const points = MEASURES[figure.measure].of(story, rows.get(name)?.info).map(([round, y]) => [place(round), y]);
    const known = points.filter(([x]) => x != null);
    return known.length > 0 ? [{ name, points: known, colour }] : [];
  });
  const rebuild = () => {
    leave();
    charts = COMPARISONS.map((figure) => new Chart(figure, AXES[choice.value]));
    grid.replaceChildren(...charts.map((chart) => chart.node));
    draw();
  };
  const tabulate = () => {
    const drawn = side_by_side(names, rows, stories);
    if (place.textContent !== drawn.textContent) place.replaceChildren(drawn);
  };
  rebuild();
  const runs = (all) => {
    all.forEach((row) => rows.set(row.run, row));
    draw();
    tabulate();
  };
  const run = (name, story) => {
    stories.set(name, story);
    draw();
    tabulate();
  };
  return { title: "Comparison", names, node, runs, run, leave };
}

/** The last numbers of every run. */
function side_by_side(names, rows, stories) {
  const last = (name, key) => stories.get(name)?.[key].at(-1);
  const judged = (name) => last(name, "evaluations") && both(last(name, "evaluations"));
  const spent = (name) => stories.get(name)?.totals.train;
  const sent = (name) => last(name, "rounds") && last(name, "rounds").up + last(name, "rounds").down;
  const columns = [
    { title: "Run", text: (name) => link(["run", name], name) },
    { title: "State", text: (name) => (rows.size > 0 ? (rows.get(name)?.state ?? "not there") : "...") },
    { title: "Method", text: (name) => rows.get(name)?.info?.method ?? "–" },
    { title: "Model", text: (name) => rows.get(name)?.info?.model ?? "–" },
    { title: "Rounds", text: (name) => count(last(name, "rounds")?.round), number: true },
    { title: "Accuracy, local", text: (name) => percent(judged(name)?.local.accuracy), number: true },
    { title: "Accuracy, shared", text: (name) => percent(judged(name)?.shared.accuracy), number: true },
    { title: "Worst tenth, local", text: (name) => percent(judged(name)?.local.worst), number: true },
    { title: "Training loss", text: (name) => number(stories.get(name)?.rounds.findLast((row) => row.loss != null)?.loss), number: true },
    { title: "Sent", text: (name) => bytes(sent(name)), number: true },
    { title: "Peak memory", text: (name) => bytes(last(name, "timings")?.peak_memory), number: true },
    { title: "Training", text: (name) => seconds(spent(name)), number: true },
  ];
  const drawn = table("As they stand now", columns, names);
  drawn.className = "cards";
  return drawn;
}
