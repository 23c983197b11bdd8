// What runs are called: only what sets them apart.

/** A setting as people read it: without the quotes of a text. */
export function plain(value) {
  return value == null ? "–" : value.replace(/^"(.*)"$/, "$1");
}

/** What is named by its own word, not as a setting. */
const SPOKEN = /^(method\.name|model\.name|data\.source\.name|preset)$/;

/** The last part of a setting's path that says something, unless another of these settings ends alike. */
export function short_key(key, keys) {
  const last = (path) => path.replace(/\.name$/, "").split(".").at(-1);
  return keys.some((other) => other !== key && last(other) === last(key)) ? key : last(key);
}

/** The settings in which some of these differ, by name. */
export function differing(all_settings) {
  const keys = new Set(all_settings.flatMap((settings) => Object.keys(settings)));
  return [...keys].filter((key) => all_settings.some((settings) => settings[key] !== all_settings[0][key])).sort();
}

/** A setting and its value in a label: "rho = 0.1", or "fedeq" where the value says what it is. */
export function spoken(key, value) {
  return SPOKEN.test(key) ? plain(value) : `${short_key(key, [])} = ${plain(value)}`;
}

/** A label for each of `items`, `{ info, settings, seed, run }`, by as little as tells them apart; `seed` and `run` are named only where all else is the same. */
export function short_labels(items) {
  const named = (key) => new Set(items.map(({ info }) => info[key])).size > 1;
  const [methods, data] = [named("method"), named("data")];
  const kind = ({ info }) => [info.method, info.model, info.data].join(" ");
  const keys_of = new Map([...grouped(items, kind)].map(([name, alike]) => [name, differing(alike.map(({ settings }) => settings)).filter((key) => !SPOKEN.test(key))]));
  const models_of = new Map([...grouped(items, ({ info }) => info.method)].map(([method, alike]) => [method, new Set(alike.map(({ info }) => info.model)).size]));
  const base = items.map((item) => {
    const { info, settings } = item;
    const words = [methods && info.title, models_of.get(info.method) > 1 && info.model, data && `on ${info.data}`].filter(Boolean);
    const keys = keys_of.get(kind(item));
    const said = keys.map((key) => `${short_key(key, keys)} = ${plain(settings[key])}`);
    return [words.join(" "), ...said].filter(Boolean).join(", ");
  });
  return told_apart(told_apart(base, items.map(({ seed }) => (seed == null ? null : `seed ${seed}`))), items.map(({ run }) => run))
    .map((label, index) => label || items[index].info.title);
}

/** Labels that occur twice, with something else after them. */
function told_apart(labels, more) {
  const often = new Map();
  labels.forEach((label) => often.set(label, (often.get(label) ?? 0) + 1));
  return labels.map((label, index) => (often.get(label) > 1 && more[index] != null ? [label, more[index]].filter(Boolean).join(", ") : label));
}

/** Things by what they have in common. */
export function grouped(things, key) {
  const groups = new Map();
  for (const thing of things) {
    const name = key(thing);
    if (!groups.has(name)) groups.set(name, []);
    groups.get(name).push(thing);
  }
  return groups;
}
