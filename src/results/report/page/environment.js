// Where and with what the runs were made, their manifests, and the commands that run them again.

/** Lines of `[section, name, value]` of one source. */
function facts(source) {
  const { environment, usage } = source;
  const lines = [["Source", "read from", source.path]];
  if (!environment) return lines;
  const { identity, host, variables } = environment;
  lines.push(["Run", "name", environment.name], ["Run", "started", date(environment.started_unix_s)], ["Run", "command", environment.command.join(" ")]);
  const ids = [["run id", identity.run], ["manifest hash", identity.manifest], ["engine digest", identity.engine], ["kernels digest", identity.kernels]];
  lines.push(...ids.map(([name, value]) => ["Identities", name, value]));
  lines.push(["Toolchain", "sweeper", environment.version], ["Toolchain", "compilers", identity.toolchain]);
  identity.devices.forEach((device, number) => {
    const title = identity.devices.length > 1 ? `Device ${number + 1}` : "Device";
    lines.push([title, "name", `${device.name}${device.unit ? ` ${device.unit}` : ""}`], [title, "kind", device.kind]);
    lines.push(...Object.entries(device.details).map(([name, value]) => [title, name.replaceAll("_", " "), value]));
  });
  lines.push(...Object.entries(host).filter(([, value]) => value).map(([name, value]) => ["Host", name, value]));
  lines.push(...Object.entries(variables).map(([name, value]) => ["Variables", name, value]));
  if (usage?.wall_s > 0) {
    lines.push(["Usage", "measuring took", pretty(usage.wall_s * 1e9, "ns")], ["Usage", "devices had work", pretty(usage.at_work, "share")]);
    lines.push(["Usage", "devices ran programs", pretty(usage.running, "share")], ["Usage", "kernels compiled", String(usage.compiled)]);
  }
  return lines;
}

function environment(data, host) {
  const all = data.sources.map((source) => new Map(facts(source).map(([section, name, value]) => [`${section}\n${name}`, value])));
  const keys = [...new Set(all.flatMap((held) => [...held.keys()]))];
  const sections = [...new Set(keys.map((key) => key.split("\n")[0]))];
  const isTold = (key) => all.some((held) => held.get(key));
  const many = all.length > 1;
  const row = (key) => {
    const values = all.map((held) => held.get(key) ?? "");
    const differs = many && new Set(values).size > 1;
    return el("tr", { class: differs ? "differs" : null }, el("th", { scope: "row" }, key.split("\n")[1], differs ? el("span", { class: "unseen" }, " (differs)") : null), (differs || !many ? values : [values[0]]).map((value) => el("td", { colspan: differs || !many ? null : all.length }, value || "–")));
  };
  const blocks = sections.map((section) => {
    const own = keys.filter((key) => key.split("\n")[0] === section && isTold(key));
    return own.length ? el("tbody", {}, el("tr", { class: "part-title" }, el("th", { colspan: all.length + 1, scope: "colgroup" }, section)), own.map(row)) : null;
  });
  const head = many ? el("thead", {}, el("tr", {}, el("th", { scope: "col" }, ""), data.sources.map((source) => el("th", { scope: "col" }, source.label)))) : null;
  host.replaceChildren(
    el("div", { class: "overflow", tabindex: "0", role: "region", "aria-label": "Environment" }, el("table", { class: "facts" }, head, blocks)),
    many ? el("p", { class: "caption" }, "Lines that differ between the sources are marked.") : "",
    ...data.sources.map((source) => kernels(source, many)),
  );
}

/** The kernels that the points launched, by their keys in the cache. */
function kernels(source, isOneOfMany) {
  if (source.kernels.length === 0) return "";
  const rows = source.kernels.map(({ name, key, points }) => [name, key ? el("code", {}, key) : "built in", thousands(points)]);
  const title = `${counted(source.kernels.length, "kernel")}${isOneOfMany ? ` of ${source.label}` : ""}, by key`;
  return el("details", { class: "kernels" }, el("summary", {}, title), plainTable(["kernel", "key", "points"], rows, { numeric: [2], caption: title }));
}

function manifests(data, host) {
  host.replaceChildren(
    ...data.sources.map((source) => {
      const commands = source.commands.map(({ command, about }) => el("li", {}, el("div", { class: "command" }, el("code", {}, command), copyButton("Copy", () => command)), el("p", { class: "caption" }, about)));
      const text = source.manifest;
      return el(
        "div",
        { class: "manifest" },
        data.sources.length > 1 ? el("h3", {}, source.label) : null,
        commands.length ? el("ul", { class: "commands" }, commands) : null,
        text
          ? el("details", { open: data.sources.length === 1 }, el("summary", {}, "The resolved manifest"), el("p", { class: "detail-tools" }, copyButton("Copy the manifest", () => text)), el("pre", { tabindex: "0", class: "toml" }, text))
          : el("p", { class: "empty" }, "There is no manifest beside this file, so nothing here can say how to run it again."),
      );
    }),
  );
}
