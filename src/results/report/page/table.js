// The table of points. Only rows in sight exist as elements, so that 100,000 are as quick as ten.

/** Height of a row in pixels; style.css says the same. */
const ROW = 28;
/** Rows beyond each edge that exist too, for quick scrolling. */
const BEYOND = 12;
/** Rows that are printed: what is on paper is to be read. */
const PRINTED = 60;

/** Names of the columns that are shown unless somebody chose others. */
function usualColumns(data) {
  const has = (name) => data.column(name) && data.column(name).levels?.some((text) => text !== "" && text !== "ok") !== false;
  const results = ["median_ns", "interval", "speedup", "peak_allocated_bytes", "efficiency", "checked", "flags"];
  return [...data.axes.map((axis) => axis.name), "status", ...results.filter(has)].filter((name) => data.column(name));
}

const columnsShown = (data) => state.columns ?? usualColumns(data);

/** Header texts without the unit, which cells have. */
const titleOf = (column) => column.title ?? column.name.replace(/_(ns|bytes|mhz|c|w|s)$/, "").replaceAll("_", " ");

/** A cell's text. */
function cellText(data, column, row) {
  if (column.name !== "interval") return column.shown(row).split("\n", 1)[0];
  const [low, high] = column.ends;
  return interval(low.numbers[row], high.numbers[row], data.time.numbers[row], "ns");
}

/** The widest cell that is not cut, and what is around a cell's text, in pixels. */
const WIDEST = 260;
const AROUND = 22;

/** Width in pixels that the header needs, and cells spread over the table. */
function widthOf(data, column, pen) {
  const texts = new Set();
  const step = Math.max(1, Math.floor(data.rows / 300));
  for (let row = 0; row < data.rows; row += step) texts.add(cellText(data, column, row));
  const longest = [...texts].sort((one, other) => other.length - one.length).slice(0, 12);
  const width = (text) => pen.measureText(text).width;
  // Sorted columns have an arrow; headers are bolder.
  const header = width(titleOf(column)) * 1.1 + 14;
  return Math.ceil(Math.min(WIDEST, Math.max(header, ...longest.map((text) => width(text) + 1))) + AROUND);
}

/** Measures text in the font of the table's cells. */
function cellPen(host) {
  const pen = document.createElement("canvas").getContext("2d");
  const { fontFamily } = getComputedStyle(host);
  pen.font = `13px ${fontFamily}`;
  // Digits of equal widths are a little wider in some fonts.
  pen.letterSpacing = "0.3px";
  return pen;
}

class PointTable {
  constructor(data, host) {
    this.data = data;
    this.active = { row: 0, column: 0 };
    this.head = el("thead");
    this.body = el("tbody");
    this.columnsOf = el("colgroup");
    this.table = el("table", { class: "points", role: "grid", "aria-multiselectable": "true", "aria-labelledby": "points-title" }, this.columnsOf, this.head, this.body);
    this.scroller = el("div", { class: "scroller", onscroll: () => this.draw() }, this.table);
    this.tools = el("div", { class: "table-tools" });
    this.printed = el("div", { class: "printed" });
    host.replaceChildren(this.tools, this.scroller, this.printed);
    this.table.addEventListener("keydown", (event) => this.key(event));
    this.body.addEventListener("click", (event) => this.click(event));
    this.fillTools();
    this.layOut();
    onChange(["filter", "sort"], () => this.show());
    onChange(["columns"], () => this.layOut());
    onChange(["baseline"], () => this.layOut());
    onChange(["selection"], () => this.selectionChanged());
    addEventListener("beforeprint", () => this.print());
    addEventListener("afterprint", () => this.printed.replaceChildren());
    new ResizeObserver(() => this.draw()).observe(this.scroller);
    this.selectionChanged();
  }

  fillTools() {
    const { data } = this;
    this.selection = el("span", { class: "selection" });
    this.only = tick("only selected", state.onlySelected, (isOnly) => {
      state.onlySelected = isOnly;
      changed(data, "filter");
    });
    this.none = el("button", { type: "button", onclick: () => select(data, [], false) }, "Unselect");
    const chooser = menu("Columns", () => this.columnPanel());
    chooser.details.classList.add("wide");
    this.tools.replaceChildren(
      chooser.details,
      copyButton("Copy as CSV", () => this.csv()),
      this.selection, this.only, this.none,
      el("p", { class: "hint" }, "Headers sort, a second header breaks ties. In the table: arrow keys move, Space selects, Enter shows everything about a point."),
    );
  }

