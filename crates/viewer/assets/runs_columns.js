// The columns of the table of runs: what is always there, and any setting.
import { bytes, count, date, score, seconds } from "./format.js";
import { plain, short_key } from "./labels.js";

/** Every column has a title, a text and something to sort by. */
const FIXED = [
  { key: "run", title: "Run", text: ({ row }) => row.run, by: ({ row }) => row.run },
  { key: "state", title: "State", by: ({ row }) => row.state },
  { key: "method", title: "Method", text: ({ row }) => row.info?.title, by: ({ row }) => row.info?.title },
  { key: "data", title: "Data", text: ({ row }) => row.info?.data, by: ({ row }) => row.info?.data },
  { key: "model", title: "Model", text: ({ row }) => row.info?.model, by: ({ row }) => row.info?.model },
  { key: "seed", title: "Seed", text: ({ row }) => row.info && String(row.info.seed), by: ({ row }) => row.info?.seed, number: true },
  { key: "round", title: "Round", text: ({ row }) => row.info && `${count(row.round)} of ${count(row.info.rounds)}`, by: ({ row }) => row.round, number: true },
  { key: "local", title: "Accuracy, local", text: ({ row }) => score(row.local?.accuracy, row.evaluated), by: ({ row }) => row.local?.accuracy, number: true },
  { key: "shared", title: "Accuracy, shared", text: ({ row }) => score(shared_of(row)?.accuracy, row.evaluated), by: ({ row }) => shared_of(row)?.accuracy, number: true },
  { key: "worst", title: "Worst tenth, local", text: ({ row }) => score(row.local?.worst, row.evaluated), by: ({ row }) => row.local?.worst, number: true },
  { key: "sent", title: "Sent", text: ({ row }) => bytes(row.sent), by: ({ row }) => row.sent, number: true },
  { key: "seconds", title: "Time", text: ({ row }) => seconds(row.seconds || null), by: ({ row }) => row.seconds, number: true },
  { key: "left", title: "Time left", text: ({ row }) => seconds(row.seconds_left), by: ({ row }) => row.seconds_left, number: true },
  { key: "started", title: "Started", text: ({ row }) => date(row.info?.started), by: ({ row }) => row.info?.started, number: true, whole: true },
];

/** The shared model or, where nothing is shared, the only one. */
export function shared_of(row) {
  return row.shares ? row.shared : row.local;
}

/** The columns, with these settings after them. */
export function columns_with(settings) {
  const setting = (key) => ({ key: `setting ${key}`, setting: key, title: short_key(key, []), text: ({ story }) => story && plain(story.settings[key]), by: ({ story }) => sortable(story?.settings[key]) });
  return [...FIXED, ...settings.map(setting)];
}

/** A setting as a number, where it is one. */
function sortable(value) {
  if (value == null) return null;
  const text = plain(value);
  return text !== "" && Number.isFinite(Number(text)) ? Number(text) : text;
}

/** Whatever is not there comes last, whichever way is sorted. */
export function sorted_by(column, down, entries) {
  const compare = (a, b) => {
    const [one, other] = [column.by(a), column.by(b)];
    if (one == null || other == null) return (one == null) - (other == null);
    const order = typeof one === "number" && typeof other === "number" ? one - other : String(one).localeCompare(String(other), "en", { numeric: true });
    return down ? -order : order;
  };
  return [...entries].sort(compare);
}

/** Whether a run fits all the words of a filter: a word is looked for in its name, its state and its settings; `rho=0.1` wants a setting, called by its path or the end of it, to have just that value. */
export function fits(filter, entry) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  return words.every((word) => (word.includes("=") ? has_value(word, entry) : text_of(entry).includes(word)));
}

/** What a run is known by beside its settings. */
function facts_of({ row }) {
  const { info } = row;
  return { run: row.run, state: row.state, method: info?.method, data: info?.data, model: info?.model, preset: info?.preset, seed: info?.seed };
}

function text_of(entry) {
  const { row, story } = entry;
  const settings = Object.entries(story?.settings ?? {}).map(([key, value]) => `${key}=${plain(value)}`);
  const facts = Object.entries(facts_of(entry)).filter(([, value]) => value != null).map(([key, value]) => `${key}=${value}`);
  return [row.run, row.info?.title, date(row.info?.started), ...facts, ...settings].join(" ").toLowerCase();
}

function has_value(word, entry) {
  const [key, value] = [word.slice(0, word.indexOf("=")), word.slice(word.indexOf("=") + 1)];
  const fact = facts_of(entry)[key];
  const settings = Object.entries(entry.story?.settings ?? {}).filter(([path]) => ends_with(path.toLowerCase(), key)).map(([, set]) => plain(set));
  const values = fact != null ? [String(fact)] : settings;
  // A name may have such a word in it, too.
  if (values.length === 0) return entry.row.run.toLowerCase().includes(word);
  return value === "" || values.some((one) => is_same(one.toLowerCase().replace(/\s+/g, ""), value));
}

function ends_with(path, key) {
  return [path, path.replace(/\.name$/, "")].some((one) => one === key || one.endsWith(`.${key}`));
}

/** `1` is `1.0`. */
function is_same(one, other) {
  return one === other || (one !== "" && Number.isFinite(Number(one)) && Number(one) === Number(other));
}
