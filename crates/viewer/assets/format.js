// Numbers as people read them, with their units, from which no line break parts them.

export const NONE = "–";

const known = (write) => (value) => (value == null || !Number.isFinite(value) ? NONE : write(value));

export const percent = known((share) => `${(100 * share).toFixed(1)}\u00a0%`);

export const count = known((number) => Math.round(number).toLocaleString("en-US"));

export const number = known((value) => {
  const size = Math.abs(value);
  if (value === 0) return "0";
  if (size < 1e-3 || size >= 1e6) return value.toExponential(1);
  return value.toLocaleString("en-US", { maximumSignificantDigits: 3 });
});

export const bytes = known((amount) => {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let unit = 0;
  while (amount >= 999.5 && unit < units.length - 1) {
    amount /= 1000;
    unit += 1;
  }
  return `${amount < 9.95 && unit > 0 ? amount.toFixed(1) : amount.toFixed(0)}\u00a0${units[unit]}`;
});

export const seconds = known((time) => {
  if (time < 9.95) return `${time.toFixed(1)}\u00a0s`;
  if (time < 90) return `${Math.round(time)}\u00a0s`;
  if (time < 5400) return `${Math.round(time / 60)}\u00a0min`;
  const hours = Math.floor(time / 3600);
  return `${hours}\u00a0h ${Math.round((time - 3600 * hours) / 60)}\u00a0min`;
});

/** `1 client`, `2 clients`. */
export function counted(amount, thing) {
  return `${count(amount)} ${thing}${amount === 1 ? "" : "s"}`;
}

/** A score, which clients may keep to themselves: `evaluated` says that it was asked for. */
export function score(value, evaluated) {
  return value == null && evaluated ? "not reported" : percent(value);
}

/** A moment, given in seconds since 1970: day and minute, in the reader's time. */
export const date = known((moment) => {
  const two = (part) => String(part).padStart(2, "0");
  const time = new Date(1000 * moment);
  return `${time.getFullYear()}-${two(time.getMonth() + 1)}-${two(time.getDate())} ${two(time.getHours())}:${two(time.getMinutes())}`;
});

/** `87.0 %`, or `87.0 ± 2.1 %` over several runs; `none` where there is nothing. */
export function scattered(found, format, none = NONE) {
  if (!found) return none;
  return found.count > 1 ? `${format(found.mean)} ±\u00a0${format(found.deviation)}`.replace(/\u00a0%(?= ±)/, "") : format(found.mean);
}
