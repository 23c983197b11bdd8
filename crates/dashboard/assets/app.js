// The page: which view is open, and the one connection that feeds it.
import { client } from "./client.js";
import { compare } from "./compare.js";
import { element, say } from "./dom.js";
import { list } from "./list.js";
import { run } from "./run.js";
import { follow } from "./stream.js";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
let leave = () => {};

/** The view that the address names. */
function view() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  const [kind, name, part, number] = parts;
  if (kind === "run" && name && part === "client") return client(name, Number(number));
  if (kind === "run" && name) return run(name);
  if (kind === "compare" && name) return compare(parts.slice(1));
  return list();
}

function open() {
  leave();
  const shown = view();
  document.title = `${shown.title} - fedeq`;
  main.replaceChildren(shown.node);
  const end = follow(shown.names, {
    connection: (up) => say(connection, up ? "" : "Connection lost. Trying again ..."),
    runs: (rows) => shown.runs?.(rows),
    run: (name, story) => shown.run?.(name, story),
  });
  leave = () => {
    end();
    shown.leave?.();
  };
}

function skip(event) {
  // The address belongs to the views, so this link moves the focus by hand.
  event.preventDefault();
  main.focus();
}

document.querySelector(".skip").addEventListener("click", skip);
addEventListener("hashchange", () => {
  open();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("pagehide", () => leave());
addEventListener("unhandledrejection", (event) => {
  main.prepend(element("p", { class: "notice bad", role: "alert" }, String(event.reason?.message ?? event.reason)));
});
open();
