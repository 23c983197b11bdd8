// What somebody has chosen to see: it holds while runs go on and views change.
import { UNCHOSEN } from "./board_address.js";

/** The choices, and who wants to know of them. */
export const board = { ...UNCHOSEN, hidden: new Set(), chosen: new Set() };

const watchers = new Set();

/** Changes some choices and tells all who watch. */
export function choose(changes) {
  Object.assign(board, changes);
  for (const watcher of [...watchers]) watcher(changes);
}

/** Calls back on every change; returns what ends that. */
export function watch(watcher) {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}
