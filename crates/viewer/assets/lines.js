// Runs as lines of a table and curves of a chart: one a run, or one for all runs that have something in common, with their mean and scatter.
import { value_at } from "./columns.js";
import { bytes, count, seconds } from "./format.js";
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

/** The runs that can be put together: those that are finished, after the same number of rounds, or, where none is, all that were evaluated, as far as all of them came. Others are left out, and said to be. */
function pool(members) {
  const judged = members.filter(({ row }) => row.evaluated != null);
  const finished = judged.filter(({ row }) => row.state === "finished");
  if (finished.length > 0) {
    const round = Math.max(...finished.map(({ row }) => row.evaluated));
    return { pooled: finished.filter(({ row }) => row.evaluated === round), round, is_finished: true };
  }
  const round = judged.length > 0 ? Math.min(...judged.map(({ row }) => row.evaluated)) : 0;
  return { pooled: judged, round, is_finished: false };
}

/** Mean, scatter and number of some values; nothing of none. */
export function sample(values) {
  const known = values.filter((value) => value != null && Number.isFinite(value));
  if (known.length === 0) return null;
  const mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  const square = known.reduce((sum, value) => sum + (value - mean) ** 2, 0);
  return { mean, deviation: known.length > 1 ? Math.sqrt(square / (known.length - 1)) : 0, count: known.length, values: known };
}

/** A measure of the runs of a line after the same number of rounds: from their rows if they are finished, else from their evaluations. */
export function at_the_end(line, of_row, column) {
  if (line.is_finished || !column) return sample(line.pooled.map(({ row }) => of_row(row)));
  return sample(line.pooled.map(({ story }) => value_at(story.evaluations, line.round, (at) => at(column))));
}

/** The curve of a line: `[{ x, y, low, high }]`, with a band of one standard deviation where there are several runs, never beyond the range of what is measured. */
export function curve_of(line, measure, abscissa, figure, smoothing) {
  // Before the first evaluation there are rounds to be seen, of whoever has them.
  const stories = (line.pooled.length > 0 ? line.pooled : line.members.slice(0, 1)).map(({ story }) => story);
  if (stories.length === 1) return smoothed(measure.of(stories[0]).map(([round, y]) => ({ x: abscissa.at(stories[0], round), y })).filter(({ x }) => x != null), smoothing).map(({ x, y }) => ({ x, y }));
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
