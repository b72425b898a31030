// Axes: from values to places, with ticks at numbers that people expect.

/** A scale from values to pixels: `at(value)`, `ticks` of `{value, text}`. Categories are `levels` by number. */
function makeScale({ kind, low, high, levels = [], from, to, unit = "" }) {
  if (kind === "band") {
    const step = (to - from) / Math.max(levels.length, 1);
    return {
      kind,
      step: Math.abs(step),
      at: (code) => from + step * (code + 0.5),
      ticks: levels.map((text, code) => ({ value: code, text })),
    };
  }
  const isLog = kind === "log";
  const map = isLog ? Math.log10 : (value) => value;
  let [bottom, top] = [map(low), map(high)];
  if (!(top > bottom)) [bottom, top] = isLog ? [bottom - 0.15, top + 0.15] : [bottom - Math.abs(bottom || 1) * 0.1, top + Math.abs(top || 1) * 0.1];
  const at = (value) => from + ((map(value) - bottom) / (top - bottom)) * (to - from);
  const [first, last] = isLog ? [10 ** bottom, 10 ** top] : [bottom, top];
  return { kind, at, low: first, high: last, ticks: isLog ? logTicks(first, last, unit) : linearTicks(first, last, unit) };
}

/** Round steps of 1, 2 or 5; bytes in powers of two. */
function linearTicks(low, high, unit) {
  const span = (high - low) / 5;
  const base = unit === "B" ? 2 : 10;
  const power = base ** Math.floor(Math.log(span) / Math.log(base));
  const step = base === 2 ? power : ([1, 2, 5, 10].find((factor) => factor * power >= span) ?? 10) * power;
  const ticks = [];
  for (let count = Math.ceil(low / step - 1e-9); count * step <= high * (1 + 1e-12); count++) {
    ticks.push({ value: count * step, text: tickText(count * step, unit) });
  }
  return ticks;
}

/** Powers of ten; where there are under three, 1, 2 and 5 of each; where there are many, every other. */
function logTicks(low, high, unit) {
  if (unit === "B") return powerTicks(low, high, 2, unit);
  const [first, last] = [Math.ceil(Math.log10(low) - 1e-9), Math.floor(Math.log10(high) + 1e-9)];
  const every = Math.ceil((last - first + 1) / 7);
  const ticks = [];
  const factors = last - first >= 2 ? [1] : [1, 2, 5];
  for (let power = first - 1; power <= last; power++) {
    if (factors.length === 1 && (((power - first) % every) + every) % every !== 0) continue;
    for (const factor of factors) {
      const value = factor * 10 ** power;
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9)) ticks.push({ value, text: tickText(value, unit) });
    }
  }
  return ticks.length > 1 ? ticks : linearTicks(low, high, unit);
}

function powerTicks(low, high, base, unit) {
  const [first, last] = [low, high].map((value) => Math.log(value) / Math.log(base));
  const every = Math.max(1, Math.ceil((last - first) / 6));
  const ticks = [];
  for (let power = Math.ceil(first / every - 1e-9) * every; power <= last + 1e-9; power += every) {
    ticks.push({ value: base ** power, text: tickText(base ** power, unit) });
  }
  return ticks.length > 1 ? ticks : linearTicks(low, high, unit);
}

function tickText(value, unit) {
  if (value === 0) return "0";
  const round = Number(value.toPrecision(6));
  const text = { ns: scaledTick(round, TIMES), ms: scaledTick(round * 1e6, TIMES), B: scaledTick(round, SIZES) }[unit];
  if (text) return text;
  if (["B/s", "flop/s", "flop", "/s"].includes(unit)) return scaledTick(round, RATES);
  if (unit === "share") return `${Number((round * 100).toPrecision(4))} %`;
  const power = Math.log2(value);
  if (value >= 2 ** 14 && Number.isInteger(power)) return `2${superscript(power)}`;
  if (Math.abs(round) >= 1e5 || Math.abs(round) < 1e-3) return exponential(round);
  return `${round}${unit === "×" ? "×" : ""}`;
}

const superscript = (number) => [...String(number)].map((digit) => (digit === "-" ? "⁻" : "⁰¹²³⁴⁵⁶⁷⁸⁹"[digit])).join("");

/** `2·10⁵`; `10⁵` for a factor of one. */
function exponential(value) {
  const [factor, power] = value.toExponential(2).split("e");
  const digits = String(Number(factor));
  return `${digits === "1" ? "" : `${digits}·`}10${superscript(Number(power))}`;
}

function scaledTick(value, units) {
  const [scale, unit] = inUnits(value, units);
  return `${Number((value / scale).toPrecision(4))} ${unit}`.trim();
}

/** Ticks at values that occur, as sizes of a sweep do; thinned until labels have room. */
function ticksAt(values, scale, room, text) {
  const ticks = values.map((value) => ({ value, text: text(value) }));
  const kept = [];
  let edge = -Infinity;
  for (const tick of ticks) {
    const half = (tick.text.length * 6.6 + room) / 2;
    if (scale.at(tick.value) - half < edge) continue;
    edge = scale.at(tick.value) + half;
    kept.push(tick);
  }
  return kept;
}
