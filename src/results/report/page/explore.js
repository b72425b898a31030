// The plots of anything against an axis: controls, and from columns to series.

/** A panel each for at most so many values of the facet. */
const MOST_FACETS = 12;

/** Columns that can be a quantity: those of results whose numbers differ or are the time. */
const quantities = (data) =>
  data.columns.filter((column) => column.isNumber && ["result", "statistic", "memory"].includes(column.group) && (column.varies || column === data.time));

/** The value of a level of an axis for the horizontal scale. */
const levelValue = (axis, code) => (axis.isNumber ? Number(axis.levels[code]) : code);

/** Fills in what the view does not say: an axis of sizes across, backends by colour. */
function completePlot(data) {
  const { plot } = state;
  const known = (name) => data.axes.some((axis) => axis.name === name);
  const sizes = data.axes.filter((axis) => axis.isNumber);
  // A parameter before a derived value, then what has most values.
  const byValues = [...(sizes.length ? sizes : data.axes)].sort(
    (one, other) => Number(one.derived ?? false) - Number(other.derived ?? false) || other.levels.length - one.levels.length || one.name.localeCompare(other.name),
  );
  const prefer = byValues.find((axis) => axis.name === "T" && axis.levels.length >= byValues[0].levels.length * 0.6) ?? byValues[0];
  if (!known(plot.x)) plot.x = prefer?.name ?? "";
  if (plot.colour !== "none" && !known(plot.colour)) {
    plot.colour = ["backend", "phase"].find((name) => known(name) && name !== plot.x) ?? "none";
  }
  if (plot.facet !== "none" && !known(plot.facet)) {
    plot.facet = ["machine", "phase", "semiring"].find((name) => known(name) && ![plot.x, plot.colour].includes(name)) ?? "none";
  }
  if (!data.column(plot.y)?.isNumber) plot.y = "median_ns";
}

/** Axes that are neither across, by colour nor by panel; derived values follow from these. */
const restOf = (data) => data.axes.filter((axis) => !axis.derived && ![state.plot.x, state.plot.colour, state.plot.facet].includes(axis.name));

/**
 * Values to hold the other axes at: for each the value with most points whose horizontal values still differ.
 * An axis that can't be held without losing the horizontal one (it moves with it) is left free.
 */
function holdValues(data) {
  const { plot } = state;
  const key = JSON.stringify([plot, [...plot.hold]]);
  if (latestHold.rows === view.rows && latestHold.key === key) return latestHold.held;
  const across = data.column(plot.x);
  let rows = [...view.rows].filter((row) => data.isOk[row]);
  if (rows.length === 0) rows = [...view.rows];
  const held = new Map();
  for (const axis of restOf(data)) {
    const code = chosenLevel(axis, across, rows, plot.hold.get(axis.name));
    held.set(axis.name, code);
    if (code !== null) rows = rows.filter((row) => axis.codes[row] === code);
  }
  latestHold = { rows: view.rows, key, held };
  return held;
}

/** The plot and the bars of memory ask the same. */
let latestHold = {};

function chosenLevel(axis, across, rows, wished) {
  if (wished === "any") return null;
  const asked = axis.levels.indexOf(wished);
  if (asked >= 0) return asked;
  const found = new Map();
  const all = new Set();
  for (const row of rows) {
    const code = axis.codes[row];
    if (!found.has(code)) found.set(code, { code, across: new Set(), points: 0 });
    const level = found.get(code);
    level.points++;
    level.across.add(across?.codes[row]);
    all.add(across?.codes[row]);
  }
  const [best] = [...found.values()].sort((one, other) => other.across.size - one.across.size || other.points - one.points || other.code - one.code);
  if (!best || (best.across.size < 2 && all.size >= 2)) return null;
  // Of values that are as good, the greatest: large problems say most.
  return best.code;
}

