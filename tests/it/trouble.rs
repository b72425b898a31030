//! Trouble around a run: no verdict is lost, no row stays that trouble of the moment made, tables
//! always match the journal, and signals are heard.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::place::{Place, SCRIPT, code, column, cpu_manifest, null_manifest, text};

/// Runs a shell command in the place, with `$sweeper` set.
fn shell(place: &Place, command: &str) -> Output {
    let mut sweeper = place.command(&[]);
    let settings: Vec<_> = sweeper
        .get_envs()
        .map(|(name, value)| (name.to_owned(), value.map(ToOwned::to_owned)))
        .collect();
    sweeper = Command::new("bash");
    sweeper.current_dir(place.path(".")).args(["-c", command]);
    for (name, value) in settings {
        match value {
            Some(value) => sweeper.env(name, value),
            None => sweeper.env_remove(name),
        };
    }
    sweeper.env("sweeper", crate::support::program());
    sweeper.output().unwrap()
}

/// A compiler that does `trouble`, a line of a shell script, while the file `trouble` exists.
fn compiler(place: &Place, trouble: &str) -> String {
    let script = place.path("compiler.sh");
    let flag = place.path("trouble");
    // A call that asks for the compiler's version is left alone.
    let text = format!(
        "#!/bin/bash\ncase \"$*\" in *kernel.so*) if test -e {flag:?}; then {trouble}; fi;; esac\n\
         exec cc \"$@\"\n"
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(flag, "").unwrap();
    script.to_string_lossy().into_owned()
}

fn with_compiler(place: &Place, compiler: &str, args: &[&str]) -> Command {
    let mut command = place.command(args);
    command.env("CC", compiler);
    command
}

fn statuses(place: &Place) -> Vec<String> {
    let mut statuses = column(&place.read("records.csv"), "status");
    statuses.sort();
    statuses
}

fn count(statuses: &[String], wanted: &str) -> usize {
    statuses.iter().filter(|status| *status == wanted).count()
}

/// Waits until a condition holds.
fn wait_until(what: &str, is_so: impl Fn() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

fn journal_lines(place: &Place) -> usize {
    let results = fs::read_dir(place.path("results"));
    let run = results.ok().and_then(|mut all| all.next());
    run.and_then(|run| fs::read_to_string(run.unwrap().path().join("journal.jsonl")).ok())
        .map_or(0, |journal| journal.lines().count())
}

/// The processes that a process has started.
fn children(process: u32) -> Vec<u32> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    let ids = all.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let is_child = |id: &u32| {
        let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
        let rest = stat.rsplit_once(") ").map(|(_, rest)| rest.to_owned());
        let parent = rest.and_then(|rest| rest.split(' ').nth(1)?.parse::<u32>().ok());
        parent == Some(process)
    };
    ids.filter(is_child).collect()
}

fn signal(process: u32, name: &str) {
    let killed = Command::new("kill")
        .args([name, &process.to_string()])
        .status();
    assert!(killed.unwrap().success());
}

fn spawn(mut command: Command) -> Child {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[test]
fn output_that_can_not_be_written_stops_no_sweep_and_changes_no_other_verdict() {
    let place = Place::new(&null_manifest(SCRIPT));
    let full = shell(&place, "$sweeper run m.toml --json > /dev/full");
    assert_eq!(code(&full), 6, "{}", text(&full));
    assert!(text(&full).contains("standard output"), "{}", text(&full));
    assert_eq!(statuses(&place).len(), 8);
    fs::remove_dir_all(place.path("results")).unwrap();
    let closed = shell(
        &place,
        "set -o pipefail; $sweeper run m.toml --json | head -1",
    );
    assert_eq!(code(&closed), 0, "{}", text(&closed));
    assert_eq!(statuses(&place).len(), 8);
    // A sweep with failures says so first, and so does a comparison with findings.
    let failing = "outcomes = [{ when = \"elements == 40\", status = \"oom\" }]\n";
    fs::write(
        place.path("f.toml"),
        null_manifest(&format!("{SCRIPT}{failing}")),
    )
    .unwrap();
    let failing = shell(&place, "$sweeper run f.toml --output-dir f > /dev/full");
    assert_eq!(code(&failing), 4, "{}", text(&failing));
    let slower = null_manifest("[null]\ntime_ns = \"200 * elements\"\nnoise = 0.01\n");
    fs::write(place.path("s.toml"), slower).unwrap();
    assert_eq!(
        code(&place.sweeper(&["run", "s.toml", "--output-dir", "s"])),
        0
    );
    for output in ["/dev/full", "/dev/null"] {
        let gate = shell(
            &place,
            &format!("$sweeper compare results/* s/* --fail-on 'slower > 3%' > {output}"),
        );
        assert_eq!(code(&gate), 5, "{output}: {}", text(&gate));
    }
}

#[test]
fn tables_and_exports_always_match_the_journal() {
    let place = Place::new(&null_manifest(&format!(
        "{SCRIPT}[output]\nexports = [\"json\", \"nvbench\"]\n"
    )));
    assert_eq!(code(&place.sweeper(&["run", "m.toml"])), 0);
    let run = place.run_folder();
    let files = ["records.csv", "samples.csv", "exports/records.json"];
    let nvbench = fs::read_dir(run.join("exports")).unwrap().count();
    assert!(nvbench > 1);
    let whole = files.map(|name| place.read(name));
    let damages: [&dyn Fn(&std::path::Path); 4] = [
        &|path| fs::write(path, &fs::read(path).unwrap()[..20]).unwrap(),
        &|path| fs::remove_file(path).unwrap(),
        &|path| {
            let text = fs::read_to_string(path).unwrap();
            fs::write(path, text.replacen("copy", "Copy", 1) + " ").unwrap();
        },
        &|path| fs::write(path, "").unwrap(),
    ];
    for damage in damages {
        for name in files {
            damage(&run.join(name));
            let again = place.sweeper(&["run", "m.toml"]);
            assert_eq!(code(&again), 0, "{}", text(&again));
            assert!(text(&again).contains("nothing to do"), "{}", text(&again));
            assert_eq!(files.map(|name| place.read(name)), whole, "{name}");
        }
    }
    // A run that was killed between its last row and its tables.
    let journal = place.read("journal.jsonl");
    let last = journal.trim_end().rfind('\n').unwrap() + 1;
    fs::write(run.join("journal.jsonl"), &journal[..last]).unwrap();
    fs::remove_file(run.join("samples.csv")).unwrap();
    fs::write(run.join("journal.jsonl"), &journal).unwrap();
    fs::create_dir(run.join(".exports.new")).unwrap();
    assert_eq!(code(&place.sweeper(&["run", "m.toml"])), 0);
    assert_eq!(files.map(|name| place.read(name)), whole);
    assert!(!run.join(".exports.new").exists());
    // Nothing is written where all is as it should be.
    let before = fs::metadata(run.join("records.csv"))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(code(&place.sweeper(&["run", "m.toml"])), 0);
    let after = fs::metadata(run.join("records.csv"))
        .unwrap()
        .modified()
        .unwrap();
    assert_eq!(before, after);
}

#[test]
fn another_export_of_a_finished_run_is_made() {
    let place = Place::new(&null_manifest(SCRIPT));
    assert_eq!(code(&place.sweeper(&["run", "m.toml"])), 0);
    assert!(!place.run_folder().join("exports").exists());
    let asked = place.sweeper(&["run", "m.toml", "--set", "output.exports=[\"json\"]"]);
    assert_eq!(code(&asked), 0, "{}", text(&asked));
    assert!(text(&asked).contains("nothing to do"), "{}", text(&asked));
    let json = place.read("exports/records.json");
    // It stays, and is kept up to date.
    fs::remove_file(place.run_folder().join("exports/records.json")).unwrap();
    assert_eq!(code(&place.sweeper(&["run", "m.toml"])), 0);
    assert_eq!(place.read("exports/records.json"), json);
}

#[test]
fn files_that_describe_a_run_come_back() {
    let place = Place::new(&null_manifest(SCRIPT));
    assert_eq!(code(&place.sweeper(&["run", "m.toml"])), 0);
    for name in ["environment.json", "manifest.toml", "plan.json"] {
        let before = place.read(name);
        for damage in ["", "{"] {
            if name == "manifest.toml" && !damage.is_empty() {
                continue;
            }
            fs::write(place.run_folder().join(name), damage).unwrap();
            let again = place.sweeper(&["run", "m.toml"]);
            assert_eq!(code(&again), 0, "{name}: {}", text(&again));
            assert_eq!(place.read(name), before, "{name}");
        }
    }
    assert_eq!(journal_lines(&place), 9, "nothing was measured for it");
}

#[test]
fn a_compiler_that_was_killed_costs_nothing_but_another_run() {
    let place = Place::new(&cpu_manifest(""));
    let compiler = compiler(&place, "kill -9 $$");
    let first = with_compiler(&place, &compiler, &["run", "m.toml"])
        .output()
        .unwrap();
    assert_eq!(code(&first), 4, "{}", text(&first));
    assert_eq!(count(&statuses(&place), "error"), 3, "{}", text(&first));
    assert!(
        text(&first).contains("3 points have no result"),
        "{}",
        text(&first)
    );
    assert!(
        text(&first).contains("the next run tries again"),
        "{}",
        text(&first)
    );
    fs::remove_file(place.path("trouble")).unwrap();
    let second = with_compiler(&place, &compiler, &["run", "m.toml"])
        .output()
        .unwrap();
    assert_eq!(code(&second), 0, "{}", text(&second));
    assert_eq!(count(&statuses(&place), "ok"), 6);
}

#[test]
fn a_full_folder_for_temporary_files_costs_nothing_but_another_run() {
    let place = Place::new(&cpu_manifest(""));
    // A file: nothing can be made in it, by any user.
    fs::write(place.path("tmp"), "").unwrap();
    let first = place
        .command(&["run", "m.toml"])
        .env("TMPDIR", place.path("tmp"))
        .output()
        .unwrap();
    assert_eq!(code(&first), 4, "{}", text(&first));
    assert_eq!(count(&statuses(&place), "error"), 3, "{}", text(&first));
    let second = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&second), 0, "{}", text(&second));
    assert_eq!(count(&statuses(&place), "ok"), 6);
}

