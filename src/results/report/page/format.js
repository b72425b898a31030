// Numbers as people read them, and exactly as records.csv has them.

/** A number without an exponent, digit for digit as records.csv writes it. */
function plain(value) {
  const text = String(value);
  const [, sign, whole, fraction = "", exponent] = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/.exec(text) ?? [];
  if (exponent === undefined) return text;
  const digits = whole + fraction;
  const point = whole.length + Number(exponent);
  if (point <= 0) return `${sign}0.${"0".repeat(-point)}${digits}`;
  if (point >= digits.length) return sign + digits + "0".repeat(point - digits.length);
  return `${sign}${digits.slice(0, point)}.${digits.slice(point)}`;
}

/** Three significant digits. */
function short(value) {
  const size = Math.abs(value);
  if (size === 0) return "0";
  if (size >= 1e6 || size < 1e-3) return value.toExponential(2).replace("e+", "e");
  return size >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

/** A ratio near one, whose digits line up with others. */
function ratio(value) {
  return value >= 0.01 && value < 100 ? value.toFixed(value < 10 ? 2 : 1) : short(value);
}

/** The value in the largest unit that leaves at least one of it. */
function inUnits(value, units) {
  const size = Math.abs(value);
  let [scale, unit] = units[0];
  for (const next of units) {
    // 999.7 would be shown as 1000 of the smaller unit.
    if (size >= next[0] * 0.9995) [scale, unit] = next;
  }
  return [scale, unit];
}

const TIMES = [[1, "ns"], [1e3, "µs"], [1e6, "ms"], [1e9, "s"], [60e9, "min"]];
const SIZES = [[1, "B"], [2 ** 10, "KiB"], [2 ** 20, "MiB"], [2 ** 30, "GiB"], [2 ** 40, "TiB"]];
const RATES = [[1, ""], [1e3, "k"], [1e6, "M"], [1e9, "G"], [1e12, "T"], [1e15, "P"]];

function scaled(value, units, suffix = "") {
  const [scale, unit] = inUnits(value, units);
  const number = value / scale;
  const text = scale === 1 && Number.isInteger(number) && Math.abs(number) < 1e4 ? String(number) : short(number);
  return `${text} ${unit}${suffix}`.trim();
}

/** What a column's numbers are, by the end of its name. */
function unitOf(name) {
  if (name.endsWith("flops_per_s")) return "flop/s";
  if (name.endsWith("bytes_per_s")) return "B/s";
  if (name.endsWith("_per_s")) return "/s";
  for (const [end, unit] of [["_ns", "ns"], ["_ms", "ms"], ["_bytes", "B"], ["_gb", "GB"], ["_mhz", "MHz"], ["_c", "°C"], ["_w", "W"]]) {
    if (name.endsWith(end)) return unit;
  }
  if (name === "unix_time_s") return "date";
  if (name === "efficiency" || name === "flops_utilization" || name === "median_coverage") return "share";
  if (name === "speedup") return "×";
  if (name === "flops") return "flop";
  return "";
}

/** A number with its unit, short. */
function pretty(value, unit) {
  if (Number.isNaN(value)) return "";
  switch (unit) {
    case "ns": return scaled(value, TIMES);
    case "ms": return scaled(value * 1e6, TIMES);
    case "B": return scaled(value, SIZES);
    case "GB": return scaled(value * 2 ** 30, SIZES);
    case "B/s": return scaled(value, RATES, "B/s");
    case "flop/s": return scaled(value, RATES, "flop/s");
    case "flop": return scaled(value, RATES, "flop");
    case "/s": return scaled(value, RATES, "/s");
    case "share": return `${short(value * 100)} %`;
    case "×": return `${ratio(value)}×`;
    case "date": return value > 0 ? new Date(value * 1000).toISOString().slice(0, 19).replace("T", " ") : "";
    case "": return Number.isInteger(value) && Math.abs(value) < 1e15 ? String(value) : short(value);
    default: return `${short(value)} ${unit}`;
  }
}

/** An interval in the unit of its middle, with digits enough to tell its ends apart. */
function interval(low, high, middle, unit) {
  const units = { ns: TIMES, ms: TIMES }[unit];
  if (!units || Number.isNaN(low) || Number.isNaN(high)) return "";
  const nanoseconds = unit === "ms" ? 1e6 : 1;
  const [scale, name] = inUnits(middle * nanoseconds, units);
  const [from, to] = [(low * nanoseconds) / scale, (high * nanoseconds) / scale];
  const width = Math.max(to - from, Math.abs(to) * 1e-4, 1e-12);
  const digits = Math.min(4, Math.max(0, 1 - Math.floor(Math.log10(width))));
  return `${from.toFixed(digits)}–${to.toFixed(digits)} ${name}`;
}

/** `2024-05-06 07:08 UTC`. */
function date(unixSeconds) {
  return unixSeconds > 0 ? `${new Date(unixSeconds * 1000).toISOString().slice(0, 16).replace("T", " ")} UTC` : "";
}

const thousands = (count) => count.toLocaleString("en-US");

/** `1 point`, `2 points`. */
const counted = (count, noun) => `${thousands(count)} ${noun}${count === 1 ? "" : "s"}`;
