// One legend for all charts of a view: pointing at a line lets it stand out everywhere.
import { element } from "./dom.js";
import { remark } from "./lines.js";
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
    const now = JSON.stringify(lines.map((line) => [line.key, line.label, line.stroke, remark(line)]));
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

/** What is said beside a line's label. */
export function mark(line) {
  const said = remark(line);
  return said && element("span", { class: "note" }, ` ${said}`);
}
