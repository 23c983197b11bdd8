// Who the clients are: when those of two runs are the same, and with that, which runs can be set against each other seed by seed.
import { plain } from "./labels.js";
import { sample, value_after } from "./lines.js";

/** How a run divides its data among clients, the seed aside: the same division and seed are the same clients. */
function division_of({ story }) {
  return JSON.stringify(Object.entries(story.settings).filter(([key]) => key.startsWith("data.")).sort());
}

/** What a seed draws of a division that is not drawn itself. */
const DRAWN = ["data.limit", "data.unseen", "data.shift", "data.label_noise"];

/** Whether clients are the same under every seed: the owners of the data, the first of them, with all they have. */
function is_same_for_all_seeds({ story: { settings } }) {
  const [rule, pick] = [settings["data.partition.rule"], settings["data.partition.pick"]].map((value) => plain(value));
  const is_drawn = Object.keys(settings).some((key) => DRAWN.some((drawn) => key === drawn || key.startsWith(`${drawn}.`)));
  return rule === "natural" && pick !== "random" && !is_drawn;
}

/** The seeds of some lines in order, and which of them most lines have: the smallest of those. */
function seeds_of(lines) {
  const often = new Map();
  for (const { pooled } of lines) for (const seed of new Set(pooled.map(({ row }) => row.info.seed))) often.set(seed, (often.get(seed) ?? 0) + 1);
  const seeds = [...often.keys()].sort((a, b) => a - b);
  const most = Math.max(...often.values());
  return { seeds, usual: seeds.find((seed) => often.get(seed) === most) ?? null };
}

/** The runs of each line whose clients are the same: of one division, and of one seed unless the division is the same for all (`seed` is nothing then). `apart` are the lines that have none. */
export function same_clients(lines, wanted) {
  const { seeds, usual } = seeds_of(lines);
  const is_fixed = lines.every(({ pooled }) => pooled.every(is_same_for_all_seeds));
  const seed = is_fixed ? null : seeds.includes(wanted) ? wanted : usual;
  const of_seed = (line) => line.pooled.filter(({ row }) => seed === null || row.info.seed === seed);
  const first = lines.map(of_seed).find((runs) => runs.length > 0);
  const alike = (run) => division_of(run) === division_of(first[0]);
  const found = lines.map((line) => ({ line, runs: of_seed(line).filter(alike) }));
  return { seed, seeds: is_fixed ? [] : seeds, lines: found.filter(({ runs }) => runs.length > 0), apart: found.filter(({ runs }) => runs.length === 0).map(({ line }) => line) };
}

/** How far a line is from another in a measure, `{ mean, error, pairs }`: over the seeds that both have, as `fedeq compare` does it, since a seed also draws the clients' data; `pairs` is 0 where
 * fewer than two are common, a seed comes twice, or it means other data to each. `error` is the standard error, where there is scatter. */
export function difference_between(first, line, measure) {
  const [one, other] = [values_by_seed(line, measure), values_by_seed(first, measure)];
  if (one.all.length === 0 || other.all.length === 0) return null;
  const common = one.is_plain && other.is_plain && one.division === other.division ? [...one.by_seed].filter(([seed]) => other.by_seed.has(seed)) : [];
  const [mine, theirs] = [sample(one.all), sample(other.all)];
  if (common.length > 1 || (common.length === 1 && mine.count === 1 && theirs.count === 1)) {
    const { mean, deviation, count } = sample(common.map(([seed, value]) => value - other.by_seed.get(seed)));
    return { mean, error: count > 1 ? deviation / Math.sqrt(count) : null, pairs: count, of: Math.max(mine.count, theirs.count) };
  }
  const has_scatter = mine.count > 1 && theirs.count > 1;
  const error = has_scatter ? Math.sqrt(mine.deviation ** 2 / mine.count + theirs.deviation ** 2 / theirs.count) : null;
  return { mean: mine.mean - theirs.mean, error, pairs: 0, of: Math.max(mine.count, theirs.count) };
}

/** A line's values, and by seed where every seed comes once and all runs divide the data alike. */
function values_by_seed({ pooled, round }, measure) {
  const told = pooled.map((run) => [run, value_after(run, round, measure)]).filter(([, value]) => value != null && Number.isFinite(value));
  const by_seed = new Map(told.map(([{ row }, value]) => [row.info.seed, value]));
  const divisions = new Set(told.map(([run]) => division_of(run)));
  return { all: told.map(([, value]) => value), by_seed, division: [...divisions][0], is_plain: by_seed.size === told.length && divisions.size === 1 };
}

/** The same in points of a percent, in words: `+1.2 ± 0.3`, and what must be known to read it. */
export function difference_text(first, line, measure) {
  if (line === first) return "";
  const found = difference_between(first, line, measure);
  if (!found) return "–";
  if (line.is_finished !== first.is_finished) return "not comparable: unfinished";
  const { mean, error, pairs, of } = found;
  const number = `${mean < 0 ? "−" : "+"}${(100 * Math.abs(mean)).toFixed(1)}${error === null ? "" : `\u00a0±\u00a0${(100 * error).toFixed(1)}`}`;
  const unlike = pairs === 0 ? "unpaired" : pairs < of && `${pairs} pairs`;
  const said = [unlike, line.round !== first.round && `round ${line.round} against ${first.round}`].filter(Boolean);
  return said.length > 0 ? `${number} (${said.join(", ")})` : number;
}
