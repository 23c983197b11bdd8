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
  { key: "started", title: "Started", text: ({ row }) => date(row.info?.started), by: ({ row }) => row.info?.started, number: true },
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

/** Whether a run has all the words of a filter in its name, its state or its settings (`rho=0.1` finds a setting by its end). */
export function fits(filter, { row, story }) {
  const words = filter.toLowerCase().split(/\s+/).filter(Boolean);
  if (words.length === 0) return true;
  const { info } = row;
  const settings = Object.entries(story?.settings ?? {}).map(([key, value]) => `${key}=${plain(value)}`);
  const text = [row.run, row.state, info?.title, info?.method, info?.data, info?.model, info?.preset, info && `seed=${info.seed}`, date(info?.started), ...settings].join(" ").toLowerCase();
  return words.every((word) => text.includes(word));
}
