//! Bad surroundings get a clear message, an exit code and a run that can go on.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use super::place::{Place, SCRIPT, code, column, null_manifest, text};

/// Runs a shell command in the place, with `$sweeper` set.
fn shell(place: &Place, command: &str) -> Output {
    Command::new("sh")
        .current_dir(place.path("."))
        .args(["-c", command])
        .env("sweeper", crate::support::program())
        .env("SWEEPER_CACHE_DIR", place.path("cache"))
        .output()
        .unwrap()
}

/// Enough points that their journal is larger than 500 KiB.
fn long_manifest() -> String {
    null_manifest(SCRIPT).replace(
        "elements = [10, 20, 30, 40]",
        "elements = { range = [1, 601] }",
    )
}

#[test]
fn a_full_disk_ends_the_run_and_loses_nothing() {
    let place = Place::new(&long_manifest());
    // Files may not grow beyond 500 KiB: a disk that fills up, as far as one process can pretend.
    let full = shell(
        &place,
        "trap '' XFSZ; ulimit -f 1000; $sweeper run m.toml --quiet",
    );
    assert_eq!(code(&full), 6, "{}", text(&full));
    assert!(text(&full).contains("journal.jsonl"), "{}", text(&full));
    let journal = place.read("journal.jsonl");
    let complete = journal.lines().count() - 1;
    assert!(complete > 20, "{complete}");
    let again = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&again), 0, "{}", text(&again));
    let ids = column(&place.read("records.csv"), "point");
    assert_eq!(ids.len(), 1200);
    // The earlier contents of the disk are unchanged, byte by byte, except for the torn line.
    let torn = journal.rfind('\n').unwrap() + 1;
    assert!(place.read("journal.jsonl").starts_with(&journal[..torn]));
}

#[test]
fn files_that_are_made_from_the_journal_come_back() {
    let place = Place::new(&null_manifest(SCRIPT));
    assert_eq!(code(&place.sweeper(&["run", "m.toml"])), 0);
    let records = place.read("records.csv");
    for name in ["records.csv", "samples.csv"] {
        fs::remove_file(place.run_folder().join(name)).unwrap();
    }
    let again = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&again), 0, "{}", text(&again));
    assert!(place.read("records.csv") == records);
}

#[test]
fn folders_that_can_not_be_made_are_named() {
    let place = Place::new(&null_manifest(SCRIPT));
    for folder in ["/proc/sweeper", "/dev/null/results"] {
        let output = place.sweeper(&["run", "m.toml", "--output-dir", folder]);
        assert_eq!(code(&output), 6, "{}", text(&output));
        assert!(text(&output).contains(folder), "{}", text(&output));
    }
}

#[test]
fn a_read_only_folder_is_refused() {
    let place = Place::new(&null_manifest(SCRIPT));
    fs::create_dir(place.path("results")).unwrap();
    // Permissions do not bind root, so the user `nobody` is used where possible.
    let output = shell(
        &place,
        "chmod 555 results . && chmod 644 m.toml && \
         if [ \"$(id -u)\" = 0 ]; then \
         setpriv --reuid=65534 --regid=65534 --clear-groups $sweeper run m.toml; \
         else $sweeper run m.toml; fi; code=$?; chmod 755 results .; exit $code",
    );
    if text(&output).contains("setpriv") || code(&output) == 126 || code(&output) == 127 {
        return crate::support::skip("setpriv", "root can't become nobody here");
    }
    assert_eq!(code(&output), 6, "{}", text(&output));
    assert!(text(&output).contains("results"), "{}", text(&output));
    assert!(
        text(&output).contains("ermission denied"),
        "{}",
        text(&output)
    );
}

