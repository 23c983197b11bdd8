// From numbers to places, and the numbers that stand beside an axis.

/** Round numbers between two others, about so many. */
export function ticks(low, high, wanted) {
  const rough = (high - low) / Math.max(1, wanted);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= rough) ?? rough;
  const found = [];
  for (let index = Math.ceil(low / step - 1e-9); index * step <= high + 1e-9 * step; index += 1) found.push(index * step);
  return found;
}

/** Powers of ten between two positive numbers; where there are too many, every second or third. */
export function powers(low, high, wanted) {
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const step = Math.max(1, Math.ceil((last - first + 1) / wanted));
  const found = [];
  for (let power = first; power <= last; power += step) found.push(10 ** power);
  return found.length > 1 ? found : [low, high];
}

/** The range of some numbers, with some room above where they are all the same. */
export function range(values, { log = false, zero = false, most, room } = {}) {
  const usable = log ? values.filter((value) => value > 0) : values;
  if (usable.length === 0) return log ? [0.1, 1] : [0, 1];
  let low = usable.reduce((a, b) => Math.min(a, b));
  let high = usable.reduce((a, b) => Math.max(a, b));
  if (log) return low === high ? [low / 2, high * 2] : [low, high];
  if (zero) low = Math.min(0, low);
  if (most !== undefined) high = Math.max(high, most);
  if (low === high) high = low + (room ?? (Math.abs(low) || 1));
  return [low, high];
}

/** A function from numbers in a range to places. */
export function scale([low, high], [from, to], log = false) {
  const place = log ? Math.log10 : (value) => value;
  const [start, width] = [place(low), place(high) - place(low) || 1];
  return (value) => from + ((to - from) * (place(value) - start)) / width;
}
