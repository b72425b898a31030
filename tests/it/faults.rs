//! The workload that goes wrong on purpose: every fault is named in its own row, and the sound
//! points beside it are measured undisturbed.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use super::support::program;

/// The status that each fault leads to.
const ON_A_GPU: [(&str, &str); 12] = [
    ("none", "ok"),
    ("illegal_access", "crashed"),
    ("trap", "crashed"),
    ("endless", "timeout"),
    ("wrong", "wrong"),
    ("silent", "wrong"),
    ("fickle", "wrong"),
    ("compile_error", "compile_error"),
    ("shared_memory", "launch_error"),
    ("threads", "launch_error"),
    ("oom", "oom"),
    ("predicted_oom", "predicted_oom"),
];

/// A CPU has neither shared memory nor blocks of threads; all other faults have equal outcomes.
fn on_a_cpu() -> BTreeMap<&'static str, &'static str> {
    let mut expected: BTreeMap<_, _> = ON_A_GPU.into();
    expected.insert("shared_memory", "unavailable");
    expected.insert("threads", "unavailable");
    expected
}

/// Runs the manifest of all faults; rows as (fault, backend, status, reason), by name of column.
fn run(device: &str, more: &[&str]) -> Vec<BTreeMap<String, String>> {
    let folder = tempfile::tempdir().unwrap();
    let manifest = folder.path().join("faults.toml");
    let text = include_str!("../manifests/faults.toml");
    fs::write(&manifest, text).unwrap();
    let output = Command::new(program())
        .current_dir(folder.path())
        .args(["run", "faults.toml", "--device", device])
        .args(more)
        .env("SWEEPER_CACHE_DIR", folder.path().join("cache"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(4), "{said}");
    let results = fs::read_dir(folder.path().join("results")).unwrap();
    records(&results.last().unwrap().unwrap().path())
}

fn records(run: &Path) -> Vec<BTreeMap<String, String>> {
    let mut reader = csv::Reader::from_path(run.join("records.csv")).unwrap();
    reader.deserialize().map(Result::unwrap).collect()
}

fn check(rows: &[BTreeMap<String, String>], expected: &BTreeMap<&str, &str>) {
    assert_eq!(rows.len(), 2 * expected.len());
    for row in rows {
        let status = match row["backend"].as_str() {
            "sound" => "ok",
            _ => expected[row["fault"].as_str()],
        };
        assert_eq!(row["status"], status, "{row:?}");
        assert_eq!(
            row["checked"] == "full",
            matches!(status, "ok" | "wrong"),
            "{row:?}"
        );
        assert_eq!(row["reason"].is_empty(), status == "ok", "{row:?}");
    }
}

#[test]
fn on_a_cpu_every_fault_costs_its_own_row() {
    let rows = run("cpu", &[]);
    check(&rows, &on_a_cpu());
    let reason = |fault: &str| {
        let own =
            |row: &&BTreeMap<String, String>| row["fault"] == fault && row["backend"] == "faulty";
        rows.iter().find(own).unwrap()["reason"].clone()
    };
    assert!(reason("illegal_access").contains("segmentation fault"));
    assert!(reason("trap").contains("illegal instruction"));
    assert!(reason("endless").contains("no progress within 4s"));
    assert!(reason("compile_error").contains("can't be compiled"));
    assert!(reason("oom").contains("bytes needed"));
    assert!(reason("silent").contains("`out` is not finite"));
    assert!(reason("fickle").contains("outputs changed while it was timed"));
}

/// Programs of a block share the memory of results, which may hold the right results of an earlier
/// program.
#[test]
fn results_of_one_program_are_none_of_the_next() {
    let silent = [
        "--set=grid.fault=\"silent\"",
        "--set=case.faults.backends=[\"sound\", \"faulty\"]",
    ];
    check(&run("cpu", &silent), &[("silent", "wrong")].into());
}

#[test]
fn on_a_gpu_every_fault_costs_its_own_row() {
    let Some(_gpu) = super::cuda::gpu() else {
        return;
    };
    let rows = run("cuda", &["--set", "measure.mode=launch,graph"]);
    for mode in ["launch", "graph"] {
        let own = rows.iter().filter(|row| row["mode"] == mode);
        check(&own.cloned().collect::<Vec<_>>(), &ON_A_GPU.into());
    }
}
