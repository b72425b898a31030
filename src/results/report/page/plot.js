// One panel of marks and lines: drawn as a few SVG paths, so that it prints sharp and 100,000 marks are
// no 100,000 elements. Hover, keys, clicks and dragging speak of rows.

/** Okabe and Ito's colours, told apart by colour-blind people too; marks differ in shape as well. */
const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "var(--eighth)", "#8c7a00"];
const colourOf = (code) => COLOURS[code % COLOURS.length];

const fixed = (value) => value.toFixed(1);

/** Outlines of marks by shape, as a function of the centre and the radius. */
const SHAPES = [
  (x, y, r) => `M${fixed(x - r)} ${fixed(y)}a${r} ${r} 0 1 0 ${2 * r} 0a${r} ${r} 0 1 0 ${-2 * r} 0z`,
  (x, y, r) => `M${fixed(x - r)} ${fixed(y - r)}h${2 * r}v${2 * r}h${-2 * r}z`,
  (x, y, r) => `M${fixed(x)} ${fixed(y - 1.2 * r)}l${1.2 * r} ${2.1 * r}h${-2.4 * r}z`,
  (x, y, r) => `M${fixed(x)} ${fixed(y - 1.35 * r)}l${1.35 * r} ${1.35 * r}l${-1.35 * r} ${1.35 * r}l${-1.35 * r} ${-1.35 * r}z`,
  (x, y, r) => `M${fixed(x)} ${fixed(y + 1.2 * r)}l${1.2 * r} ${-2.1 * r}h${-2.4 * r}z`,
];
const shapeOf = (code) => SHAPES[(code + Math.floor(code / COLOURS.length)) % SHAPES.length];

/** A mark beside a name, as in legends. */
const swatch = (code) =>
  svg("svg", { class: "swatch", viewBox: "0 0 12 12", width: 12, height: 12, "aria-hidden": "true" }, svg("path", { d: shapeOf(code)(6, 6, 4), fill: colourOf(code) }));

/** On paper, plots are drawn anew for its width. */
let isPrinting = false;
addEventListener("beforeprint", () => (isPrinting = true));
addEventListener("afterprint", () => (isPrinting = false));
addEventListener("scroll", () => hideReadout(), { passive: true });

const MARGIN = { top: 22, right: 20, bottom: 40, left: 62 };

/**
 * Draws a panel into `host`, as wide as that is (on paper: `paperWidth`).
 *
 * `spec`: `title`, `label` (what the panel is, for those who can't see it), `height`, `x` and `y` (`{kind, low,
 * high, levels, unit, label, values}`), `series` (`{code, name, rows, xs, ys, lows, highs, line}`, `line` a list of
 * `[x, y]`), `guides` (`{points, text}`), `lost` (`{row, x, text}`: points without a number), `tell(row)` for the
 * read-out, `select(rows, isMore)`.
 */
function drawPanel(host, spec) {
  const width = isPrinting ? spec.paperWidth : Math.max(240, host.clientWidth || 600);
  const { height } = spec;
  const x = makeScale({ ...spec.x, from: MARGIN.left + 10, to: width - MARGIN.right - 10 });
  const y = makeScale({ ...spec.y, from: height - MARGIN.bottom - 6, to: MARGIN.top + (spec.lost.length ? 18 : 6) });
  const root = svg("svg", {
    class: "panel-plot",
    viewBox: `0 0 ${width} ${height}`,
    width,
    height,
    tabindex: "0",
    role: "application",
    "aria-roledescription": "plot",
    "aria-label": `${spec.label}. Arrow keys walk along the points, Enter selects.`,
  });
  root.append(frame(spec, x, y, width, height), ...guides(spec, x, y, width, height));
  const marks = [];
  for (const series of spec.series) root.append(drawSeries(series, x, y, marks));
  root.append(lostMarks(spec, x, marks));
  const rings = svg("path", { class: "rings" });
  const cursor = svg("path", { class: "cursor" });
  const brush = svg("rect", { class: "brush", visibility: "hidden" });
  root.append(rings, brush, cursor);
  host.replaceChildren(root);
  listen(root, { spec, marks, cursor, brush, width });
  return {
    highlight() {
      const outline = marks.filter(({ row }) => state.selected.has(row)).map((mark) => SHAPES[0](mark.x, mark.y, 7));
      rings.setAttribute("d", outline.join(""));
    },
  };
}

