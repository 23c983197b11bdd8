// The page: which view is open, and the one connection that feeds it.
import { client_page } from "./client.js";
import { element, say } from "./dom.js";
import { overview } from "./overview.js";
import { run_page } from "./run.js";
import { source } from "./source.js";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
let leave = () => {};

/** The view that the address names. */
function view_of_address() {
  const parts = location.hash.replace(/^#\/?/, "").split("/").filter(Boolean).map(decodeURIComponent);
  const [kind, name, part, number] = parts;
  if (kind === "run" && name && part === "client") return client_page(name, Number(number));
  if (kind === "run" && name) return run_page(name);
  if (kind === "compare" && name) return overview(parts.slice(1));
  return overview();
}

function open_view() {
  leave();
  const shown = view_of_address();
  document.title = `${shown.title} - fedeq`;
  main.replaceChildren(shown.node);
  // Addresses change before views do: this says which one is shown.
  main.dataset.address = location.hash.replace(/^#\/?/, "");
  const end = source.follow(shown.names, {
    connection: (up) => say(connection, up ? "" : "Connection lost. Trying again ..."),
    runs: (rows) => shown.runs?.(rows),
    stories: (stories) => shown.stories?.(stories),
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
  open_view();
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
});
addEventListener("pagehide", () => leave());
addEventListener("unhandledrejection", (event) => {
  main.prepend(element("p", { class: "notice bad", role: "alert" }, String(event.reason?.message ?? event.reason)));
});
open_view();
