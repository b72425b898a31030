//! The house rules, as tests.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use petgraph::algo::tarjan_scc;
use petgraph::graph::DiGraph;

/// A file longer than this is two things.
const MAX_LINES: usize = 650;

/// The most files of a manifest that use each other in a circle.
const MAX_KNOT: usize = 5;

/// Columns of comments.
const MAX_COMMENT_WIDTH: usize = 100;

/// The program, and how many of its lines may hold code: neither empty nor comments, tests beside
/// the code included. A commit that raises the bound does nothing else, and says why.
const PROGRAM: [&str; 3] = ["src", "kernels", "cache/src"];
const MAX_CODE_LINES: usize = 142_000;

/// Private words for things that the field has names for, and these names.
const OLD_WORDS: [(&str, &str); 14] = [
    ("abreast", "several rows per warp"),
    ("Groundwork", "block inputs"),
    ("groundwork", "block inputs"),
    ("has_few_rows", "partial per row group"),
    ("bool is_wide", "is_vectorized"),
    ("load_chunks", "load_vectors"),
    ("may_total", "single-pass reduction"),
    ("Posed", "problem instance"),
    ("quads", "float4 vectors"),
    ("takes_pieces", "column tiles"),
    ("takes_turns", "grid-stride"),
    ("known late", "deferred epilogue"),
    ("adds up parts", "combines partials"),
    ("leaves parts", "stores partials"),
];

/// Words that follow "is no" in English: comparisons. Of a noun, "is not a list" is said.
const COMPARISONS: [&str; 8] = [
    "faster", "further", "less", "longer", "more", "other", "slower", "wider",
];

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
    files(&["src", "cache/src", "kernels", "tests"], "rs")
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
        .filter(|(_, text)| text.lines().count() > MAX_LINES)
        .map(|(path, text)| (path, text.lines().count()))
        .collect();
    assert!(long.is_empty(), "{long:?}");
}

