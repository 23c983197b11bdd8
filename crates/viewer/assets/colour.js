// One colour a method everywhere. Several lines of a method are shades and dashes of its colour; where there is one method only, its lines have colours of their own.

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

const OWN = {
  light: ["#d55e00", "#009e73", "#a0569b", "#967200", "#2aa1d8", "#7a4fc9", "#5f6368"],
  dark: ["#ff8a3d", "#2fcf9f", "#e79cc6", "#f0d050", "#9ad4f5", "#b39cf0", "#bbbbbb"],
};
const DASHES = [[], [7, 4], [2, 3], [10, 3, 2, 3]];

/** How each of these lines, `{ info }`, is drawn: `{ light, dark, dash, width }`. */
export function strokes(lines) {
  const methods = new Map();
  const places = lines.map(({ info }) => {
    const place = methods.get(info.method) ?? 0;
    methods.set(info.method, place + 1);
    return place;
  });
  return lines.map(({ info }, index) => {
    const [place, alike] = [places[index], methods.get(info.method)];
    const width = info.method === "fedeq" ? 2.6 : 1.7;
    if (alike === 1 || place === 0) return { ...info.colour, dash: [], width };
    if (methods.size > 1) return { ...shade(info.colour, place / alike), dash: DASHES[place % DASHES.length], width };
    return { ...own_colour(place - 1, alike - 1), dash: alike > 8 ? [] : DASHES[Math.floor((place - 1) / 7) % 4], width };
  });
}

/** The colour of a line in the light of the day. */
export function ink_of(stroke) {
  return is_dark() ? stroke.dark : stroke.light;
}

function own_colour(place, all) {
  if (all <= OWN.light.length) return { light: OWN.light[place], dark: OWN.dark[place] };
  const hue = Math.round((250 + (330 * (place + 1)) / (all + 1)) % 360);
  return { light: `hsl(${hue} 75% 38%)`, dark: `hsl(${hue} 75% 66%)` };
}

/** Lighter by day, darker by night. */
function shade({ light, dark }, part) {
  return { light: mixed(light, 255, 0.6 * part), dark: mixed(dark, 40, 0.55 * part) };
}

function mixed(colour, towards, part) {
  const channels = [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  return `#${channels.map((value) => Math.round(value + (towards - value) * part).toString(16).padStart(2, "0")).join("")}`;
}
