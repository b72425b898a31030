//! One file that shows a run, or several: table, plots, environment, manifest. It loads nothing.
//!
//! The page's parts lie beside this file; this module puts them together with the data. Data from
//! files goes into JSON and base64 alone, from which the page's script makes text nodes: nothing
//! that a manifest or a compiler's log says can become markup. A content security policy that knows
//! the script by its digest is the second lock.

mod columns;
mod encode;
pub mod verdicts;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use self::encode::{encode, json_for_html};
use self::verdicts::Shown;
use super::html::{GENERATOR, escaped, fill, in_policy};
use super::source::{Kind, Source};

const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("style.css");

/// The parts of the script, in the order in which they need each other.
const SCRIPTS: [&str; 15] = [
    include_str!("dom.js"),
    include_str!("format.js"),
    include_str!("data.js"),
    include_str!("state.js"),
    include_str!("filter.js"),
    include_str!("scale.js"),
    include_str!("plot.js"),
    include_str!("explore.js"),
    include_str!("table.js"),
    include_str!("summary.js"),
    include_str!("verdicts.js"),
    include_str!("roofline.js"),
    include_str!("memory.js"),
    include_str!("failures.js"),
    include_str!("environment.js"),
];
const START: &str = include_str!("app.js");

/// The page of some sources, as HTML. `baseline` is the backend that speedups are relative to;
/// without one it is the backend that the manifests name, or a plain backend among the measured
/// ones. `tables` are shown unchanged.
///
/// # Errors
/// Never in practice: errors of writing into memory.
pub fn page(sources: &[Source], baseline: Option<&str>, tables: &[Shown]) -> io::Result<String> {
    let columns = columns::columns(sources);
    let encoded = encode(&columns)?;
    let manifests = sources.iter().find_map(manifest_baseline);
    let meta = json!({
        "rows": sources.iter().map(|source| source.entries.len()).sum::<usize>(),
        "columns": encoded.columns,
        "baseline": baseline.map(str::to_owned).or(manifests),
        "tables": tables.iter().map(verdicts::describe).collect::<Vec<_>>(),
        "sources": sources.iter().map(describe).collect::<Vec<_>>(),
    });
    let script = format!("\n{}{START}", SCRIPTS.concat());
    let policy = format!(
        "default-src 'none'; script-src {}; style-src 'unsafe-inline'; img-src data:; \
         base-uri 'none'; form-action 'none'",
        in_policy(&script)
    );
    let title = escaped(&title(sources));
    let meta = json_for_html(&meta)?;
    let parts = [
        ("policy", policy.as_str()),
        ("generator", GENERATOR),
        ("title", &title),
        ("style", STYLE),
        ("verdicts", if tables.is_empty() { "hidden" } else { "" }),
        ("meta", &meta),
        ("numbers", &encoded.packed),
        ("script", &script),
    ];
    Ok(fill(FRAME, &parts))
}

/// The names of the runs, or of the files.
fn title(sources: &[Source]) -> String {
    let mut names: Vec<&str> = Vec::new();
    for source in sources {
        let name = match &source.environment {
            Some(environment) => environment.name.as_str(),
            None => source.label.as_str(),
        };
        if !names.contains(&name) {
            names.push(name);
        }
    }
    match names.as_slice() {
        [] => "sweeper".to_owned(),
        names => names.join(", "),
    }
}

/// The backend that a manifest names as `[report] baseline`.
fn manifest_baseline(source: &Source) -> Option<String> {
    let manifest: toml::Table = source.manifest.as_deref()?.parse().ok()?;
    let baseline = manifest.get("report")?.get("baseline")?;
    Some(baseline.as_str()?.to_owned())
}

fn describe(source: &Source) -> Value {
    json!({
        "label": source.label,
        "path": source.origin.display().to_string(),
        "environment": source.environment,
        "usage": source.usage,
        "manifest": source.manifest,
        "notes": source.warnings,
        "commands": commands(source),
        "why": why(source),
        "kernels": kernels(source),
    })
}