/** Builds the section; returns a function that draws it anew. */
function explore(data, host) {
  if (data.axes.length === 0) {
    host.replaceChildren(el("p", { class: "empty" }, data.rows === 0 ? "There are no points." : "All points are alike in every axis: there is nothing to plot against. The table below has them."));
    return () => {};
  }
  const controls = el("div", { class: "controls" });
  const caption = el("p", { class: "caption" });
  const legend = el("ul", { class: "legend" });
  const panels = el("div", { class: "panels" });
  host.replaceChildren(controls, legend, panels, caption);
  let drawn = [];
  const draw = () => {
    performance.mark("plot");
    completePlot(data);
    const held = holdValues(data);
    fillControls(data, controls, held);
    drawn = drawAll(data, { held, panels, legend, caption });
    drawn.forEach((panel) => panel.highlight());
    performance.measure("plot", "plot");
  };
  onChange(["plot", "filter", "baseline"], draw);
  onChange(["selection"], () => drawn.forEach((panel) => panel.highlight()));
  whenResized(panels, draw);
  draw();
}

/** Calls `draw` when the width of `host` changes, not when drawing made it change, and for paper. */
function whenResized(host, draw) {
  for (const event of ["beforeprint", "afterprint"]) addEventListener(event, draw);
  let width = host.clientWidth;
  new ResizeObserver(() => {
    if (host.clientWidth === width || host.clientWidth === 0) return;
    width = host.clientWidth;
    draw();
  }).observe(host);
}

function fillControls(data, controls, held) {
  const { plot } = state;
  const set = (key) => (value) => {
    plot[key] = value;
    if (key === "x") plot.logX = "";
    if (key === "y") plot.logY = "";
    changed(data, "plot");
  };
  const names = data.axes.map((axis) => [axis.name, axis.name]);
  const scales = [["", "auto"], ["log", "log"], ["linear", "linear"]];
  const selects = [...held].map(([name, code]) => {
    const axis = data.column(name);
    return choice(name, [["any", "any"], ...axis.levels.map((text) => [text, text || "(none)"])], code === null ? "any" : axis.levels[code], (value) => {
      plot.hold.set(name, value);
      changed(data, "plot");
    });
  });
  const focused = controls.contains(document.activeElement) ? [...controls.querySelectorAll("select")].indexOf(document.activeElement) : -1;
  controls.replaceChildren(
    el("fieldset", {}, el("legend", {}, "Show"),
      choice("y", quantities(data).map((column) => [column.name, column.name]), plot.y, set("y")),
      choice("against x", names, plot.x, set("x")),
      choice("colour", [["none", "none"], ...names], plot.colour, set("colour")),
      choice("panels", [["none", "none"], ...names], plot.facet, set("facet")),
      choice("x scale", scales, plot.logX, set("logX")),
      choice("y scale", scales, plot.logY, set("logY"))),
    selects.length ? el("fieldset", {}, el("legend", {}, "Hold fixed"), selects) : "",
  );
  controls.querySelectorAll("select")[focused]?.focus();
}

/** Chooses between a logarithmic and a linear scale. */
function scaleKind(wished, low, high) {
  if (!(low > 0)) return "linear";
  return wished || (high / low > 6 ? "log" : "linear");
}

function drawAll(data, { held, panels, legend, caption }) {
  const { plot } = state;
  const [across, quantity] = [data.column(plot.x), data.column(plot.y)];
  const [colour, facet] = [data.column(plot.colour), data.column(plot.facet)];
  const slice = Array.from(view.rows).filter((row) => [...held].every(([name, code]) => code === null || data.column(name).codes[row] === code));
  const hasValue = (row) => (quantity.group === "memory" || data.isOk[row]) && Number.isFinite(quantity.numbers[row]);
  const shown = slice.filter(hasValue);
  const codes = facet ? facet.levels.map((_, code) => code).filter((code) => slice.some((row) => facet.codes[row] === code)) : [0];
  const axes = commonAxes(data, shown, slice);
  panels.classList.toggle("many", codes.length > 1);
  const hosts = codes.slice(0, MOST_FACETS).map(() => el("div", { class: "panel-host" }));
  panels.replaceChildren(...hosts);
  fillLegend(data, legend, colour, slice);
  const lost = slice.length - shown.length;
  fillCaption(data, caption, { held, shown: shown.length, lost, panels: codes.length });
  if (slice.length === 0) return (panels.replaceChildren(el("p", { class: "empty" }, "No point passes the filters and has these values.")), []);
  return hosts.map((host, number) => {
    const isOwn = (row) => !facet || facet.codes[row] === codes[number];
    const title = facet ? `${facet.name} = ${facet.levels[codes[number]] || "(none)"}` : "";
    return drawPanel(host, panelSpec(data, { title, axes, across, quantity, colour, shown: shown.filter(isOwn), lost: slice.filter((row) => isOwn(row) && !hasValue(row)), height: hosts.length > 1 ? 300 : 380, paperWidth: hosts.length > 1 ? 350 : 720 }));
  });
}

