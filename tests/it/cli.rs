//! The command line: verbs that do not measure, exit codes, and error messages.

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

/// The semi-CRF guide's grid needs at most 8 kernels for each backend, phase, semiring and form,
/// and drops nothing; the published sampling keeps 11 configurations of it.
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

/// A manifest on the null device with every reason for which a combination can be out.
const OUTS: &str = "schema = 1\nname = \"outs\"\nabout = \"Why is it out?\"\nseed = 7\n\
    [grid]\nT = [8, 16, 32]\nK = [2, 4]\nC = 3\n\
    [case.semicrf]\nworkload = \"semicrf\"\nbackends = [\"streaming\", \"fused\"]\nphases = [\"forward\"]\n\
    [[exclude]]\nwhen = \"T == 8 and K == 4\"\nreason = \"too short\"\n\
    [[exclude]]\nwhen = \"T == 32 and backend != 'fused'\"\n\
    [[exclude]]\nwhen = \"T == 32 and K == 4\"\n\
    [measure]\nrepeats = 5\n\
    [device]\nuse = \"null\"\n[null]\ntime_ns = \"1000\"\n";

fn with_outs() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("m.toml"), OUTS).unwrap();
    folder
}

#[test]
fn why_tells_apart_what_is_out_and_by_which_rule() {
    let folder = with_outs();
    let why = |words: &[&str]| {
        let mut args = vec!["why", "m.toml"];
        args.extend(words);
        let output = sweeper(folder.path(), &args);
        (output.status.code(), out(&output) + &err(&output))
    };
    for (words, expected) in [
        (
            "T=8 K=4 triton",
            "skipped by `exclude` `T == 8 and K == 4` (m.toml:14): too short",
        ),
        (
            "T=32 K=2 linear_scan_streaming",
            "skipped by `exclude` `T == 32 and backend != 'fused'` (m.toml:17)",
        ),
        (
            "T=32 K=4 fused",
            "skipped by `exclude` `T == 32 and K == 4` (m.toml:19)",
        ),
        (
            "T=16 K=2 Log fused",
            "to be measured: no run in results has it",
        ),
    ] {
        let (code, said) = why(&words.split(' ').collect::<Vec<_>>());
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(expected), "{words}: {said}");
    }
    let (code, said) = why(&["T=64", "fused"]);
    assert_eq!(code, Some(2));
    assert!(said.contains("`T` is 8, 16, 32"), "{said}");
    let (code, said) = why(&["T=32"]);
    assert_eq!(code, Some(0));
    assert!(
        said.contains("4 combinations of the grid: 1 of 4 are in"),
        "{said}"
    );
    let (_, said) = why(&["T=16", "fused", "--set", "limits.max_points=1"]);
    assert!(said.contains("beyond the first 1 points"), "{said}");
    for (k, expected) in [
        (
            "K=2",
            "of the 3 configurations of the published shape T=64 K=2 C=6",
        ),
        (
            "K=4",
            "its published shape T=64 K=4 C=3 is not among those taken",
        ),
    ] {
        let one = ["--compile-friendly", "--max-canonical-shapes", "1"];
        let (code, said) = why(&[&["T=16", k, "fused"][..], &one].concat());
        assert_eq!(code, Some(0), "{said}");
        assert!(said.contains(expected), "{k}: {said}");
    }
}

#[test]
fn why_names_keys_that_changed_with_both_values() {
    let folder = with_outs();
    let run = sweeper(folder.path(), &["run", "m.toml"]);
    assert_eq!(run.status.code(), Some(0), "{}", err(&run));
    assert!(
        err(&run).contains(", 5 skipped by the manifest"),
        "{}",
        err(&run)
    );
    let why = ["why", "m.toml", "T=16 K=2 fused", "--repeats", "7"];
    let said = out(&sweeper(folder.path(), &why));
    assert!(said.contains("measure.repeats: 5 -> 7"), "{said}");
    assert!(!said.contains("manifest:"), "{said}");
    let json = [&why[..], &["--json"]].concat();
    let json: serde_json::Value =
        serde_json::from_str(&out(&sweeper(folder.path(), &json))).unwrap();
    let change = &json["in"][0]["measured"]["changes"][0];
    assert_eq!(change["key"], "measure.repeats");
    assert_eq!(
        (change["from"].as_str(), change["to"].as_str()),
        (Some("5"), Some("7"))
    );
    let again = out(&sweeper(
        folder.path(),
        &["why", "m.toml", "T=16 K=2 fused"],
    ));
    assert!(again.contains("has it as ok"), "{again}");
}

