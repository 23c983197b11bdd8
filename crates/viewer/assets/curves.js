// The charts of several runs: a line each, or a line for runs put together, with one legend.
import { board } from "./board_state.js";
import { BANDED, Chart } from "./chart.js";
import { shades_text, strokes } from "./colour.js";
import { curve_controls } from "./controls.js";
import { element, say } from "./dom.js";
import { shared_legend } from "./legend.js";
import { ABSCISSAE, curve_of, full_name } from "./lines.js";
import { COMPARISONS, MEASURES } from "./measures.js";
import { BANDS } from "./picture.js";

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
  const about = element("p", { class: "note", hidden: true });
  const grid = element("div", { class: "grid" }, charts.map((chart) => chart.node));
  const node = element("section", { "aria-labelledby": "curves", class: "curves" }, element("h2", { id: "curves" }, "Curves"), curve_controls(), legend.node, about, hint, grid);
  const show = (lines) => {
    legend.show(lines);
    const abscissa = ABSCISSAE[board.abscissa];
    const said = [lines.some(({ pooled }) => pooled.length > 1) && bands_text(lines), shades_text(lines)].filter(Boolean).join(" ");
    about.hidden = !said;
    say(about, said);
    COMPARISONS.forEach((figure, index) => {
      const series = lines.map((line) => ({ key: line.key, name: full_name(line), stroke: line.stroke, points: curve_of(line, MEASURES[figure.measure], abscissa, figure, board.smoothing) }));
      charts[index].draw(worth_seeing(series, figure), abscissa, { x: board.log_x, y: board.log_y });
    });
    hint.hidden = charts.some((chart) => !chart.node.hidden);
  };
  return { node, show, highlight, leave: () => charts.forEach((chart) => chart.remove()) };
}

/** What bands are, and why most are not drawn. */
function bands_text(lines) {
  return lines.length > BANDED ? `${BANDS} With more than ${BANDED} lines, only the line that is pointed at has its band.` : BANDS;
}

/** Nothing where all values are zero; of a share that is worth seeing, too. */
function worth_seeing(series, figure) {
  return figure.ceiling !== undefined || series.some(({ points }) => points.some(({ y }) => y !== 0)) ? series : [];
}