/** Scales that all panels share. */
function commonAxes(data, shown, slice) {
  const { plot } = state;
  const [across, quantity] = [data.column(plot.x), data.column(plot.y)];
  const spread = (rows, of) => rows.reduce(([low, high], row) => (Number.isFinite(of[row]) ? [Math.min(low, of[row]), Math.max(high, of[row])] : [low, high]), [Infinity, -Infinity]);
  let [low, high] = spread(shown, quantity.numbers);
  if (low > high) [low, high] = [1, 10];
  const kindY = scaleKind(plot.logY, low, high);
  if (kindY === "linear" && low > 0 && low / high < 0.7) low = 0;
  const y = { kind: kindY, low, high, unit: quantity.unit, label: quantity.unit === "ns" ? `${titleOf(quantity)} time` : titleOf(quantity) };
  if (!across.isNumber) return { x: { kind: "band", levels: across.levels, label: across.name, unit: "" }, y };
  const values = [...new Set(slice.map((row) => across.numbers[row]))].filter(Number.isFinite).sort((one, other) => one - other);
  const [first, last] = [values[0] ?? 0, values[values.length - 1] ?? 1];
  return { x: { kind: scaleKind(plot.logX, first, last), low: first, high: last, values, unit: across.unit, label: across.name }, y };
}

function panelSpec(data, { title, axes, across, quantity, colour, shown, lost, height, paperWidth }) {
  const xOf = (row) => (across.isNumber ? across.numbers[row] : across.codes[row]);
  const bySeries = new Map();
  for (const row of shown) {
    const code = colour ? colour.codes[row] : 0;
    if (!bySeries.has(code)) bySeries.set(code, []);
    bySeries.get(code).push(row);
  }
  const codes = [...bySeries.keys()].sort((one, other) => one - other);
  const ends = data.column("interval")?.ends;
  const [lows, highs] = quantity === data.time && ends ? ends.map((column) => column.numbers) : [];
  const series = codes.map((code, place) => {
    const rows = bySeries.get(code).sort((one, other) => xOf(one) - xOf(other));
    const pick = (numbers) => numbers && rows.map((row) => numbers[row]);
    const ys = rows.map((row) => quantity.numbers[row]);
    const xs = rows.map(xOf);
    return { code, place, of: codes.length, rows, xs, ys, lows: pick(lows), highs: pick(highs), line: meanLine(xs, ys) };
  });
  return {
    ...axes,
    title,
    height,
    paperWidth,
    label: `${quantity.name} against ${across.name}${title ? `, ${title}` : ""}, ${counted(shown.length, "point")}`,
    series,
    lost: lost.filter((row) => !across.isNumber || Number.isFinite(across.numbers[row])).map((row) => ({ row, x: xOf(row) })),
    tell: (row) => tell(data, row, quantity),
    select: (rows, isMore) => select(data, rows, isMore),
  };
}

/** The geometric mean at each place (the arithmetic one where numbers are not positive). */
function meanLine(xs, ys) {
  const isPositive = ys.every((value) => value > 0);
  const [into, from] = isPositive ? [Math.log, Math.exp] : [(value) => value, (value) => value];
  const sums = new Map();
  xs.forEach((value, place) => {
    const held = sums.get(value) ?? [0, 0];
    sums.set(value, [held[0] + into(ys[place]), held[1] + 1]);
  });
  return [...sums].map(([value, [sum, count]]) => [value, from(sum / count)]);
}

