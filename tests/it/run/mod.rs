//! Runs from end to end, through the program itself: on the null device to the byte, and on the
//! CPU.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::{Duration, Instant};

use super::place::{Place, SCRIPT, code, column, cpu_manifest, null_manifest, text};

mod devices;

#[test]
fn the_null_device_repeats_to_the_byte() {
    let places = [
        Place::new(&null_manifest(SCRIPT)),
        Place::new(&null_manifest(SCRIPT)),
    ];
    for place in &places {
        let output = place.sweeper(&["run", "m.toml"]);
        assert_eq!(code(&output), 0, "{}", text(&output));
    }
    for file in ["journal.jsonl", "records.csv", "samples.csv", "plan.json"] {
        assert_eq!(places[0].read(file), places[1].read(file), "{file}");
    }
    // Where the cache is differs, and is written down.
    let manifest = |place: &Place| {
        let text = place.read("manifest.toml");
        let lines = text.lines().filter(|line| !line.starts_with("dir = \"/"));
        lines.collect::<Vec<_>>().join("\n")
    };
    assert_eq!(manifest(&places[0]), manifest(&places[1]));
    let medians: Vec<f64> = column(&places[0].read("records.csv"), "median_ns")
        .iter()
        .map(|median| median.parse().unwrap())
        .collect();
    for (median, expected) in medians.iter().zip([1e3, 1e3, 2e3, 2e3, 3e3, 3e3, 4e3, 4e3]) {
        assert!(
            (median / expected - 1.0).abs() < 0.011,
            "{median} {expected}"
        );
    }
}

#[test]
fn records_have_the_promised_form() {
    let place = Place::new(&null_manifest(SCRIPT));
    place.sweeper(&["run", "m.toml"]);
    let expected = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/records.csv");
    crate::support::golden(&expected, &place.read("records.csv")).unwrap();
}

#[test]
fn finished_points_are_not_measured_again() {
    let place = Place::new(&null_manifest(SCRIPT));
    place.sweeper(&["run", "m.toml"]);
    let journal = place.read("journal.jsonl");
    let again = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&again), 0);
    assert!(
        text(&again).contains("nothing to do, 8 points measured before"),
        "{}",
        text(&again)
    );
    assert_eq!(place.read("journal.jsonl"), journal);
    // A missing row is measured; the other rows do not change.
    let shorter: Vec<&str> = journal.lines().take(6).collect();
    fs::write(
        place.run_folder().join("journal.jsonl"),
        shorter.join("\n") + "\n{\"crc\":\"torn",
    )
    .unwrap();
    let again = place.sweeper(&["run", "m.toml"]);
    assert!(
        text(&again).contains("last line was torn"),
        "{}",
        text(&again)
    );
    assert!(text(&again).contains("3 points"), "{}", text(&again));
    assert_eq!(place.read("journal.jsonl"), journal);
}

#[test]
fn crashes_and_hangs_cost_one_row_each() {
    let outcomes = "outcomes = [\n\
        { when = \"elements == 20 and backend == 'builtin'\", status = \"crashed\" },\n\
        { when = \"elements == 30 and backend == 'compiled'\", status = \"timeout\" },\n\
        { when = \"elements == 40\", status = \"oom\" },\n]\n";
    let limits = "[limits]\npoint_timeout_s = 1\n";
    let place = Place::new(&null_manifest(&format!("{SCRIPT}{outcomes}{limits}")));
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 4, "{}", text(&output));
    let records = place.read("records.csv");
    let mut found: Vec<(String, String, String)> = Vec::new();
    for ((elements, backend), status) in column(&records, "elements")
        .into_iter()
        .zip(column(&records, "backend"))
        .zip(column(&records, "status"))
    {
        found.push((elements, backend, status));
    }
    found.sort();
    let expected = [
        ("10", "builtin", "ok"),
        ("10", "compiled", "ok"),
        ("20", "builtin", "crashed"),
        ("20", "compiled", "ok"),
        ("30", "builtin", "ok"),
        ("30", "compiled", "timeout"),
        ("40", "builtin", "oom"),
        ("40", "compiled", "oom"),
    ]
    .map(|(elements, backend, status)| {
        (elements.to_owned(), backend.to_owned(), status.to_owned())
    });
    assert_eq!(found, expected);
    assert!(records.contains("signal 6 (abort)"), "{records}");
}

