// News from the server, put together to stories of runs.

const EMPTY = { rounds: [], evaluations: [], timings: [] };
const JOURNALS = Object.keys(EMPTY);

/** Follows the list of runs and some runs closely; `hear` gets `runs(rows)`, `run(name, story)` and `connection(is_up)`. */
export function follow(names, hear) {
  const told = new Map();
  const source = new EventSource(`/api/events?runs=${encodeURIComponent(JSON.stringify(names))}`);
  source.addEventListener("open", () => hear.connection(true));
  source.addEventListener("error", () => hear.connection(false));
  source.addEventListener("runs", (event) => hear.runs(JSON.parse(event.data)));
  source.addEventListener("run", (event) => {
    const news = JSON.parse(event.data);
    const before = news.anew ? EMPTY : (told.get(news.run) ?? EMPTY);
    const each = (points) => Object.fromEntries(JOURNALS.map((journal) => [journal, points(journal)]));
    const now = each((journal) => before[journal].concat(news[journal]));
    told.set(news.run, now);
    // Very long curves come with fewer points, and where they end comes beside them.
    const ended = each((journal) => (news.tail[journal] ? now[journal].concat(news.tail[journal]) : now[journal]));
    hear.run(news.run, { ...ended, totals: news.totals, activity: news.activity });
  });
  return () => source.close();
}

/** Asks the server for something; an answer that is no answer becomes an error people can read. */
export async function ask(path, query = {}, options = {}) {
  const response = await fetch(`${path}?${new URLSearchParams(query)}`, options);
  if (response.ok) return response;
  const { problem, hint } = await response.json().catch(() => ({ problem: `the dashboard answered ${response.status}` }));
  throw new Error(hint ? `${problem}. ${hint[0].toUpperCase()}${hint.slice(1)}.` : problem);
}