#[test]
fn too_few_processes_are_said() {
    let place = Place::new(&super::place::cpu_manifest(""));
    // A limit does not bind root, so the folders belong to the user `nobody`.
    let nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    if code(&shell(
        &place,
        &format!("{nobody} prlimit --nproc=100 true"),
    )) != 0
    {
        return crate::support::skip("setpriv", "root can't become nobody here");
    }
    for most in [1, 4, 6, 8, 10, 12, 14] {
        let output = shell(
            &place,
            &format!(
                "chmod 777 . && SWEEPER_CACHE_DIR=$PWD/cache{most} {nobody} prlimit --nproc={most} \
                 $sweeper run m.toml --output-dir few{most}"
            ),
        );
        let said = text(&output);
        assert!([0, 4, 6, 7].contains(&code(&output)), "{most}: {said}");
        assert!(!said.contains("panicked"), "{most}: {said}");
    }
}

#[test]
fn a_journal_of_a_newer_program_is_left_alone() {
    let place = Place::new(&null_manifest(SCRIPT));
    place.sweeper(&["run", "m.toml"]);
    let path = place.run_folder().join("journal.jsonl");
    let journal = fs::read_to_string(&path).unwrap();
    let (header, rows) = journal.split_once('\n').unwrap();
    let sealed = header[header.find(",\"journal\"").unwrap()..].replacen(":1,", ":9,", 1);
    let newer = format!(
        "{{\"crc\":\"{:08x}\"{sealed}\n{rows}",
        crc32fast::hash(sealed.as_bytes())
    );
    fs::write(&path, &newer).unwrap();
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 6, "{}", text(&output));
    assert!(text(&output).contains("newer"), "{}", text(&output));
    assert!(fs::read_to_string(&path).unwrap() == newer);
}

#[test]
fn a_huge_manifest_is_refused_at_once() {
    let place = Place::new("");
    let file = fs::File::create(place.path("huge.toml")).unwrap();
    file.set_len(100 << 20).unwrap();
    let output = place.sweeper(&["check", "huge.toml"]);
    assert_eq!(code(&output), 3, "{}", text(&output));
    assert!(text(&output).contains("huge.toml"), "{}", text(&output));
    assert!(text(&output).len() < 4000, "{}", text(&output).len());
}

/// Where a file is expected, pipes without a writer are not waited for, and devices are not read to
/// their end.
#[test]
fn files_that_are_none_are_refused() {
    let place = Place::new(&null_manifest(SCRIPT));
    assert_eq!(code(&place.sweeper(&["run", "m.toml"])), 0);
    let run = place.run_folder();
    let strange = |path: &Path, kind: &str| {
        let _ = fs::remove_file(path);
        let made = match kind {
            "pipe" => Command::new("mkfifo").arg(path).status().unwrap(),
            _ => Command::new("ln")
                .args(["-s", "/dev/zero"])
                .arg(path)
                .status()
                .unwrap(),
        };
        assert!(made.success());
    };
    let with = |grid: &str, case: &str| {
        let text = null_manifest(SCRIPT).replace("elements = [10, 20, 30, 40]", grid);
        text.replace(
            "workload = \"copy\"",
            &format!("workload = \"copy\"\n{case}"),
        )
    };
    fs::write(
        place.path("csv.toml"),
        with("elements = { csv = \"strange\", col = \"a\" }", ""),
    )
    .unwrap();
    fs::write(
        place.path("inputs.toml"),
        with("elements = 10", "inputs = \"strange\""),
    )
    .unwrap();
    for kind in ["pipe", "device"] {
        strange(&place.path("strange"), kind);
        for manifest in ["strange", "csv.toml", "inputs.toml"] {
            let output = place.sweeper(&["check", manifest]);
            assert_eq!(code(&output), 3, "{manifest}: {}", text(&output));
            assert!(
                text(&output).contains("not a regular file"),
                "{}",
                text(&output)
            );
        }
        strange(&run.join("journal.jsonl"), kind);
        for args in [["run", "m.toml"], ["report", "results"]] {
            let output = place.sweeper(&args);
            assert_eq!(code(&output), 6, "{args:?}: {}", text(&output));
        }
        // Files that are made from other files are made again.
        fs::remove_file(run.join("journal.jsonl")).unwrap();
        for name in [
            "environment.json",
            "plan.json",
            "records.csv",
            ".tables.json",
        ] {
            strange(&run.join(name), kind);
            let output = place.sweeper(&["run", "m.toml"]);
            assert_eq!(code(&output), 0, "{name}: {}", text(&output));
            assert!(
                fs::symlink_metadata(run.join(name)).unwrap().is_file(),
                "{name}"
            );
        }
    }
}