#[test]
fn failures_prune_larger_points() {
    let more = "outcomes = [{ when = \"elements == 20 and backend == 'builtin'\", status = \"oom\" }]\n\
        [limits]\nprune = { on = [\"oom\"], along = [\"elements\"] }\n";
    let place = Place::new(&null_manifest(&format!("{SCRIPT}{more}")));
    place.sweeper(&["run", "m.toml"]);
    let statuses = column(&place.read("records.csv"), "status");
    assert_eq!(
        statuses.iter().filter(|status| *status == "pruned").count(),
        2
    );
    assert_eq!(statuses.iter().filter(|status| *status == "ok").count(), 5);
}

#[test]
fn predicted_memory_is_compared_with_the_limit() {
    let place = Place::new(&null_manifest(&format!(
        "{SCRIPT}[limits]\nmax_memory_gb = 1.5e-7\n"
    )));
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 4);
    // 2 x 4 bytes an element: 160 bytes are allowed, 20 elements fit.
    let statuses = column(&place.read("records.csv"), "status");
    assert_eq!(
        statuses
            .iter()
            .filter(|status| *status == "predicted_oom")
            .count(),
        4
    );
}

#[test]
fn a_killed_run_goes_on_where_it_was() {
    let (place, mut child) = hanging_after_4_rows();
    child.kill().unwrap();
    child.wait().unwrap();
    let before = place.read("journal.jsonl");
    // Outcomes belong to the manifest's hash: the hanging points are cut short by the time-out.
    let output = place.sweeper(&["run", "m.toml", "--set", "limits.point_timeout_s=1"]);
    assert_eq!(code(&output), 4, "{}", text(&output));
    assert!(place.read("journal.jsonl").starts_with(&before));
    let statuses = column(&place.read("records.csv"), "status");
    assert_eq!(statuses.len(), 8);
    assert_eq!(
        statuses
            .iter()
            .filter(|status| *status == "timeout")
            .count(),
        2
    );
}

/// A run that has written four rows, and hangs at the next point.
fn hanging_after_4_rows() -> (Place, Child) {
    let slow = "outcomes = [{ when = \"elements == 30\", status = \"timeout\" }]\n";
    let place = Place::new(&null_manifest(&format!("{SCRIPT}{slow}")));
    let child = place.command(&["run", "m.toml", "--quiet"]).spawn();
    let start = Instant::now();
    while start.elapsed() < Duration::from_secs(30) {
        let results = place.path("results");
        if results.exists()
            && let Some(entry) = fs::read_dir(&results).unwrap().next()
            && let Ok(journal) = fs::read_to_string(entry.unwrap().path().join("journal.jsonl"))
            && journal.lines().count() > 4
        {
            return (place, child.unwrap());
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("no rows within 30 s");
}

#[test]
fn signals_leave_a_run_that_can_go_on() {
    for signal in ["-INT", "-TERM", "-USR1"] {
        let (place, mut child) = hanging_after_4_rows();
        let pid = child.id().to_string();
        assert!(
            Command::new("kill")
                .args([signal, &pid])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(child.wait().unwrap().code(), Some(75), "{signal}");
        assert_eq!(column(&place.read("records.csv"), "status").len(), 4);
    }
}

#[test]
fn two_runs_do_not_write_one_folder() {
    let (place, mut child) = hanging_after_4_rows();
    let second = place.sweeper(&["run", "m.toml"]);
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(code(&second), 6, "{}", text(&second));
    assert!(
        text(&second).contains("another sweeper is writing this run"),
        "{}",
        text(&second)
    );
}

#[test]
fn bad_journals_and_folders_are_refused_and_kept() {
    let place = Place::new(&null_manifest(SCRIPT));
    place.sweeper(&["run", "m.toml"]);
    let path = place.run_folder().join("journal.jsonl");
    let journal = fs::read_to_string(&path).unwrap();
    fs::write(&path, journal.replacen("elements", "Elements", 1)).unwrap();
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 6);
    assert!(text(&output).contains("damaged"), "{}", text(&output));
    fs::write(&path, &journal).unwrap();
    fs::remove_dir_all(place.path("results")).unwrap();
    fs::write(place.path("results"), "a file").unwrap();
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 6, "{}", text(&output));
    assert_eq!(fs::read_to_string(place.path("results")).unwrap(), "a file");
}

#[test]
fn the_cpu_computes_what_the_oracle_says() {
    let place = Place::new(&cpu_manifest(""));
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let records = place.read("records.csv");
    assert_eq!(column(&records, "checked"), ["full"; 6]);
    assert!(
        column(&records, "median_ns")
            .iter()
            .all(|time| time.parse::<f64>().unwrap() > 0.0)
    );
    // The processor's ceilings were measured, and are remembered.
    assert!(
        column(&records, "efficiency")
            .iter()
            .all(|ratio| ratio.parse::<f64>().unwrap() > 0.0)
    );
    let remembered = fs::read_dir(place.path("cache")).unwrap();
    let is_ceilings = |name: String| name.starts_with("ceilings-");
    let mut names = remembered.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.any(is_ceilings));
    // Two backends of one problem have equal outputs.
    let digests = column(&records, "output_digest");
    assert!(
        digests
            .chunks(2)
            .all(|pair| pair[0] == pair[1] && pair[0].len() == 64)
    );
    // The second run of a fresh attempt compiles nothing.
    let fresh = place.sweeper(&["run", "m.toml", "--fresh", "--require-cached"]);
    assert_eq!(code(&fresh), 0, "{}", text(&fresh));
    assert!(place.run_folder().join("attempt-1/records.csv").exists());
}