#[test]
fn kernels_that_took_a_worker_with_them_are_compiled_again() {
    let place = Place::new(&cpu_manifest(""));
    let bad = place.path("bad.c");
    fs::write(
        &bad,
        "#include <stdlib.h>\n__attribute__((constructor)) static void bad(void) { abort(); }\n",
    )
    .unwrap();
    let compiler = compiler(&place, &format!("exec cc \"$@\" {bad:?}"));
    let first = with_compiler(&place, &compiler, &["run", "m.toml"])
        .output()
        .unwrap();
    assert_eq!(code(&first), 4, "{}", text(&first));
    assert_eq!(count(&statuses(&place), "crashed"), 3, "{}", text(&first));
    fs::remove_file(place.path("trouble")).unwrap();
    // A crash is the point's own failure, and stays until a retry is requested.
    let second = with_compiler(&place, &compiler, &["run", "m.toml"])
        .output()
        .unwrap();
    assert_eq!(code(&second), 4, "{}", text(&second));
    assert!(
        text(&second).contains("--retry crashed"),
        "{}",
        text(&second)
    );
    let third = with_compiler(&place, &compiler, &["run", "m.toml", "--retry", "crashed"]);
    let third = { third }.output().unwrap();
    assert_eq!(code(&third), 0, "{}", text(&third));
    assert_eq!(count(&statuses(&place), "ok"), 6);
}

