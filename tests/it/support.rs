//! Helpers for several modules: a table of workloads, and manifests from text.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, OnceLock};

use sweeper::compile::digests::Digests;
use sweeper::compile::nvrtc::Nvrtc;
use sweeper::device::sandbox::Grants;
use sweeper::manifest::{Diagnostics, Manifest, Overrides, Sources};
use sweeper_program::workload::{
    BackendInfo, DefaultValue, ParameterInfo, ParameterKind, WorkloadInfo,
};
use sweeper_program::{Dtype, Phase};

/// Whether this machine has a sandbox for code that nobody trusts.
pub(crate) fn has_sandbox() -> bool {
    let has = Grants::of_this_machine().landlock.is_some();
    if !has {
        skip("landlock", "the kernel has no Landlock");
    }
    has
}

/// Prints the test that is skipped, the missing program or device, and the number of skipped tests;
/// fails if `SWEEPER_REQUIRE` names the missing thing.
pub(crate) fn skip(what: &str, reason: &str) {
    static SKIPPED: Mutex<BTreeMap<String, BTreeSet<String>>> = Mutex::new(BTreeMap::new());
    let required = std::env::var("SWEEPER_REQUIRE").unwrap_or_default();
    assert!(!required.split(',').any(|held| held == what), "{reason}");
    let thread = std::thread::current();
    let test = thread.name().unwrap_or("a test");
    let mut all = SKIPPED.lock().unwrap();
    let tests = all.entry(what.to_owned()).or_default();
    if tests.insert(test.to_owned()) {
        let count = tests.len();
        // Not by a macro, whose output is hidden if the test passes.
        let said = format!("skipped for want of {what} ({count} so far): {test}: {reason}\n");
        std::io::stderr().write_all(said.as_bytes()).unwrap();
    }
}

/// The Python that has the packages; `SWEEPER_PYTHON` names another one.
pub(crate) fn python() -> PathBuf {
    std::env::var_os("SWEEPER_PYTHON").map_or_else(|| PathBuf::from("python3"), PathBuf::from)
}

/// True if Python has a package; otherwise the skipped test is reported.
pub(crate) fn has_package(package: &str, what: &str) -> bool {
    let import = Command::new(python())
        .args(["-c", &format!("import {package}")])
        .output();
    let is_there = import.is_ok_and(|output| output.status.success());
    if !is_there {
        let reason = format!(
            "no {package} for {}: `pip install {what}`",
            python().display()
        );
        skip(what, &reason);
    }
    is_there
}

/// NVRTC, unless there is none here and none is required.
pub(crate) fn nvrtc() -> Option<Nvrtc> {
    let found = Nvrtc::find(&Digests::default());
    found.inspect_err(|reason| skip("nvrtc", reason)).ok()
}

/// Things that are made once, by the first test that needs them. Only tests that need a thing wait
/// until it is made.
pub(crate) struct Made<T> {
    all: Mutex<BTreeMap<String, Arc<OnceLock<T>>>>,
}

impl<T> Default for Made<T> {
    fn default() -> Self {
        Made {
            all: Mutex::default(),
        }
    }
}

impl<T: Clone> Made<T> {
    pub(crate) fn get(&self, key: String, make: impl FnOnce() -> T) -> T {
        let one = Arc::clone(self.all.lock().unwrap().entry(key).or_default());
        one.get_or_init(make).clone()
    }
}

/// The program of this build, or the program beside these tests if they were moved elsewhere.
pub(crate) fn program() -> PathBuf {
    match std::env::var_os("SWEEPER_PROGRAM") {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(env!("CARGO_BIN_EXE_sweeper")),
    }
}

const fn int(name: &'static str, max: i64) -> ParameterInfo {
    ParameterInfo {
        name,
        kind: ParameterKind::Int { min: 1, max },
        default: None,
        about: "a size",
    }
}

const fn choice(
    name: &'static str,
    words: &'static [(&'static str, &'static [&'static str])],
    default: Option<&'static str>,
) -> ParameterInfo {
    ParameterInfo {
        name,
        kind: ParameterKind::Choice(words),
        default: match default {
            Some(word) => Some(DefaultValue::Text(word)),
            None => None,
        },
        about: "a choice",
    }
}

