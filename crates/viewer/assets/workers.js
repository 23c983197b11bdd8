// The clients of the current round, and what each is doing.
import { element, link, say } from "./dom.js";
import { count, counted } from "./format.js";

/** More clients than this are counted, not shown one by one. */
const MOST = 300;

const TASKS = {
  train: "Training",
  evaluate: "Evaluation",
  measure: "Evaluation with theory",
  finish: "Final step of the method",
  adopt: "Adaptation of unseen clients",
};

/** The panel, and `show(activity, state)`. */
export function workers(run) {
  const title = element("h2", { id: "workers" }, "Clients of this round");
  const sentence = element("p", { class: "hint" });
  const tiles = element("ul", { class: "tiles" });
  const node = element("section", { "aria-labelledby": "workers" }, title, sentence, tiles);
  const show = (activity, state) => {
    const alive = state === "running" || state === "paused";
    node.hidden = !activity?.task || (!alive && state !== "killed");
    if (node.hidden) return;
    const { waiting, working, done, round, task } = activity;
    const amounts = `${count(working.length)} working, ${count(waiting.length)} waiting, ${count(done.length)} done`;
    say(sentence, `${TASKS[task] ?? task} in round ${count(round + 1)}: ${amounts}${state === "killed" ? ", when it was killed" : ""}.`);
    paint(tiles, run, activity);
  };
  return { node, show };
}

function paint(tiles, run, { waiting, working, done }) {
  const all = [
    ...waiting.map((client) => [client, "waiting"]),
    ...working.map((client) => [client, "working"]),
    ...done.map((client) => [client, "done"]),
  ].sort(([a], [b]) => a - b);
  const shown = all.length > MOST ? [] : all;
  const key = shown.map(([client]) => client).join();
  if (tiles.dataset.key !== key) {
    tiles.dataset.key = key;
    tiles.replaceChildren(...shown.map(([client]) => element("li", {}, link(["run", run, "client", client], String(client)))));
  }
  if (all.length > MOST) tiles.replaceChildren(element("li", { class: "many" }, counted(all.length, "client")));
  shown.forEach(([client, state], index) => {
    const tile = tiles.children[index];
    if (tile.dataset.state === state) return;
    tile.dataset.state = state;
    tile.firstChild.setAttribute("aria-label", `client ${client}: ${state}`);
    tile.firstChild.title = `client ${client}: ${state}`;
  });
}
