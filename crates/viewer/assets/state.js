// How a run stands, in a word, a sign and a sentence.
import { element } from "./dom.js";

const STATES = {
  running: ["▶", ""],
  paused: ["❚❚", "It is paused and continues when it is resumed."],
  finished: ["✓", ""],
  stopped: ["■", "It was stopped. Resume continues from its last checkpoint."],
  failed: ["✕", "It ended with an error. Resume tries again from its last checkpoint, once the reason is gone."],
  killed: ["✕", "Its process ended without notice: killed, or a power cut. Resume continues from its last checkpoint."],
  malformed: ["!", "Something in its folder cannot be read."],
};

/** A sign and a word; `show(state)` changes them. */
export function badge(state) {
  const [sign, word] = [element("span", { "aria-hidden": "true" }), element("span")];
  const node = element("span", { class: "badge" }, sign, " ", word);
  node.show = (now) => {
    if (node.dataset.state === now) return;
    node.dataset.state = now;
    [sign.textContent, word.textContent] = [STATES[now]?.[0] ?? "?", now];
  };
  node.show(state);
  return node;
}

/** What a state means, where its word alone does not say. */
export function meaning(state) {
  return STATES[state]?.[1] ?? "";
}
