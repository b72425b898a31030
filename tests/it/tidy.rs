//! The house rules, so that nobody has to remember them.

use std::fs;
use std::path::{Path, PathBuf};

/// A file longer than this is two things.
const MOST_LINES: usize = 650;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// All files with an extension below some folders, with their texts.
fn files(folders: &[&str], extension: &str) -> Vec<(PathBuf, String)> {
    let mut open: Vec<PathBuf> = folders.iter().map(|folder| root().join(folder)).collect();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if path.extension().is_some_and(|held| held == extension) {
            let text = fs::read_to_string(&path).unwrap();
            found.push((path.strip_prefix(root()).unwrap().to_owned(), text));
        }
    }
    found.sort();
    assert!(!found.is_empty(), "no .{extension} files in {folders:?}");
    found
}

fn rust() -> Vec<(PathBuf, String)> {
    files(&["src", "cache/src", "kernels/src", "tests"], "rs")
}

/// Lines of files that break a rule.
fn breaches(files: &[(PathBuf, String)], is_breach: impl Fn(&Path, &str) -> bool) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files {
        for (number, line) in text.lines().enumerate() {
            if is_breach(path, line) {
                found.push(format!(
                    "{}:{}: {}",
                    path.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    found
}

#[test]
fn every_file_says_what_it_is_for() {
    let silent: Vec<_> = rust()
        .into_iter()
        .filter(|(_, text)| !text.starts_with("//!"))
        .map(|(path, _)| path)
        .collect();
    assert!(silent.is_empty(), "{silent:?}");
}

#[test]
fn files_are_about_one_thing() {
    let long: Vec<_> = rust()
        .into_iter()
        .filter(|(_, text)| text.lines().count() > MOST_LINES)
        .map(|(path, text)| (path, text.lines().count()))
        .collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn unsafe_lives_in_devices_alone() {
    let marker = ["expect(unsafe", "_code"].concat();
    let found = breaches(&rust(), |path, line| {
        line.contains(&marker) && !path.starts_with("src/device")
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn lints_are_expected_with_reasons_not_allowed() {
    let allow = ["#[al", "low("].concat();
    let expect = ["#[ex", "pect("].concat();
    let found = breaches(&rust(), |_, line| {
        line.contains(&allow)
            || line.contains(&expect) && line.trim_end().ends_with(")]") && !line.contains("reason")
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn nothing_is_left_unfinished() {
    let marks = [
        ["TO", "DO"],
        ["FIX", "ME"],
        ["todo", "!("],
        ["unimple", "mented!("],
    ]
    .map(|mark| mark.concat());
    let mut all = rust();
    all.extend(files(&["kernels/src"], "c"));
    let found = breaches(&all, |_, line| {
        marks.iter().any(|mark| line.contains(mark.as_str()))
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn layers_do_not_know_what_they_must_not() {
    let cache = files(&["cache/src"], "rs");
    let found = breaches(&cache, |_, line| line.contains("sweeper_kernels"));
    assert!(found.is_empty(), "the cache knows no kernels: {found:#?}");
    let kernels = files(&["kernels/src"], "rs");
    let effects = [
        "std::fs",
        "std::env",
        "std::time",
        "std::process",
        "std::net",
        "sweeper_cache",
    ];
    let found = breaches(&kernels, |_, line| {
        effects.iter().any(|effect| line.contains(effect)) && !line.trim_start().starts_with("//")
    });
    assert!(found.is_empty(), "kernels have no effects: {found:#?}");
    let pure = files(&["src/grid", "src/plan"], "rs");
    let found = breaches(&pure, |_, line| {
        ["std::fs", "std::env", "std::time"]
            .iter()
            .any(|effect| line.contains(effect))
    });
    assert!(
        found.is_empty(),
        "grid and plan have no effects: {found:#?}"
    );
}

/// Rows are data: what writes or reads them knows nothing of how they were measured.
#[test]
fn rows_and_reports_do_not_know_how_rows_are_measured() {
    let readers = [
        "src/hardware",
        "src/row",
        "src/economics.rs",
        "src/record",
        "src/report",
        "src/compare",
    ];
    let measuring = ["execute", "device", "compile", "run"].map(|name| format!("crate::{name}::"));
    let is_code = |line: &str| !line.trim_start().starts_with("//");
    let found = breaches(&files(&readers, "rs"), |_, line| {
        is_code(line)
            && measuring
                .iter()
                .any(|module| line.contains(module.as_str()))
    });
    assert!(found.is_empty(), "{found:#?}");
    let low = files(&["src/hardware", "src/row", "src/economics.rs"], "rs");
    let found = breaches(&low, |_, line| {
        is_code(line)
            && ["crate::record", "crate::report"]
                .iter()
                .any(|above| line.contains(above))
    });
    assert!(found.is_empty(), "rows are below files: {found:#?}");
}

#[test]
fn every_manifest_says_what_it_answers() {
    for (path, text) in files(&["manifests"], "toml") {
        assert!(text.contains("about"), "{} has no `about`", path.display());
    }
}
