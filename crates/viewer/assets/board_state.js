// What somebody has chosen to see: it holds while runs go on and views change.

/** The choices, and who wants to know of them. */
export const board = {
  filter: "",
  sort: null,
  columns: [],
  group: null,
  hidden: new Set(),
  chosen: new Set(),
  abscissa: "round",
  log: false,
  smoothing: 0,
};

const watchers = new Set();

/** Changes some choices and tells everybody. */
export function choose(changes) {
  Object.assign(board, changes);
  for (const watcher of [...watchers]) watcher(changes);
}

/** Calls back on every change; returns what ends that. */
export function watch(watcher) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}
