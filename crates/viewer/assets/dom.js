// Building and changing elements. Text is always set as text, so nothing a run folder holds can become markup.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (value === true) node.setAttribute(name, "");
    else if (value !== false && value != null) node.setAttribute(name, value);
  }
  node.append(...children.flat().filter((child) => child != null && child !== false));
  return node;
}

/** An element with attributes, listeners (`onclick`) and children. */
export function element(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/** The same for pictures. */
export function shape(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** Sets a text, unless it is there already: what does not change is not announced. */
export function say(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

/** A link within the page, by the parts of its path. */
export function link(path, ...children) {
  return element("a", { href: address(...path) }, ...children);
}

/** The way to a view: links `[path, text]` to those above it, and its own name. */
export function way_to(above, name) {
  return element("nav", { "aria-label": "Where you are" }, above.flatMap(([path, text]) => [link(path, text), " / "]), element("span", { "aria-current": "page" }, name));
}

/** The address of a path within the page. */
export function address(...path) {
  return `#/${path.map(encodeURIComponent).join("/")}`;
}

/** A table from its columns, `{ title, text, number }`, and rows. */
export function table(caption, columns, rows) {
  const kind = (column) => (column.number ? "number" : null);
  const heading = columns.map((column) => element("th", { scope: "col", class: kind(column) }, column.title));
  const cell = (row) => (column) => element("td", { class: kind(column), "data-label": column.title }, column.text(row));
  const body = rows.map((row) => element("tr", {}, columns.map(cell(row))));
  const head = element("thead", {}, element("tr", {}, heading));
  return element("table", {}, element("caption", {}, caption), head, element("tbody", {}, body));
}

/** A table that is never wider than the page: first its words wrap and its letters are smaller, then each row is a card of its own. */
export function framed(label, content) {
  const frame = element("div", { class: "frame", tabindex: "0", role: "region", "aria-label": label }, content);
  // Once a picture: what an observer changes must not be observed at once.
  let due = false;
  const soon = () => {
    if (!due) requestAnimationFrame(() => { due = false; fit(frame, content); });
    due = true;
  };
  new ResizeObserver(soon).observe(content);
  return frame;
}

const TIGHTER = ["tight", "stacked"];

/** Makes a table fit its frame, anew whenever there is another width or number of columns to fit. */
function fit(frame, content) {
  const room = `${frame.clientWidth} ${content.tHead?.rows[0]?.cells.length}`;
  if (room !== frame.dataset.room) frame.classList.remove(...TIGHTER);
  frame.dataset.room = room;
  for (const way of TIGHTER) if (frame.scrollWidth > frame.clientWidth) frame.classList.add(way);
}

/** Replaces what a place holds, unless it reads the same: somebody may be reading it. */
export function replace(place, content) {
  if (place.textContent !== content.textContent || place.childElementCount === 0) place.replaceChildren(content);
}

/** A section of a page with its heading. */
export function section(id, title, ...children) {
  return element("section", { "aria-labelledby": id }, element("h2", { id }, title), ...children);
}