  columnPanel() {
    const { data } = this;
    const groups = [["axis", "What was measured"], ["result", "Result"], ["statistic", "Statistics"], ["memory", "Memory"], ["program", "Program and check"], ["identity", "Identity"]];
    const set = (names) => {
      state.columns = names;
      changed(data, "columns");
    };
    const box = (column) =>
      tick(column.name, columnsShown(data).includes(column.name), (isIn) => {
        const wanted = new Set(columnsShown(data));
        if (isIn) wanted.add(column.name);
        else wanted.delete(column.name);
        set(data.columns.map(({ name }) => name).filter((name) => wanted.has(name)));
      });
    const lists = groups.map(([group, title]) => {
      const own = data.columns.filter((column) => column.group === group);
      return own.length ? el("div", { class: "ticks", role: "group", "aria-label": title }, el("strong", {}, title), own.map(box)) : null;
    });
    const usual = el("button", { type: "button", onclick: () => set(null) }, "The usual ones");
    return [el("div", { class: "panel-tools" }, usual), el("div", { class: "tick-columns" }, lists)];
  }

  /** Makes the header and the columns' widths. */
  layOut() {
    const { data } = this;
    this.columns = columnsShown(data).map((name) => data.column(name));
    const pen = cellPen(this.scroller);
    const widths = this.columns.map((column) => widthOf(data, column, pen));
    this.columnsOf.replaceChildren(...widths.map((width) => el("col", { style: `width:${width}px` })));
    this.table.style.width = `${widths.reduce((sum, width) => sum + width, 0)}px`;
    this.table.setAttribute("aria-colcount", this.columns.length);
    this.active.column = Math.min(this.active.column, Math.max(0, this.columns.length - 1));
    this.show();
  }

  fillHead() {
    const keyOf = (column) => column.sortedBy ?? column.name;
    const mark = (column) => {
      const name = keyOf(column);
      const place = state.sort.findIndex((sort) => sort.name === name);
      return place < 0 ? "" : (state.sort[place].down ? "▼" : "▲") + (place > 0 ? place + 1 : "");
    };
    const sortOf = (column) => state.sort[0]?.name !== keyOf(column) ? "none" : state.sort[0].down ? "descending" : "ascending";
    const focused = this.head.contains(document.activeElement) ? [...this.head.querySelectorAll("button")].indexOf(document.activeElement) : -1;
    const cells = this.columns.map((column, number) =>
      el("th", { scope: "col", "aria-sort": sortOf(column), "aria-colindex": number + 1, class: column.isNumber ? "number" : null },
        el("button", { type: "button", title: column.about ?? column.name, onclick: () => this.sortBy(keyOf(column)) },
          el("span", {}, titleOf(column)), el("span", { class: "arrow", "aria-hidden": "true" }, mark(column)))),
    );
    this.head.replaceChildren(el("tr", { "aria-rowindex": 1 }, cells));
    this.head.querySelectorAll("button")[focused]?.focus();
  }

  /** A header once: ascending, twice: descending, thrice: as it was. What was first breaks ties then. */
  sortBy(name) {
    const [first] = state.sort;
    const others = state.sort.filter((sort) => sort.name !== name);
    if (first?.name !== name) state.sort = [{ name, down: false }, ...others].slice(0, 3);
    else if (!first.down) state.sort = [{ name, down: true }, ...others];
    else state.sort = others;
    resort(this.data);
    changed(this.data, "sort");
    say(state.sort.length ? `Sorted by ${state.sort[0].name}, ${state.sort[0].down ? "descending" : "ascending"}` : "Not sorted");
  }

  /** Shows the rows that pass, from the top. */
  show() {
    this.fillHead();
    this.table.setAttribute("aria-rowcount", view.order.length + 1);
    this.active.row = Math.min(this.active.row, Math.max(0, view.order.length - 1));
    this.scroller.scrollTop = 0;
    this.scroller.style.height = `${Math.min(18, Math.max(3, view.order.length)) * ROW + 34 + 16}px`;
    this.drawn = null;
    this.draw();
  }