/** What the read-out says of a row: exactly what records.csv has. */
function tell(data, row, quantity) {
  const lines = data.axes.filter((axis) => axis.text(row) !== "").map((axis) => [axis.name, axis.text(row)]);
  if (data.status.text(row) !== "ok") lines.push(["status", data.status.text(row)], ["reason", (data.column("reason")?.text(row) ?? "").slice(0, 160)]);
  const value = quantity.numbers[row];
  if (Number.isFinite(value)) lines.push([quantity.name, `${plain(value)}`], ["", quantity.shown(row)]);
  const [low, high] = data.column("interval")?.ends ?? [];
  if (quantity === data.time && low?.text(row)) lines.push(["interval", interval(low.numbers[row], high.numbers[row], value, "ns")]);
  return lines;
}

function fillLegend(data, legend, colour, slice) {
  const present = new Set(colour ? slice.map((row) => colour.codes[row]) : []);
  const items = [...present].sort((one, other) => one - other).map((code) => el("li", {}, swatch(code), colour.levels[code] || "(none)"));
  if (slice.some((row) => !data.isOk[row])) {
    items.push(el("li", {}, svg("svg", { class: "swatch", viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" }, svg("path", { class: "lost", d: "M3 3l6 6m0 -6l-6 6" })), "no result (hover says why)"));
  }
  legend.replaceChildren(...items);
}

function fillCaption(data, caption, { held, shown, lost, panels }) {
  const fixedAt = [...held].filter(([, code]) => code !== null).map(([name, code]) => `${name} = ${data.column(name).levels[code] || "(none)"}`);
  const free = [...held].filter(([, code]) => code === null).map(([name]) => name);
  const repeats = data.column("n") ? [...new Set(Array.from(view.rows).filter((row) => data.isOk[row]).map((row) => data.column("n").text(row)))] : [];
  const sentences = [
    `${counted(shown, "point")}${lost ? `, and ${thousands(lost)} without a result (crosses)` : ""}.`,
    fixedAt.length ? `Held fixed: ${fixedAt.join(", ")}.` : "",
    free.length ? `Any ${free.join(", ")}; lines join geometric means.` : "",
    state.plot.y === "median_ns" ? `Medians${repeats.length === 1 ? ` of ${repeats[0]} samples` : ""}${whatBarsAre(data)}.` : "",
    panels > MOST_FACETS ? `The first ${MOST_FACETS} of ${panels} panels; filter to see others.` : "",
    "Drag over points to select them in the table.",
  ];
  caption.textContent = sentences.filter(Boolean).join(" ");
}

/** What the bars about medians are: five samples can't have an interval of 95 %. */
function whatBarsAre(data) {
  const ends = data.column("interval")?.ends;
  if (!ends) return "";
  if (ends[0].name === "q1_ns") return "; bars reach from the first to the third quartile";
  const covers = data.column("median_coverage")?.numbers.reduce((least, share) => (share < least ? share : least), 1) ?? 0;
  return covers >= 0.95 || covers === 0 ? "; bars are their 95 % intervals" : `; bars are intervals that cover them with a probability of ${pretty(covers, "share")} or more`;
}

/** Selects rows, alone or beside those that are selected. */
function select(data, rows, isMore) {
  const isToggle = rows.length === 1 && state.selected.has(rows[0]) && (isMore || state.selected.size === 1);
  if (!isMore) state.selected.clear();
  for (const row of rows) {
    if (isToggle) state.selected.delete(row);
    else state.selected.add(row);
  }
  state.latest = isToggle ? null : (rows[0] ?? null);
  if (state.selected.size === 0 && state.onlySelected) {
    state.onlySelected = false;
    changed(data, "filter");
  }
  changed(data, "selection");
}
