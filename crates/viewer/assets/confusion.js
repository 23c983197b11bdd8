// Confusion matrices: how often a model predicts what, square, rows true and columns predicted.
import { element, say, section } from "./dom.js";
import { count, percent } from "./format.js";
import { source } from "./source.js";

const MODELS = { local: "its own model", shared: "the shared model" };
const ABOUT_MATRICES = "Of the least accurate client of each line's first finished run, or of the client that the report was asked for, on its test samples. Rows: true classes; columns: predicted ones; shades: shares of a row.";
/** More matrices are shown on demand. */
const FIRST_MATRICES = 12;
/** Of more classes, cells have no room for numbers. */
const MANY_CLASSES = 30;

/** The matrices of some lines, `show(lines)`. A report has them inside; a dashboard computes them, from the run's data and models, when somebody asks for them. */
export function confusion_section() {
  const grid = element("div", { class: "grid" });
  const button = element("button", { type: "button", onclick: () => fill() });
  const node = section("confusion", "Confusion matrices", element("p", { class: "note" }, ABOUT_MATRICES), button, grid);
  let [wanted, asked, all] = [[], "", false];
  const shown = () => wanted.slice(0, all ? Infinity : FIRST_MATRICES);
  const place = ({ label, run }) => {
    const card = element("div", { class: "card" }, element("p", { class: "hint" }, `Computing that of ${label} ...`));
    source.confusion(run, null, "local").then((found) => card.replaceChildren(...matrix(found, label, run)), (error) => card.replaceChildren(...missing(error, label, run)));
    return card;
  };
  const fill = () => {
    all = grid.hasChildNodes();
    grid.replaceChildren(...shown().map(place));
    offer();
  };
  const offer = () => {
    const is_filled = grid.hasChildNodes();
    button.hidden = is_filled && shown().length === wanted.length;
    say(button, is_filled ? `Show all ${count(wanted.length)}` : "Compute them");
  };
  const show = (lines) => {
    wanted = lines.map(example).filter(Boolean);
    node.hidden = wanted.length === 0;
    const now = JSON.stringify(wanted);
    if (now === asked) return;
    [asked, all] = [now, false];
    grid.replaceChildren();
    offer();
    if (!source.is_live && wanted.length > 0) fill();
  };
  return { node, show };
}

/** The run of a line whose matrix is shown: the first that is finished. */
function example({ label, members }) {
  const found = members.find(({ row }) => row.state === "finished" && source.has_confusion(row.run));
  return found && { label, run: found.row.run };
}

/** The matrix of one client, and `show(row)`. */
export function confusion_details(run, client) {
  const place = element("div");
  const read = async () => {
    if (!details.open || place.hasChildNodes()) return;
    place.append(element("p", { class: "hint" }, "Computing ..."));
    try {
      place.replaceChildren(element("div", { class: "card" }, matrix(await source.confusion(run, client, null), "Predictions on its test samples", run)));
    } catch (error) {
      place.replaceChildren(element("p", { class: "hint" }, `Not shown: ${error.message}`));
    }
  };
  const details = element("details", { class: "settings", ontoggle: read }, element("summary", {}, "Confusion matrix"), place);
  const show = (row) => {
    details.hidden = row.state !== "finished";
    if (!source.is_live) details.open = true;
  };
  return { node: details, show };
}

function missing(error, label, run) {
  return [element("h3", {}, label, element("span", { class: "note" }, ` run ${run}`)), element("p", { class: "hint" }, `Not shown: ${error.message}`)];
}

function matrix({ name, view, accuracy, classes, counts }, label, run) {
  const title = element("h3", {}, `${label}: ${name}`, element("span", { class: "note" }, ` run ${run}, by ${MODELS[view]}${accuracy == null ? "" : `, accuracy ${percent(accuracy)}`}`));
  const heading = (scope) => (one) => element("th", { scope, role: scope === "col" ? "columnheader" : "rowheader", title: one }, element("span", {}, one));
  const line = (...cells) => element("tr", { role: "row" }, ...cells);
  const head = line(element("td", { class: "corner", role: "cell" }), classes.map(heading("col")));
  const row = (one, index) => line(heading("row")(one), counts[index].map((amount, column) => shaded_cell(amount, counts[index], index === column)));
  const caption = element("caption", {}, "true ↓ predicted →");
  // Drawn as a grid, whose cells can be made square; the roles say that it is a table all the same.
  const drawn = element("table", { class: "confusion", role: "table", "aria-label": `Confusion matrix of ${name}: rows are true classes, columns predicted ones` }, caption, element("thead", { role: "rowgroup" }, head), element("tbody", { role: "rowgroup" }, classes.map(row)));
  drawn.style.setProperty("--classes", classes.length);
  drawn.classList.toggle("named", classes.some((one) => one.length > 3));
  drawn.classList.toggle("many", classes.length > MANY_CLASSES);
  return [title, element("div", { class: "frame", role: "region", tabindex: "0", "aria-label": `Confusion matrix of ${name}` }, drawn)];
}

function shaded_cell(amount, row, is_right) {
  const whole = row.reduce((sum, value) => sum + value, 0) || 1;
  const cell = element("td", { class: is_right ? "right" : null, role: "cell" }, element("span", {}, amount === 0 ? "" : count(amount)));
  cell.dataset.shade = Math.round((4 * amount) / whole);
  return cell;
}
