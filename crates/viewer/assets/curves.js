// The charts of several runs: a line each, or a line for runs put together, with one legend.
import { board } from "./board_state.js";
import { Chart } from "./chart.js";
import { strokes } from "./colour.js";
import { curve_controls } from "./controls.js";
import { element } from "./dom.js";
import { shared_legend } from "./legend.js";
import { ABSCISSAE, curve_of } from "./lines.js";
import { COMPARISONS, MEASURES } from "./measures.js";

/** The lines with how they are drawn. */
export function drawn_lines(lines) {
  const drawn = strokes(lines);
  return lines.map((line, index) => ({ ...line, stroke: drawn[index] }));
}

/** The section, `show(lines)`, and `leave()`. */
export function curves_section() {
  const highlight = (key) => {
    legend.highlight(key);
    charts.forEach((chart) => chart.highlight(key));
  };
  const legend = shared_legend(highlight);
  const charts = COMPARISONS.map((figure) => new Chart(figure, { named: false, onhover: highlight }));
  const hint = element("p", { class: "hint" }, "Curves begin when the first round is over.");
  const about = element("p", { class: "note", hidden: true }, "Bands: one standard deviation over runs.");
  const grid = element("div", { class: "grid" }, charts.map((chart) => chart.node));
  const node = element("section", { "aria-labelledby": "curves", class: "curves" }, element("h2", { id: "curves" }, "Curves"), curve_controls(), legend.node, about, hint, grid);
  const show = (lines) => {
    legend.show(lines);
    const abscissa = ABSCISSAE[board.abscissa];
    about.hidden = !lines.some(({ pooled }) => pooled.length > 1);
    COMPARISONS.forEach((figure, index) => {
      const series = lines.map((line) => ({ key: line.key, name: line.label, stroke: line.stroke, points: curve_of(line, MEASURES[figure.measure], abscissa, figure, board.smoothing) }));
      charts[index].draw(worth_seeing(series, figure), abscissa, board.log);
    });
    hint.hidden = charts.some((chart) => !chart.node.hidden);
  };
  return { node, show, highlight, leave: () => charts.forEach((chart) => chart.remove()) };
}

/** Nothing where all values are zero; of a share that is worth seeing, too. */
function worth_seeing(series, figure) {
  return figure.ceiling !== undefined || series.some(({ points }) => points.some(({ y }) => y !== 0)) ? series : [];
}
