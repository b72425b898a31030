// Memory by what it is for: stacked bars for the points that the plot shows.

const MOST_BARS = 48;
const ROLES = /^memory_(\w+)_bytes$/;

function memory(data, host) {
  const roles = data.columns.filter((column) => ROLES.test(column.name) && column.numbers.some((value) => value > 0));
  if (roles.length === 0) {
    host.replaceChildren(el("p", { class: "empty" }, "No point says what its memory is for."));
    return;
  }
  const legend = el("ul", { class: "legend" }, roles.map((column, code) => el("li", {}, el("span", { class: "chip", style: `background:${colourOf(code)}` }), ROLES.exec(column.name)[1].replaceAll("_", " "))));
  const mode = el("div", { class: "controls" }, tick("as shares of each total", state.share, (isShare) => {
    state.share = isShare;
    changed(data, "plot");
  }));
  const bars = el("div", { class: "bars", role: "list" });
  const caption = el("p", { class: "caption" });
  host.replaceChildren(mode, legend, bars, caption);
  const draw = () => drawBars(data, roles, bars, caption);
  onChange(["plot", "filter"], afterPaint(draw));
  onChange(["selection"], () => bars.querySelectorAll(".bar-row").forEach((line) => line.classList.toggle("selected", state.selected.has(Number(line.dataset.row)))));
  draw();
}

function drawBars(data, roles, bars, caption) {
  const held = data.axes.length ? holdValues(data) : new Map();
  const total = (row) => roles.reduce((sum, column) => sum + (column.numbers[row] || 0), 0);
  const inSlice = (row) => [...held].every(([name, code]) => code === null || data.column(name).codes[row] === code);
  const slice = [...view.rows].filter((row) => inSlice(row) && total(row) > 0);
  const differs = (axis) => slice.some((row) => axis.codes[row] !== axis.codes[slice[0]]);
  const first = [state.plot.facet, state.plot.x, state.plot.colour];
  const others = restOf(data).map(({ name }) => name);
  const order = [...first, ...others].map((name) => data.column(name)).filter((axis) => axis?.levels && differs(axis));
  // Panels of the plot are groups of bars here.
  const group = order[0]?.name === state.plot.facet ? order[0] : null;
  const key = (axis, row) => (axis.isNumber ? axis.numbers[row] : axis.codes[row]);
  slice.sort((one, other) => order.reduce((found, axis) => found || key(axis, one) - key(axis, other), 0));
  const rows = slice.slice(0, MOST_BARS);
  const most = rows.reduce((high, row) => Math.max(high, total(row)), 0);
  const within = order.filter((axis) => axis !== group);
  const heading = (row) => el("div", { class: "bar-group", role: "presentation" }, `${group.name} = ${group.text(row) || "(none)"}`);
  const isNew = (row, place) => group && (place === 0 || group.codes[row] !== group.codes[rows[place - 1]]);
  bars.replaceChildren(...rows.flatMap((row, place) => [isNew(row, place) ? heading(row) : "", bar(data, roles, row, { order: within, spoken: order, sum: total(row), scale: state.share ? total(row) : most })]));
  const fixedAt = [...held].filter(([, code]) => code !== null).map(([name, code]) => `${name} = ${data.column(name).levels[code] || "(none)"}`);
  caption.textContent = [
    slice.length === 0 ? "No point that passes the filters says what its memory is for." : "Bytes of the program’s buffers by role.",
    fixedAt.length ? `Held fixed, as in the plot: ${fixedAt.join(", ")}.` : "",
    slice.length > rows.length ? `The first ${rows.length} of ${counted(slice.length, "point")}; filter to see others.` : "",
  ].filter(Boolean).join(" ");
}

function bar(data, roles, row, { order, spoken, sum, scale }) {
  const parts = roles.map((column, code) => ({ column, code, bytes: column.numbers[row] || 0 })).filter(({ bytes }) => bytes > 0);
  const name = (column) => ROLES.exec(column.name)[1].replaceAll("_", " ");
  const words = (axes) => axes.map((axis) => (axis.isNumber ? `${axis.name}=${axis.text(row)}` : axis.text(row))).join("  ") || data.place(row) || "the point";
  const told = parts.map(({ column, bytes }) => `${name(column)} ${pretty(bytes, "B")}`).join(", ");
  return el(
    "div",
    { class: "bar-row", role: "listitem", "aria-label": `${words(spoken)}: ${pretty(sum, "B")}; ${told}`, data: { row } },
    el("span", { class: "bar-label" }, words(order)),
    el("span", { class: "bar" }, parts.map(({ column, code, bytes }) => el("span", { class: "part", style: `width:${((bytes / scale) * 100).toFixed(3)}%;background:${colourOf(code)}`, title: `${name(column)}: ${pretty(bytes, "B")} (${plain(bytes)} bytes)` }))),
    el("span", { class: "bar-total" }, pretty(sum, "B")),
  );
}