  /** Draws the rows in sight, unless they are drawn already. */
  draw() {
    const sight = Math.ceil((this.scroller.clientHeight || 500) / ROW);
    const top = Math.floor(this.scroller.scrollTop / ROW);
    const from = Math.max(0, Math.min(top - BEYOND, view.order.length - sight));
    const to = Math.min(view.order.length, top + sight + BEYOND);
    if (this.drawn && this.drawn.from <= Math.max(0, top - 2) && this.drawn.to >= Math.min(view.order.length, top + sight + 2)) return;
    const hasFocus = this.body.contains(document.activeElement);
    this.drawn = { from, to };
    const lines = [];
    for (let place = from; place < to; place++) lines.push(this.line(place));
    const gap = (rows) => el("tr", { class: "gap", "aria-hidden": "true" }, el("td", { colspan: this.columns.length, style: `height:${rows * ROW}px` }));
    if (view.order.length === 0) lines.push(el("tr", {}, el("td", { colspan: this.columns.length, class: "empty" }, this.data.rows === 0 ? "There are no points." : "No point passes the filters.")));
    this.body.replaceChildren(gap(from), ...lines, gap(view.order.length - to));
    if (hasFocus) this.focusCell(false);
  }

  line(place) {
    const row = view.order[place];
    const isSelected = state.selected.has(row);
    const cells = this.columns.map((column, number) => {
      const isActive = place === this.active.row && number === this.active.column;
      const full = column.name === "interval" ? null : column.text(row);
      return el("td", { role: "gridcell", "aria-colindex": number + 1, tabindex: isActive ? "0" : "-1", title: full || null, class: column.isNumber ? "number" : column.name === "status" ? `status ${["ok", "skipped"].includes(full) ? "fine" : "bad"}` : null }, cellText(this.data, column, row));
    });
    return el("tr", { role: "row", "aria-rowindex": place + 2, "aria-selected": String(isSelected), data: { place }, class: isSelected ? "selected" : null }, cells);
  }

  /** Moves to a cell, scrolls it into sight, and puts the keyboard's focus there. */
  focusCell(isMoved) {
    const { row, column } = this.active;
    const top = row * ROW;
    const room = this.scroller.clientHeight - 34 - 16;
    if (isMoved) {
      if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
      else if (top + ROW > this.scroller.scrollTop + room) this.scroller.scrollTop = top + ROW - room;
    }
    if (!this.drawn || row < this.drawn.from || row >= this.drawn.to) this.drawn = null;
    this.draw();
    for (const cell of this.body.querySelectorAll('td[tabindex="0"]')) cell.tabIndex = -1;
    const cell = this.body.querySelector(`tr[data-place="${row}"]`)?.children[column];
    if (!cell) return;
    cell.tabIndex = 0;
    cell.focus({ preventScroll: true });
    if (isMoved) cell.scrollIntoView({ block: "nearest", inline: "nearest" });
  }

  key(event) {
    if (!this.body.contains(event.target)) return;
    const page = Math.max(1, Math.floor(this.scroller.clientHeight / ROW) - 2);
    const { row, column } = this.active;
    const last = { row: view.order.length - 1, column: this.columns.length - 1 };
    const moves = {
      ArrowDown: [row + 1, column], ArrowUp: [row - 1, column], ArrowRight: [row, column + 1], ArrowLeft: [row, column - 1],
      PageDown: [row + page, column], PageUp: [row - page, column],
      Home: [event.ctrlKey ? 0 : row, 0], End: [event.ctrlKey ? last.row : row, last.column],
    };
    if (event.key in moves) {
      const [nextRow, nextColumn] = moves[event.key];
      if (nextRow < 0) this.head.querySelectorAll("button")[column]?.focus();
      else {
        this.active = { row: Math.min(nextRow, last.row), column: Math.min(Math.max(nextColumn, 0), last.column) };
        this.focusCell(true);
      }
    } else if (event.key === " ") select(this.data, [view.order[row]], true);
    else if (event.key === "Enter") showDetail(this.data, view.order[row], () => this.focusCell(true));
    else return;
    event.preventDefault();
  }

  click(event) {
    const cell = event.target.closest("td");
    const line = cell?.closest("tr[data-place]");
    if (!line) return;
    this.active = { row: Number(line.dataset.place), column: cell.cellIndex };
    const row = view.order[this.active.row];
    if (event.shiftKey && state.latest !== null) this.selectRange(row);
    else select(this.data, [row], event.ctrlKey || event.metaKey);
    this.focusCell(false);
    if (event.detail === 2) showDetail(this.data, row, () => this.focusCell(true));
  }