/// The kernels that rows launched, each with its key and the number of rows.
fn kernels(source: &Source) -> Vec<Value> {
    let mut counts: BTreeMap<(&str, Option<&str>), usize> = BTreeMap::new();
    let entries = source.entries.iter();
    for measured in entries.filter_map(|entry| entry.measurement.as_ref()) {
        let own: BTreeSet<(&str, Option<&str>)> = measured
            .kernels
            .iter()
            .map(|kernel| (kernel.name.as_ref(), kernel.key.as_deref()))
            .collect();
        for kernel in own {
            *counts.entry(kernel).or_default() += 1;
        }
    }
    counts
        .into_iter()
        .map(|((name, key), points)| json!({ "name": name, "key": key, "points": points }))
        .collect()
}

/// The commands that measure a source again: by its recorded run, and from the page's manifest.
fn commands(source: &Source) -> Vec<Value> {
    let mut commands = Vec::new();
    if let (Kind::Run, Some(environment)) = (source.kind, &source.environment) {
        let dir = source.origin.parent().unwrap_or(Path::new("."));
        let mut command = format!("sweeper rerun {}", environment.identity.run);
        if dir != Path::new("results") {
            command.push_str(&format!(" --output-dir {}", quoted(&dir.to_string_lossy())));
        }
        commands.push(json!({
            "command": command,
            "about": "Where the run was recorded: measures it again, compares outputs bit by bit and times by their intervals.",
        }));
    }
    if let (Some(environment), Some(_)) = (&source.environment, &source.manifest) {
        let command = format!(
            "sweeper run {}",
            quoted(&format!("{}.toml", environment.name))
        );
        commands.push(json!({
            "command": command,
            "about": "Anywhere else: copy the manifest below into that file first. Equal identities above mean that it is the same run.",
        }));
    }
    commands
}

/// The command that says why a point of a run was measured or not, without the point.
fn why(source: &Source) -> Option<String> {
    let manifest = source.origin.join("manifest.toml");
    let is_run = source.kind == Kind::Run && source.manifest.is_some();
    is_run.then(|| format!("sweeper why {}", quoted(&manifest.to_string_lossy())))
}

/// A word, quoted for a shell.
fn quoted(word: &str) -> String {
    let is_plain =
        |character: char| character.is_ascii_alphanumeric() || "-_./,=:@+".contains(character);
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_to_show_is_a_page_too() {
        let page = page(&[], None, &[]).unwrap();
        assert!(page.starts_with("<!doctype html>") && page.ends_with("</html>\n"));
        assert!(page.contains("\"rows\":0"));
    }

    #[test]
    fn words_are_safe_in_a_shell() {
        assert_eq!(quoted("results/a-1"), "results/a-1");
        assert_eq!(quoted("my runs; rm 'x'"), r"'my runs; rm '\''x'\'''");
        assert_eq!(quoted(""), "''");
    }

    #[test]
    fn the_page_asks_nothing_of_a_network() {
        for part in SCRIPTS.iter().chain(&[FRAME, STYLE, START]) {
            for ask in [
                "fetch(",
                "XMLHttpRequest",
                "import ",
                "@import",
                "url(",
                " src=",
            ] {
                assert!(!part.contains(ask), "{ask}");
            }
            let links = part.matches("http").count();
            let allowed = part.matches("http://www.w3.org/2000/svg").count()
                + part.matches("http-equiv").count();
            assert_eq!(links, allowed);
        }
        for part in SCRIPTS.iter().chain(&[START]) {
            for markup in [
                "innerHTML",
                "outerHTML",
                "insertAdjacentHTML",
                "document.write",
                "eval(",
            ] {
                assert!(!part.contains(markup), "{markup}");
            }
            // The parser must not see the end of the script before it ends.
            assert!(!part.contains("</script") && !part.contains("<!--"));
        }
    }
}
