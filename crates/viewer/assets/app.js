// The page: which view is open, what of it the address says, and the one connection that feeds it.
import { parts_of, query_of, choices_of } from "./board_address.js";
import { board, choose, watch } from "./board_state.js";
import { client_page } from "./client.js";
import { element, say } from "./dom.js";
import { overview } from "./overview.js";
import { run_page } from "./run.js";
import { source } from "./source.js";

const main = document.getElementById("main");
const connection = document.getElementById("connection");
let leave = () => {};
let due = null;

/** The view of a path. */
function view_of(path) {
  const parts = path.split("/").filter(Boolean).map(decodeURIComponent);
  const [kind, name, part, number] = parts;
  if (kind === "run" && name && part === "client") return client_page(name, Number(number));
  if (kind === "run" && name) return run_page(name);
  if (kind === "compare" && name) return overview(parts.slice(1));
  return overview();
}

function open_view() {
  leave();
  const { path, query } = parts_of(location.hash);
  // An address that says nothing of choices, as of a link within the page, leaves them as they are.
  if (query !== null) choose(choices_of(query));
  const shown = view_of(path);
  document.title = `${shown.title} - fedeq`;
  main.replaceChildren(shown.node);
  // Addresses change before views do: this says which one is shown.
  main.dataset.address = path;
  remember();
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

/** Writes what was chosen into the address. */
function remember() {
  clearTimeout(due);
  due = null;
  const [{ path }, query] = [parts_of(location.hash), query_of(board)];
  const address = `#/${path}${query && `?${query}`}`;
  if (address !== location.hash && (query || location.hash.includes("?"))) history.replaceState(null, "", address);
}

/** A browser takes only so many addresses a second. */
function remember_soon() {
  due ??= setTimeout(remember, 200);
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
addEventListener("pagehide", () => {
  remember();
  leave();
});
watch(remember_soon);
addEventListener("unhandledrejection", (event) => {
  main.prepend(element("p", { class: "notice bad", role: "alert" }, String(event.reason?.message ?? event.reason)));
});
open_view();
