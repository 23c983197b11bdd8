// The table of a run's clients.
import { element, link, say, table } from "./dom.js";
import { count, counted, percent } from "./format.js";
import { ask } from "./stream.js";

/** Longer lists are shown on demand. */
const FIRST = 20;

/** The panel, and `refresh()`. */
export function clients(run) {
  const hint = element("p", { class: "hint" }, "Reading ...");
  const place = element("div");
  const more = element("button", { type: "button", hidden: true, onclick: () => { all = true; show(); } });
  const node = element("section", { "aria-labelledby": "clients" }, element("h2", { id: "clients" }, "Clients"), hint, place, more);
  const columns = [
    { title: "Client", text: (row) => link(["run", run, "client", row.client], row.unseen ? `${row.name} (unseen in training)` : row.name) },
    { title: "Samples", text: (row) => count(row.samples), number: true },
    { title: "Labels", text: (row) => count(row.labels), number: true },
    { title: "Rounds", text: (row) => count(row.rounds), number: true },
    { title: "Accuracy", text: (row) => percent(row.accuracy), number: true },
  ];
  let [rows, all] = [[], false];
  const show = () => {
    more.hidden = all || rows.length <= FIRST;
    say(more, `Show all ${counted(rows.length, "client")}`);
    const drawn = table("Clients, least accurate first", columns, all ? rows : rows.slice(0, FIRST));
    // Somebody may be reading the table: replaced is only what has changed.
    if (place.textContent !== drawn.textContent) place.replaceChildren(drawn);
  };
  const refresh = async () => {
    try {
      const found = await (await ask("/api/clients", { run })).json();
      rows = found.sort((a, b) => (a.accuracy ?? 2) - (b.accuracy ?? 2) || a.client - b.client);
      say(hint, "");
      show();
    } catch (error) {
      say(hint, error.message);
    }
  };
  return { node, refresh };
}