#[test]
fn failures_are_counted_again_and_tried_again_when_asked() {
    let outcomes = "outcomes = [\n\
        { when = \"elements == 20\", status = \"oom\" },\n\
        { when = \"elements == 30 and backend == 'builtin'\", status = \"launch_error\" },\n]\n";
    let place = Place::new(&null_manifest(&format!("{SCRIPT}{outcomes}")));
    let first = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&first), 4, "{}", text(&first));
    let second = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&second), 4, "{}", text(&second));
    for words in [
        "nothing to do",
        "3 points have no result",
        "--retry oom,launch_error",
    ] {
        assert!(text(&second).contains(words), "{words}: {}", text(&second));
    }
    assert_eq!(journal_lines(&place), 9);
    let retried = place.sweeper(&["run", "m.toml", "--retry", "oom"]);
    assert_eq!(code(&retried), 4, "{}", text(&retried));
    assert!(text(&retried).contains("2 points in"), "{}", text(&retried));
    assert_eq!(journal_lines(&place), 11, "each try is a line");
    assert_eq!(statuses(&place).len(), 8, "a point has one row");
    let all = place.sweeper(&["run", "m.toml", "--retry", "failed"]);
    assert!(text(&all).contains("3 points in"), "{}", text(&all));
    let unknown = place.sweeper(&["run", "m.toml", "--retry", "broken"]);
    assert_eq!(code(&unknown), 2, "{}", text(&unknown));
}

