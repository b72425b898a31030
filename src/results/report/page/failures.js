// Points without a result, by what became of them and why; compilers' logs in full.

const MOST_PLACES = 40;

function failures(data, host) {
  const reason = data.column("reason");
  const groups = new Map();
  for (let row = 0; row < data.rows; row++) {
    if (data.isOk[row]) continue;
    const key = `${data.status.codes[row]} ${reason?.codes?.[row] ?? ""}`;
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(row);
  }
  if (groups.size === 0) {
    host.replaceChildren(el("p", { class: "caption" }, data.rows ? "None: every point has a checked or timed result." : "There are no points."));
    return;
  }
  const sorted = [...groups.values()].sort((one, other) => data.status.codes[one[0]] - data.status.codes[other[0]] || other.length - one.length);
  host.replaceChildren(...sorted.map((rows) => failure(data, rows, reason, sorted.length <= 4)));
}

function failure(data, rows, reason, isOpen) {
  const status = data.status.text(rows[0]);
  const text = reason?.text(rows[0]) || (status === "ok" ? "it has no time" : "no reason was recorded");
  const [first, ...log] = text.split("\n");
  const places = rows.slice(0, MOST_PLACES).map((row) => el("li", {}, el("button", { type: "button", class: "link", onclick: (event) => showDetail(data, row, () => event.target.focus()) }, data.place(row) || "the point")));
  const kind = ["skipped", "ok"].includes(status) ? "plain" : "bad";
  const more = rows.length > MOST_PLACES ? el("p", { class: "caption" }, `and ${thousands(rows.length - MOST_PLACES)} more: filter the table by the status.`) : null;
  return el(
    "details",
    { class: "failure", open: isOpen && log.length === 0 && rows.length <= 8 },
    el("summary", {}, el("span", { class: `badge ${kind}` }, status.replaceAll("_", " ")), el("span", { class: "reason" }, first), el("span", { class: "count" }, counted(rows.length, "point"))),
    log.length ? el("pre", { class: "log", tabindex: "0" }, text) : null,
    el("p", { class: "detail-tools" }, el("button", { type: "button", onclick: () => select(data, rows, false) }, "Select in the table"), log.length ? copyButton("Copy log", () => text) : null),
    el("ul", { class: "places" }, places),
    more,
  );
}
