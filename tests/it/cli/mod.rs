//! The command line: verbs that do not measure, exit codes, and error messages.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use crate::place::{Place, code, text};
use crate::support::has_package;

mod plans;

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
    let said = err(&again);
    assert!(
        said.contains("sweep.toml") && said.contains("name another file"),
        "{said}"
    );
}

/// An example of the program by its name, a manifest of a clone by its name, and all of the
/// examples where nothing is named.
#[test]
fn examples_are_offered_by_question() {
    let folder = tempfile::tempdir().unwrap();
    let offered = sweeper(folder.path(), &["run"]);
    assert_eq!(offered.status.code(), Some(2));
    let said = err(&offered);
    assert!(
        said.contains("softmax") && said.contains("Which softmax is fastest here?"),
        "{said}"
    );
    assert!(
        said.lines().all(|line| line.chars().count() <= 100),
        "{said}"
    );
    let plan = ["run", "softmax", "--dry-run", "--device", "cpu"];
    let planned = sweeper(folder.path(), &plan);
    assert_eq!(planned.status.code(), Some(0), "{}", err(&planned));
    assert!(
        err(&planned).contains("wrote softmax.toml"),
        "{}",
        err(&planned)
    );
    let again = sweeper(folder.path(), &plan);
    assert!(!err(&again).contains("wrote"), "{}", err(&again));
    let of_clone = sweeper(root(), &["check", "quick"]);
    assert_eq!(of_clone.status.code(), Some(0), "{}", err(&of_clone));
    let unknown = sweeper(folder.path(), &["run", "softmx"]);
    assert_eq!(unknown.status.code(), Some(3), "{}", err(&unknown));
}

#[test]
fn help_of_a_verb_has_examples() {
    let help = out(&sweeper(root(), &["help", "compare"]));
    for line in ["sweeper compare 3f9a 81c2", "OLD run m.toml"] {
        assert!(help.contains(line), "{help}");
    }
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
        "--batch-size",
        "--d-model",
        "--seq-len",
        "--model-size",
        "--context-length",
        "--measure-steps",
        "--sequence-lengths",
        "--tensor-dimensions",
        "--hardware",
        "--peak-gflops",
        "--peak-bandwidth",
        "--device",
    ] {
        assert!(help.contains(flag), "{flag} is not in\n{help}");
    }
    let taken = [
        "check manifests/operations.toml --operations Loss --batch-size 2 --seq-len 64",
        "check manifests/attention.toml --batch-size 8 --d-model 64 --seq-len 4096 --num-warmup 10",
        "check manifests/transformer.toml --model-size small --context-length 512 --warmup-steps 5 \
         --measure-steps 10",
    ];
    for line in taken {
        let words: Vec<&str> = line.split_whitespace().collect();
        let output = sweeper(root(), &words);
        assert_eq!(output.status.code(), Some(0), "{line}: {}", err(&output));
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
fn a_draft_of_any_signature_is_a_manifest() {
    let place = Place::new("");
    let source = "void softmax(float *out, const float *in, int (*less)(int, int), struct s v, int n)\n\
                  { for (int i = 0; i < n; i++) out[i] = in[i]; }\n";
    fs::write(place.path("softmax.c"), source).unwrap();
    let drafted = place.sweeper(&["new", "softmax.c", "-o", "draft.toml"]);
    assert_eq!(code(&drafted), 0, "{}", text(&drafted));
    let checked = place.sweeper(&["check", "draft.toml"]);
    assert_eq!(code(&checked), 0, "{}", text(&checked));
    let draft = fs::read_to_string(place.path("draft.toml")).unwrap();
    for line in [
        "[workload.my_softmax]",
        "c        = \"softmax.c\"",
        "entry    = \"softmax\"",
        "args     = [\"out\", \"in_\", \"less\", { i32 = \"v\" }, { i32 = \"n\" }]",
    ] {
        assert!(draft.lines().any(|held| held == line), "{line}: {draft}");
    }
}

#[test]
fn functions_in_python_have_a_draft_that_runs() {
    if !has_package("numpy", "numpy") {
        return;
    }
    let place = Place::new("");
    let source = "import numpy as np\ndef plain(x: np.ndarray):\n    return np.exp(-x * x)\n\
                  def other(x: np.ndarray, bias=1):\n    return np.exp(-(x ** 2))\n\
                  def unlike(x, k: int):\n    return x[:k]\n";
    fs::write(place.path("f.py"), source).unwrap();
    let drafted = place.sweeper(&["new", "f.py"]);
    assert_eq!(code(&drafted), 0, "{}", text(&drafted));
    assert!(text(&drafted).contains("left out"), "{}", text(&drafted));
    let small = "--set=case.plain.grid.n=[100, 200]";
    let ran = place.sweeper(&["run", "f.toml", "--max-time=40s", small]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    assert!(text(&ran).contains("4 ok"), "{}", text(&ran));
    let refused = place.sweeper(&["new", "f.py", "--entry", "none", "-o", "g.toml"]);
    assert!(
        text(&refused).contains("only plain, other, unlike"),
        "{}",
        text(&refused)
    );
}

#[test]
fn a_draft_is_measured_in_a_given_time() {
    let place = Place::new("");
    let source = "#include <math.h>\nvoid twice(float *y, const float *x, float a, int n)\n\
                  { for (int i = 0; i < n; i++) y[i] = 2 * expf(a * x[i]) / (1 + x[i] * x[i]); }\n";
    fs::write(place.path("twice.c"), source).unwrap();
    let drafted = place.sweeper(&["new", "twice.c", "-o", "draft.toml"]);
    assert_eq!(code(&drafted), 0, "{}", text(&drafted));
    let small = "--set=case.twice.grid.n=[100, 200]";
    let limited = ["run", "draft.toml", "--device=cpu", "--max-time=25s", small];
    let ran = place.sweeper(&limited);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    assert!(text(&ran).contains("2 ok"), "{}", text(&ran));
    assert!(
        text(&ran).contains("2 of 2 results checked against a text in f64"),
        "{}",
        text(&ran)
    );
}