#[test]
fn comments_fit_a_window() {
    let mut all = rust();
    for extension in ["c", "h", "cu", "cuh"] {
        all.extend(files(&["kernels"], extension));
    }
    let found = breaches(&all, |_, line| {
        let is_comment = line.trim_start().starts_with("//");
        // A link can't be cut.
        is_comment && line.chars().count() > MAX_COMMENT_WIDTH && !line.contains("https://")
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn the_field_s_words_are_used() {
    let mut all = rust();
    all.retain(|(path, _)| !path.ends_with("tidy.rs"));
    for extension in ["c", "h", "cu", "cuh"] {
        all.extend(files(&["kernels"], extension));
    }
    for (word, better) in OLD_WORDS {
        let found = breaches(&all, |_, line| line.contains(word));
        assert!(found.is_empty(), "{word}: say {better}: {found:#?}");
    }
}

#[test]
fn a_thing_is_not_another_one() {
    let mut all = rust();
    all.extend(files(&["docs"], "md"));
    all.extend(files(&["src/engine"], "py"));
    let is_breach = |words: &[&str]| {
        let [before, is, no, noun] = words else {
            return false;
        };
        let noun = noun.trim_end_matches(|c: char| !c.is_alphanumeric());
        let exists = ["here", "which"].iter().any(|end| before.ends_with(end));
        ["is", "are"].contains(is) && *no == "no" && !exists && !COMPARISONS.contains(&noun)
    };
    let found = breaches(&all, |path, line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        !path.ends_with("tidy.rs") && words.windows(4).any(is_breach)
    });
    assert!(found.is_empty(), "say \"is not a ...\": {found:#?}");
}

#[test]
fn the_program_keeps_to_its_bound() {
    let holds_code = |line: &&str| !line.trim().is_empty() && !line.trim().starts_with("//");
    let count = |text: &str| text.lines().filter(holds_code).count();
    let files = files(&PROGRAM, "rs").into_iter();
    let mut files: Vec<(usize, PathBuf)> = files.map(|(path, text)| (count(&text), path)).collect();
    files.sort_by(|one, other| other.cmp(one));
    let lines: usize = files.iter().map(|(lines, _)| lines).sum();
    let largest = &files[..10];
    assert!(
        lines <= MAX_CODE_LINES,
        "{lines} lines hold code, over {MAX_CODE_LINES}; the largest files: {largest:#?}"
    );
    assert!(
        lines + MAX_CODE_LINES / 50 >= MAX_CODE_LINES,
        "{lines} lines hold code: lower the bound of {MAX_CODE_LINES}"
    );
}

/// The path of a module below its crate.
type Module = Vec<String>;

/// The modules of a crate, each with those that its code names, but for tests.
fn uses(folder: &str) -> BTreeMap<Module, BTreeSet<Module>> {
    let mut texts: BTreeMap<Module, String> = BTreeMap::new();
    for (path, text) in files(&[folder], "rs") {
        let inside = path.strip_prefix(folder).unwrap().with_extension("");
        let parts = inside.iter().map(|part| part.to_str().unwrap().to_owned());
        let mut module: Module = parts.collect();
        if module.iter().all(|part| part != "tests") {
            module.retain(|part| !["mod", "lib", "main"].contains(&part.as_str()));
            let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap();
            texts.insert(module, build_script::tokens(code).unwrap());
        }
    }
    let uses = texts.iter().map(|(module, code)| {
        let step = |at: &Module, word: &str| {
            let mut at = at.clone();
            match word {
                "crate" => at.clear(),
                "super" => drop(at.pop()),
                "self" => {}
                name => at.push(name.to_owned()),
            }
            texts.contains_key(&at).then_some(at)
        };
        (module.clone(), named(module, code, step))
    });
    uses.collect()
}

/// The modules that are named by paths in the tokens of one; `step` is where a word leads from a
/// module, if to another.
fn named(
    module: &Module,
    code: &str,
    step: impl Fn(&Module, &str) -> Option<Module>,
) -> BTreeSet<Module> {
    let mut found = BTreeSet::new();
    // Where the path that is read has led, and whether it is more than a word.
    let mut path: Option<(Module, bool)> = None;
    // Where paths led that go on in brackets.
    let mut open: Vec<Option<Module>> = Vec::new();
    let mut before = ["", ""];
    for word in code.split_whitespace() {
        let goes_on = before == [":", ":"];
        if !goes_on && word != ":" {
            found.extend(path.take().filter(|(_, is_path)| *is_path).map(|it| it.0));
        }
        match word {
            word if !word.starts_with(|c: char| c == '_' || c.is_alphabetic()) => {}
            "Brace" | "Parenthesis" | "Bracket" => open.push(path.take().map(|it| it.0)),
            "end" => drop(open.pop()),
            word => {
                let outer = open.last().cloned().flatten();
                let is_path = goes_on || outer.is_some();
                let from = match path.take() {
                    Some((at, _)) => Some(at),
                    None if goes_on => None,
                    None => Some(outer.unwrap_or_else(|| module.clone())),
                };
                path = from
                    .as_ref()
                    .and_then(|at| Some((step(at, word)?, is_path)));
                found.extend(from.filter(|_| is_path && path.is_none()));
            }
        }
        before = [before[1], word];
    }
    found.remove(module);
    found
}

/// Modules that use each other, by what `name` makes of their paths.
fn knots(folder: &str, name: impl Fn(&Module) -> Option<String>) -> Vec<Vec<String>> {
    let mut graph: DiGraph<String, ()> = DiGraph::new();
    let mut nodes = BTreeMap::new();
    for (module, used) in uses(folder) {
        for other in used {
            let (Some(one), Some(other)) = (name(&module), name(&other)) else {
                continue;
            };
            let [one, other] = [one, other].map(|name| {
                *nodes
                    .entry(name.clone())
                    .or_insert_with(|| graph.add_node(name))
            });
            graph.add_edge(one, other, ());
        }
    }
    let components = tarjan_scc(&graph).into_iter().filter(|it| it.len() > 1);
    let sorted = components.map(|component| {
        let mut names: Vec<String> = component
            .into_iter()
            .map(|node| graph[node].clone())
            .collect();
        names.sort();
        names
    });
    sorted.collect()
}

/// What is below, cargo sees: crates can't use each other in circles.
#[test]
fn modules_do_not_go_in_circles() {
    for folder in [
        "src",
        "src/model",
        "src/manifest",
        "src/engine",
        "src/results",
        "cache/src",
        "kernels/program/src",
        "kernels/compiler/src",
        "kernels/workloads/src",
    ] {
        let knots = knots(folder, |module| module.first().cloned());
        assert!(
            knots.is_empty(),
            "{folder}: these use each other: {knots:?}"
        );
    }
}

/// Inside its folders, files of a manifest may use each other in small groups.
#[test]
fn files_of_manifests_are_in_no_large_circle() {
    let knots = knots("src/manifest", |module| Some(module.join("/")));
    let large: Vec<_> = knots.iter().filter(|knot| knot.len() > MAX_KNOT).collect();
    assert!(large.is_empty(), "{large:?}");
}

/// A module with modules inside is a folder with a `mod.rs`.
#[test]
fn modules_are_files_or_folders() {
    let both: Vec<_> = rust()
        .into_iter()
        .map(|(path, _)| path)
        .filter(|path| root().join(path.with_extension("")).is_dir())
        .collect();
    assert!(both.is_empty(), "{both:?}");
}

#[test]
fn unsafe_lives_in_devices_alone() {
    let marker = ["expect(unsafe", "_code"].concat();
    let found = breaches(&rust(), |path, line| {
        line.contains(&marker) && !path.starts_with("src/engine/device")
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
    all.extend(files(&["kernels"], "c"));
    let found = breaches(&all, |_, line| {
        marks.iter().any(|mark| line.contains(mark.as_str()))
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn layers_do_not_know_what_they_must_not() {
    let cache = files(&["cache/src"], "rs");
    let found = breaches(&cache, |_, line| line.contains("sweeper_program"));
    assert!(found.is_empty(), "the cache knows no kernels: {found:#?}");
    let kernels = files(&["kernels"], "rs");
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
    let pure = files(&["src/manifest/grid", "src/manifest/plan"], "rs");
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

/// The engine's knowledge of parameters is data of workloads; the guides' files have columns of
/// their own.
#[test]
fn the_engine_knows_no_parameter_by_name() {
    let mut engine = files(&["src"], "rs");
    engine
        .retain(|(path, _)| !path.starts_with("src/results/guides") && !path.ends_with("tests.rs"));
    for (_, text) in &mut engine {
        let code = text.split("#[cfg(test)]").next().unwrap();
        let code = code.split("#[cfg(any(test,").next().unwrap();
        *text = code.to_owned();
    }
    let found = breaches(&engine, |_, line| {
        ["\"KC\"", "\"semiring\"", "\"KC_", "\"semiring_"]
            .iter()
            .any(|name| line.contains(name))
    });
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn every_manifest_says_what_it_answers() {
    for (path, text) in files(&["manifests"], "toml") {
        assert!(text.contains("about"), "{} has no `about`", path.display());
    }
}

/// The engine's part of a run's identity.
#[path = "../../build.rs"]
#[expect(
    dead_code,
    clippy::print_stdout,
    reason = "a build script speaks to cargo; its digests are tested here"
)]
mod build_script;

#[test]
fn comments_are_no_part_of_a_runs_identity() {
    let tokens = |text: &str| build_script::tokens(text).unwrap();
    let plain = "fn f(x: &'static str) -> u32 { g(\"// no comment\") + 1 }";
    let commented = "//! A module.\n\n/// Adds one.\n#[doc = \"More.\"]\nfn f(x: &'static str) -> u32 {\n    \
         // Why.\n    g(\"// no comment\") /* not here */ + 1\n}";
    assert_eq!(tokens(plain), tokens(commented));
    for other in [
        "fn f(x: &'static str) -> u32 { g(\"//  no comment\") + 1 }",
        "fn f(x: &'static str) -> u32 { g(\"// no comment\") + 2 }",
        "fn f(x: &'static str) -> u32 { (g(\"// no comment\")) + 1 }",
        "#[inline] fn f(x: &'static str) -> u32 { g(\"// no comment\") + 1 }",
    ] {
        assert_ne!(tokens(plain), tokens(other));
    }
    assert_eq!(build_script::tokens("fn f( {"), None);
}
