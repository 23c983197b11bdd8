// The numbers that stand beside an axis, and the range of a chart.

/** Round numbers between two others, about so many. */
export function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  if (!(rough > 0)) return [low];
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? rough;
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + 1e-9 * step; index += 1) found.push(index * step);
  return found;
}

/** Powers of ten between two positive numbers; where there are too many, every second or third, where there are few, twice and five times them as well, and where that is nothing, round numbers. */
export function powers(low, high, wanted) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const step = Math.max(1, Math.ceil((last - first + 1) / wanted));
  const found = [];
  for (let power = first; power <= last; power += step) found.push(10 ** power);
  if (found.length > 2) return found;
  const finer = [];
  for (let power = first - 1; power <= last; power += 1) for (const factor of [1, 2, 5]) finer.push(factor * 10 ** power);
  const inside = finer.filter((value) => value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9));
  if (inside.length > 1) return inside;
  const between = ticks(low, high, wanted).filter((value) => value > 0);
  return between.length > 0 ? between : [low, high];
}

/** The range of some numbers, with some room where they are all the same. */
export function range(values, { log = false, zero = false, most } = {}) {
  let [low, high] = [Infinity, -Infinity];
  for (const value of values) {
    if (!Number.isFinite(value) || (log && value <= 0)) continue;
    if (value < low) low = value;
    if (value > high) high = value;
  }
  if (low > high) return log ? [0.1, 1] : [0, 1];
  if (log) return low === high ? [low / 2, high * 2] : [low, high];
  if (zero) low = Math.min(0, low);
  if (most !== undefined) high = Math.max(high, most);
  if (low === high) high = low + (Math.abs(low) || 1);
  return [low, high];
}
