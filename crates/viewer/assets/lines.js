// Runs as lines of a table and curves of a chart: one a run, or one for all runs that have something in common, with their mean and scatter.
import { value_at } from "./columns.js";
import { bytes, count, counted, seconds } from "./format.js";
import { grouped, plain, short_labels, spoken } from "./labels.js";

/** What curves are drawn over; `at(story, round)` is the place of a round. */
export const ABSCISSAE = {
  round: { name: "round", label: "rounds", format: count, at: (_, round) => round },
  bytes: { name: "after", label: "bytes sent", format: bytes, at: (story, round) => value_at(story.rounds, round, (at) => at("up") + at("down")) },
  time: { name: "after", label: "seconds of training", format: seconds, at: (story, round) => value_at(story.timings, round, (at) => at("spent")) },
};

/** What runs can be put together by, beside any setting. */
export const EACH = "each run";
export const SEEDS = "all but the seed";

/** The lines of some runs, `{ row, story }`, by what they are put together by. */
export function lines_of(runs, by) {
  const sound = runs.filter(({ row, story }) => row.info && story);
  const group = {
    [EACH]: ({ row }) => row.run,
    [SEEDS]: ({ row, story }) => JSON.stringify([row.info.method, Object.entries(story.settings).sort()]),
  }[by] ?? (({ row, story }) => (by === "seed" ? String(row.info.seed) : plain(story.settings[by])));
  const groups = [...grouped(sound, group)];
  const items = groups.map(([, [{ row, story }]]) => ({ info: row.info, settings: story.settings, seed: by === EACH ? row.info.seed : null, run: by === EACH ? row.run : null }));
  const labels = by === EACH || by === SEEDS ? short_labels(items) : groups.map(([value]) => spoken(by, value));
  return groups.map(([key, members], index) => ({ key, label: labels[index], info: members[0].row.info, members, ...pool(members) }));
}

/** The runs that can be put together: those that are finished or, where none is, all that were evaluated; as far as all of them came, as the tables of `fedeq report` have it. Others are left out, and said to be. */
function pool(members) {
  const judged = members.filter(({ row }) => row.evaluated != null);
  const finished = judged.filter(({ row }) => row.state === "finished");
  const [runs, is_finished] = finished.length > 0 ? [finished, true] : [judged, false];
  const round = runs.length > 0 ? Math.min(...runs.map(({ row }) => row.evaluated)) : 0;
  const was_there = ({ row, story }) => row.evaluated === round || (story.evaluations.round ?? []).includes(round);
  return { pooled: runs.filter(was_there), round, is_finished };
}

/** What is to be said beside a line's label: how many runs it stands for, and that they are not finished. Nothing of a single finished run. */
export function remark({ pooled, members, round, is_finished }) {
  const of_all = pooled.length === members.length ? `mean of ${members.length} runs` : `${pooled.length} of ${members.length} runs`;
  const said = [members.length > 1 && of_all, !is_finished && `unfinished, ${round > 0 ? `after ${counted(round, "round")}` : "not evaluated yet"}`].filter(Boolean);
  return said.length > 0 ? `(${said.join(", ")})` : "";
}

/** What a run is called where its badge does not stand beside it. */
export function called({ run, state, round }) {
  return state === "finished" ? run : `${run} (unfinished, after ${counted(round, "round")})`;
}

/** What a line is called wherever it stands without its badge: in pictures, files, headings and for those who hear it. */
export function full_name(line) {
  return [line.label, remark(line)].filter(Boolean).join(" ");
}

/** Mean, scatter and number of some values; nothing of none. */
export function sample(values) {
  const known = values.filter((value) => value != null && Number.isFinite(value));
  if (known.length === 0) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const square = known.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, deviation: known.length > 1 ? Math.sqrt(square / (known.length - 1)) : 0, count: known.length, values: known };
}

/** A measure `{ of, at }` of a run after some rounds: `of(row)` is what came out in the end, `at(story, round)` what the journals said before. */
export function value_after({ row, story }, round, { of, at }) {
  return row.state === "finished" && row.evaluated === round ? of(row) : at(story, round);
}

/** A measure of the runs of a line, all after the same number of rounds. */
export function at_the_end(line, measure) {
  return sample(line.pooled.map((run) => value_after(run, line.round, measure)));
}

/** Seconds of training and evaluation until a round; nothing where the journal is told with gaps. */
export function seconds_until({ timings }, round) {
  const rounds = timings.round ?? [];
  const last = rounds.filter((one) => one <= round).length;
  if (last === 0 || last !== rounds[last - 1] - rounds[0] + 1) return null;
  return timings.spent[last - 1] + (timings.evaluate ?? []).slice(0, last).reduce((sum, value) => sum + (value ?? 0), 0);
}

/** The curve of a line: `[{ x, y, low, high }]`, with a band of one standard deviation where there are several runs, never beyond the range of what is measured. */
export function curve_of(line, measure, abscissa, figure, smoothing) {
  // Before the first evaluation there are rounds to be seen, of whoever has them.
  const stories = (line.pooled.length > 0 ? line.pooled : line.members.slice(0, 1)).map(({ story }) => story);
  if (stories.length === 1) return smoothed(placed(measure.of(stories[0]), stories[0], abscissa), smoothing);
  const by_round = new Map();
  for (const story of stories) {
    for (const [round, y] of measure.of(story)) {
      if (!by_round.has(round)) by_round.set(round, []);
      by_round.get(round).push(y);
    }
  }
  const points = [];
  for (const [round, values] of [...by_round].sort(([a], [b]) => a - b)) {
    // A mean over fewer runs would look like a change.
    if (values.length < stories.length) continue;
    const x = sample(stories.map((story) => abscissa.at(story, round)))?.mean;
    const { mean, deviation } = sample(values) ?? {};
    if (x == null || mean == null) continue;
    points.push({ x, y: mean, deviation });
  }
  return smoothed(points, smoothing).map(({ x, y, deviation }) => ({ x, y, ...band(y, deviation, figure) }));
}

/** The points of one run over an abscissa, where its journals say where a round is. */
function placed(measured, story, abscissa) {
  const points = [];
  for (const [round, y] of measured) {
    const x = abscissa.at(story, round);
    if (x != null) points.push({ x, y });
  }
  return points;
}

function band(y, deviation, { floor = -Infinity, ceiling = Infinity }) {
  return { low: Math.max(floor, y - deviation), high: Math.min(ceiling, y + deviation) };
}

/** An exponential moving average, not drawn towards zero at its beginning. */
export function smoothed(points, weight) {
  if (!(weight > 0)) return points;
  let [sum, sum_of_deviations, total] = [0, 0, 0];
  return points.map(({ x, y, deviation }) => {
    sum = weight * sum + (1 - weight) * y;
    sum_of_deviations = weight * sum_of_deviations + (1 - weight) * (deviation ?? 0);
    total = weight * total + (1 - weight);
    return { x, y: sum / total, deviation: sum_of_deviations / total };
  });
}
