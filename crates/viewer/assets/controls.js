// What curves are drawn over and how, and what runs are put together by.
import { board, choose } from "./board_state.js";
import { element } from "./dom.js";
import { ABSCISSAE, EACH, SEEDS } from "./lines.js";

/** A field with a label. */
function field(label, control) {
  return element("label", {}, `${label} `, control);
}

function options(pairs, chosen) {
  return pairs.map(([value, label]) => element("option", { value, selected: value === chosen }, label));
}

/** Over what, on which scale, how smooth. */
export function curve_controls() {
  const over = element("select", { onchange: () => choose({ abscissa: over.value }) }, options(Object.entries(ABSCISSAE).map(([key, { label }]) => [key, label]), board.abscissa));
  const log = (key) => {
    const box = element("input", { type: "checkbox", checked: board[key], onchange: () => choose({ [key]: box.checked }) });
    return box;
  };
  const smooth = element("input", { type: "range", min: 0, max: 0.95, step: 0.05, value: board.smoothing, oninput: () => choose({ smoothing: Number(smooth.value) }) });
  return element("div", { class: "tools curves-tools" }, field("Curves over", over), field("Log x axis", log("log_x")), field("Log y axis", log("log_y")), field("Smoothing", smooth), element("span", { class: "note" }, "Drag across a chart to zoom, double-click to see the whole."));
}

/** By what runs are put together: `show(keys)` offers settings. */
export function group_control() {
  const select = element("select", { onchange: () => choose({ group: select.value }) });
  let offered = "";
  const show = (keys, group) => {
    const now = JSON.stringify([keys, group]);
    if (now === offered) return;
    offered = now;
    const pairs = [EACH, SEEDS, "seed", ...keys].map((key) => [key, key]);
    select.replaceChildren(...options(pairs, group));
  };
  return { node: field("Group by", select), show };
}
