// The table of a run's clients.
import { element, framed, link, replace, say, section, table } from "./dom.js";
import { count, counted, number, percent } from "./format.js";
import { labels_text } from "./side_by_side.js";
import { source } from "./source.js";

/** Longer lists are shown on demand. */
const FIRST = 20;

/** Whether a client was an outlier more than once, and in at least half of its rounds: once in a while everybody is. */
const is_outlier = ({ apart }) => apart != null && apart.outlier > 1 && 2 * apart.outlier >= apart.rounds;

/** Columns of runs that note how far clients are from each other. */
const APART = [
  { title: "Last distance to the aggregate", text: (row) => (row.apart ? number(row.apart.distance) : ""), number: true },
  { title: "Outlier", text: (row) => (row.apart ? `${count(row.apart.outlier)} of ${counted(row.apart.rounds, "round")}` : ""), number: true },
];

/** A client's name, marked where it is mostly an outlier. */
const marked = (row, name) => (is_outlier(row) ? element("span", {}, name, " ", element("span", { class: "badge", "data-state": "failed" }, "outlier")) : name);

/** The panel, and `refresh()`. */
export function client_table(run) {
  const hint = element("p", { class: "hint" }, "Reading ...");
  const place = element("div");
  const more = element("button", { type: "button", hidden: true, onclick: () => { all = true; show(); } });
  const node = section("clients", "Clients", hint, place, more);
  const name = (row) => (row.unseen ? `${row.name} (unseen in training)` : row.name);
  const shown = (row) => (source.has_client(run, row.client) ? link(["run", run, "client", row.client], name(row)) : name(row));
  const columns = [
    { title: "Client", text: (row) => marked(row, shown(row)) },
    { title: "Most frequent labels (samples)", text: labels_text },
    { title: "Train", text: (row) => count(row.samples), number: true },
    { title: "Test", text: (row) => count(row.test), number: true },
    { title: "Labels", text: (row) => count(row.labels), number: true },
    { title: "Rounds", text: (row) => count(row.rounds), number: true },
    { title: "Accuracy, local", text: (row) => percent(row.local), number: true },
    { title: "Accuracy, shared", text: (row) => percent(row.shared), number: true },
  ];
  let [rows, all] = [[], false];
  const show = () => {
    more.hidden = all || rows.length <= FIRST;
    say(more, `Show all ${counted(rows.length, "client")}`);
    const noted = rows.some((row) => row.apart) ? APART : [];
    const listed = all ? rows : rows.slice(0, FIRST);
    replace(place, framed("Clients", table("Clients, least accurate first", [...columns, ...noted], listed)));
  };
  const refresh = async () => {
    try {
      const found = await source.clients(run);
      rows = [...found].sort((a, b) => (a.accuracy ?? 2) - (b.accuracy ?? 2) || a.client - b.client);
      const closely = rows.filter((row) => source.has_client(run, row.client)).length;
      say(hint, closely < rows.length ? `This report has pages of the ${counted(closely, "client")} of ${count(rows.length)} that are least accurate; \`fedeq dashboard\` has those of all.` : "");
      show();
    } catch (error) {
      say(hint, error.message);
    }
  };
  return { node, refresh };
}
