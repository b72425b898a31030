// What is being looked at: filters, order, columns, plots, selection. It lives in the address, so that a
// view can be shared, and whoever shows something is told when it changes.

const state = {
  text: "",
  /** By axis, the texts of levels that are left out. */
  without: new Map(),
  onlySelected: false,
  /** Columns and directions, the first decides. */
  sort: [],
  /** Names of the table's columns; null stands for the usual ones. */
  columns: null,
  baseline: "",
  plot: { x: "", y: "median_ns", colour: "", facet: "", logX: "", logY: "", hold: new Map() },
  share: false,
  selected: new Set(),
  theme: "",
};

const PLOT_KEYS = ["x", "y", "colour", "facet", "logX", "logY"];

/** Addresses have an end: of a larger selection they hold so many points. */
const MOST_SELECTED = 200;

/** Sets of names in an address: commas and colons in them are escaped. */
const packed = (text) => encodeURIComponent(text);
const pairs = (map) => [...map].map(([name, value]) => `${packed(name)}:${[value].flat().map(packed).join("~")}`).join(",");
const unpairs = (text) =>
  text
    .split(",")
    .filter((pair) => pair.includes(":"))
    .map((pair) => pair.split(":"))
    .map(([name, value]) => [decodeURIComponent(name), value.split("~").map(decodeURIComponent)]);

/** The address's part behind `#`. */
function stateText(data) {
  const out = new URLSearchParams();
  const put = (key, value) => value && out.set(key, value);
  put("q", state.text);
  put("not", pairs([...state.without].map(([name, texts]) => [name, [...texts]])));
  put("sort", state.sort.map(({ name, down }) => (down ? "-" : "") + packed(name)).join(","));
  put("cols", state.columns?.map(packed).join(","));
  put("base", state.baseline);
  for (const key of PLOT_KEYS) put(key, state.plot[key] === "median_ns" ? "" : state.plot[key]);
  put("hold", pairs(state.plot.hold));
  put("share", state.share ? "1" : "");
  put("theme", state.theme);
  const ids = [...state.selected].slice(0, MOST_SELECTED).map((row) => data.column("point")?.text(row) ?? String(row));
  put("sel", ids.join(","));
  put("only", state.onlySelected ? "1" : "");
  return out.toString();
}

/** Takes a view from an address; what it does not know of this page is passed over. */
function readState(data, text) {
  let given;
  try {
    given = new URLSearchParams(text.replace(/^#/, ""));
    const names = (value) => value.split(",").filter(Boolean).map(decodeURIComponent);
    const known = (name) => data.byName.has(name);
    state.text = given.get("q") ?? "";
    state.without = new Map(
      unpairs(given.get("not") ?? "")
        .filter(([name]) => data.column(name)?.levels)
        .map(([name, texts]) => [name, new Set(texts)]),
    );
    state.sort = names(given.get("sort") ?? "")
      .map((name) => ({ name: name.replace(/^-/, ""), down: name.startsWith("-") }))
      .filter(({ name }) => known(name));
    state.columns = given.has("cols") ? names(given.get("cols")).filter(known) : null;
    state.baseline = given.get("base") ?? "";
    for (const key of PLOT_KEYS) state.plot[key] = given.get(key) ?? (key === "y" ? "median_ns" : "");
    state.plot.hold = new Map(unpairs(given.get("hold") ?? "").map(([name, [value]]) => [name, value]));
    state.share = given.get("share") === "1";
    state.theme = ["light", "dark"].includes(given.get("theme")) ? given.get("theme") : "";
    const wanted = new Set(names(given.get("sel") ?? ""));
    state.selected = new Set();
    const point = data.column("point");
    for (let row = 0; wanted.size > 0 && row < data.rows; row++) {
      if (wanted.has(point?.text(row) ?? String(row))) state.selected.add(row);
    }
    state.onlySelected = given.get("only") === "1" && state.selected.size > 0;
  } catch (error) {
    // An address that was cut or changed by hand is no reason to show nothing.
    console.warn(`view not restored: ${error.message}`);
  }
}

const listeners = [];

/** Calls `listener(what)` for the kinds of change that it names. */
function onChange(kinds, listener) {
  listeners.push({ kinds, listener });
}

let writing = 0;

/** Tells everybody what changed: `filter`, `sort`, `columns`, `plot`, `baseline`, `selection` or `theme`. */
function changed(data, what) {
  for (const { kinds, listener } of listeners) if (kinds.includes(what)) listener(what);
  clearTimeout(writing);
  writing = setTimeout(() => {
    const text = stateText(data);
    history.replaceState(null, "", text ? `#${text}` : location.pathname + location.search);
  }, 150);
}