#[test]
fn require_cached_compiles_nothing() {
    let place = Place::new(&cpu_manifest(""));
    let output = place.sweeper(&["run", "m.toml", "--require-cached"]);
    assert_eq!(code(&output), 7, "{}", text(&output));
    assert!(
        text(&output).contains("--require-cached forbids"),
        "{}",
        text(&output)
    );
    assert_eq!(code(&place.sweeper(&["compile", "m.toml"])), 0);
    let place_again = place.sweeper(&["run", "m.toml", "--require-cached", "--fresh"]);
    assert_eq!(code(&place_again), 0, "{}", text(&place_again));
}

#[test]
fn kernels_are_hits_where_the_cache_had_them() {
    // Not a copy: the ceilings' probe compiles that one before.
    let place = Place::new(
        "schema = 1\nname = \"hits\"\nabout = \"Who had it?\"\n[grid]\nbatch = 1\nsequence = 2\n\
         dimension = [8, 9]\n[case.gelu]\nworkload = \"gelu\"\nbackends = [\"compiled\"]\n\
         phases = [\"forward\"]\n[device]\nuse = \"cpu\"\n[measure]\nrepeats = 2\n",
    );
    let hits = |args: &[&str], records: &str| {
        let output = place.sweeper(&[&["run", "m.toml"], args].concat());
        assert_eq!(code(&output), 0, "{}", text(&output));
        let records = place.read(records);
        ["kernels", "kernel_hits"].map(|name| column(&records, name))
    };
    let ones_of = |count: usize| vec!["1".to_owned(); count];
    let [kernels, cold] = hits(&[], "records.csv");
    assert_eq!(kernels, ones_of(2));
    assert_eq!(cold, ["0", "0"]);
    let [_, warm] = hits(&["--fresh"], "attempt-1/records.csv");
    assert_eq!(warm, ones_of(2));
}

#[test]
fn without_a_compiler_builtins_still_run() {
    let place = Place::new(&cpu_manifest(""));
    let output = place
        .command(&["run", "m.toml"])
        .env("CC", "/nowhere/cc")
        .output()
        .unwrap();
    assert_eq!(code(&output), 4, "{}", text(&output));
    let statuses = column(&place.read("records.csv"), "status");
    assert_eq!(statuses.iter().filter(|status| *status == "ok").count(), 3);
    assert_eq!(
        statuses
            .iter()
            .filter(|status| *status == "unavailable")
            .count(),
        3
    );
    assert!(
        text(&output).contains("apt-get install"),
        "{}",
        text(&output)
    );
}

