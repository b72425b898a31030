// Puts the page together once its data is read.

const THEMES = ["", "light", "dark"];

function applyTheme() {
  document.documentElement.style.colorScheme = state.theme || "light dark";
  const button = byId("theme");
  button.textContent = `Colours: ${state.theme || "system"}`;
  button.setAttribute("aria-label", `Colours: ${state.theme || "as the system"}. Press to change.`);
}

function lede(data) {
  const parts = data.sources.map((source) => {
    const { environment } = source;
    if (!environment) return source.path;
    const devices = [...new Set(environment.identity.devices.map(({ name }) => name))].join(", ");
    return [`run ${environment.identity.run.slice(0, 12)}`, devices, date(environment.started_unix_s)].filter(Boolean).join(" · ");
  });
  byId("lede").textContent = parts.join("; ");
}

/** Links within the page scroll; the address holds the view, not the place. */
function jumps() {
  for (const link of document.querySelectorAll("[data-jump]")) {
    link.addEventListener("click", (event) => {
      event.preventDefault();
      byId(`${link.dataset.jump}`).scrollIntoView();
      const inside = link.classList.contains("skip") ? document.querySelector('.points td[tabindex="0"]') : null;
      (inside ?? byId(`${link.dataset.jump}-title`)).focus({ preventScroll: inside === null });
    });
  }
}

function restore(data) {
  readState(data, location.hash);
  applyTheme();
  const speedup = data.column("speedup");
  if (speedup) speedup.decoded = speedups(data, baselineCode(data)).found;
  refilter(data);
}

/** A part that fails takes no other with it, and says so. */
function part(id, fill) {
  try {
    fill(byId(`${id}-body`));
  } catch (error) {
    console.error(error);
    byId(`${id}-body`).replaceChildren(el("p", { class: "notice" }, `This part could not be drawn: ${error.message}`));
  }
}

async function start() {
  performance.mark("load");
  const data = await readData();
  addComputed(data);
  // The first who hears of a change computes what is shown; everybody else draws it.
  onChange(["filter"], () => refilter(data));
  onChange(["selection"], () => state.onlySelected && refilter(data));
  onChange(["baseline"], () => resort(data));
  onChange(["theme"], applyTheme);
  restore(data);
  lede(data);
  jumps();
  byId("theme").addEventListener("click", () => {
    state.theme = THEMES[(THEMES.indexOf(state.theme) + 1) % THEMES.length];
    changed(data, "theme");
  });
  filterBar(data, byId("filters"));
  part("summary", (host) => summary(data, host));
  part("verdicts", (host) => verdicts(data, host));
  part("explore", (host) => explore(data, host));
  part("points", (host) => new PointTable(data, host));
  part("roofline", (host) => roofline(data, host));
  part("memory", (host) => memory(data, host));
  part("failures", (host) => failures(data, host));
  part("environment", (host) => environment(data, host));
  part("manifest", (host) => manifests(data, host));
  addEventListener("hashchange", () => {
    restore(data);
    for (const what of ["columns", "sort", "filter", "baseline", "plot", "selection"]) changed(data, what);
  });
  document.documentElement.dataset.ready = "true";
  performance.measure("load", "load");
}

start().catch((error) => {
  console.error(error);
  const notice = byId("trouble");
  notice.textContent = `This page could not be drawn: ${error.message}. It needs a browser of 2024 or newer.`;
  notice.hidden = false;
  document.querySelector(".loading").hidden = true;
});