#[test]
fn what_is_remembered_of_compilers_is_no_pipe() {
    let place = Place::new(&super::place::cpu_manifest(""));
    assert_eq!(code(&place.sweeper(&["compile", "m.toml"])), 0);
    let memo = place.path("cache/digests.json");
    let _ = fs::remove_file(&memo);
    assert!(
        Command::new("mkfifo")
            .arg(&memo)
            .status()
            .unwrap()
            .success()
    );
    let output = place.sweeper(&["compile", "m.toml"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
}

/// Names become names of files and folders: of a run, of copies of sources, of tables and plots.
#[test]
fn names_may_be_long() {
    let named = "schema = 1\nname = \"SWEEP\"\n\
        [workload.PROBLEM]\nparams = { PARAMETER = { int = [1, 9] } }\n\
        inputs.x = { dtype = \"f32\", shape = [8] }\noutputs.OUTPUT = { dtype = \"f32\", shape = [8] }\n\
        check = { reference = { expr = \"2 * x\" } }\n\
        [workload.w]\nparams = { PARAMETER = { int = [1, 9] } }\n\
        [backend.KERNEL]\nworkload = \"PROBLEM\"\nc = \"f.c\"\nentry = \"f\"\nargs = [\"OUTPUT\", \"x\"]\n\
        [backend.COMMAND]\nworkload = \"w\"\ncommand = [\"echo\", \"5\"]\n\
        metrics.METRIC = { regex = \"[0-9]+\", unit = \"m\" }\n\
        [case.PLACE]\nworkload = \"PROBLEM\"\ngrid = { PARAMETER = [1, 2] }\n\
        [case.w]\nworkload = \"w\"\ngrid = { PARAMETER = [1, 2] }\n\
        [device]\nuse = \"cpu\"\n[measure]\nrepeats = 1\nwarmup = 0\n\
        [output]\nexports = [\"t4\"]\n";
    let source =
        "void f(float *y, const float *x) { for (int i = 0; i < 8; i++) y[i] = 2 * x[i]; }\n";
    let words = named.split(|letter: char| !letter.is_uppercase());
    let kinds: BTreeSet<&str> = words.filter(|word| word.len() > 1).collect();
    assert_eq!(kinds.len(), 8, "{kinds:?}");
    for kind in kinds {
        let manifest = named.replace(kind, &kind.repeat(60)).to_lowercase();
        let place = Place::new(&manifest);
        fs::write(place.path("f.c"), source).unwrap();
        let ran = place.sweeper(&["run", "m.toml", "--quiet"]);
        assert_eq!(code(&ran), 0, "{kind}: {}", text(&ran));
        let run = place.run_folder();
        let reported = place.sweeper(&["report", run.to_str().unwrap()]);
        assert_eq!(code(&reported), 0, "{kind}: {}", text(&reported));
    }
}

#[test]
fn a_device_that_is_not_here_is_named() {
    let place = Place::new(&null_manifest(SCRIPT));
    let output = place.sweeper(&["run", "m.toml", "--device", "cuda:77"]);
    assert_eq!(code(&output), 7, "{}", text(&output));
    assert!(!text(&output).contains("panicked"), "{}", text(&output));
    let output = place.sweeper(&["run", "m.toml", "--device", "tpu"]);
    assert_eq!(code(&output), 3, "{}", text(&output));
}