#[test]
fn check_counts_the_whole_order_of_meaning() {
    let args = ["check", "manifests/memory.toml", "--compile-friendly"];
    let text = out(&sweeper(root(), &args));
    assert!(text.starts_with("semicrf: 33 points\n"), "{text}");
    let steps: Vec<&str> = text.lines().filter(|line| line.starts_with("  ")).collect();
    let named = |name: &str| steps.iter().any(|line| line.trim().starts_with(name));
    for step in ["derive", "merge", "canonical shapes", "sampling", "budget"] {
        assert!(named(step), "{step}: {text}");
    }
    assert!(
        text.contains("11 of 96 configurations, from 8 of 84 published shapes"),
        "{text}"
    );
    assert!(
        text.contains("shape T=512 K=24 C=8       T=512 K=20 C=9"),
        "{text}"
    );
    let plan = out(&sweeper(
        root(),
        &[
            "plan",
            "manifests/memory.toml",
            "--compile-friendly",
            "--device",
            "cpu",
        ],
    ));
    assert!(plan.contains("from 8 of 84 published shapes"), "{plan}");
    let json = out(&sweeper(root(), &[&args[..], &["--json"]].concat()));
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["published_shapes"].as_array().unwrap().len(), 84);
    assert_eq!(json["cases"][0]["points"], 33);
    let cut = out(&sweeper(
        root(),
        &[&args[..], &["--set", "limits.max_points=20"]].concat(),
    ));
    assert!(cut.starts_with("semicrf: 20 points\n"), "{cut}");
}

/// The JSON output of verbs that do not measure is valid, and appears only on request.
#[test]
fn json_is_for_those_who_ask() {
    let folder = with_outs();
    fs::create_dir(folder.path().join("results")).unwrap();
    let manifest = OUTS.split("[device]").next().unwrap();
    fs::write(
        folder.path().join("cpu.toml"),
        format!("{manifest}[device]\nuse = \"cpu\"\n"),
    )
    .unwrap();
    let compiled = sweeper(folder.path(), &["compile", "cpu.toml"]);
    assert_eq!(compiled.status.code(), Some(0), "{}", err(&compiled));
    let listed = out(&sweeper(folder.path(), &["cache", "ls"]));
    let key = listed.split_whitespace().next().unwrap();
    for verb in [
        "why m.toml T=16 K=2 fused",
        "why m.toml T=32",
        "plan m.toml",
        "plan m.toml --list",
        "plan m.toml --explain T=16|K=2|fused",
        "check m.toml",
        "check m.toml --resolved",
        "compile cpu.toml",
        "workloads",
        "workloads copy",
        "runs",
        "devices",
        "cache path",
        "cache stats",
        "cache ls",
        &format!("cache show {key}"),
        &format!("cache explain {key}"),
        "cache explain -m cpu.toml T=16|K=2|fused",
        "cache export bundle",
        "cache import bundle",
        "cache verify",
        "cache gc --dry-run",
        "init new.toml",
        "cache clear",
    ] {
        let words: Vec<String> = verb.split(' ').map(|word| word.replace('|', " ")).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if !verb.starts_with("init") && verb != "cache clear" {
            let plain = sweeper(folder.path(), &words);
            assert_eq!(plain.status.code(), Some(0), "{verb}: {}", err(&plain));
            let text = out(&plain);
            assert!(!text.trim_start().starts_with(['{', '[']), "{verb}: {text}");
            let is_debug = |(at, _): (usize, &str)| {
                let word = text[..at]
                    .rsplit(|letter: char| !letter.is_alphanumeric())
                    .next();
                word.is_some_and(|word| word.starts_with(|letter: char| letter.is_uppercase()))
            };
            assert!(!text.match_indices(" {").any(is_debug), "{verb}: {text}");
        }
        let json = sweeper(folder.path(), &[&words[..], &["--json"]].concat());
        assert_eq!(json.status.code(), Some(0), "{verb}: {}", err(&json));
        let parsed: Result<serde_json::Value, _> = serde_json::from_str(&out(&json));
        assert!(parsed.is_ok(), "{verb}: {}", out(&json));
    }
    for verb in ["plan m.toml --dot", "completions bash"] {
        let words: Vec<&str> = verb.split(' ').collect();
        let refused = sweeper(folder.path(), &[&words[..], &["--json"]].concat());
        assert_eq!(refused.status.code(), Some(2), "{verb}");
    }
}