const fn backend(name: &'static str, aliases: &'static [&'static str]) -> BackendInfo {
    BackendInfo {
        name,
        aliases,
        about: "a backend",
        by_default: true,
    }
}

static SEMICRF: WorkloadInfo = WorkloadInfo {
    name: "semicrf",
    about: "semi-Markov CRF",
    formula: "",
    parameters: &[
        int("T", 1 << 20),
        int("K", 4096),
        int("C", 4096),
        ParameterInfo {
            default: Some(DefaultValue::Int(4)),
            ..int("B", 1 << 20)
        },
        choice(
            "semiring",
            &[
                ("log", &["Log"]),
                ("max", &["Max"]),
                ("entropy", &["Entropy"]),
            ],
            Some("log"),
        ),
        choice(
            "potentials",
            &[
                ("materialized", &["materialised"]),
                ("decomposed", &["streaming"]),
            ],
            Some("decomposed"),
        ),
        choice("lengths", &[("full", &[]), ("random", &[])], Some("full")),
        choice(
            "durations",
            &[("1..K-1", &[]), ("1..K", &[])],
            Some("1..K-1"),
        ),
        choice(
            "transition",
            &[("fixed", &[]), ("per_duration", &[])],
            Some("fixed"),
        ),
    ],
    backends: &[
        backend("streaming", &["linear_scan_streaming"]),
        backend("fused", &["triton"]),
        backend("fused_reference", &["triton_pytorch"]),
        backend("fused_checkpointing", &["triton_checkpointing"]),
    ],
    phases: &Phase::ALL,
    dtypes: &[Dtype::F32],
    inputs: &[],
    outputs: &[],
    buckets: &[
        ("T", &[64, 128, 256, 512, 1024, 2048]),
        ("K", &[8, 16, 24, 32]),
        ("C", &[4, 8, 12, 16]),
    ],
    presentation: None,
    published: None,
    flags: &[],
};

static LAYERNORM: WorkloadInfo = WorkloadInfo {
    name: "layernorm",
    about: "layer normalization",
    formula: "",
    parameters: &[
        int("rows", 1 << 30),
        int("dim", 1 << 20),
        ParameterInfo {
            name: "eps",
            kind: ParameterKind::Float { min: 0.0, max: 1.0 },
            default: Some(DefaultValue::Float(1e-5)),
            about: "added to the variance",
        },
        ParameterInfo {
            name: "affine",
            kind: ParameterKind::Bool,
            default: Some(DefaultValue::Bool(true)),
            about: "gain and bias",
        },
    ],
    backends: &[backend("eager", &[]), backend("compiled", &[])],
    phases: &[Phase::Forward, Phase::Backward],
    dtypes: &[Dtype::F32, Dtype::F64],
    inputs: &[],
    outputs: &[],
    buckets: &[],
    presentation: None,
    published: None,
    flags: &[],
};

/// Workloads shaped like real ones.
pub(crate) static REGISTRY: [&WorkloadInfo; 2] = [&SEMICRF, &LAYERNORM];

/// Resolves a file.
pub(crate) fn resolve(path: &Path, overrides: &Overrides) -> Result<Manifest, Diagnostics> {
    Manifest::resolve(&Sources::read(path)?, overrides, &REGISTRY)
}

/// The TOML files of a folder, sorted.
pub(crate) fn toml_files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|extension| extension == "toml")
    });
    paths.sort();
    paths
}

/// Resolves a text, or panics with its errors.
pub(crate) fn manifest(text: &str) -> Manifest {
    with(text, &Overrides::new())
}

/// Resolves a text with settings from outside.
pub(crate) fn with(text: &str, overrides: &Overrides) -> Manifest {
    let sources = Sources::from_text("test.toml", text);
    Manifest::resolve(&sources, overrides, &REGISTRY).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The errors of a text, as people see them.
pub(crate) fn errors(text: &str) -> String {
    let sources = Sources::from_text("test.toml", text);
    match Manifest::resolve(&sources, &Overrides::new(), &REGISTRY) {
        Ok(_) => panic!("nothing is wrong with:\n{text}"),
        Err(errors) => errors.to_string(),
    }
}

/// A manifest of one semicrf case with `grid` as its axes, and `more` after it.
pub(crate) fn semicrf(grid: &str, more: &str) -> String {
    format!(
        "schema = 1\n[grid]\n{grid}\n[case.semicrf]\nworkload = \"semicrf\"\n\
         backends = [\"fused\"]\nphases = [\"forward\"]\n{more}\n"
    )
}

/// Compares `actual` with the file `path`, or writes it there if `SWEEPER_BLESS` is set.
pub(crate) fn golden(path: &Path, actual: &str) -> Result<(), String> {
    if std::env::var_os("SWEEPER_BLESS").is_some() {
        fs::write(path, actual).map_err(|error| error.to_string())?;
        return Ok(());
    }
    let expected = fs::read_to_string(path).unwrap_or_default();
    if expected == actual {
        return Ok(());
    }
    Err(format!("{} differs:\n{actual}", path.display()))
}

/// Processes whose environment has a text, and whose command has `words`.
pub(crate) fn processes(of: &str, words: &str) -> Vec<String> {
    let has = |process: &Path, file: &str, words: &str| {
        let held = fs::read(process.join(file)).unwrap_or_default();
        String::from_utf8_lossy(&held).contains(words)
    };
    let processes = fs::read_dir("/proc").unwrap().flatten();
    processes
        .map(|entry| entry.path())
        .filter(|path| has(path, "cmdline", words) && has(path, "environ", of))
        .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
        .collect()
}
