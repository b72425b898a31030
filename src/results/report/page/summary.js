// What was run, what became of it, and which backend was fastest where.

/** More rows than this are shown when asked for. */
const MOST_GROUPS = 24;

/** Axes that tell problems and ways of measuring apart, whichever backend and case had them. */
const problemAxes = (data) => data.axes.filter(({ name }) => !["backend", "case", "device_name"].includes(name));

/** Axes of words, by which findings are grouped: sizes are averaged over. */
const groupAxes = (data) => problemAxes(data).filter((axis) => !axis.isNumber);

/** The baseline: as the view or the manifest says, else a plain backend, else the first. */
function baselineCode(data) {
  const backend = data.column("backend");
  const names = [state.baseline, data.baseline, "streaming", "eager", "vanilla", "builtin"];
  const found = names.map((name) => backend.levels.indexOf(name ?? "")).find((code) => code >= 0);
  return found ?? 0;
}

/** For every row the time of the baseline on the same problem over its own; NaN where either is missing. */
function speedups(data, baseline) {
  const { ids, count } = data.groups(problemAxes(data));
  const base = new Float64Array(count).fill(NaN);
  const { codes } = data.column("backend");
  const times = data.time.numbers;
  for (let row = 0; row < data.rows; row++) if (data.isOk[row] && codes[row] === baseline) base[ids[row]] = times[row];
  const found = new Float64Array(data.rows).fill(NaN);
  for (let row = 0; row < data.rows; row++) if (data.isOk[row]) found[row] = base[ids[row]] / times[row];
  return { found, ids, count };
}

/** For every row half of its interval, as a logarithm; zero where it has none, as in files of others. */
function halfIntervals(data) {
  const [low, high] = ["median_low_ns", "median_high_ns"].map((name) => data.column(name)?.numbers);
  const found = new Float64Array(data.rows);
  if (!low || !high) return found;
  for (let row = 0; row < data.rows; row++) if (low[row] > 0 && high[row] >= low[row]) found[row] = Math.log(high[row] / low[row]) / 2;
  return found;
}

/**
 * By group, for each backend: geometric mean of its speedup, over how many problems, and on how many of the
 * group's problems it was the fastest of all that finished, as far as intervals decide that.
 */
function findings(data, baseline) {
  const { found, ids, count } = speedups(data, baseline);
  const halves = halfIntervals(data);
  const times = data.time.numbers;
  const axes = groupAxes(data);
  const groups = data.groups(axes);
  const backends = data.column("backend");
  const fastest = new Int32Array(count).fill(-1);
  for (let row = 0; row < data.rows; row++) {
    if (!data.isOk[row]) continue;
    const best = fastest[ids[row]];
    if (best < 0 || times[row] < times[best]) fastest[ids[row]] = row;
  }
  const isTied = new Uint8Array(count);
  for (let row = 0; row < data.rows; row++) {
    const best = fastest[ids[row]];
    if (!data.isOk[row] || row === best || backends.codes[row] === backends.codes[best]) continue;
    if (Math.log(times[row] / times[best]) <= Math.hypot(halves[row], halves[best])) isTied[ids[row]] = 1;
  }
  const table = Array.from({ length: groups.count }, () => ({ row: -1, problems: 0, cells: backends.levels.map(() => ({ sum: 0, squares: 0, count: 0, wins: 0, rows: 0 })) }));
  for (let row = 0; row < data.rows; row++) {
    const group = table[groups.ids[row]];
    if (group.row < 0) group.row = row;
    const cell = group.cells[backends.codes[row]];
    cell.rows++;
    if (fastest[ids[row]] === row) (cell.wins += 1 - isTied[ids[row]], group.problems++);
    if (Number.isNaN(found[row])) continue;
    cell.sum += Math.log(found[row]);
    cell.squares += halves[row] ** 2;
    cell.count++;
  }
  for (const group of table) {
    for (const cell of group.cells) {
      cell.mean = cell.count ? Math.exp(cell.sum / cell.count) : NaN;
      cell.half = Math.sqrt(cell.squares) / cell.count;
    }
    // Means over different problems can't be compared: only those over the most do.
    const most = Math.max(...group.cells.map((cell) => cell.count));
    const compared = group.cells.map((_, code) => code).filter((code) => most > 0 && group.cells[code].count === most);
    const best = group.cells[compared.reduce((one, other) => (group.cells[other].mean > group.cells[one].mean ? other : one), compared[0])];
    const isBest = ({ mean, half }) => Math.log(best.mean / mean) <= Math.hypot(best.half, half);
    group.ahead = compared.filter((code) => group.cells[code] === best || isBest(group.cells[code]));
  }
  const rank = (group) => axes.map((axis) => axis.codes[group.row]);
  table.sort((one, other) => rank(one).reduce((order, code, place) => order || code - rank(other)[place], 0));
  return { axes, table: table.filter((group) => group.problems > 0), empty: table.filter((group) => group.problems === 0).length };
}

/** Puts the computed columns in place: `speedup`, and `interval` for the table. */
function addComputed(data) {
  const numbers = speedups(data, baselineCode(data)).found;
  if (data.column("backend").varies) {
    data.add(new Computed({ name: "speedup", group: "result", about: "Time of the baseline on the same problem over this time" }, data.rows, numbers));
  }
  const ends = [["median_low_ns", "median_high_ns"], ["q1_ns", "q3_ns"]].map((names) => names.map((name) => data.column(name))).find(([low, high]) => low && high);
  if (ends) {
    data.add(Object.assign(new Computed({ name: "interval", group: "statistic", about: ends[0].name === "q1_ns" ? "First and third quartile" : "95 % interval of the median" }, data.rows, data.time.numbers), { ends, sortedBy: ends[0].name }));
  }
}