function frame(spec, x, y, width, height) {
  const [left, right, bottom] = [MARGIN.left, width - MARGIN.right, height - MARGIN.bottom];
  const xTicks = x.kind === "band" || spec.x.values?.length > 0 && spec.x.values.length <= 40
    ? ticksAt(x.kind === "band" ? x.ticks.map(({ value }) => value) : spec.x.values, x, 8, (value) => (x.kind === "band" ? spec.x.levels[value] : tickText(value, spec.x.unit)))
    : ticksAt(x.ticks.map(({ value }) => value), x, 8, (value) => tickText(value, spec.x.unit));
  const grid = [...y.ticks.map((tick) => `M${left} ${fixed(y.at(tick.value))}H${right}`), ...xTicks.map((tick) => `M${fixed(x.at(tick.value))} ${bottom}v5`)];
  return svg(
    "g",
    { class: "frame", "aria-hidden": "true" },
    svg("path", { class: "grid", d: grid.join("") }),
    svg("path", { class: "base", d: `M${left} ${bottom}H${right}` }),
    ...y.ticks.map((tick) => svg("text", { x: left - 7, y: fixed(y.at(tick.value) + 3.6), "text-anchor": "end" }, tick.text)),
    ...xTicks.map((tick) => {
      const isLast = x.at(tick.value) + tick.text.length * 3.4 > width;
      return svg("text", { x: isLast ? width - 1 : fixed(x.at(tick.value)), y: bottom + 17, "text-anchor": isLast ? "end" : "middle" }, tick.text);
    }),
    svg("text", { class: "axis", x: right, y: height - 5, "text-anchor": "end" }, spec.x.label),
    svg("text", { class: "axis", x: 2, y: 12 }, spec.title ? `${spec.y.label}  ·  ` : spec.y.label, spec.title ? svg("tspan", { class: "panel-title" }, spec.title) : null),
  );
}

/** Lines that are limits rather than results. */
function guides(spec, x, y, width, height) {
  return (spec.guides ?? []).flatMap(({ points, text }, number) => {
    const placed = points.map(([px, py]) => [x.at(px), y.at(py)]);
    const path = placed.map(([px, py], place) => `${place ? "L" : "M"}${fixed(px)} ${fixed(py)}`).join("");
    const [endX, endY] = placed[placed.length - 1];
    return [
      svg("path", { class: "guide", d: path }),
      svg("text", { class: "guide-text", x: fixed(Math.min(endX, width - MARGIN.right)), y: fixed(Math.max(endY - 5, 20 + 0 * number)), "text-anchor": "end" }, text),
    ];
  });
}

function drawSeries(series, x, y, marks) {
  const shape = shapeOf(series.code);
  const isMany = series.rows.length > 3000;
  const radius = isMany ? 1.6 : series.rows.length > 300 ? 2.6 : 3.6;
  const dodge = x.kind === "band" ? (series.place - (series.of - 1) / 2) * Math.min(10, (0.7 * x.step) / series.of) : 0;
  const outlines = [];
  const whiskers = [];
  series.rows.forEach((row, place) => {
    const mark = { row, x: x.at(series.xs[place]) + dodge, y: y.at(series.ys[place]), series: series.code };
    marks.push(mark);
    outlines.push(shape(mark.x, mark.y, radius));
    if (series.lows && series.lows[place] > 0 && series.highs[place] > series.lows[place]) {
      whiskers.push(`M${fixed(mark.x)} ${fixed(y.at(series.lows[place]))}V${fixed(y.at(series.highs[place]))}`);
    }
  });
  const line = series.line.map(([px, py], place) => `${place ? "L" : "M"}${fixed(x.at(px) + dodge)} ${fixed(y.at(py))}`);
  const colour = colourOf(series.code);
  return svg(
    "g",
    { class: isMany ? "series crowd" : "series" },
    line.length > 1 && x.kind !== "band" ? svg("path", { class: "line", d: line.join(""), stroke: colour }) : null,
    svg("path", { class: "whiskers", d: whiskers.join(""), stroke: colour }),
    svg("path", { class: "marks", d: outlines.join(""), fill: colour }),
  );
}

/** Points that have no number, as crosses above the frame: they are not forgotten. */
function lostMarks(spec, x, marks) {
  const crosses = spec.lost.map(({ row, x: value }) => {
    const mark = { row, x: x.at(value), y: MARGIN.top + 4, series: -1 };
    marks.push(mark);
    return `M${fixed(mark.x - 3)} ${mark.y - 3}l6 6m0 -6l-6 6`;
  });
  return svg("path", { class: "lost", d: crosses.join("") });
}

/** The nearest mark, or null if none is within `reach` pixels. */
function nearest(marks, px, py, reach) {
  let best = null;
  let least = reach * reach;
  for (const mark of marks) {
    const distance = (mark.x - px) ** 2 + (mark.y - py) ** 2;
    if (distance < least) [best, least] = [mark, distance];
  }
  return best;
}

