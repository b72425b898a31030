// Which points are shown, and in which order.

const COMPARISON = /^([^\s=<>!]+)(<=|>=|!=|=|<|>)(.+)$/;

/** What one word of the text filter wants of a row. `K>=8` compares; any other word is looked for. */
function wanted(data, word) {
  const [, name, sign, value] = COMPARISON.exec(word) ?? [];
  const column = data.column(name) ?? data.columns.find((held) => held.name.toLowerCase() === name?.toLowerCase());
  return column ? comparison(column, sign, value) : search(data, word.toLowerCase());
}

function comparison(column, sign, value) {
  const number = Number(value);
  if (column.isNumber && !Number.isNaN(number)) {
    const { numbers } = column;
    return {
      "=": (row) => numbers[row] === number,
      "!=": (row) => numbers[row] !== number,
      "<": (row) => numbers[row] < number,
      ">": (row) => numbers[row] > number,
      "<=": (row) => numbers[row] <= number,
      ">=": (row) => numbers[row] >= number,
    }[sign];
  }
  const isSame = (row) => column.text(row).toLowerCase() === value.toLowerCase();
  return sign === "!=" ? (row) => !isSame(row) : isSame;
}

/** Looks for a word in every column of words, and at the start of ids. */
function search(data, word) {
  const hits = [];
  for (const column of data.columns) {
    if (column.kind === "words") {
      const found = column.levels.map((text) => text.toLowerCase().includes(word));
      if (found.every(Boolean)) return () => true;
      if (found.some(Boolean)) hits.push((row) => found[column.codes[row]]);
    } else if (column.group === "axis" && column.levels?.includes(word)) {
      const level = column.levels.indexOf(word);
      hits.push((row) => column.codes[row] === level);
    } else if (column.kind === "hex" && /^[0-9a-f]{4,}$/.test(word)) {
      const digits = word.slice(0, 2 * column.width);
      hits.push((row) => column.text(row).startsWith(digits));
    }
  }
  return (row) => hits.some((hit) => hit(row));
}

/** Rows that pass all filters, in the order of the file. */
function passing(data) {
  const tests = state.text.split(/\s+/).filter(Boolean).map((word) => wanted(data, word));
  for (const [name, texts] of state.without) {
    const column = data.column(name);
    const isOut = column.levels.map((text) => texts.has(text));
    const { codes } = column;
    tests.push((row) => !isOut[codes[row]]);
  }
  if (state.onlySelected) tests.push((row) => state.selected.has(row));
  const rows = new Uint32Array(data.rows);
  let count = 0;
  for (let row = 0; row < data.rows; row++) {
    if (tests.every((test) => test(row))) rows[count++] = row;
  }
  return rows.slice(0, count);
}

/** One key a row whose order is the column's: numbers as they are, words by alphabet, what is missing last. */
function sortKeys(column, down) {
  const missing = down ? -Infinity : Infinity;
  if (column.isNumber) return column.numbers.map((value) => (Number.isNaN(value) ? missing : value));
  const { levels } = column;
  if (!levels) return Float64Array.from({ length: column.rows }, (_, row) => column.plane(column.width, row));
  const ordered = levels.map((text, code) => [text, code]).sort(([one], [other]) => one.localeCompare(other, "en", { numeric: true }));
  const rank = new Float64Array(levels.length);
  ordered.forEach(([text, code], place) => (rank[code] = text === "" ? missing : place));
  return Float64Array.from(column.codes, (code) => rank[code]);
}

/** Rows in the order that `state.sort` asks for; rows that are equal in it stay as they were. */
function sorted(data, rows) {
  const keys = state.sort
    .filter(({ name }) => data.column(name))
    .map(({ name, down }) => ({ key: sortKeys(data.column(name), down), sign: down ? -1 : 1 }));
  if (keys.length === 0) return rows;
  const [first] = keys;
  return rows.slice().sort((one, other) => {
    if (first.key[one] !== first.key[other]) return first.key[one] < first.key[other] ? -first.sign : first.sign;
    for (const { key, sign } of keys) if (key[one] !== key[other]) return key[one] < key[other] ? -sign : sign;
    return one - other;
  });
}

/** What is shown: kept, because several parts of the page ask. */
const view = { rows: new Uint32Array(0), order: new Uint32Array(0) };

function refilter(data) {
  performance.mark("filter");
  view.rows = passing(data);
  performance.measure("filter", "filter");
  resort(data);
}

function resort(data) {
  performance.mark("sort");
  view.order = sorted(data, view.rows);
  performance.measure("sort", "sort");
}

/** Axes of more values have no menu. */
const MOST_LISTED = 500;

/** The bar with the text filter and one menu an axis. */
function filterBar(data, host) {
  // A list of thousands is no help: the text filter compares.
  const axes = [...data.axes, ...[data.status].filter((column) => column.varies)].filter((axis) => axis.levels.length <= MOST_LISTED);
  const text = el("input", {
    type: "search",
    placeholder: "fused T>=512 status!=ok",
    "aria-label": "Filter by text: words to find, or comparisons such as T>=512",
    value: state.text,
    spellcheck: "false",
    autocomplete: "off",
    oninput: () => {
      state.text = text.value;
      changed(data, "filter");
    },
  });
  const count = el("output", { class: "count" });
  const clear = el("button", { type: "button", onclick: () => clearFilters(data) }, "Clear");
  const menus = axes.map((axis) => axisMenu(data, axis));
  host.replaceChildren(
    el("div", { class: "filter-row" }, text, ...menus.map(({ details }) => details), clear, count),
  );
  const show = () => {
    if (text.value !== state.text) text.value = state.text;
    count.textContent = `${thousands(view.rows.length)} of ${counted(data.rows, "point")}`;
    clear.disabled = !state.text && state.without.size === 0 && !state.onlySelected;
    menus.forEach(({ refresh }) => refresh());
  };
  onChange(["filter", "selection"], show);
  show();
}

function clearFilters(data) {
  state.text = "";
  state.without.clear();
  state.onlySelected = false;
  changed(data, "filter");
}

function axisMenu(data, axis) {
  const setOut = (texts) => {
    if (texts.size === 0) state.without.delete(axis.name);
    else state.without.set(axis.name, texts);
    changed(data, "filter");
  };
  const { details, summary } = menu(axis.name, () => {
    const boxes = el("div", { class: "ticks", role: "group", "aria-label": axis.name });
    const fill = () =>
      boxes.replaceChildren(
        ...axis.levels.map((text, code) =>
          tick(el("span", {}, text || "(none)", el("small", {}, ` ${thousands(axis.counts[code])}`)), !state.without.get(axis.name)?.has(text), (isIn) => {
            const texts = new Set(state.without.get(axis.name));
            if (isIn) texts.delete(text);
            else texts.add(text);
            setOut(texts);
          }),
        ),
      );
    const button = (label, texts) => el("button", { type: "button", onclick: () => (setOut(new Set(texts)), fill()) }, label);
    fill();
    return [el("div", { class: "panel-tools" }, button("All", []), button("None", axis.levels)), boxes];
  });
  const refresh = () => {
    const out = [...(state.without.get(axis.name) ?? [])].filter((text) => axis.levels.includes(text)).length;
    const kept = axis.levels.length - out;
    summary.textContent = out === 0 ? axis.name : `${axis.name}: ${kept === 1 ? axis.levels.find((text) => !state.without.get(axis.name).has(text)) || "(none)" : `${kept} of ${axis.levels.length}`}`;
    details.classList.toggle("active", out > 0);
  };
  return { details, refresh };
}
