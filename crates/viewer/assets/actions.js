// Buttons that pause, resume and stop a run.
import { element, say } from "./dom.js";
import { ask } from "./live.js";

const DEEDS = {
  pause: { label: "Pause", when: ["running"], done: "Pausing once the clients in training have finished." },
  resume: { label: "Resume", when: ["paused", "stopped", "killed", "failed"], done: "Resuming." },
  stop: { label: "Stop", when: ["running", "paused"], done: "Stopping once the clients in training have finished." },
};

/** The buttons of a run, and `show(row)`, which keeps them to what can be done. */
export function actions(run) {
  const told = element("p", { class: "told", role: "status" });
  const buttons = Object.entries(DEEDS).map(([action, deed]) => {
    const press = () => act(run, action, deed, told);
    return [deed, element("button", { type: "button", class: action, disabled: true, onclick: press }, deed.label)];
  });
  const node = element("div", { class: "actions" }, buttons.map(([, button]) => button), told);
  const show = (row) => {
    node.hidden = row.state === "malformed";
    for (const [deed, button] of buttons) {
      const fits = deed.when.includes(row.state) && !(row.started && row.state !== "running" && row.state !== "paused");
      // A button under the finger of somebody at the keyboard must not lose them their place.
      if (button.disabled && fits) button.disabled = false;
      else if (!fits && !button.disabled) {
        const held = document.activeElement === button;
        button.disabled = true;
        if (held) told.closest("section")?.querySelector("button:not([disabled])")?.focus();
      }
    }
  };
  return { node, show };
}

async function act(run, action, deed, told) {
  const headers = { "content-type": "application/json", "x-fedeq-action": action };
  try {
    await ask("/api/act", {}, { method: "POST", headers, body: JSON.stringify({ run, action }) });
    say(told, deed.done);
    setTimeout(() => say(told, ""), 4000);
  } catch (error) {
    say(told, error.message);
  }
}