#[test]
fn a_backend_that_the_device_can_not_have_is_no_failure() {
    let place = Place::new(include_str!("../manifests/faults.toml"));
    let run = [
        "run",
        "m.toml",
        "--device=cpu",
        "--set=grid.fault=[\"none\", \"threads\"]",
    ];
    let output = place.sweeper(&run);
    assert_eq!(code(&output), 0, "{}", text(&output));
    assert!(count(&statuses(&place), "unavailable") > 0);
    let again = place.sweeper(&[&run[..], &["--retry=failed"]].concat());
    assert_eq!(code(&again), 0, "{}", text(&again));
    assert!(text(&again).contains("nothing to do"), "{}", text(&again));
}

const HANGING: &str = "outcomes = [{ when = \"elements == 30\", status = \"timeout\" }]\n";

#[test]
fn a_worker_that_was_killed_from_outside_costs_nothing_but_another_run() {
    let place = Place::new(&null_manifest(&format!("{SCRIPT}{HANGING}")));
    let mut run = spawn(place.command(&["run", "m.toml"]));
    for lines in [5, 6] {
        wait_until("rows before the hanging point", || {
            journal_lines(&place) >= lines
        });
        // It must be measuring by now: two points of elements == 30 hang, one after the other.
        thread::sleep(Duration::from_millis(300));
        for worker in children(run.id()) {
            signal(worker, "-KILL");
        }
    }
    assert_eq!(run.wait().unwrap().code(), Some(4));
    assert_eq!(count(&statuses(&place), "crashed"), 2);
    let again = place.sweeper(&["run", "m.toml", "--set", "limits.point_timeout_s=1"]);
    assert_eq!(code(&again), 4, "{}", text(&again));
    assert_eq!(count(&statuses(&place), "crashed"), 0);
    assert_eq!(count(&statuses(&place), "timeout"), 2);
}

#[test]
fn a_worker_that_was_suspended_is_told_from_one_that_hangs() {
    let place = Place::new(&null_manifest(&format!("{SCRIPT}{HANGING}")));
    let mut run = spawn(place.command(&["run", "m.toml", "--set", "limits.point_timeout_s=2"]));
    wait_until("rows before the hanging point", || {
        journal_lines(&place) >= 5
    });
    let suspended = children(run.id());
    suspended.iter().for_each(|&worker| signal(worker, "-STOP"));
    assert_eq!(run.wait().unwrap().code(), Some(4));
    let reasons = column(&place.read("records.csv"), "reason");
    let of = |word: &str| {
        reasons
            .iter()
            .filter(|reason| reason.contains(word))
            .count()
    };
    assert_eq!((of("suspended"), of("no progress")), (1, 1), "{reasons:?}");
}

#[test]
fn a_run_that_was_suspended_has_no_timeouts() {
    let slow = "outcomes = [{ when = \"elements == 30 and backend == 'builtin'\", status = \"timeout\" }]\n";
    let place = Place::new(&null_manifest(&format!("{SCRIPT}{slow}")));
    let mut run = spawn(place.command(&["run", "m.toml", "--set", "limits.point_timeout_s=4"]));
    wait_until("rows before the hanging point", || {
        journal_lines(&place) >= 5
    });
    let before = journal_lines(&place);
    signal(run.id(), "-STOP");
    thread::sleep(Duration::from_secs(6));
    signal(run.id(), "-CONT");
    thread::sleep(Duration::from_millis(500));
    assert_eq!(
        journal_lines(&place),
        before,
        "its own sleep is nobody's silence"
    );
    assert_eq!(run.wait().unwrap().code(), Some(4));
}

#[test]
fn each_point_is_kept_as_soon_as_it_is_known() {
    let place = Place::new(&null_manifest(&format!("{SCRIPT}{HANGING}")));
    // Killed repeatedly inside one block, a run still finishes.
    for lines in [6, 7] {
        let args = ["run", "m.toml", "--set", "limits.point_timeout_s=1"];
        let mut run = spawn(place.command(&args));
        wait_until("another row", || journal_lines(&place) >= lines);
        run.kill().unwrap();
        run.wait().unwrap();
    }
    assert!(journal_lines(&place) >= 7);
}

#[test]
fn signals_are_heard_while_kernels_compile() {
    let place = Place::new(&cpu_manifest(""));
    let compiler = compiler(&place, "echo > started; sleep 300");
    for (verb, name) in [("run", "-TERM"), ("compile", "-INT"), ("run", "-HUP")] {
        let mut run = spawn(with_compiler(&place, &compiler, &[verb, "m.toml"]));
        // The compiler's child is there.
        wait_until("a compiler", || !children(run.id()).is_empty());
        wait_until("a compiler at work", || {
            let all = children(run.id()).into_iter();
            all.flat_map(children).any(|id| {
                let name = fs::read_to_string(format!("/proc/{id}/comm"));
                name.is_ok_and(|name| name.trim() == "sleep")
            })
        });
        let start = Instant::now();
        signal(run.id(), name);
        assert_eq!(run.wait().unwrap().code(), Some(75), "{verb} {name}");
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "before the compiler ended"
        );
    }
    assert!(place.run_folder().join("records.csv").exists());
}