function listen(root, { spec, marks, cursor, brush, width }) {
  let current = null;
  let start = null;
  const place = (event) => {
    const box = root.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * width, (event.clientY - box.top) * (width / box.width)];
  };
  const show = (mark, isByKey) => {
    current = mark;
    cursor.setAttribute("d", mark ? SHAPES[0](mark.x, mark.y, 8) : "");
    if (!mark) return hideReadout();
    const box = root.getBoundingClientRect();
    const scale = box.width / width;
    const lines = spec.tell(mark.row);
    showReadout(lines, box.left + mark.x * scale, box.top + mark.y * scale);
    if (isByKey) say(lines.map(([name, text]) => `${name} ${text}`).join(", "));
  };
  root.addEventListener("pointermove", (event) => {
    const [px, py] = place(event);
    if (start) return drag(brush, start, [px, py]);
    show(nearest(marks, px, py, 40), false);
  });
  root.addEventListener("pointerleave", () => start || show(null));
  root.addEventListener("blur", () => show(null));
  root.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.pointerType === "touch") return;
    start = place(event);
    root.setPointerCapture(event.pointerId);
  });
  root.addEventListener("pointerup", (event) => {
    if (!start) return;
    const end = place(event);
    const isClick = Math.hypot(end[0] - start[0], end[1] - start[1]) < 5;
    const rows = isClick ? [nearest(marks, ...end, 24)?.row].filter((row) => row !== undefined) : inside(marks, start, end);
    start = null;
    brush.setAttribute("visibility", "hidden");
    spec.select(rows, event.shiftKey || event.ctrlKey || event.metaKey);
  });
  root.addEventListener("pointercancel", () => ((start = null), brush.setAttribute("visibility", "hidden")));
  root.addEventListener("click", (event) => {
    if (event.pointerType !== "touch") return;
    const mark = nearest(marks, ...place(event), 40);
    if (mark) show(mark, false);
  });
  root.addEventListener("keydown", (event) => {
    const next = step(marks, current, event.key);
    if (next) show(next, true);
    else if ((event.key === "Enter" || event.key === " ") && current) spec.select([current.row], event.shiftKey);
    else if (event.key === "Escape" && current) show(null);
    else return;
    event.preventDefault();
  });
}

/** Where an arrow key leads: left and right along a series, up and down to the nearest one of another. */
function step(marks, current, key) {
  const moves = { ArrowRight: 1, ArrowLeft: -1, ArrowUp: -1, ArrowDown: 1, Home: 0, End: 0 };
  if (!(key in moves) || marks.length === 0) return null;
  const bySpot = (one, other) => one.x - other.x || one.y - other.y || one.row - other.row;
  if (!current) return [...marks].sort(bySpot)[0];
  const own = marks.filter((mark) => mark.series === current.series).sort(bySpot);
  if (key === "Home") return own[0];
  if (key === "End") return own[own.length - 1];
  if (key === "ArrowRight" || key === "ArrowLeft") return own[own.indexOf(current) + moves[key]] ?? current;
  const further = marks.filter((mark) => mark.series !== current.series && (mark.y - current.y) * moves[key] >= 0);
  const cost = (mark) => 6 * Math.abs(mark.x - current.x) + Math.abs(mark.y - current.y);
  return further.reduce((best, mark) => (!best || cost(mark) < cost(best) ? mark : best), null) ?? current;
}

function drag(brush, start, end) {
  const [left, top] = [Math.min(start[0], end[0]), Math.min(start[1], end[1])];
  const size = { x: left, y: top, width: Math.abs(end[0] - start[0]), height: Math.abs(end[1] - start[1]) };
  for (const [name, value] of Object.entries(size)) brush.setAttribute(name, value);
  brush.setAttribute("visibility", "visible");
}

function inside(marks, start, end) {
  const between = (value, one, other) => value >= Math.min(one, other) && value <= Math.max(one, other);
  return marks.filter((mark) => between(mark.x, start[0], end[0]) && between(mark.y, start[1], end[1])).map(({ row }) => row);
}

/** Shows values beside a place of the window. */
function showReadout(lines, clientX, clientY) {
  const box = byId("readout");
  box.replaceChildren(el("dl", {}, lines.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])));
  box.hidden = false;
  const { width, height } = box.getBoundingClientRect();
  const left = clientX + 16 + width > innerWidth ? clientX - 16 - width : clientX + 16;
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.min(Math.max(4, clientY - height / 2), innerHeight - height - 4)}px`;
}

function hideReadout() {
  byId("readout").hidden = true;
}