function summary(data, host) {
  const tables = el("div");
  host.replaceChildren(tally(data), ...notes(data), tables);
  const draw = () => tables.replaceChildren(...findingsTable(data));
  onChange(["baseline"], draw);
  draw();
}

/** A tile for the number of points, of each status, of checked ones, of devices. */
function tally(data) {
  const words = data.status.levels.map((text, code) => [text, data.status.counts[code]]).filter(([, count]) => count > 0);
  const tile = (number, label, kind) => el("div", { class: `tile ${kind ?? ""}` }, el("span", { class: "figure" }, number), el("span", { class: "label" }, label));
  const tiles = [tile(thousands(data.rows), data.rows === 1 ? "point" : "points"), ...words.map(([text, count]) => tile(thousands(count), text.replaceAll("_", " "), text === "ok" || text === "skipped" ? "" : "bad"))];
  const checked = data.column("checked");
  const full = checked?.levels.indexOf("full") ?? -1;
  if (full >= 0) tiles.push(tile(thousands(checked.counts[full]), "checked in full"));
  const busy = data.sources.map((source) => source.usage?.wall_s ?? 0).reduce((sum, wall) => sum + wall, 0);
  if (busy > 0) tiles.push(tile(pretty(busy * 1e9, "ns"), "measuring"));
  return el("div", { class: "tiles" }, tiles);
}

/** What readers should know of the sources. */
function notes(data) {
  const lines = data.sources.flatMap((source) => source.notes.map((note) => (data.sources.length > 1 ? `${source.label}: ${note}` : note)));
  return lines.length ? [el("ul", { class: "notes" }, lines.map((line) => el("li", {}, line)))] : [];
}

function findingsTable(data) {
  const backends = data.column("backend");
  const baseline = baselineCode(data);
  if (!data.isOk.some(Boolean)) return [el("p", { class: "empty" }, "No point has a time: see the points without a result below.")];
  if (!backends.varies) return [el("p", { class: "caption" }, `One backend, ${backends.levels[0]}: there is nothing to compare it with.`)];
  const { axes, table, empty } = findings(data, baseline);
  const pick = choice("baseline", backends.levels.map((text, code) => [String(code), text]), String(baseline), (code) => {
    state.baseline = backends.levels[Number(code)];
    const { found } = speedups(data, Number(code));
    data.column("speedup").decoded = found;
    changed(data, "baseline");
  });
  const shown = backends.levels.map((text, code) => ({ text, code })).filter(({ code }) => table.some((group) => group.cells[code].rows > 0));
  const rows = table.map((group) => [
    ...axes.map((axis) => axis.text(group.row) || "–"),
    String(group.problems),
    ...shown.map(({ code }) => cell(group, code, baseline)),
  ]);
  const header = [...axes.map((axis) => axis.name), "problems", ...shown.map(({ text }) => text)];
  const numeric = header.map((_, column) => column).slice(axes.length);
  const build = (count) => plainTable(header, rows.slice(0, count), { numeric, caption: "Speedup over the baseline, by group" });
  const holder = el("div", {}, build(MOST_GROUPS));
  const more = rows.length > MOST_GROUPS ? el("button", { type: "button", onclick: () => (holder.replaceChildren(build(rows.length)), more.remove()) }, `Show all ${rows.length} groups`) : null;
  return [
    el("p", { class: "finding" }, sentence(table, backends, baseline)),
    el("div", { class: "controls" }, pick),
    holder,
    more ?? "",
    el("p", { class: "caption" }, `Geometric means of ${backends.levels[baseline]}’s time over the backend’s, on the same problems; above 1 is faster. Small: on how many of the group’s problems it was the fastest beyond the intervals, and how many it was compared on where that is not all of them. Bold: the best of those compared on most problems, and those that intervals don’t tell from it.${empty ? ` ${counted(empty, "group")} without a time left out.` : ""}`),
  ];
}

function cell(group, code, baseline) {
  const { mean, count, wins, rows } = group.cells[code];
  if (rows === 0) return el("span", { class: "absent" }, "–");
  const parts = [Number.isNaN(mean) ? "no pair" : code === baseline ? "1×" : `${ratio(mean)}×`];
  const small = `${wins} of ${group.problems}${count !== group.problems && count > 0 ? `, on ${count}` : ""}`;
  return el("span", {}, el(group.ahead.includes(code) ? "strong" : "span", {}, parts), el("small", {}, small));
}

/** The main finding in a sentence, as text and names of backends. */
function sentence(table, backends, baseline) {
  const name = (code) => el("code", {}, backends.levels[code]);
  const paired = table.filter((group) => group.ahead.length > 0);
  if (paired.length === 0) return ["Nothing was measured on the same problem as ", name(baseline), "; choose another baseline."];
  const best = new Map();
  for (const { ahead } of paired) if (ahead.length === 1) best.set(ahead[0], (best.get(ahead[0]) ?? 0) + 1);
  if (best.size === 0) return [`${paired.length === 1 ? "No" : `In none of ${paired.length} groups a`} backend is ahead of all others beyond the intervals.`];
  const [winner, groups] = [...best].sort((one, other) => other[1] - one[1])[0];
  const cells = paired.map((group) => group.cells[winner]);
  const count = cells.reduce((sum, held) => sum + held.count, 0);
  const mean = Math.exp(cells.reduce((sum, held) => sum + held.sum, 0) / count);
  const where = paired.length === 1 ? "" : `, beyond the intervals, in ${groups} of ${paired.length} groups`;
  if (winner === baseline) return [name(winner), `, the baseline, is the fastest${where}.`];
  return [name(winner), ` is the fastest${where}: over all groups, ${ratio(mean)} times as fast as `, name(baseline), ` (geometric mean over ${counted(count, "problem")}).`];
}