#[test]
fn signals_are_heard_while_a_compiler_says_what_it_is() {
    let place = Place::new(&cpu_manifest(""));
    let script = place.path("compiler.sh");
    fs::write(&script, "#!/bin/sh\nexec sleep 300\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    let asked = |process: u32| {
        let names = children(process).into_iter();
        let mut names = names.map(|id| fs::read_to_string(format!("/proc/{id}/comm")));
        names.any(|name| name.is_ok_and(|name| name.trim() == "sleep"))
    };
    for verb in ["run", "compile"] {
        let command = with_compiler(&place, &script.to_string_lossy(), &[verb, "m.toml"]);
        let mut run = spawn(command);
        wait_until("a compiler that is asked", || asked(run.id()));
        signal(run.id(), "-TERM");
        assert_eq!(run.wait().unwrap().code(), Some(75), "{verb}");
    }
    assert!(!place.path("results").exists(), "a run with another id");
}

#[test]
fn two_signals_close_together_are_one() {
    let place = Place::new(&null_manifest(&format!("{SCRIPT}{HANGING}")));
    for names in [["-TERM", "-TERM"], ["-TERM", "-INT"], ["-INT", "-INT"]] {
        let mut run = spawn(place.command(&["run", "m.toml"]));
        wait_until("rows before the hanging point", || {
            journal_lines(&place) >= 5
        });
        thread::sleep(Duration::from_millis(200));
        // The second may come when the run has ended.
        for name in names {
            let _ = Command::new("kill")
                .args([name, &run.id().to_string()])
                .stderr(Stdio::null())
                .status();
        }
        assert_eq!(run.wait().unwrap().code(), Some(75), "{names:?}");
        assert_eq!(statuses(&place).len(), journal_lines(&place) - 1);
    }
}

#[test]
fn compiling_for_a_cache_that_takes_nothing_fails() {
    let place = Place::new(&cpu_manifest(""));
    let fine = place.sweeper(&["compile", "m.toml"]);
    assert_eq!(code(&fine), 0, "{}", text(&fine));
    let version = place.path("cache/v1");
    fs::remove_dir_all(version.join("o")).unwrap();
    fs::remove_file(version.join("acct")).unwrap();
    fs::create_dir(version.join("acct")).unwrap();
    let output = place.sweeper(&["compile", "m.toml"]);
    assert_eq!(code(&output), 6, "{}", text(&output));
    assert!(text(&output).contains("not stored"), "{}", text(&output));
    // A run is none the worse for it, and says so once.
    let run = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&run), 0, "{}", text(&run));
    assert_eq!(text(&run).matches("warning").count(), 1, "{}", text(&run));
}

#[test]
fn a_cache_that_is_too_small_is_said_once() {
    let place = Place::new(&cpu_manifest("").replace(
        "backends = [\"builtin\", \"compiled\"]",
        "backends = [\"compiled\"]",
    ));
    let small = ["--set", "cache.size_gb=0.00001"];
    let run = place.sweeper(&[&["run", "m.toml"], &small[..]].concat());
    assert_eq!(code(&run), 0, "{}", text(&run));
    assert!(text(&run).matches("warning").count() <= 1, "{}", text(&run));
    let compiled = place.sweeper(&[&["compile", "m.toml"], &small[..]].concat());
    assert_eq!(code(&compiled), 6, "{}", text(&compiled));
}

#[test]
fn a_point_that_can_not_fit_is_out_of_memory() {
    let place = Place::new(&cpu_manifest("").replace("[1, 1000, 300000]", "[1000, 1073741824]"));
    let output = shell(&place, "ulimit -v 6000000; $sweeper run m.toml");
    assert_eq!(code(&output), 4, "{}", text(&output));
    assert_eq!(
        statuses(&place),
        ["ok", "ok", "oom", "oom"],
        "{}",
        text(&output)
    );
    assert!(
        place
            .read("records.csv")
            .contains("8589934592 bytes needed"),
        "{}",
        text(&output)
    );
}
