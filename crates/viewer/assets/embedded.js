// Runs as a report holds them: all data is in the page.
import { story_after } from "./live.js";

/** The data of a page on disk. */
export function embedded_source(text) {
  const data = JSON.parse(text);
  const stories = new Map(data.stories.map((news) => [news.run, story_after(new Map(), news)]));
  const portrait = (run, client) => data.portraits[run]?.clients.find((one) => one.client === client);
  const absent = (thing) => Promise.reject(new Error(`${thing} are not part of this report. \`fedeq dashboard\` shows them.`));
  return {
    is_live: false,
    report: data.report,
    follow: (_, hear) => {
      hear.runs(data.rows);
      hear.stories(stories);
      return () => {};
    },
    clients: (run) => (data.clients[run] ? Promise.resolve(data.clients[run]) : absent("The clients of this run")),
    has_client: (run, client) => portrait(run, client) !== undefined,
    client: (run, client) => (portrait(run, client) ? Promise.resolve({ classes: data.portraits[run].classes, clients: [portrait(run, client)] }) : absent("The pages of this client")),
    has_confusion: (run) => data.confusions[run] !== undefined,
    confusion: (run, client) => {
      const { clients, problem } = data.confusions[run] ?? { clients: [] };
      const found = client == null ? clients[0] : clients.find((one) => one.client === client);
      if (found) return Promise.resolve(found);
      return problem ? Promise.reject(new Error(problem)) : absent("This client's confusion matrices");
    },
    experiment: (run) => Promise.resolve(data.experiments[run] ?? ""),
  };
}
