// The same clients side by side: how accuracy is spread over them, and who is worst off under each line.
import { Chart } from "./chart.js";
import { element, framed, replace, say, section, table } from "./dom.js";
import { count, counted, percent } from "./format.js";
import { sample } from "./lines.js";
import { source } from "./source.js";

/** Clients of more lines are not read at a time. */
const MOST_LINES = 24;
const FIRST_SHOWN = 12;
const VIEWS = { local: "clients' own models", shared: "the shared model" };
const SORTED = { title: "Accuracy of clients, sorted", note: "from the worst to the best", format: percent, zero: true, floor: 0, ceiling: 1 };
const SHARE_OF_CLIENTS = { name: "clients up to", label: "share of clients", format: percent };

/** What a client holds, in a few words. */
export function labels_text({ holds, labels }) {
  if (!holds || holds.length === 0) return "–";
  const named = holds.slice(0, 4).map(([name, samples]) => `${name} (${count(samples)})`);
  const more = Math.max(holds.length, labels ?? 0) - named.length;
  return [...named, ...(more > 0 ? [`${more} more`] : [])].join(", ");
}

/** The section, `show(lines)` and `leave()`. */
export function clients_section(onhover) {
  const chart = new Chart(SORTED, { named: false, onhover });
  const hint = element("p", { class: "hint" });
  const place = element("div");
  const choice = element("select", { onchange: () => draw() }, Object.entries(VIEWS).map(([key, title]) => element("option", { value: key }, title)));
  const more = element("button", { type: "button", hidden: true, onclick: () => { all = true; draw(); } }, "Show all clients");
  const node = section("clients", "Clients", element("div", { class: "tools" }, element("label", {}, "Accuracy by ", choice)), hint, chart.node, place, more);
  const read = new Map();
  let [lines, all, stamp] = [[], false, ""];
  const draw = () => {
    const ready = lines.map((line) => ({ ...line, clients: by_client(line, read, choice.value) })).filter(({ clients }) => clients.size > 0);
    if (ready.length === 0) return;
    chart.draw(ready.map((line) => ({ key: line.key, name: line.label, stroke: line.stroke, points: spread([...line.clients.values()]) })), SHARE_OF_CLIENTS);
    const [rows, amount] = worst_first(ready, all ? Infinity : FIRST_SHOWN);
    more.hidden = amount <= rows.length;
    const drawn = clients_table(ready, rows);
    replace(place, framed("Clients side by side", drawn));
  };
  const show = async (now) => {
    lines = now;
    node.hidden = lines.length === 0;
    if (lines.length > MOST_LINES) {
      chart.draw([], SHARE_OF_CLIENTS);
      place.replaceChildren();
      return say(hint, `Choose at most ${MOST_LINES} lines to see their clients side by side.`);
    }
    const wanted = lines.flatMap(({ pooled }) => pooled.map(({ row }) => [row.run, row.evaluated]));
    if (JSON.stringify(wanted) === stamp) return draw();
    stamp = JSON.stringify(wanted);
    const problems = await Promise.all(wanted.map(([run]) => source.clients(run).then((rows) => void read.set(run, rows), (error) => error.message)));
    say(hint, [...new Set(problems.filter(Boolean))].join(" "));
    draw();
  };
  return { node, show, highlight: (key) => chart.highlight(key), leave: () => chart.remove() };
}

/** The accuracies of a line's clients by name: means over its runs. */
function by_client({ pooled }, read, view) {
  const found = new Map();
  for (const { row } of pooled) {
    for (const client of read.get(row.run) ?? []) {
      if (client.unseen || client[view] == null) continue;
      if (!found.has(client.name)) found.set(client.name, { client, values: [] });
      found.get(client.name).values.push(client[view]);
    }
  }
  return new Map([...found].map(([name, { client, values }]) => [name, { client, accuracy: sample(values).mean }]));
}

function spread(clients) {
  const sorted = clients.map(({ accuracy }) => accuracy).sort((a, b) => a - b);
  return sorted.map((y, index) => ({ x: (index + 0.5) / sorted.length, y }));
}

/** Clients by their mean over lines, the worst first; and how many there are. */
function worst_first(lines, most) {
  const names = [...new Set(lines.flatMap(({ clients }) => [...clients.keys()]))];
  const mean = (name) => sample(lines.map(({ clients }) => clients.get(name)?.accuracy))?.mean ?? 2;
  const rows = names.map((name) => ({ name, mean: mean(name), client: lines.find(({ clients }) => clients.has(name)).clients.get(name).client }));
  rows.sort((a, b) => a.mean - b.mean || a.name.localeCompare(b.name, "en", { numeric: true }));
  return [rows.slice(0, most), rows.length];
}

function clients_table(lines, rows) {
  const cell = (line) => ({ name }) => {
    const accuracy = line.clients.get(name)?.accuracy;
    const shown = element("span", { class: "shaded" }, percent(accuracy));
    if (accuracy != null) shown.dataset.tenth = Math.min(9, Math.floor(10 * accuracy));
    return shown;
  };
  const columns = [
    { title: "Client", text: ({ name }) => name },
    { title: "Holds (samples)", text: ({ client }) => labels_text(client) },
    { title: "Train", number: true, text: ({ client }) => count(client.samples) },
    ...lines.map((line) => ({ title: line.label, number: true, text: cell(line) })),
  ];
  return table(`${counted(rows.length, "client")}, least accurate first`, columns, rows);
}
