// Journals as columns of numbers: `{ round: [1, 2], loss: [0.9, null] }`. A column that is not there holds nothing.

/** Some columns with others after them. */
export function joined_columns(before, added) {
  const [first, second] = [before.round?.length ?? 0, added.round?.length ?? 0];
  if (second === 0) return before;
  if (first === 0) return added;
  const names = new Set([...Object.keys(before), ...Object.keys(added)]);
  const part = (columns, name, length) => columns[name] ?? new Array(length).fill(null);
  return Object.fromEntries([...names].map((name) => [name, part(before, name, first).concat(part(added, name, second))]));
}

/** How many lines there are. */
export function height(columns) {
  return columns.round?.length ?? 0;
}

/** The last value of a column that is one; nothing if there is none. */
export function last_of(columns, name) {
  const values = columns[name] ?? [];
  for (let index = values.length - 1; index >= 0; index -= 1) if (values[index] != null) return values[index];
  return null;
}

/** Points `[round, value]` where a column has a value. */
export function points_in(columns, name) {
  const [rounds, values] = [columns.round ?? [], columns[name] ?? []];
  const points = [];
  for (let index = 0; index < values.length; index += 1) if (values[index] != null) points.push([rounds[index], values[index]]);
  return points;
}

/** The same of what `value(at)` makes of several columns; it gets a function from names to values of the line. */
export function points_of(columns, value) {
  const points = [];
  for (let index = 0; index < height(columns); index += 1) {
    const y = value((name) => columns[name]?.[index] ?? null);
    if (y != null) points.push([columns.round[index], y]);
  }
  return points;
}

/** What a column said at a round, or last before it: of very long runs not every round is told. */
export function value_at(columns, round, value) {
  const rounds = columns.round ?? [];
  let [low, high] = [0, rounds.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (rounds[middle] <= round) low = middle + 1;
    else high = middle;
  }
  return low > 0 ? value((name) => columns[name]?.[low - 1] ?? null) : null;
}
