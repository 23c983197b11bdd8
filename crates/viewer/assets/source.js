// Where the page's data comes from: a page on disk has it inside, a dashboard's asks its server.
import { embedded_source } from "./embedded.js";
import { live_source } from "./live.js";

const inside = document.getElementById("data");

/** The one source of the page. */
export const source = inside ? embedded_source(inside.textContent) : live_source();