  selectRange(row) {
    const [one, other] = [view.order.indexOf(state.latest), view.order.indexOf(row)];
    if (one < 0) return select(this.data, [row], true);
    select(this.data, [...view.order.slice(Math.min(one, other), Math.max(one, other) + 1)].filter((held) => !state.selected.has(held)), true);
  }

  /** Marks rows, and scrolls to what was selected elsewhere. */
  selectionChanged() {
    const count = state.selected.size;
    this.selection.textContent = count ? `${counted(count, "point")} selected` : "";
    for (const part of [this.only, this.none]) part.hidden = count === 0;
    this.only.querySelector("input").checked = state.onlySelected;
    const place = this.body.contains(document.activeElement) ? -1 : view.order.indexOf(state.latest);
    if (place >= 0 && state.selected.size > 0) {
      const top = place * ROW;
      const isInSight = top >= this.scroller.scrollTop && top + ROW < this.scroller.scrollTop + this.scroller.clientHeight - 50;
      if (!isInSight) this.scroller.scrollTop = Math.max(0, top - 3 * ROW);
      this.active.row = place;
    }
    this.drawn = null;
    this.draw();
  }

  /** The rows that pass, in order, with exact values: the selected ones alone if there are any. */
  csv() {
    const quote = (text) => (/[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const columns = this.columns.flatMap((column) => (column.name === "interval" ? column.ends : [column]));
    const rows = [...view.order].filter((row) => state.selected.size === 0 || state.selected.has(row));
    const lines = [columns.map(({ name }) => name), ...rows.map((row) => columns.map((column) => column.text(row)))];
    return lines.map((line) => line.map(quote).join(",")).join("\n") + "\n";
  }

  /** On paper: the first rows in their order, and a line about the others. */
  print() {
    const rows = [...view.order.slice(0, PRINTED)];
    const cells = rows.map((row) => this.columns.map((column) => cellText(this.data, column, row)));
    const more = view.order.length - rows.length;
    this.printed.replaceChildren(
      plainTable(this.columns.map(titleOf), cells, { numeric: this.columns.flatMap((column, number) => (column.isNumber ? [number] : [])) }),
      el("p", { class: "caption" }, more > 0 ? `The first ${rows.length} of ${counted(view.order.length, "point")}; records.csv has all of them.` : `${counted(rows.length, "point")}.`),
    );
  }
}

/** The command that says why a point was measured, or was not; none of rows whose run is not known. */
function whyOf(data, row) {
  const machine = data.column("machine");
  const source = machine ? data.sources.find(({ label }) => label === machine.text(row)) : data.sources[0];
  const id = data.column("point")?.text(row);
  return source?.why && id ? `${source.why} ${id.slice(0, 12)}` : null;
}

/** Everything about a point, with exact values, at the side. */
function showDetail(data, row, back) {
  const panel = byId("detail");
  const close = () => {
    panel.hidden = true;
    back?.();
  };
  const rows = data.columns.filter((column) => column.name !== "interval" && column.text(row) !== "").map((column) => {
    const [exact, shown] = [column.text(row), column.shown(row)];
    return [el("dt", { title: column.about ?? null }, column.name), el("dd", {}, exact.includes("\n") ? el("pre", {}, exact) : exact, shown && shown !== exact ? el("small", {}, shown) : null)];
  });
  const why = whyOf(data, row);
  panel.replaceChildren(
    el("div", { class: "detail-head" },
      el("h2", { id: "detail-title" }, `Point ${data.column("point")?.text(row) ?? row + 1}`),
      el("button", { type: "button", onclick: close, "aria-label": "Close" }, "Close")),
    el("p", {}, data.place(row)),
    el("p", { class: "detail-tools" }, el("button", { type: "button", onclick: () => holdAt(data, row) }, "Show in the plot"), copyButton("Copy id", () => data.column("point")?.text(row) ?? "")),
    why ? el("div", { class: "command" }, el("code", {}, why), copyButton("Copy", () => why)) : null,
    el("dl", {}, rows),
  );
  panel.hidden = false;
  panel.onkeydown = (event) => event.key === "Escape" && close();
  panel.querySelector("button").focus();
}

/** Holds the plot's other axes at the values of a row. */
function holdAt(data, row) {
  for (const axis of restOf(data)) state.plot.hold.set(axis.name, axis.text(row));
  state.selected.add(row);
  changed(data, "plot");
  changed(data, "selection");
  byId("explore-title").scrollIntoView();
}
