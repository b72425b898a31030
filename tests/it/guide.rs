//! The guide: its commands run, its links have targets, and its tables agree with the code.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use sweeper::cli::exit::Exit;
use sweeper::row::outcome::Flag;
use sweeper::status::Status;
use sweeper::word::Word;

use super::place::{Place, code, text};
use crate::support::has_package;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(name: &str) -> String {
    fs::read_to_string(root().join(name)).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// Links of a document as `(words, target)`, without links in blocks of code.
fn links(document: &str) -> Vec<(String, String)> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in document.lines() {
        if line.starts_with("```") {
            is_code = !is_code;
        }
        if is_code {
            continue;
        }
        for (place, _) in line.match_indices("](") {
            let words = line[..place]
                .rsplit_once('[')
                .map_or("", |(_, words)| words);
            let target = &line[place + 2..];
            if let Some((target, _)) = target.split_once(')') {
                found.push((words.to_owned(), target.to_owned()));
            }
        }
    }
    found
}

/// The chapters of the book, in their order.
fn chapters() -> Vec<String> {
    links(&read("docs/SUMMARY.md"))
        .into_iter()
        .map(|(_, target)| target)
        .collect()
}

/// The anchors of a document's headings, as both mdBook and hosts of repositories make them.
fn anchors(document: &str) -> BTreeSet<String> {
    let headings = document.lines().filter(|line| line.starts_with('#'));
    headings
        .map(|line| {
            let words = line.trim_start_matches('#').trim().to_lowercase();
            words
                .chars()
                .filter(|letter| letter.is_alphanumeric() || " -_".contains(*letter))
                .map(|letter| if letter == ' ' { '-' } else { letter })
                .collect()
        })
        .collect()
}

