// What somebody has chosen to see, as the end of an address: so a view can be linked, and is the same when it is read again.

/** What is seen where nothing was chosen. */
export const UNCHOSEN = { filter: "", sort: null, columns: [], group: null, hidden: [], abscissa: "round", log_x: false, log_y: false, smoothing: 0 };

/** The choices as `find=rho%3D1&sort=-local`; what was not chosen is not said. */
export function query_of(board) {
  const query = new URLSearchParams();
  const say_if = (is_chosen, key, value) => is_chosen && query.append(key, value);
  say_if(board.filter, "find", board.filter);
  say_if(board.sort, "sort", board.sort && `${board.sort.down ? "-" : ""}${board.sort.key}`);
  say_if(board.group, "group", board.group);
  for (const key of board.columns) query.append("column", key);
  for (const run of board.hidden) query.append("hide", run);
  say_if(board.abscissa !== UNCHOSEN.abscissa, "over", board.abscissa);
  say_if(board.log_x, "logx", "1");
  say_if(board.log_y, "logy", "1");
  say_if(board.smoothing > 0, "smooth", board.smoothing);
  return query.toString();
}

/** The choices that such a text says; what makes no sense is as if it were not there. */
export function choices_of(text) {
  const query = new URLSearchParams(text);
  const sort = query.get("sort");
  const smoothing = Number(query.get("smooth"));
  return {
    filter: query.get("find") ?? "",
    sort: sort ? { key: sort.replace(/^-/, ""), down: sort.startsWith("-") } : null,
    group: query.get("group"),
    columns: [...new Set(query.getAll("column"))],
    hidden: new Set(query.getAll("hide")),
    abscissa: ["round", "bytes", "time"].includes(query.get("over")) ? query.get("over") : UNCHOSEN.abscissa,
    log_x: query.get("logx") === "1",
    log_y: query.get("logy") === "1",
    smoothing: smoothing > 0 && smoothing < 1 ? smoothing : 0,
  };
}

/** The parts of an address, `#/compare/a/b?find=x`: its path, and what was chosen, or nothing if it does not say. */
export function parts_of(hash) {
  const [path, ...rest] = hash.replace(/^#\/?/, "").split("?");
  return { path, query: rest.length > 0 ? rest.join("?") : null };
}
