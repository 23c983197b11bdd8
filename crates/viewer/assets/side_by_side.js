// The same clients side by side: how accuracy is spread over them, and who is worst off under each line.
import { Chart } from "./chart.js";
import { same_clients } from "./division.js";
import { element, framed, replace, say, section, table } from "./dom.js";
import { count, counted, percent } from "./format.js";
import { full_name, sample } from "./lines.js";
import { source } from "./source.js";

/** Clients of more lines are not read at a time. */
const MOST_LINES = 24;
const FIRST_SHOWN = 12;
const VIEWS = { local: "clients' own models", shared: "the shared model" };
const SORTED = { title: "Accuracy of clients, sorted", note: "least accurate first", format: percent, zero: true, floor: 0, ceiling: 1 };
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
  const which = element("p", { class: "note" });
  const place = element("div");
  const choice = element("select", { onchange: () => draw() }, Object.entries(VIEWS).map(([key, title]) => element("option", { value: key }, title)));
  const seeds = element("select", { onchange: () => { wanted_seed = Number(seeds.value); draw(); } });
  const seed_field = element("label", { hidden: true }, "Clients of seed ", seeds);
  const more = element("button", { type: "button", hidden: true, onclick: () => { all = true; draw(); } }, "Show all clients");
  const node = section("clients", "Clients", element("div", { class: "tools" }, element("label", {}, "Accuracy by ", choice), seed_field), hint, which, chart.node, place, more);
  const read = new Map();
  let [lines, all, stamp, wanted_seed, offered] = [[], false, "", null, ""];
  const offer = (alike) => {
    seed_field.hidden = alike.seeds.length < 2;
    const now = JSON.stringify([alike.seeds, alike.seed]);
    if (now === offered) return;
    offered = now;
    seeds.replaceChildren(...alike.seeds.map((seed) => element("option", { value: seed, selected: seed === alike.seed }, String(seed))));
  };
  const draw = () => {
    if (lines.every(({ pooled }) => pooled.length === 0)) return;
    const alike = same_clients(lines, wanted_seed);
    offer(alike);
    say(which, clients_text(alike));
    const ready = alike.lines.map(({ line, runs }) => ({ ...line, name: name_of(line, runs), clients: by_client(runs, read, choice.value) })).filter(({ clients }) => clients.size > 0);
    if (ready.length === 0) return;
    chart.draw(ready.map((line) => ({ key: line.key, name: line.name, stroke: line.stroke, points: spread([...line.clients.values()]) })), SHARE_OF_CLIENTS);
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
      say(which, "");
      seed_field.hidden = true;
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

/** Which clients these are. */
function clients_text({ seed, seeds, apart }) {
  const whose = seed === null ? "Means over seeds: the owners of the data are the clients, the same under every seed." : `Runs of seed ${seed}${seeds.length > 1 ? " alone" : ""}: the seed also draws which samples each client has, so under another seed the same name is another client.`;
  const left_out = apart.length > 0 ? ` ${counted(apart.length, "line")} without a run of these clients ${apart.length === 1 ? "is" : "are"} not shown: ${apart.map(({ label }) => label).join("; ")}.` : "";
  return `${whose}${left_out}`;
}

/** What a line is called here, where it may stand for fewer of its runs. */
function name_of(line, runs) {
  return full_name({ ...line, pooled: runs, members: runs });
}

/** The accuracies of clients by name: means over runs in which they are the same. */
function by_client(runs, read, view) {
  const found = new Map();
  for (const { row } of runs) {
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
    { title: "Most frequent labels (samples)", text: ({ client }) => labels_text(client) },
    { title: "Train", number: true, text: ({ client }) => count(client.samples) },
    ...lines.map((line) => ({ title: line.name, number: true, text: cell(line) })),
  ];
  return table(`${counted(rows.length, "client")}, least accurate first`, columns, rows);
}
