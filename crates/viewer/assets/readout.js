// The values of a chart at a place on its axis.

/** The point of each curve that is nearest to a place, for curves that reach it. */
export function values_at(series, x) {
  return series.map((one) => ({ one, point: nearest(one.points, x) })).filter(({ point }) => point);
}

function nearest(points, x) {
  if (points.length === 0 || x > points.at(-1).x + reach(points) || x < points[0].x - reach(points)) return null;
  let [low, high] = [0, points.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (points[middle].x < x) low = middle + 1;
    else high = middle;
  }
  const before = points[Math.max(0, low - 1)];
  return x - before.x < points[low].x - x ? before : points[low];
}

/** How far beside its ends a curve is still read. */
function reach(points) {
  return (points.at(-1).x - points[0].x) / Math.max(1, points.length - 1) || 1;
}

/** Values that are named at a time. */
const NAMED_AT_ONCE = 8;

/** What is to be read at a place: the nearest curves first. */
export function readout_text(found, x, axis, format) {
  const value = ({ one, point }) => `${one.name} ${format(point.y)}${point.low === undefined ? "" : ` (${format(point.low)} to ${format(point.high)})`}`;
  const more = found.length - NAMED_AT_ONCE;
  return `${axis.name} ${axis.format(x)}: ${found.slice(0, NAMED_AT_ONCE).map(value).join(", ")}${more > 0 ? `, and ${more} more` : ""}`;
}