/// All documents of the repository that people read.
fn documents() -> Vec<PathBuf> {
    let mut open: Vec<PathBuf> = ["docs", "records", "manifests"]
        .map(|name| root().join(name))
        .to_vec();
    let mut found: Vec<PathBuf> = [
        "README.md",
        "ARCHITECTURE.md",
        "METHODOLOGY.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ]
    .map(|name| root().join(name))
    .to_vec();
    while let Some(path) = open.pop() {
        if path.is_dir() {
            open.extend(
                fs::read_dir(&path)
                    .unwrap()
                    .map(|entry| entry.unwrap().path()),
            );
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

#[test]
fn links_lead_somewhere() {
    let mut count = 0;
    for path in documents() {
        let document = fs::read_to_string(&path).unwrap();
        for (_, target) in links(&document) {
            if target.contains("://") {
                continue;
            }
            count += 1;
            let (file, anchor) = target.split_once('#').unwrap_or((&target, ""));
            let led = match file {
                "" => path.clone(),
                file => path.parent().unwrap().join(file),
            };
            assert!(led.exists(), "{}: no {target}", path.display());
            if !anchor.is_empty() {
                let there = anchors(&fs::read_to_string(&led).unwrap());
                assert!(there.contains(anchor), "{}: no {target}", path.display());
            }
        }
    }
    assert!(count > 60, "{count} links");
}

#[test]
fn the_book_has_every_page_once() {
    let chapters = chapters();
    let unique: BTreeSet<&String> = chapters.iter().collect();
    assert_eq!(unique.len(), chapters.len());
    let mut pages: Vec<PathBuf> = documents();
    pages.retain(|path| path.starts_with(root().join("docs")) && !path.ends_with("SUMMARY.md"));
    for page in &pages {
        let name = page.strip_prefix(root().join("docs")).unwrap();
        let name = name.to_str().unwrap().to_owned();
        assert!(unique.contains(&name), "docs/SUMMARY.md lacks {name}");
    }
    assert_eq!(pages.len(), chapters.len());
    for name in &chapters {
        let page = read(&format!("docs/{name}"));
        for line in page.lines().filter(|line| line.contains("{{#include")) {
            let file = line
                .trim_start_matches("{{#include ")
                .trim_end_matches("}}");
            assert!(root().join("docs").join(file).exists(), "{name}: {file}");
        }
    }
}

/// Files of the sources, wherever in the tree.
fn sources() -> Vec<String> {
    let mut open: Vec<PathBuf> = [
        "src",
        "kernels",
        "cache",
        "tests",
        "benches",
        "manifests",
        "docs",
    ]
    .map(|name| root().join(name))
    .to_vec();
    let mut found = Vec::new();
    while let Some(path) = open.pop() {
        found.push(path.to_str().unwrap().to_owned());
        if path.is_dir() {
            let entries = fs::read_dir(&path).unwrap();
            open.extend(entries.map(|entry| entry.unwrap().path()));
        }
    }
    found
}

/// Documents of the design name files by their last folders; there are such files.
#[test]
fn files_that_documents_name_are_there() {
    const KINDS: [&str; 5] = [".rs", ".h", ".cuh", ".ptx", ".toml"];
    let sources = sources();
    let mut count = 0;
    for name in [
        "ARCHITECTURE.md",
        "METHODOLOGY.md",
        "CONTRIBUTING.md",
        "docs/design/compiler.md",
        "docs/design/own-code.md",
        "docs/design/processes.md",
        "docs/design/results.md",
        "docs/design/decisions.md",
        "docs/page.md",
    ] {
        let document = read(name);
        for word in document.split('`').skip(1).step_by(2) {
            let is_path =
                word.contains('/') && !word.contains(|letter: char| " =${}<>\n".contains(letter));
            if is_path && KINDS.iter().any(|kind| word.ends_with(kind)) && !word.contains("NAME") {
                count += 1;
                let end = format!("/{word}");
                assert!(
                    sources.iter().any(|path| path.ends_with(&end)),
                    "{name}: no {word}"
                );
            }
        }
    }
    assert!(count > 30, "{count} files");
}

/// The words in backquotes of the first column of the table below a heading.
fn first_column(document: &str, heading: &str) -> Vec<String> {
    let (_, below) = document.split_once(&format!("## {heading}\n")).unwrap();
    let below = below.split("\n## ").next().unwrap();
    let lines = below.lines().filter(|line| line.starts_with("| ")).skip(1);
    lines
        .map(|line| {
            line.split('|')
                .nth(1)
                .unwrap()
                .trim()
                .trim_matches('`')
                .to_owned()
        })
        .collect()
}

#[test]
fn codes_statuses_and_flags_are_those_of_the_code() {
    let codes = read("docs/codes.md");
    assert_eq!(
        first_column(&codes, "Exit codes"),
        Exit::ALL.map(|exit| exit.code().to_string())
    );
    assert_eq!(
        first_column(&codes, "Statuses"),
        Status::ALL.map(|status| status.name().to_owned())
    );
    assert_eq!(Status::ALL.len(), Status::WORDS.len());
    let help = text(&Place::new("").sweeper(&["--help"]));
    let (_, said) = help.split_once("Exit codes:").unwrap();
    let numbers = said.split(|letter: char| !letter.is_ascii_digit());
    let said: Vec<&str> = numbers.filter(|word| !word.is_empty()).collect();
    assert_eq!(said, Exit::ALL.map(|exit| exit.code().to_string()));
    assert_eq!(
        first_column(&codes, "Flags"),
        Flag::ALL.map(|flag| flag.name().to_owned())
    );
}

/// The first words of the lines that `--help` has between its usage and its options.
fn verbs(help: &str) -> Vec<String> {
    let (_, below) = help.split_once("Usage:").unwrap();
    let (below, _) = below.split_once("\nOptions:").unwrap();
    let words = below
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    words
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .filter(|word| word != "help")
        .collect()
}

#[test]
fn verbs_are_those_of_the_program() {
    let place = Place::new("");
    let codes = read("docs/codes.md");
    let (_, table) = codes.split_once("## Verbs\n").unwrap();
    let table = table.split("\n## ").next().unwrap();
    let first: String = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| line.split('|').nth(1).unwrap())
        .collect();
    let words: BTreeSet<&str> = first
        .split(|letter: char| !letter.is_ascii_lowercase())
        .filter(|word| word.len() > 1)
        .collect();
    let mut known: BTreeSet<String> = verbs(&text(&place.sweeper(&["--help"])))
        .into_iter()
        .collect();
    assert!(known.len() > 15, "{known:?}");
    let of_cache = verbs(&text(&place.sweeper(&["cache", "--help"])));
    known.extend(of_cache);
    let known: BTreeSet<&str> = known.iter().map(String::as_str).collect();
    assert_eq!(words, known);
}

/// The reference of manifests has every key of the schema, and every manifest beside it.
#[test]
fn the_reference_of_manifests_is_whole() {
    let reference = read("manifests/README.md");
    let words: BTreeSet<&str> = reference
        .split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')
        .collect();
    let output = Place::new("").sweeper(&["schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut count = 0;
    for (section, held) in schema["properties"].as_object().unwrap() {
        let keys = held["properties"].as_object();
        for key in keys
            .into_iter()
            .flat_map(|keys| keys.keys())
            .chain([section])
        {
            count += 1;
            assert!(words.contains(key.as_str()), "no word of `{section}.{key}`");
        }
    }
    assert!(count > 60, "{count} keys");
    for entry in fs::read_dir(root().join("manifests")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let is_listed = name == "README.md" || reference.contains(&format!("`{name}`"));
        assert!(is_listed, "manifests/README.md does not list {name}");
    }
}

/// A command of the guide with its shown output, and a file that the guide says to write.
enum Step {
    Command { line: String, shown: Vec<String> },
    File { name: String, text: String },
}

/// The blocks ```` ```console ````, and those of TOML, C and Python that begin with the name of a
/// file.
fn steps(document: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for block in document.split("\n```").skip(1) {
        let (kind, body) = block.split_once('\n').unwrap_or((block, ""));
        let comment = match kind {
            "toml" => "# ",
            "c" => "// ",
            "python" => "# ",
            _ => "",
        };
        let first = body.lines().next().filter(|_| !comment.is_empty());
        if let Some(name) = first.and_then(|line| line.strip_prefix(comment)) {
            let (name, text) = (name.to_owned(), body.to_owned() + "\n");
            steps.push(Step::File { name, text });
        }
        if kind != "console" {
            continue;
        }
        for line in body.lines() {
            match (line.strip_prefix("$ "), steps.last_mut()) {
                (Some(line), _) => steps.push(Step::Command {
                    line: line.to_owned(),
                    shown: Vec::new(),
                }),
                (None, Some(Step::Command { shown, .. })) => shown.push(line.to_owned()),
                (None, _) => panic!("output of no command: {line}"),
            }
        }
    }
    steps
}

/// True if a line contains the shown line's words without digits, in their order; `...` matches
/// anything.
fn says(line: &str, shown: &str) -> bool {
    if shown.starts_with("exit code") {
        return line == shown;
    }
    let [line_words, shown_words] =
        [line, shown].map(|text| text.split_whitespace().collect::<Vec<_>>());
    // A row of a table is of one size and checked so; which backend is the fastest there depends on
    // the machine.
    if shown.starts_with(" ")
        && let [size, _, .., how] = shown_words[..]
        && size.parse::<u64>().is_ok()
        && how.chars().all(char::is_alphabetic)
    {
        return line_words.first() == Some(&size) && line_words.last() == Some(&how);
    }
    let has_digit = |word: &&str| word.contains(|letter: char| letter.is_ascii_digit());
    let mut rest = line.split_whitespace();
    shown
        .split_whitespace()
        .filter(|word| *word != "..." && !has_digit(word))
        .all(|word| rest.any(|held| held == word))
}

fn run(place: &Place, line: &str) -> Output {
    let program = crate::support::program();
    let folder = program.parent().unwrap().to_str().unwrap().to_owned();
    let path = format!("{folder}:{}", std::env::var("PATH").unwrap());
    let template = place.command(&[]);
    let mut command = Command::new("sh");
    command.args(["-c", line]).stdin(Stdio::null());
    command.current_dir(template.get_current_dir().unwrap());
    for (name, value) in template.get_envs() {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command.env("PATH", path);
    command.output().unwrap()
}

/// Every command of the guide, in its order, in one folder.
#[test]
fn the_guides_commands_do_what_it_says() {
    let place = Place::new("");
    fs::create_dir(place.path("manifests")).unwrap();
    for path in crate::support::toml_files(root().join("manifests").to_str().unwrap()) {
        let name = path.file_name().unwrap().to_str().unwrap();
        fs::copy(&path, place.path(&format!("manifests/{name}"))).unwrap();
    }
    let mut count = 0;
    let chapters = chapters()
        .into_iter()
        .map(|chapter| format!("docs/{chapter}"));
    for chapter in std::iter::once("README.md".to_owned()).chain(chapters) {
        if chapter == "docs/python.md" && !has_package("numpy", "numpy") {
            continue;
        }
        for step in steps(&read(&chapter)) {
            match step {
                Step::File { name, text } => fs::write(place.path(&name), text).unwrap(),
                Step::Command { line, shown } => {
                    count += 1;
                    let output = run(&place, &line);
                    let said = text(&output);
                    assert_eq!(code(&output), 0, "{chapter}: {line}\n{said}");
                    for shown in shown {
                        let is_said = said.lines().any(|line| says(line, &shown));
                        assert!(is_said, "{chapter}: {line}\nshows: {shown}\nsays: {said}");
                    }
                }
            }
        }
    }
    assert!(count > 25, "{count} commands");
}
