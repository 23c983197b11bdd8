// One legend for all charts of a view: pointing at a line lets it stand out everywhere.
import { element } from "./dom.js";
import { swatch } from "./picture.js";

/** The legend, `show(lines)` and `highlight(key)`; `onhover(key)` is called while somebody points at a line. */
export function shared_legend(onhover) {
  const node = element("ul", { class: "legend shared", "aria-label": "Lines" });
  const entries = new Map();
  let said = "";
  const entry = (line) => {
    const point = () => onhover(line.key);
    const button = element("button", { type: "button", class: "line", onpointerenter: point, onfocus: point, onpointerleave: () => onhover(null), onblur: () => onhover(null) }, swatch(line.stroke), ` ${line.label}`, mark(line));
    return element("li", {}, button);
  };
  const show = (lines) => {
    const now = JSON.stringify(lines.map(({ key, label, stroke, is_finished, pooled, members }) => [key, label, stroke, is_finished, pooled.length, members.length]));
    if (now === said) return;
    said = now;
    entries.clear();
    lines.forEach((line) => entries.set(line.key, entry(line)));
    node.replaceChildren(...entries.values());
    node.hidden = lines.length < 2 && lines.every(({ members }) => members.length < 2);
  };
  const highlight = (key) => entries.forEach((li, line) => li.classList.toggle("dim", key != null && key !== line));
  return { node, show, highlight };
}

/** How many runs a line stands for, and whether they are finished. */
export function mark({ pooled, members, is_finished }) {
  const runs = members.length > 1 ? ` (${pooled.length} of ${members.length} runs)` : "";
  const amount = pooled.length === members.length && members.length > 1 ? ` (mean of ${members.length} runs)` : runs;
  return element("span", { class: "note" }, amount, is_finished ? "" : " unfinished");
}
