// Runs as a dashboard tells them: news from its server, put together to stories.
import { joined_columns } from "./columns.js";

const JOURNALS = ["rounds", "evaluations", "timings"];
const UNTOLD = { rounds: {}, evaluations: {}, timings: {} };

/** A dashboard's server. */
export function live_source() {
  return {
    is_live: true,
    follow,
    clients: async (run) => (await (await ask("/api/clients", { run })).json()).clients,
    has_client: () => true,
    client: async (run, client) => (await ask("/api/client", { run, client })).json(),
    has_confusion: () => true,
    confusion: async (run, client, view) => (await ask("/api/confusion", { run, ...(client != null && { client }), ...(view && { view }) })).json(),
    experiment: async (run) => (await ask("/api/experiment", { run })).text(),
  };
}

/** Follows the list of runs and some runs closely (`"all"`, or their names); `hear` gets `runs(rows)`, `stories(map)` and `connection(is_up)`. */
function follow(names, hear) {
  const [told, stories] = [new Map(), new Map()];
  const wanted = names === "all" ? "all" : JSON.stringify(names);
  const source = new EventSource(`/api/events?runs=${encodeURIComponent(wanted)}`);
  source.addEventListener("open", () => hear.connection(true));
  source.addEventListener("error", () => hear.connection(false));
  source.addEventListener("runs", (event) => hear.runs(JSON.parse(event.data)));
  source.addEventListener("stories", (event) => {
    for (const news of JSON.parse(event.data)) stories.set(news.run, story_after(told, news));
    hear.stories(stories);
  });
  return () => source.close();
}

/** The story of a run with what was added. Very long curves come with fewer points, and where they end comes beside them. */
export function story_after(told, news) {
  const before = news.anew ? UNTOLD : (told.get(news.run) ?? UNTOLD);
  const each = (columns) => Object.fromEntries(JOURNALS.map((journal) => [journal, columns(journal)]));
  const settings = news.settings ?? before.settings ?? {};
  const now = { ...each((journal) => joined_columns(before[journal], news[journal])), settings };
  told.set(news.run, now);
  return { ...each((journal) => joined_columns(now[journal], news.tail[journal])), settings, totals: news.totals, activity: news.activity };
}

/** Asks the server for something; an answer that is no answer becomes an error people can read. */
export async function ask(path, query = {}, options = {}) {
  const response = await fetch(`${path}?${new URLSearchParams(query)}`, options);
  if (response.ok) return response;
  const { problem, hint } = await response.json().catch(() => ({ problem: `the dashboard answered ${response.status}` }));
  throw new Error(hint ? `${problem}. ${hint[0].toUpperCase()}${hint.slice(1)}.` : problem);
}
