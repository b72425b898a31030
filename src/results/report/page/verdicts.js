// What is said of fusing and compiling, and backends side by side: tables that were made where the page was.

const GOOD_VERDICTS = ["strong", "moderate", "at least moderate", "COMPILE WINS"];
const BAD_VERDICTS = ["slower", "NO COMPILE WINS"];

function verdicts(data, host) {
  host.replaceChildren(...data.tables.map((table, number) => verdictTable(table, number === 0)));
}

/** A table with its notes; those that are long are closed at first. */
function verdictTable({ name, section, title, header, rows, numeric, notes }, isFirst) {
  const place = header.indexOf("verdict");
  const lines = rows.map((row) => row.map((text, column) => (column === place ? verdictBadge(text) : text)));
  const caption = section ? `${title}: ${section}` : title;
  return el(
    "details",
    { class: "verdicts", open: isFirst || name !== "comparison", data: { table: name } },
    el("summary", {}, el("span", {}, caption), el("span", { class: "count" }, counted(rows.length, "row"))),
    plainTable(header.map(breakable), lines, { numeric, caption }),
    notes.length ? el("ul", { class: "notes" }, notes.map((note) => el("li", {}, note))) : null,
  );
}

/** A name that may be broken after its underscores: columns of numbers are narrower than their names. */
function breakable(name) {
  const parts = name.split("_");
  return el("span", {}, parts.map((part, place) => [place ? el("wbr") : null, place + 1 < parts.length ? `${part}_` : part]));
}

function verdictBadge(text) {
  const kind = GOOD_VERDICTS.includes(text) ? "good" : BAD_VERDICTS.includes(text) ? "bad" : "plain";
  return text === "–" ? text : el("span", { class: `badge ${kind}` }, text);
}
