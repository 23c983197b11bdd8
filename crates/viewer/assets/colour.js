// One colour a method everywhere. Several lines of a method are shades and dashes of its colour, and so are several measures of one run.
import { differing, grouped, plain, short_key } from "./labels.js";

const night = matchMedia("(prefers-color-scheme: dark)");

/** Whether the paper is dark. Paper that is printed on is not. */
function is_dark() {
  return night.matches && !matchMedia("print").matches;
}

/** Calls back when the paper changes its colour. */
export function on_theme(change) {
  night.addEventListener("change", change);
  return () => night.removeEventListener("change", change);
}

/** The colours of the page that are drawn with. */
export function theme() {
  return is_dark()
    ? { paper: "#1c2328", ink: "#e7ecef", soft: "#a3b0b8", grid: "#37424a" }
    : { paper: "#ffffff", ink: "#1c2328", soft: "#5a666e", grid: "#e3e7ea" };
}

const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
/** How broad lines are. A method whose colour says so is drawn stronger than the others. */
const WIDTHS = { strong: 2.6, usual: 1.7 };
/** Among more lines than this nobody tells dashes apart, and broad lines hide each other: they are thin and whole. */
const CROWD = 30;
/** No broader than a pixel: such lines are drawn on a canvas ten times as fast as others. */
const THIN = { strong: 1, usual: 0.8 };

/** How each of these lines, `{ info }`, is drawn: `{ light, dark, dash, width }`. */
export function strokes(lines) {
  const families = new Map([...grouped(lines, ({ info }) => info.method)].map(([method, alike]) => [method, { amount: alike.length, order: order_of(alike), drawn: 0 }]));
  const is_crowd = lines.length > CROWD;
  return lines.map((line) => {
    const family = families.get(line.info.method);
    const { amount, order, drawn: place } = family;
    family.drawn += 1;
    const width = (is_crowd ? THIN : WIDTHS)[line.info.colour.strong ? "strong" : "usual"];
    // Where shades are in order, dashes that are not would only hide it: they tell apart what is shaded alike.
    const turn = order && amount > DASHES.length ? order.parts.slice(0, place).filter((part) => part === order.parts[place]).length : place;
    const dash = is_crowd ? [] : DASHES[turn % DASHES.length];
    return { ...(order ? graded(line.info.colour, order.parts[place]) : shade(line.info.colour, place, amount)), dash, width };
  });
}

/** What lines of one method differ in and can be put in order by: the number among their settings that takes the most values, or the seed where no setting differs; nothing if there is none. `parts` says how far each is from the
 * least, from 0 to 1. */
function order_of(alike) {
  if (alike.length < 2 || alike.some(({ members }) => !members)) return null;
  const settings = alike.map(({ members: [{ story }] }) => story.settings);
  const keys = differing(settings);
  const numbers_of = (key) => settings.map((one) => numeric(one[key]));
  const candidates = keys.length > 0 ? keys.map((key) => ({ key, numbers: numbers_of(key) })) : [{ key: "seed", numbers: alike.map(({ info }) => info.seed) }];
  const amount = ({ numbers }) => new Set(numbers).size;
  const [best] = candidates.filter((one) => one.numbers.every(Number.isFinite) && amount(one) > 1).sort((a, b) => amount(b) - amount(a));
  if (!best) return null;
  const values = [...new Set(best.numbers)].sort((a, b) => a - b);
  return { key: best.key, least: values[0], most: values.at(-1), parts: best.numbers.map((number) => values.indexOf(number) / (values.length - 1)) };
}

/** A setting as a number; none where it is a word, empty or missing. */
function numeric(value) {
  const text = value == null ? "" : plain(value).trim();
  return text === "" ? NaN : Number(text);
}

/** What shades mean, a sentence a method of which there are several lines in order. */
export function shades_text(lines) {
  const families = [...grouped(lines, ({ info }) => info.method).values()];
  const sentence = (alike) => {
    const order = order_of(alike);
    const whose = families.length > 1 ? ` of ${alike[0].info.title}` : "";
    return order && `Shades${whose}: ${short_key(order.key, [])} from ${order.least} (light) to ${order.most} (deep).`;
  };
  return families.map(sentence).filter(Boolean).join(" ");
}

/** The colour of a line in the light of the day. */
export function ink_of(stroke) {
  return is_dark() ? stroke.dark : stroke.light;
}

/** The first line of a method has its colour, those after it lighter and deeper ones in turn, the further the more. */
function shade({ light, dark }, place, alike) {
  if (place === 0) return { light, dark };
  const [is_lighter, part] = [place % 2 === 1, Math.ceil(place / 2) / Math.ceil((alike - 1) / 2)];
  return is_lighter ? { light: mixed(light, 255, 0.45 * part), dark: mixed(dark, 255, 0.55 * part) } : { light: mixed(light, 0, 0.5 * part), dark: mixed(dark, 0, 0.4 * part) };
}

/** From lighter to deeper than a method's colour. */
function graded({ light, dark }, part) {
  const far = Math.abs(2 * part - 1);
  return part < 0.5 ? { light: mixed(light, 255, 0.6 * far), dark: mixed(dark, 255, 0.65 * far) } : { light: mixed(light, 0, 0.55 * far), dark: mixed(dark, 0, 0.5 * far) };
}

function mixed(colour, towards, part) {
  const channels = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return `#${channels.map((value) => Math.round(value + (towards - value) * part).toString(16).padStart(2, "0")).join("")}`;
}
