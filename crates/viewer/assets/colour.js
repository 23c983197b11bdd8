// One colour a method everywhere. Several lines of a method are shades and dashes of its colour, and so are several measures of one run.

const night = matchMedia("(prefers-color-scheme: dark)");

/** Whether the paper is dark. Paper that is printed on is not. */
export function is_dark() {
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
/** Among more lines than this nobody tells dashes apart, and broad lines hide each other: they are thin and whole. */
const CROWD = 30;

/** How each of these lines, `{ info }`, is drawn: `{ light, dark, dash, width }`. */
export function strokes(lines) {
  const methods = new Map();
  const places = lines.map(({ info }) => {
    const place = methods.get(info.method) ?? 0;
    methods.set(info.method, place + 1);
    return place;
  });
  const is_crowd = lines.length > CROWD;
  return lines.map(({ info }, index) => {
    const width = (info.method === "fedeq" ? 2.6 : 1.7) / (is_crowd ? 2 : 1);
    const dash = is_crowd ? [] : DASHES[places[index] % DASHES.length];
    return { ...shade(info.colour, places[index], methods.get(info.method)), dash, width };
  });
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

function mixed(colour, towards, part) {
  const channels = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return `#${channels.map((value) => Math.round(value + (towards - value) * part).toString(16).padStart(2, "0")).join("")}`;
}
