// What was attained against what the devices can do at most, as measured on them.

function roofline(data, host) {
  const [flops, bytes] = ["flops", "compulsory_bytes"].map((name) => data.column(name));
  if (!flops || !bytes || !data.isOk.some((isOk, row) => isOk && bytes.numbers[row] > 0)) {
    host.replaceChildren(el("p", { class: "empty" }, "These files do not say how many operations and bytes the points need, so there is no roofline."));
    return;
  }
  const panel = el("div", { class: "panel-host" });
  const legend = el("ul", { class: "legend" });
  const caption = el("p", { class: "caption" });
  const tables = ceilingTable(data);
  host.replaceChildren(legend, panel, caption, tables);
  let drawn = null;
  const draw = () => {
    drawn = drawPanel(panel, rooflineSpec(data, { flops, bytes, legend, caption }));
    drawn.highlight();
  };
  onChange(["filter"], afterPaint(draw));
  onChange(["selection"], () => drawn.highlight());
  whenResized(panel, draw);
  draw();
}

/** The ceilings of every device of every source. */
const ceilingsOf = (data) =>
  data.sources.flatMap((source) => (source.usage?.devices ?? []).filter((device) => device.ceilings).map((device) => ({ label: data.sources.length > 1 ? `${source.label}: ${device.name}` : device.name, ...device.ceilings })));

/**
 * Where operations are counted: operations a second against operations a byte. Where none are (a copy),
 * bytes a second against bytes.
 */
function rooflineSpec(data, { flops, bytes, legend, caption }) {
  const backend = data.column("backend");
  const timed = Array.from(view.rows).filter((row) => data.isOk[row] && bytes.numbers[row] > 0);
  const withFlops = timed.filter((row) => flops.numbers[row] > 0);
  const isArithmetic = withFlops.length > 0;
  const rows = isArithmetic ? withFlops : timed;
  const time = data.time.numbers;
  const xOf = (row) => (isArithmetic ? flops.numbers[row] / bytes.numbers[row] : bytes.numbers[row]);
  const yOf = (row) => ((isArithmetic ? flops : bytes).numbers[row] / time[row]) * 1e9;
  const spread = (of) => rows.reduce(([low, high], row) => [Math.min(low, of(row)), Math.max(high, of(row))], [Infinity, -Infinity]);
  let [[left, right], [low, high]] = rows.length ? [spread(xOf), spread(yOf)] : [[0.1, 10], [1e9, 1e12]];
  const ceilings = ceilingsOf(data);
  // Operations are computed in the precision that a workload was told, else in the type of its elements.
  const [precision, dtype] = ["precision", "dtype"].map((name) => data.column(name));
  const types = new Set(rows.map((row) => precision?.text(row) || dtype?.text(row)));
  if (isArithmetic) for (const held of ceilings) right = Math.max(right, Math.min(3 * Math.max(0, ...rates(held, types).map(([, most]) => most)) / held.copy_bytes_per_s, right * 1e4));
  [left, right] = [left / 1.5, right * 1.5];
  const guides = ceilings.flatMap((held) => ceilingLines(held, { isArithmetic, left, right, types }));
  for (const { points } of guides) for (const [, value] of points) [low, high] = [Math.min(low, value), Math.max(high, value)];
  legend.replaceChildren(...backend.levels.map((text, code) => el("li", {}, swatch(code), text)));
  const uncounted = timed.length - withFlops.length;
  caption.textContent = [
    isArithmetic ? "Useful operations a second against useful operations per compulsory byte" : "Compulsory bytes a second against compulsory bytes",
    `; ${counted(rows.length, "point")} that pass the filters`,
    isArithmetic && uncounted ? `, ${thousands(uncounted)} that count no operations left out` : "",
    ceilings.length ? ". Lines are ceilings measured on the device: data that stays in a cache can lift a point above the sloping one." : ". The files hold no ceilings (usage.json), so there are no lines.",
  ].join("");
  const series = backend.levels.map((_, code) => {
    const own = rows.filter((row) => backend.codes[row] === code);
    return { code, place: 0, of: 1, rows: own, xs: own.map(xOf), ys: own.map(yOf), line: [] };
  });
  return {
    title: "", height: 400, paperWidth: 720, lost: [], series: series.filter((held) => held.rows.length), guides,
    label: `Roofline of ${counted(rows.length, "point")}`,
    x: { kind: "log", low: left, high: right, unit: isArithmetic ? "" : "B", label: isArithmetic ? "flop per byte" : "compulsory_bytes" },
    y: { kind: "log", low, high: high * 1.4, unit: isArithmetic ? "flop/s" : "B/s", label: isArithmetic ? "flop/s" : "bytes/s" },
    tell: (row) => [...tell(data, row, data.time), isArithmetic ? ["flop/s", short(yOf(row))] : ["bytes/s", short(yOf(row))], ...(data.column("efficiency")?.text(row) ? [["efficiency", data.column("efficiency").text(row)]] : [])],
    select: (found, isMore) => select(data, found, isMore),
  };
}

/** The ceilings of the kinds of arithmetic that rows are computed in. */
const rates = (held, types) => Object.entries(held.flops_per_s).filter(([kind, most]) => most > 0 && types.has(kind));

function ceilingLines(held, { isArithmetic, left, right, types }) {
  const rate = held.copy_bytes_per_s;
  if (!(rate > 0)) return [];
  if (!isArithmetic) return [{ points: [[left, rate], [right, rate]], text: `${held.label}: copy ${pretty(rate, "B/s")}` }];
  return rates(held, types).map(([kind, most]) => {
    const knee = Math.min(Math.max(most / rate, left), right);
    return { points: [[left, Math.min(left * rate, most)], [knee, Math.min(knee * rate, most)], [right, Math.min(right * rate, most)]], text: `${held.label}: ${kind} ${pretty(most, "flop/s")}` };
  });
}

function ceilingTable(data) {
  const rows = ceilingsOf(data).map((held) => [held.label, pretty(held.copy_bytes_per_s, "B/s"), Object.entries(held.flops_per_s).map(([dtype, rate]) => `${dtype} ${pretty(rate, "flop/s")}`).join(", ") || "–", held.cache_bytes ? pretty(held.cache_bytes, "B") : "–"]);
  return rows.length ? plainTable(["device", "copy", "arithmetic", "last cache"], rows, { caption: "Measured ceilings" }) : "";
}
