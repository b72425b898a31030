//! Files from outside with changes by chance: none ends the program or keeps it for long, whatever
//! it says.
//!
//! `SWEEPER_MUTATED=100000 cargo test --test it mutated` tries as many of each format.

use std::env;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use sweeper::compare::pairing::Pairs;
use sweeper::compare::spread::Spread;
use sweeper::compare::verdict::{Correction, Rule};
use sweeper::compare::{Settings, compare};
use sweeper::import::flashinfer::{TraceFile, import};
use sweeper::import::kernelbench::{self, BenchFile, FileKind};
use sweeper::import::{python, t1, t4};
use sweeper::manifest::diagnostics::Code;
use sweeper::manifest::python_files::{PythonFiles, assigns};
use sweeper::manifest::{Manifest, Overrides, Sources, registry};
use sweeper::record::contents::Contents;
use sweeper::report::source::open;
use sweeper::tensor_file;
use sweeper::user::declaration::DeclaredLanguage;
use sweeper::user::signature::signatures;

use super::place::{Place, SCRIPT, null_manifest};

/// So many files of each format, unless a variable says otherwise.
const COUNT: u64 = 300;

/// Nobody waits longer for a file to be read.
const LIMIT: Duration = Duration::from_secs(10);

/// What formats say in places where others expect something else.
const WORDS: [&str; 30] = [
    "0",
    "-1",
    "1e309",
    "-0.0",
    "NaN",
    "inf",
    "99999999999999999999",
    "0x7f",
    "1_000",
    "null",
    "true",
    "\"",
    "'",
    "\\",
    "\"\"\"",
    "[[[[[[[[[[[[[[[[",
    "{{{{{{{{{{{{{{{{",
    "((((((((((((((((",
    "]",
    "}",
    ",",
    "=",
    "\n",
    "\r\n",
    "\0",
    "\u{202e}",
    "\u{feff}",
    "$",
    "{ }",
    "#",
];

/// Numbers that look like chance, and follow from a seed (splitmix64).
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        word ^ (word >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A file of these with some changes.
    fn mutated(&mut self, files: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = self.of(files).clone();
        for _ in 0..=self.below(6) {
            let at = self.below(bytes.len() + 1);
            let end = (at + 1 + self.below(40)).min(bytes.len());
            let range = at..end.max(at);
            match self.below(9) {
                0 => _ = bytes.splice(range.start..range.start, self.of(&WORDS).bytes()),
                1 => _ = bytes.splice(range, self.of(&WORDS).bytes()),
                2 => _ = bytes.drain(range),
                3 => bytes.truncate(at),
                4 => {
                    let again = bytes[range].repeat(1 + self.below(60));
                    bytes.splice(at..at, again);
                }
                5 => {
                    let other = self.of(files);
                    let from = self.below(other.len() + 1);
                    let to = (from + self.below(200)).min(other.len());
                    bytes.splice(range, other[from..to].iter().copied());
                }
                6 => {
                    let word = self.of(&WORDS).repeat(1 + self.below(3000));
                    bytes.splice(at..at, word.bytes());
                }
                _ => {
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << self.below(8);
                    }
                }
            }
        }
        bytes
    }
}

/// Reads changed files of a format; whoever fails has the file to look at.
fn try_all(name: &str, files: &[Vec<u8>], read: impl Fn(&[u8])) {
    assert!(!files.is_empty(), "{name}");
    let asked = env::var("SWEEPER_MUTATED").ok();
    let count = asked.map_or(COUNT, |asked| asked.parse().unwrap());
    for seed in 0..count {
        let bytes = Chance(seed).mutated(files);
        let start = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(|| read(&bytes)));
        let elapsed = start.elapsed();
        if ended.is_err() || elapsed > LIMIT {
            let path = env::temp_dir().join(format!("sweeper-mutated-{name}-{seed}"));
            fs::write(&path, &bytes).unwrap();
            let what = if ended.is_err() { "panics" } else { "takes" };
            panic!("{name} {what}, {elapsed:?}: {}", path.display());
        }
    }
}

/// All files with an ending below a folder of this tree.
fn files(folder: &str, ending: &str) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    let mut open = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = open.pop() {
        let mut entries: Vec<PathBuf> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                open.push(path);
            } else if path.extension().is_some_and(|found| found == ending) {
                found.push(fs::read(path).unwrap());
            }
        }
    }
    found
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn manifests() {
    let known = registry();
    let resolve = |text: &str| {
        let sources = Sources::from_text("m.toml", text);
        Manifest::resolve(&sources, &Overrides::new(), &known)
    };
    let all = [files("manifests", "toml"), files("tests/manifests", "toml")].concat();
    try_all("manifest", &all, |bytes| {
        match resolve(&text(bytes)) {
            Ok(manifest) => {
                // What is written of it means the same.
                let again = resolve(&manifest.resolved_toml());
                assert!(again.is_ok_and(|again| again.hash() == manifest.hash()));
            }
            Err(errors) => {
                // What is missing altogether has no place.
                let is_missing = |code| [Code::Empty, Code::MissingKey].contains(&code);
                let mut errors = errors.iter();
                let lost = errors.find(|error| error.place.is_none() && !is_missing(error.code));
                assert_eq!(lost, None);
            }
        }
    });
}

