//! Programs of the user, which are started for each run.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::{copied, rows};
use crate::place::{Place, code, text};

/// The rows of a folder's only run by backend and level.
fn by_backend(place: &Place) -> BTreeMap<(String, String), BTreeMap<String, String>> {
    let key = |row: &BTreeMap<String, String>| (row["backend"].clone(), row["level"].clone());
    rows(place)
        .into_iter()
        .map(|row| (key(&row), row))
        .collect()
}

#[test]
fn commands_are_measured_checked_and_read() {
    let place = copied();
    let ran = place.sweeper(&["run", "commands.toml", "--device", "cpu"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    let rows = by_backend(&place);
    assert_eq!(rows.len(), 8);
    let row = |backend: &str, level: &str| &rows[&(backend.to_owned(), level.to_owned())];
    let number = |row: &BTreeMap<String, String>, column: &str| -> f64 {
        row[column]
            .parse()
            .unwrap_or_else(|_| panic!("{column}: {row:?}"))
    };
    let bytes = fs::metadata(place.path("add.c")).unwrap().len() as f64;
    for level in ["3", "5"] {
        let copies = row("copies", level);
        assert_eq!(copies["checked"], "full");
        assert_eq!(
            number(copies, "metric_speed"),
            format!("2{level}").parse::<f64>().unwrap()
        );
        assert_eq!(
            number(copies, "metric_speed_low"),
            number(copies, "metric_speed_high")
        );
        assert_eq!(number(copies, "metric_bytes"), bytes);
        assert_eq!(number(copies, "metric_size"), bytes);
        assert!(number(copies, "metric_peak_bytes") > 100_000.0);
        assert!(number(copies, "median_ns") > 50_000.0);
        // Kernels and memory traffic of a program are not known.
        assert_eq!((&*copies["launches"], &*copies["read_bytes"]), ("", ""));

        let itself = row("itself", level);
        let took_ns = format!("{level}e6").parse::<f64>().unwrap();
        assert_eq!(number(itself, "median_ns"), took_ns);
        assert_eq!(itself["checked"], "none");

        let prepared = row("prepared{twice=2}", level);
        let processors_ns =
            (number(prepared, "metric_user_s") + number(prepared, "metric_system_s")) * 1e9;
        assert!(processors_ns > 0.0);
        assert!((number(prepared, "median_ns") / processors_ns - 1.0).abs() < 0.9);
    }
    let again = text(&place.sweeper(&["run", "commands.toml", "--device", "cpu"]));
    assert!(
        again.contains("nothing to do, 8 points measured before"),
        "{again}"
    );
    let report = place.sweeper(&["report", place.run_folder().to_str().unwrap()]);
    assert_eq!(code(&report), 0, "{}", text(&report));
    let table = place.read("report/metrics.csv");
    assert!(table.contains("speed,MB/s,higher,"), "{table}");
}

#[test]
fn what_a_command_does_wrong_costs_its_own_row() {
    let place = copied();
    let ran = place.sweeper(&["run", "bad_commands.toml", "--device", "cpu"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&place);
    let found: BTreeMap<&str, (&str, &str)> = rows
        .iter()
        .map(|row| (&*row["backend"], (&*row["status"], &*row["reason"])))
        .collect();
    for (backend, status, reason) in [
        ("fails", "error", "`sh` ended with status 3: the reason"),
        ("dies", "crashed", "`sh` was ended by signal 11"),
        ("hangs", "timeout", "no progress within 3"),
        (
            "missing",
            "unavailable",
            "no program `no-such-program-anywhere` in the folders",
        ),
        (
            "silent",
            "error",
            "the metric `speed`: `speed ([0-9]+)` matches nothing",
        ),
        ("wrong", "wrong", "the digest of `out` is "),
        ("once", "wrong", "the digest of `stdout` is "),
        ("between", "wrong", "the digest of `stdout` is "),
        ("forks", "ok", ""),
        ("sound", "ok", ""),
    ] {
        let (was, why) = found[backend];
        assert_eq!(was, status, "{backend}: {why}");
        assert!(why.contains(reason), "{backend}: {why}");
    }
    assert_eq!(found.len(), 10);
}

#[test]
fn what_a_program_that_hangs_has_started_and_written_goes_with_it() {
    let place = Place::new(
        "schema = 1\n[workload.work]\n[backend.hangs]\nworkload = \"work\"\n\
         command = [\"sh\", \"-c\", \"sleep 1000 & echo $! {scratch} > seen; wait\"]\n\
         [case.work]\nworkload = \"work\"\n[measure]\nrepeats = 3\n\
         [limits]\npoint_timeout_s = 3\n",
    );
    let ran = place.sweeper(&["run", "m.toml", "--device", "cpu"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let seen = fs::read_to_string(place.path("seen")).unwrap();
    let (process, scratch) = seen.trim().split_once(' ').unwrap();
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    // One that ended may wait for its new parent.
    assert!(stat.is_empty() || stat.contains(") Z "), "{stat}");
    assert!(!Path::new(scratch).exists(), "{scratch}");
}

#[test]
fn numbers_that_no_record_can_hold_cost_their_own_row() {
    let backend = |name: &str, keys: &str| {
        format!(
            "[backend.{name}]\nworkload = \"work\"\n\
             command = [\"sh\", \"-c\", \"echo 1e99; exit 0\"]\n{keys}\n"
        )
    };
    let metric = "metrics.took = { regex = '.+' }";
    let manifest = [
        "schema = 1\n[workload.work]\n".to_owned(),
        backend(
            "too_long",
            &format!("{metric}\ntime = {{ metric = \"took\" }}"),
        ),
        backend("large", metric),
        backend("unprepared", "prepare = [\"false\"]"),
        backend("without_input", "stdin = \"nowhere\""),
        backend("sound", ""),
        "[case.work]\nworkload = \"work\"\n[measure]\nrepeats = 3\n".to_owned(),
    ];
    let place = Place::new(&manifest.concat());
    let ran = place.sweeper(&["run", "m.toml", "--device", "cpu"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&place);
    let found = rows.iter().map(|row| {
        let of = |column: &str| row[column].as_str();
        (of("backend"), (of("status"), of("reason")))
    });
    let found: BTreeMap<&str, (&str, &str)> = found.collect();
    for (backend, status, reason) in [
        ("too_long", "error", "and no time of a run in seconds"),
        ("large", "ok", ""),
        (
            "unprepared",
            "error",
            "`prepare`: `false` ended with status 1",
        ),
        (
            "without_input",
            "launch_error",
            "`stdin`: `nowhere`: No such file",
        ),
        ("sound", "ok", ""),
    ] {
        let (was, why) = found[backend];
        assert_eq!(was, status, "{backend}: {why}");
        assert!(why.contains(reason), "{backend}: {why}");
    }
    assert_eq!(found.len(), 5);
}

#[test]
fn a_reason_shows_the_end_of_a_long_last_line() {
    let place = with_program("head -c 3000 /dev/zero | tr '\\0' a >&2; echo the end >&2; exit 3");
    let ran = place.sweeper(&["run", "m.toml", "--device", "cpu"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let reason = &rows(&place)[0]["reason"];
    assert!(reason.contains("` ended with status 3: ...aaa"), "{reason}");
    assert!(
        reason.ends_with("athe end") && reason.len() < 500,
        "{reason}"
    );
}

/// A manifest with a program beside it.
fn with_program(script: &str) -> Place {
    let place = Place::new(
        "schema = 1\n[workload.work]\n[backend.tool]\nworkload = \"work\"\n\
         command = [\"./tool\"]\n[case.work]\nworkload = \"work\"\n[measure]\nrepeats = 3\n",
    );
    write_program(&place, script);
    place
}

fn write_program(place: &Place, script: &str) {
    let path = place.path("tool");
    fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn another_program_is_another_run_and_a_rerun_refuses_it() {
    let place = with_program("exit 0");
    let ran = place.sweeper(&["run", "m.toml", "--device", "cpu"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    let folder = place.run_folder();
    let rerun = place.sweeper(&["rerun", folder.to_str().unwrap()]);
    assert_eq!(code(&rerun), 0, "{}", text(&rerun));

    write_program(&place, "true");
    let rerun = place.sweeper(&["rerun", folder.to_str().unwrap()]);
    let said = text(&rerun);
    assert!(said.contains("is not the program of this run"), "{said}");
    assert_ne!(code(&rerun), 0);
    let ran = place.sweeper(&["run", "m.toml", "--device", "cpu"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    let runs = fs::read_dir(place.path("results")).unwrap().count();
    assert_eq!(runs, 2, "the changed program belongs to another run");
}

/// A manifest whose first backend is a script of `sh`, with another program beside it.
fn with_script(keys: &str) -> Place {
    let place = Place::new(&format!(
        "schema = 1\n[workload.work]\n[backend.script]\nworkload = \"work\"\n\
         command = [\"sh\", \"work.sh\"]\n{keys}\n[backend.other]\nworkload = \"work\"\n\
         command = [\"true\"]\n[case.work]\nworkload = \"work\"\n[measure]\nrepeats = 3\n"
    ));
    fs::write(place.path("work.sh"), ". ./lib.sh\n").unwrap();
    fs::write(place.path("lib.sh"), "true\n").unwrap();
    place
}

fn run(place: &Place) -> String {
    let ran = place.sweeper(&["run", "m.toml", "--device", "cpu"]);
    assert_eq!(code(&ran), 0, "{}", text(&ran));
    text(&ran)
}

fn runs(place: &Place) -> usize {
    fs::read_dir(place.path("results")).unwrap().count()
}

#[test]
fn an_edited_script_is_measured_again_and_a_rerun_refuses_it() {
    let place = with_script("");
    run(&place);
    let folder = place.run_folder();
    let manifest = fs::read_to_string(folder.join("manifest.toml")).unwrap();
    fs::write(place.path("lib.sh"), "exit 0\n").unwrap();
    run(&place);
    assert_eq!(runs(&place), 1, "`lib.sh` is not a source of it");

    fs::write(place.path("work.sh"), ". ./lib.sh\nexit 0\n").unwrap();
    let again = run(&place);
    assert_eq!(runs(&place), 2);
    assert!(again.contains("work.sh changed since run"), "{again}");
    // That of the other backend is taken from the first run.
    assert!(again.contains(": 1 of "), "{again}");

    let rerun = place.sweeper(&["rerun", folder.to_str().unwrap()]);
    let said = text(&rerun);
    assert_ne!(code(&rerun), 0, "{said}");
    assert!(
        said.contains("work.sh` is not the source of this run"),
        "{said}"
    );
    fs::remove_file(place.path("work.sh")).unwrap();
    let said = text(&place.sweeper(&["rerun", folder.to_str().unwrap()]));
    assert!(said.contains("there is no such source now"), "{said}");

    // A run of which no digest of the script was recorded stays what it was.
    fs::write(place.path("work.sh"), "true\n").unwrap();
    let line = manifest
        .lines()
        .find(|line| line.contains("work.sh\" ="))
        .unwrap();
    let (before, after) = line.split_once(", ").unwrap();
    let old = manifest.replace(line, &format!("{before} }}"));
    assert!(!old.contains("work.sh\" ="), "{after}: {old}");
    fs::write(place.path("old.toml"), old).unwrap();
    let resolved = || text(&place.sweeper(&["check", "old.toml", "--resolved"]));
    let first = resolved();
    assert!(first.contains("sh = \""), "{first}");
    fs::write(place.path("work.sh"), "exit 0\n").unwrap();
    assert_eq!(resolved(), first);
}

/// The script is edited while it is measured, as a person may do it who tries the next version.
#[test]
fn a_script_that_is_edited_while_it_is_measured_costs_its_own_row() {
    let place = with_script("");
    let edited = "[ -e edited ] || { touch edited; echo true >> work.sh; }\n";
    fs::write(place.path("work.sh"), edited).unwrap();
    let ran = place.sweeper(&["run", "m.toml", "--device", "cpu"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let rows = rows(&place);
    let row = |backend: &str| rows.iter().find(|row| row["backend"] == backend).unwrap();
    assert_eq!(row("other")["status"], "ok");
    assert_eq!(row("script")["status"], "error");
    let reason = &row("script")["reason"];
    let wanted = "work.sh` changed since the manifest was read: run again";
    assert!(reason.contains(wanted), "{reason}");
    run(&place);
    assert_eq!(runs(&place), 2, "the edited script is another one");
}

#[test]
fn a_file_that_a_command_writes_is_none_of_its_sources() {
    let writes = |keys: &str| {
        let place = with_script(keys);
        let manifest = fs::read_to_string(place.path("m.toml")).unwrap();
        let manifest = manifest.replace(
            "[\"sh\", \"work.sh\"]",
            "[\"tee\", \"out.txt\"]\nstdin = \"lib.sh\"",
        );
        fs::write(place.path("m.toml"), manifest).unwrap();
        fs::write(place.path("out.txt"), "of another time\n").unwrap();
        place
    };
    let place = writes("");
    let ran = place.sweeper(&["run", "m.toml", "--device", "cpu"]);
    assert_eq!(code(&ran), 4, "{}", text(&ran));
    let said = text(&ran);
    assert!(said.contains("If the command itself writes it"), "{said}");
    let place = writes("sources = []");
    run(&place);
    run(&place);
    assert_eq!(runs(&place), 1);
}

/// A target of `make` is a file from the second run on.
#[test]
fn what_a_command_makes_is_none_of_its_sources() {
    let place = with_script("");
    let manifest = fs::read_to_string(place.path("m.toml")).unwrap();
    let make = "[\"sh\", \"-c\", \"printf '\\\\000' > built\"]";
    let manifest = manifest.replace("[\"sh\", \"work.sh\"]", "[\"touch\", \"built\"]");
    let manifest = format!("{manifest}\n[backend.make]\nlike = \"script\"\nprepare = {make}\n");
    fs::write(place.path("m.toml"), manifest).unwrap();
    run(&place);
    assert_eq!(fs::read(place.path("built")).unwrap(), [0]);
    let again = place.sweeper(&["run", "m.toml", "--device", "cpu"]);
    assert!(text(&again).contains("nothing to do"), "{}", text(&again));
}

/// A program may do less where nobody reads what it prints.
#[test]
fn standard_output_of_all_programs_of_a_workload_goes_to_one_kind_of_place() {
    let manifest = |keys: &str| {
        format!(
            "schema = 1\n[workload.tell]\n[backend.plain]\nworkload = \"tell\"\n\
             command = [\"sh\", \"-c\", \"[ -f /proc/self/fd/1 ] || exit 3; echo 7\"]\n{keys}\n\
             [backend.read]\nlike = \"plain\"\nmetrics.last = {{ regex = '([0-9]+)' }}\n\
             [case.tell]\nworkload = \"tell\"\n[measure]\nrepeats = 2\n"
        )
    };
    let place = Place::new(&manifest(""));
    run(&place);
    let place = Place::new(&manifest("stdout = \"null\""));
    let refused = text(&place.sweeper(&["check", "m.toml"]));
    assert!(refused.contains("reads standard output"), "{refused}");
    let alone = manifest("").replace("metrics.last = { regex = '([0-9]+)' }", "");
    let place = Place::new(&alone);
    let ran = text(&place.sweeper(&["run", "m.toml", "--device", "cpu"]));
    assert!(ran.contains("ended with status 3"), "{ran}");
}

#[test]
fn files_that_a_command_names_as_its_sources_are_part_of_its_identity() {
    let place = with_script("sources = [\"work.sh\", \"lib.sh\"]");
    run(&place);
    fs::write(place.path("lib.sh"), "exit 0\n").unwrap();
    let again = run(&place);
    assert_eq!(runs(&place), 2);
    assert!(again.contains("lib.sh changed since run"), "{again}");

    // Those of the commands around it.
    for around in [
        "check = { command = [\"sh\", \"lib.sh\"] }",
        "prepare = [\"sh\", \"lib.sh\"]",
        "prepare = [[\"true\"], [\"sh\", \"lib.sh\"]]",
    ] {
        let place = with_script(around);
        run(&place);
        fs::write(place.path("lib.sh"), "exit 0\n").unwrap();
        assert!(run(&place).contains("lib.sh changed since run"), "{around}");
    }

    // None at all, as the user says.
    let place = with_script("sources = []");
    run(&place);
    fs::write(place.path("work.sh"), "exit 0\n").unwrap();
    run(&place);
    assert_eq!(runs(&place), 1);

    let place = with_script("sources = [\"lib.sh\", \"none.sh\", \".\"]");
    let said = text(&place.sweeper(&["check", "m.toml"]));
    for part in [
        "can't use the file `none.sh`",
        "can't use the file `.`",
        "m.toml:6:22",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
}

#[test]
fn files_that_settings_name_are_part_of_the_identity_as_those_of_the_manifest_are() {
    for set in [
        "backend.script.directory=other",
        "backend.script.command=[\"sh\", \"other/work.sh\"]",
        "backend.script.command=[\"other/work.sh\"]",
        "backend.script.sources=[\"other/work.sh\"]",
    ] {
        let place = with_script("");
        fs::create_dir(place.path("other")).unwrap();
        let script = place.path("other/work.sh");
        fs::write(&script, "#!/bin/sh\ntrue\n").unwrap();
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
        let run = || {
            let ran = place.sweeper(&["run", "m.toml", "--device", "cpu", "--set", set]);
            assert_eq!(code(&ran), 0, "{set}: {}", text(&ran));
            text(&ran)
        };
        run();
        fs::write(&script, "#!/bin/sh\nexit 0\n").unwrap();
        let again = run();
        let wanted = "work.sh changed since run";
        assert!(again.contains(wanted), "{set}: {again}");
        run();
        assert_eq!(runs(&place), 2, "{set}");
    }
}

/// Moving a checkout makes no other run of it.
#[test]
fn the_folder_of_a_script_is_no_part_of_its_identity() {
    let [here, there] = [with_script(""), with_script("")].map(|place| {
        run(&place);
        place.run_folder().file_name().unwrap().to_owned()
    });
    assert_eq!(here, there);
}