#[test]
fn bad_entries_are_named_by_keys_that_show_takes() {
    let folder = tempfile::tempdir().unwrap();
    let manifest = root().join("manifests/quick.toml");
    let compile = [
        "compile",
        manifest.to_str().unwrap(),
        "--device",
        "cpu",
        "--cache-size-gb",
        "3",
    ];
    let compiled = sweeper(folder.path(), &compile);
    assert_eq!(compiled.status.code(), Some(0), "{}", err(&compiled));
    let stats = out(&sweeper(folder.path(), &["cache", "stats"]));
    assert!(stats.contains("of 3.00 GiB"), "{stats}");
    let key = out(&sweeper(folder.path(), &["cache", "ls"]))[..12].to_owned();
    let shard = folder.path().join("cache");
    let mut files = vec![shard];
    let path = loop {
        let path = files.pop().unwrap();
        match fs::read_dir(&path) {
            Ok(entries) => files.extend(entries.map(|entry| entry.unwrap().path())),
            // Shards are named by the first two digits.
            Err(_) if path.to_string_lossy().contains(&key[2..]) => break path,
            Err(_) => {}
        }
    };
    let mut bytes = fs::read(&path).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let mode = fs::metadata(&path).unwrap().permissions();
    fs::remove_file(&path).unwrap();
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(&path, mode).unwrap();
    let verified = sweeper(folder.path(), &["cache", "verify"]);
    assert_eq!(verified.status.code(), Some(6));
    let line = out(&verified).lines().nth(1).unwrap().trim().to_owned();
    let (named, reason) = line.split_once("  ").unwrap();
    assert!(
        named.starts_with(&key) && reason.contains("checksum"),
        "{line}"
    );
    let shown = sweeper(folder.path(), &["cache", "show", named]);
    assert_eq!(shown.status.code(), Some(0), "{}", err(&shown));
}

#[test]
fn the_environment_wins_over_the_manifest_and_a_flag_over_both() {
    let folder = with_outs();
    let path = folder.path().join("m.toml");
    fs::write(&path, format!("{OUTS}[cache]\ndir = \"of-the-manifest\"\n")).unwrap();
    let origin = |args: &[&str]| {
        let args = [&["check", "m.toml", "--resolved"], args].concat();
        let text = out(&sweeper(folder.path(), &args));
        let line = text
            .lines()
            .find(|line| line.starts_with("dir = ") && line.contains("cache"));
        let other = text.lines().find(|line| line.starts_with("dir = "));
        line.or(other).unwrap_or_default().to_owned()
    };
    assert!(
        origin(&[]).ends_with("environment variable SWEEPER_CACHE_DIR"),
        "{}",
        origin(&[])
    );
    let flag = origin(&["--cache-dir", "of-the-cache-flag"]);
    assert!(
        flag.contains("of-the-cache-flag") && flag.ends_with("--cache-dir"),
        "{flag}"
    );
    let unset = Command::new(env!("CARGO_BIN_EXE_sweeper"))
        .current_dir(folder.path())
        .args(["check", "m.toml", "--resolved"])
        .env_remove("SWEEPER_CACHE_DIR")
        .output()
        .unwrap();
    assert!(out(&unset).contains("of-the-manifest"), "{}", out(&unset));
}

#[test]
fn plans_are_made_for_gpus_that_are_not_here() {
    let plan = ["plan", "manifests/quick.toml", "--arch", "sm_80"];
    let output = sweeper(root(), &plan);
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    assert!(
        out(&output).contains("8 on cuda (sm_80)"),
        "{}",
        out(&output)
    );
    let explained = out(&sweeper(
        root(),
        &[&plan[..], &["--explain", "T=256 K=8 triton"]].concat(),
    ));
    assert!(explained.contains("launch"), "{explained}");
    let why = [
        "why",
        "manifests/quick.toml",
        "--arch",
        "sm_80",
        "T=256 K=8 triton C=6",
    ];
    let said = out(&sweeper(root(), &why));
    assert!(said.contains("kernel scan.cu"), "{said}");
    let wrong = sweeper(
        root(),
        &["plan", "manifests/quick.toml", "--arch", "hopper"],
    );
    assert_eq!(wrong.status.code(), Some(2));
}

#[test]
fn single_cases_are_chosen_from_outside() {
    let check = |args: &[&str]| {
        let args = [&["check", "manifests/operations.toml"], args].concat();
        sweeper(root(), &args)
    };
    let cases = |args: &[&str]| {
        let text = out(&check(args));
        let lines = text.lines().filter(|line| line.ends_with(" points"));
        lines
            .map(|line| line.split(':').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(cases(&["--case", "gelu"]), ["gelu"]);
    assert_eq!(
        cases(&["--operations", "LayerNorm,CrossEntropy"]),
        ["layernorm", "cross_entropy"]
    );
    assert_eq!(cases(&["--set", "cases=swish"]), ["swish"]);
    assert_eq!(cases(&[]).len(), 5);
    let unknown = check(&["--case", "gelo"]);
    assert_eq!(unknown.status.code(), Some(3));
    assert!(
        err(&unknown).contains("did you mean `gelu`"),
        "{}",
        err(&unknown)
    );
}