/// Files of a run: the journal, the table, and what describes it.
#[test]
fn results() {
    let place = Place::new(&null_manifest(SCRIPT));
    place.sweeper(&["run", "m.toml"]);
    let folder = place.run_folder();
    for name in [
        "journal.jsonl",
        "records.csv",
        "samples.csv",
        "plan.json",
        "environment.json",
        "usage.json",
    ] {
        let path = folder.join(name);
        let whole = fs::read(&path).unwrap();
        let settings = Settings {
            rule: Rule {
                margin: 0.01,
                correction: Correction::Holm,
            },
            pairs: Pairs::Auto,
            spread: Spread::given(0.05),
            by: vec!["backend".to_owned()],
        };
        try_all(name, std::slice::from_ref(&whole), |bytes| {
            fs::write(&path, bytes).unwrap();
            let _ = Contents::read_all(&[folder.join("journal.jsonl")]);
            for source in [&folder, &folder.join("records.csv")] {
                let name = source.to_str().unwrap();
                if let (Ok(one), Ok(other)) = (open(name, &folder), open(name, &folder)) {
                    let _ = compare([&[one], &[other]], &settings);
                }
            }
        });
        fs::write(&path, whole).unwrap();
    }
}

#[test]
fn spaces_of_tuners() {
    let t1_files = files("tests/cases", "json");
    try_all("t1", &t1_files, |bytes| {
        if let Ok(manifest) = t1::manifest(&text(bytes), ".") {
            assert!(manifest.parse::<toml::Table>().is_ok(), "{manifest}");
        }
    });
    let t4_files = [br#"{"schema_version": "1.0.0", "metadata": {"timeunit": "milliseconds"}, "results": [
        {"configuration": {"block_size_x": 32, "word": "a"}, "times": {"runtimes": [1.5, 2.5]},
         "invalidity": "correct", "correctness": 1,
         "measurements": [{"name": "time", "value": 2.0, "unit": "ms"}], "objectives": ["time"]},
        {"configuration": {"block_size_x": 64}, "invalidity": "compile", "correctness": 0, "measurements": []}]}"#
        .to_vec()];
    try_all("t4", &t4_files, |bytes| _ = t4::rows(&text(bytes), "x"));
}

#[test]
fn problems_of_others() {
    let traces = [
        files("tests/manifests/flashinfer", "json"),
        files("tests/manifests/flashinfer", "jsonl"),
    ]
    .concat();
    let whole: Vec<TraceFile> = traces.iter().map(|bytes| trace(bytes)).collect();
    try_all("trace", &traces, |bytes| {
        let mut all = whole.clone();
        all.push(trace(bytes));
        if let Ok(found) = import(None, &all, ".", &|_, _| Err("not here".to_owned())) {
            let manifest = found.manifest;
            assert!(manifest.parse::<toml::Table>().is_ok(), "{manifest}");
        }
    });
    problems_of_kernelbench();
    let expressions =
        [b"[2 * n, (3 ** 4) // 7, min(1, x), 'a' + 'b'] if n > 2 else range(8)".to_vec()];
    try_all("python", &expressions, |bytes| {
        _ = python::evaluate(&text(bytes), &python::Names::new());
    });
}

/// Sources, and what an interpreter says of them.
fn problems_of_kernelbench() {
    let place = Place::new("");
    let path = place.path("x.py");
    let sources = [files("tests/manifests", "py"), files("tests/cases", "py")].concat();
    try_all("kernelbench", &sources, |bytes| {
        fs::write(&path, bytes).unwrap();
        let _ = PythonFiles::read(&path, &[]);
        let _ = (FileKind::of(&text(bytes)), assigns(&text(bytes), "n"));
    });
    let found = br#"{"params": [["n", 4]], "args": [null, 2.5, "a"], "inputs": [{"name": "x", "dtype": "f32",
        "shape": ["n", "2 * n"], "fill": "{ uniform = [0.0, 1.0] }"}], "outputs": [{"name": "out", "dtype": "f32",
        "shape": ["n"]}], "random": true, "bytes": 4096}"#;
    try_all("examined", &[found.to_vec()], |bytes| {
        let file = BenchFile {
            path: text(bytes),
            stem: text(bytes),
            kind: FileKind::Problem,
        };
        let found = serde_json::from_slice(bytes).map_err(|error| error.to_string());
        if let Ok(manifest) = kernelbench::manifest(None, &[(file.clone(), found)], &[file]) {
            assert!(manifest.parse::<toml::Table>().is_ok(), "{manifest}");
        }
    });
}

fn trace(bytes: &[u8]) -> TraceFile {
    TraceFile {
        path: "x.json".to_owned(),
        stem: "x".to_owned(),
        text: text(bytes),
    }
}

#[test]
fn sources() {
    let kernels = [
        files("kernels", "cuh"),
        files("tests", "c"),
        files("tests", "cu"),
    ]
    .concat();
    try_all("source", &kernels, |bytes| {
        for language in [DeclaredLanguage::C, DeclaredLanguage::Cuda] {
            _ = signatures(&text(bytes), language);
        }
    });
}

#[test]
fn tensors() {
    let head = br#"{"x":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"y":{"dtype":"I8","shape":[],"data_offsets":[24,25]},"__metadata__":{"a":"b"}}"#;
    try_all("tensors", &[head.to_vec()], |bytes| {
        _ = tensor_file::heads(bytes, 25);
    });
}
