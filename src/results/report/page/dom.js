// Elements. Text from files only ever becomes text nodes, never markup.

/** An element: attributes, `on…` handlers, `class`, `data` and then children (strings become text). */
function el(name, attributes = {}, ...children) {
  return dress(document.createElement(name), attributes, children);
}

/** The same for SVG. */
function svg(name, attributes = {}, ...children) {
  return dress(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function dress(element, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "data") Object.assign(element.dataset, value);
    else if (key === "checked" || key === "value" || key === "selected") element[key] = value;
    else element.setAttribute(key, value === true ? "" : value);
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined));
  return element;
}

/** The element of that id, which page.html has. */
const byId = (id) => document.getElementById(id);

/** A drop-down of choices: `options` are `[value, label]`. */
function choice(label, options, value, onpick) {
  const select = el(
    "select",
    { onchange: (event) => onpick(event.target.value) },
    options.map(([held, text]) => el("option", { value: held, selected: held === value }, text)),
  );
  return el("label", { class: "choice" }, el("span", {}, label), select);
}

/** A check box with its label. */
function tick(label, checked, onpick) {
  return el(
    "label",
    { class: "tick" },
    el("input", { type: "checkbox", checked, onchange: (event) => onpick(event.target.checked) }),
    el("span", {}, label),
  );
}

/** A button that opens a panel below it; Escape and a click elsewhere close it. */
function menu(label, fill) {
  const panel = el("div", { class: "panel" });
  const summary = el("summary", {}, label);
  const details = el("details", { class: "menu" }, summary, panel);
  details.addEventListener("toggle", () => {
    if (!details.open) return panel.replaceChildren();
    for (const other of document.querySelectorAll("details.menu[open]")) {
      if (other !== details) other.open = false;
    }
    panel.replaceChildren(...[fill()].flat());
    // A panel that would leave the window opens to the left instead.
    details.classList.remove("leftwards");
    const { right } = panel.getBoundingClientRect();
    details.classList.toggle("leftwards", right > document.documentElement.clientWidth);
  });
  details.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !details.open) return;
    details.open = false;
    summary.focus();
    event.stopPropagation();
  });
  return { details, summary };
}

document.addEventListener("pointerdown", (event) => {
  for (const open of document.querySelectorAll("details.menu[open]")) {
    if (!open.contains(event.target)) open.open = false;
  }
});

/** Text on the clipboard, also where the browser has no clipboard for files. */
async function toClipboard(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = el("textarea", { class: "unseen", "aria-hidden": "true" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}

/** A button that copies what `text()` gives, and says so. */
function copyButton(label, text) {
  const button = el("button", { type: "button", class: "copy" }, label);
  button.addEventListener("click", async () => {
    await toClipboard(text());
    button.textContent = "Copied";
    say("Copied to the clipboard");
    setTimeout(() => (button.textContent = label), 1500);
  });
  return button;
}

/** `draw`, but after what is in sight was painted, and once however often it is asked for before that. */
function afterPaint(draw) {
  let isWaiting = false;
  const run = () => {
    isWaiting = false;
    draw();
  };
  return () => {
    if (!isWaiting) requestAnimationFrame(() => setTimeout(run));
    isWaiting = true;
  };
}

/** Says something to those who listen to the page. */
function say(text) {
  byId("said").textContent = text;
}

/** A table of strings or elements; columns in `numeric` are set flush right. */
function plainTable(header, rows, { numeric = [], caption = null } = {}) {
  const kind = (column) => (numeric.includes(column) ? "number" : null);
  return el(
    "div",
    { class: "overflow", tabindex: "0", role: "region", "aria-label": caption ?? header.join(", ") },
    el(
      "table",
      { class: "plain" },
      caption ? el("caption", {}, caption) : null,
      el("thead", {}, el("tr", {}, header.map((text, column) => el("th", { scope: "col", class: kind(column) }, text)))),
      el(
        "tbody",
        {},
        rows.map((row) => el("tr", {}, row.map((cell, column) => el("td", { class: kind(column) }, cell ?? "")))),
      ),
    ),
  );
}
