//! The command line: verbs that do not measure, exit codes, and what people see of errors.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

fn sweeper(folder: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sweeper"))
        .current_dir(folder)
        .args(args)
        .env("SWEEPER_CACHE_DIR", folder.join("cache"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn err(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

#[test]
fn the_starter_is_a_manifest_and_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    assert_eq!(sweeper(folder.path(), &["init"]).status.code(), Some(0));
    let checked = sweeper(folder.path(), &["check", "sweep.toml"]);
    assert_eq!(checked.status.code(), Some(0), "{}", err(&checked));
    let again = sweeper(folder.path(), &["init"]);
    assert_eq!(again.status.code(), Some(6));
    assert!(err(&again).contains("sweep.toml"), "{}", err(&again));
}

#[test]
fn schema_and_completions_are_printed() {
    let schema = out(&sweeper(root(), &["schema"]));
    let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
    assert!(schema["properties"]["case"].is_object(), "{schema}");
    assert!(out(&sweeper(root(), &["completions", "bash"])).contains("complete"));
}

#[test]
fn a_workload_is_described_with_tensors_and_aliases() {
    let text = out(&sweeper(root(), &["workloads", "semicrf"]));
    for word in [
        "(B, T-1, K, C, C)",
        "cum_scores",
        "also triton",
        "linear_scan_streaming",
        "logsumexp",
    ] {
        assert!(text.contains(word), "{word} is missing:\n{text}");
    }
    assert_eq!(
        sweeper(root(), &["workloads", "semicrv"]).status.code(),
        Some(2)
    );
}

#[test]
fn a_control_is_measured_where_it_is_named() {
    let text = out(&sweeper(root(), &["workloads", "gelu"]));
    let control = text.lines().find(|line| line.trim().starts_with("control"));
    assert!(
        control.is_some_and(|line| line.ends_with("only where `backends` names it")),
        "{text}"
    );
    let folder = tempfile::tempdir().unwrap();
    let manifest = "schema = 1\nname = \"a\"\nabout = \"b\"\n[grid]\nbatch = 1\nsequence = 2\ndimension = 3\n\
                    [case.gelu]\nworkload = \"gelu\"\n";
    fs::write(folder.path().join("m.toml"), manifest).unwrap();
    let resolved = out(&sweeper(folder.path(), &["check", "m.toml", "--resolved"]));
    assert!(resolved.contains("\"compiled\""), "{resolved}");
    assert!(!resolved.contains("control"), "{resolved}");
    let named = sweeper(
        folder.path(),
        &[
            "check",
            "m.toml",
            "--resolved",
            "--backends",
            "eager,control",
        ],
    );
    assert!(out(&named).contains("\"control\""), "{}", out(&named));
}

#[test]
fn flags_of_guides_are_flags_or_explained() {
    let help = out(&sweeper(root(), &["run", "--help"]));
    for flag in [
        "--iterations",
        "--warmup",
        "--batch-sizes",
        "--sequence-lengths",
        "--tensor-dimensions",
        "--hardware",
        "--peak-gflops",
        "--peak-bandwidth",
        "--device",
    ] {
        assert!(help.contains(flag), "{flag} is not in\n{help}");
    }
    for (flag, instead) in [
        ("--quick", "economics-quick.toml"),
        ("--fusion-patterns=all", "case.linear.grid.pattern"),
        ("--output=profiles/test.json", "--output-dir"),
    ] {
        let output = sweeper(root(), &["run", "manifests/economics.toml", flag]);
        assert_eq!(output.status.code(), Some(2));
        assert!(err(&output).contains(instead), "{}", err(&output));
    }
    let plain = sweeper(root(), &["check", "m.toml", "--repeets", "3"]);
    assert!(err(&plain).contains("--repeats"), "{}", err(&plain));
}

#[test]
fn manifests_that_are_none_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    fs::create_dir(path("folder.toml")).unwrap();
    fs::write(path("empty.toml"), "").unwrap();
    fs::write(path("bytes.toml"), b"schema = 1\nname = \"\xff\"\n").unwrap();
    for name in ["folder.toml", "empty.toml", "bytes.toml", "missing.toml"] {
        let output = sweeper(folder.path(), &["check", name]);
        assert_eq!(output.status.code(), Some(3), "{name}: {}", err(&output));
        assert!(err(&output).contains(name), "{}", err(&output));
        assert!(err(&output).contains("error["), "{}", err(&output));
    }
}

#[test]
fn plans_are_the_same_bytes_every_time() {
    let plan = |flag: &str| out(&sweeper(root(), &["plan", "manifests/quick.toml", flag]));
    for flag in ["--json", "--dot", "--list"] {
        assert_eq!(plan(flag), plan(flag));
        assert!(plan(flag).len() > 100, "{flag}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let command = format!(
        "{} plan manifests/paper.toml --list | head -n 1",
        env!("CARGO_BIN_EXE_sweeper")
    );
    let output = Command::new("sh")
        .current_dir(root())
        .args(["-c", &command])
        .output()
        .unwrap();
    assert_eq!(out(&output).lines().count(), 1);
    assert!(err(&output).is_empty(), "{}", err(&output));
}

/// Guide 000's grid needs at most 8 kernels for each backend, phase, semiring and form, and drops
/// nothing; the published sampling keeps 11 configurations of it.
#[test]
fn the_paper_needs_few_kernels_and_drops_nothing() {
    let text = out(&sweeper(
        root(),
        &["plan", "manifests/paper.toml", "--json"],
    ));
    let plan: serde_json::Value = serde_json::from_str(&text).unwrap();
    let points = plan["points"].as_array().unwrap();
    assert_eq!(points.len(), 96 * 3 * 4 * 3 * 2);
    assert_eq!(plan["sampled_out"], 0);
    let mut kernels: std::collections::BTreeMap<String, std::collections::BTreeSet<u64>> =
        std::collections::BTreeMap::new();
    for point in points {
        assert!(point["refusal"].is_null(), "{point}");
        let label = point["label"].as_str().unwrap();
        let is_size = |word: &&str| ["T=", "K=", "C="].iter().any(|size| word.starts_with(size));
        let variant: Vec<&str> = label.split(' ').filter(|word| !is_size(word)).collect();
        let used = point["kernels"]
            .as_array()
            .unwrap()
            .iter()
            .map(|kernel| kernel.as_u64().unwrap());
        kernels.entry(variant.join(" ")).or_default().extend(used);
    }
    assert_eq!(kernels.len(), 3 * 4 * 3 * 2);
    // Backward takes the forward kernel as its prologue.
    assert!(
        kernels.values().all(|kernels| kernels.len() <= 8),
        "{kernels:?}"
    );
    let published = [
        "plan",
        "manifests/paper.toml",
        "--json",
        "--set",
        "plan.canonical=published",
        "--max-canonical-shapes",
        "8",
        "--samples-per-shape",
        "2",
    ];
    let plan: serde_json::Value = serde_json::from_str(&out(&sweeper(root(), &published))).unwrap();
    assert_eq!(plan["points"].as_array().unwrap().len(), 11 * 3 * 4 * 3 * 2);
}

#[test]
fn the_program_of_a_point_is_explained() {
    let words = "T=1024 K=16 C=12 fused forward";
    let text = out(&sweeper(
        root(),
        &[
            "plan",
            "manifests/paper.toml",
            "--explain",
            &format!("{words} semiring=log potentials=decomposed"),
        ],
    ));
    assert!(
        text.contains("cum_scores") && text.contains("launches"),
        "{text}"
    );
    let vague = sweeper(
        root(),
        &["plan", "manifests/paper.toml", "--explain", words],
    );
    assert_eq!(vague.status.code(), Some(2));
    assert!(err(&vague).contains("among them"), "{}", err(&vague));
}

/// A small plan in all its forms, as people and programs read it.
#[test]
fn plans_have_the_promised_form() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = "schema = 1\nname = \"small\"\nabout = \"What does a plan look like?\"\nseed = 7\n\
                    [grid]\nT = [4, 70]\nK = [3, 5]\nC = 2\n[case.semicrf]\nworkload = \"semicrf\"\n\
                    backends = [\"streaming\", \"fused\"]\nphases = [\"forward\", \"both\"]\n\
                    [[exclude]]\nwhen = \"K > T\"\nreason = \"no segment is longer\"\n\
                    [device]\nuse = \"null\"\n[null]\ntime_ns = \"1000\"\n";
    fs::write(folder.path().join("m.toml"), manifest).unwrap();
    for (form, flag) in [("json", "--json"), ("dot", "--dot"), ("list", "--list")] {
        let output = sweeper(folder.path(), &["plan", "m.toml", flag]);
        assert_eq!(output.status.code(), Some(0), "{}", err(&output));
        let plan = out(&output);
        let expected = root().join(format!("tests/golden/plan.{form}"));
        crate::support::golden(&expected, &plan).unwrap();
    }
}