#[test]
fn a_rerun_is_bit_identical_and_refuses_other_toolchains() {
    let place = Place::new(&cpu_manifest(""));
    place.sweeper(&["run", "m.toml"]);
    let name = place
        .run_folder()
        .file_name()
        .unwrap()
        .to_string_lossy()
        .into_owned();
    let prefix = &name["copies-".len()..][..6];
    let output = place.sweeper(&["rerun", prefix]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    assert!(
        text(&output).contains("6 bit-identical, 0 differ"),
        "{}",
        text(&output)
    );
    let other = place
        .command(&["rerun", prefix])
        .env("CC", "/nowhere/cc")
        .output()
        .unwrap();
    assert_eq!(code(&other), 7, "{}", text(&other));
    assert!(
        text(&other).contains("toolchain differs"),
        "{}",
        text(&other)
    );
}

#[test]
fn tensors_go_in_and_out() {
    let place = Place::new(&cpu_manifest(""));
    let output = place.sweeper(&["run", "m.toml", "--save-tensors", "tensors"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let files: Vec<PathBuf> = walk(&place.path("tensors"));
    let inputs = files
        .iter()
        .filter(|path| path.ends_with("inputs.safetensors"))
        .count();
    let outputs = files
        .iter()
        .filter(|path| path.ends_with("outputs.safetensors"))
        .count();
    assert_eq!((inputs, outputs), (3, 6));
    // Written tensors can be read again, only for the size that they belong to.
    let given = files
        .iter()
        .filter(|path| path.ends_with("inputs.safetensors"))
        .max_by_key(|path| fs::metadata(path).unwrap().len())
        .unwrap();
    let manifest =
        cpu_manifest("").replace("[case.copy]", &format!("[case.copy]\ninputs = {given:?}"));
    fs::write(place.path("given.toml"), manifest).unwrap();
    let output = place.sweeper(&["run", "given.toml", "--output-dir", "given"]);
    assert_eq!(code(&output), 4, "{}", text(&output));
    assert!(
        text(&output).contains("has shape [300000], the problem needs [1]"),
        "{}",
        text(&output)
    );
    let run = fs::read_dir(place.path("given"))
        .unwrap()
        .next()
        .unwrap()
        .unwrap()
        .path();
    let statuses = column(
        &fs::read_to_string(run.join("records.csv")).unwrap(),
        "status",
    );
    assert_eq!(statuses.iter().filter(|status| *status == "ok").count(), 2);
}

fn walk(folder: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files.extend(walk(&path));
        } else {
            files.push(path);
        }
    }
    files.sort();
    files
}

#[test]
fn why_names_what_differs() {
    let place = Place::new(&cpu_manifest(""));
    let before = place.sweeper(&["why", "m.toml", "elements=1000", "compiled"]);
    assert!(
        text(&before).contains("to compile: the cache has nothing like it"),
        "{}",
        text(&before)
    );
    place.sweeper(&["run", "m.toml"]);
    let after = place.sweeper(&["why", "m.toml", "elements=1000", "compiled"]);
    assert!(text(&after).contains("measured: run"), "{}", text(&after));
    assert!(text(&after).contains("in the cache"), "{}", text(&after));
    let other = place.sweeper(&[
        "why",
        "m.toml",
        "--repeats",
        "4",
        "elements=1000",
        "compiled",
    ]);
    let words = "measure.repeats: 3 -> 4";
    assert!(text(&other).contains(words), "{}", text(&other));
    let none = place.sweeper(&["why", "m.toml", "elements=7"]);
    assert_eq!(code(&none), 2);
}

#[test]
fn runs_are_listed_and_shown() {
    let place = Place::new(&null_manifest(SCRIPT));
    place.sweeper(&["run", "m.toml"]);
    let runs = text(&place.sweeper(&["runs"]));
    assert!(runs.contains("nulls") && runs.contains("8 ok"), "{runs}");
    let id = runs.split_whitespace().next().unwrap().to_owned();
    let shown = text(&place.sweeper(&["show", &id]));
    assert!(
        shown.contains("geometric mean") && shown.contains("builtin"),
        "{shown}"
    );
    assert!(shown.contains("began      no clock\n"), "{shown}");
    let json: serde_json::Value =
        serde_json::from_slice(&place.sweeper(&["show", &id, "--json"]).stdout).unwrap();
    assert_eq!(json["rows"].as_array().unwrap().len(), 8);
    assert_eq!(code(&place.sweeper(&["show", "ffffffff"])), 6);
}

#[test]
fn events_are_one_json_object_a_line() {
    let place = Place::new(&null_manifest(SCRIPT));
    let output = place.sweeper(&["run", "m.toml", "--json"]);
    let events: Vec<serde_json::Value> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.first().unwrap()["event"], "started");
    assert_eq!(events.last().unwrap()["event"], "ended");
    assert_eq!(
        events
            .iter()
            .filter(|event| event["event"] == "row")
            .count(),
        8
    );
}

#[test]
fn where_the_oracle_takes_too_long_a_smaller_problem_is_checked() {
    let manifest = "schema = 1\nname = \"long\"\nabout = \"Is it right?\"\n[grid]\nT = 300\nK = 8\n\
                    C = 5\npotentials = [\"materialized\", \"decomposed\"]\n[case.semicrf]\n\
                    workload = \"semicrf\"\nbackends = [\"streaming\", \"fused_reference\"]\n\
                    phases = [\"forward\", \"both\"]\n[device]\nuse = \"cpu\"\n\
                    [measure]\nrepeats = 3\n[limits]\noracle_s = 0.001\n";
    let place = Place::new(manifest);
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let records = place.read("records.csv");
    assert_eq!(column(&records, "checked"), ["reduced"; 8]);
    assert!(
        column(&records, "worst_error")
            .iter()
            .all(|error| { error.parse::<f64>().unwrap() < 1e-4 })
    );
}
