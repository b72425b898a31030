//! Comparisons from the command line: files and runs, four renderings, exit codes, `doctor --aa`.

use std::fs;
use std::path::Path;

use super::place::{Place, SCRIPT, code, cpu_manifest, null_manifest, text};
use crate::support::golden;

/// Two files beside each other: the golden records, and a copy with some changed rows.
fn two_files() -> Place {
    let place = Place::new("");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let records = fs::read_to_string(root.join("tests/golden/records.csv")).unwrap();
    fs::write(place.path("a.csv"), &records).unwrap();
    let mut reader = csv::Reader::from_reader(records.as_bytes());
    let header = reader.headers().unwrap().clone();
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer.write_record(&header).unwrap();
    for (row, record) in reader.records().enumerate() {
        let record = record.unwrap();
        let fields: Vec<String> = header
            .iter()
            .zip(&record)
            .map(|(name, field)| changed(row, name, field))
            .collect();
        // The last point is only in the first file.
        if row != 7 {
            writer.write_record(&fields).unwrap();
        }
    }
    let changed = writer.into_inner().unwrap();
    fs::write(place.path("b.csv"), changed).unwrap();
    place
}

/// Row 0 is 5 % slower, row 1 is 20 % faster, row 2 failed, row 3 has other outputs.
fn changed(row: usize, name: &str, field: &str) -> String {
    let is_time = name.ends_with("_ns") && name != "compile_ns" && name != "roofline_ns";
    let factor = match row {
        0 => 1.05,
        1 => 0.8,
        _ => 1.0,
    };
    match (row, name) {
        _ if is_time && !field.is_empty() => (field.parse::<f64>().unwrap() * factor).to_string(),
        (2, "status") => "oom".to_owned(),
        (2, "reason") => "too | much".to_owned(),
        _ => field.to_owned(),
    }
}

#[test]
fn a_comparison_in_every_form() {
    let place = two_files();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    for (name, flag) in [
        ("compare.txt", "--all"),
        ("compare.md", "--markdown"),
        ("compare.csv", "--csv"),
        ("compare.json", "--json"),
    ] {
        let output = place.sweeper(&["compare", "a.csv", "b.csv", "--by", "backend", flag]);
        assert_eq!(code(&output), 0, "{}", text(&output));
        golden(&root.join(name), &text(&output)).unwrap();
    }
}

#[test]
fn exit_codes_are_those_that_were_asked_for() {
    let place = two_files();
    for (sides, condition, expected) in [
        (["a.csv", "b.csv"], "slower > 3%", 5),
        (["a.csv", "b.csv"], "slower > 6%", 0),
        (["a.csv", "b.csv"], "faster > 10%", 5),
        (["a.csv", "b.csv"], "status", 5),
        (["a.csv", "b.csv"], "missing", 5),
        (["a.csv", "b.csv"], "slower > 6%,missing", 5),
        // An improvement does not fail.
        (["b.csv", "a.csv"], "status", 0),
        (["b.csv", "a.csv"], "missing", 0),
        (["b.csv", "a.csv"], "slower > 30%", 0),
        (["a.csv", "a.csv"], "slower,status,missing,digest", 0),
        (["a.csv", "b.csv"], "slower > 0.5%", 2),
        (["a.csv", "b.csv"], "slowest", 2),
        (["a.csv", "c.csv"], "slower", 6),
    ] {
        let output = place.sweeper(&["compare", sides[0], sides[1], "--fail-on", condition]);
        assert_eq!(code(&output), expected, "{condition}: {}", text(&output));
    }
}

#[test]
fn wrong_command_lines_say_what_to_do() {
    let place = two_files();
    for (args, part) in [
        (&["a.csv"][..], "needs two sides"),
        (&["a.csv", "b.csv", "a.csv"], "no `--` between"),
        (&["a.csv", "b.csv", "--margin", "1"], "a percentage"),
        (&["a.csv", "b.csv", "--by", "colour"], "there are backend"),
        (
            &["a.csv", "--pairs", "yes", "--", "b.csv", "b.csv"],
            "1 and 2",
        ),
    ] {
        let output = place.sweeper(&[&["compare"], args].concat());
        assert_eq!(code(&output), 2, "{}", text(&output));
        assert!(text(&output).contains(part), "{args:?}: {}", text(&output));
    }
    fs::create_dir(place.path("empty")).unwrap();
    let output = place.sweeper(&["compare", "a.csv", "empty"]);
    assert_eq!(code(&output), 6);
    assert!(
        text(&output).contains("no run is in this folder"),
        "{}",
        text(&output)
    );
    let records = fs::read_to_string(place.path("a.csv")).unwrap();
    fs::write(place.path("cut.csv"), &records[..records.len() / 2]).unwrap();
    let output = place.sweeper(&["compare", "a.csv", "cut.csv"]);
    assert_eq!(code(&output), 6, "{}", text(&output));
    assert!(text(&output).contains("cut.csv:"), "{}", text(&output));
}

#[test]
fn folders_stand_for_the_runs_in_them() {
    let place = Place::new(&null_manifest(&SCRIPT.replace("0.01", "0.001")));
    let slower = null_manifest("[null]\ntime_ns = \"104 * elements\"\nnoise = 0.001\n");
    fs::write(place.path("slower.toml"), slower).unwrap();
    for number in ["1", "2", "3"] {
        place.sweeper(&["run", "m.toml", "--output-dir", &format!("old/{number}")]);
        place.sweeper(&[
            "run",
            "slower.toml",
            "--output-dir",
            &format!("new/{number}"),
        ]);
    }
    let json = |args: &[&str]| -> serde_json::Value {
        let output = place.sweeper(&[&["compare", "--json"], args].concat());
        assert_eq!(code(&output), 0, "{}", text(&output));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    // The scripted device's clock stands still: nothing says that runs were made in turns.
    let found = json(&["old", "new"]);
    assert_eq!(found["design"], "apart");
    assert_eq!(found["verdicts"]["SLOWER"], 8, "{found:#}");
    assert_eq!(found["a"]["origins"].as_array().unwrap().len(), 3);
    let found = json(&["old", "new", "--pairs", "yes"]);
    assert_eq!(
        (&found["design"], &found["pairs"]),
        (&"pairs".into(), &3.into())
    );
    let found = json(&["old/1", "old/2", "--", "new/1"]);
    assert_eq!(found["design"], "single");
    let ratio = found["groups"][0]["estimate"]["ratio"].as_f64().unwrap();
    assert!((ratio / 1.04 - 1.0).abs() < 2e-3, "{ratio}");
    let same = json(&["old/1", "old/2"]);
    assert_eq!(same["verdicts"]["SAME"], 8);
    // The script is part of the manifest, so that the manifest's change is reported first.
    let shown = text(&place.sweeper(&["compare", "old/1", "new/1"]));
    let changed = shown.find("manifest hash").unwrap();
    assert!(changed < shown.find("SLOWER").unwrap(), "{shown}");
}

/// A sweep of two forms of potentials, with the exports of the semi-CRF guide.
fn two_forms(time: &str) -> String {
    format!(
        "schema = 1\nname = \"forms\"\nabout = \"Are two forms told apart?\"\n\
         [grid]\nT = [8, 16]\nK = 4\nC = 3\npotentials = [\"materialized\", \"decomposed\"]\n\
         [case.semicrf]\nworkload = \"semicrf\"\nbackends = [\"fused\", \"streaming\"]\n\
         phases = [\"forward\"]\n[device]\nuse = \"null\"\n[measure]\nrepeats = 5\n\
         [output]\nexports = [\"benchmark_full\", \"memory_breakdown\"]\n\
         [null]\ntime_ns = \"{time}\"\nnoise = 0.001\n"
    )
}

fn compared(place: &Place, args: &[&str]) -> serde_json::Value {
    let output = place.sweeper(&[&["compare", "--json"], args].concat());
    assert_eq!(code(&output), 0, "{}", text(&output));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Makes a run and says that it began at a time: the scripted device's clock stands still.
fn run_at(place: &Place, manifest: &str, folder: &str, fresh: bool, start_s: f64) {
    let mut args = vec!["run", manifest, "--output-dir", folder];
    args.extend(fresh.then_some("--fresh"));
    let output = place.sweeper(&args);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let mut runs = sweeper::report::source::folders::runs_below(&place.path(folder)).unwrap();
    let path = runs.pop().unwrap().join("environment.json");
    let read = fs::read_to_string(&path).unwrap();
    let mut held: serde_json::Value = serde_json::from_str(&read).unwrap();
    held["started_unix_s"] = start_s.into();
    fs::write(path, held.to_string()).unwrap();
}

#[test]
fn exports_of_a_run_are_not_compared_as_further_runs() {
    let place = Place::new(&two_forms("100 * T"));
    fs::write(place.path("slower.toml"), two_forms("104 * T")).unwrap();
    run_at(&place, "m.toml", "old", false, 1.0);
    run_at(&place, "slower.toml", "new", false, 2.0);
    let found = compared(&place, &["old", "new"]);
    assert_eq!(found["a"]["origins"].as_array().unwrap().len(), 1);
    assert_eq!(found["paired_by"], "point", "{found:#}");
    assert_eq!(found["points"].as_array().unwrap().len(), 8);
    assert_eq!(found["design"], "single");
}

#[test]
fn runs_in_turns_are_found_with_their_attempts() {
    let place = Place::new(&two_forms("100 * T"));
    fs::write(place.path("slower.toml"), two_forms("104 * T")).unwrap();
    // The last two rounds are attempts, in the folders of the second round.
    for (round, folder) in ["1", "2", "2", "2"].into_iter().enumerate() {
        let fresh = round > 1;
        let start_s = 10.0 * round as f64 + 1.0;
        run_at(&place, "m.toml", &format!("old/{folder}"), fresh, start_s);
        let folder = format!("new/{folder}");
        run_at(&place, "slower.toml", &folder, fresh, start_s + 5.0);
    }
    let found = compared(&place, &["old", "new", "--by", "backend"]);
    assert_eq!(
        (&found["design"], &found["pairs"]),
        (&"pairs".into(), &4.into()),
        "{found:#}"
    );
    assert_eq!(found["points"].as_array().unwrap().len(), 8);
    let backends: Vec<&str> = found["groups"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|group| group["value"].as_str())
        .collect();
    assert_eq!(backends, ["all points", "fused", "streaming"]);
}

#[test]
fn different_problems_are_never_one_point() {
    let place = Place::new(&two_forms("100 * T"));
    run_at(&place, "m.toml", "old", false, 1.0);
    run_at(&place, "m.toml", "new", false, 2.0);
    let below = |side: &str| {
        let runs = sweeper::report::source::folders::runs_below(&place.path(side)).unwrap();
        runs[0].join("exports").to_string_lossy().into_owned()
    };
    // The form of potentials is in the folders' names alone.
    let (a, b) = (below("old"), below("new"));
    let found = compared(&place, &[&a, &b]);
    assert_eq!(found["points"].as_array().unwrap().len(), 8, "{found:#}");
    // A file that was moved out of its folder does not tell the forms apart.
    let decomposed = format!("{b}/potentials=decomposed/benchmark_full.csv");
    fs::copy(decomposed, place.path("theirs.csv")).unwrap();
    let output = place.sweeper(&["compare", &a, "theirs.csv"]);
    assert_eq!(code(&output), 6, "{}", text(&output));
    let said = text(&output);
    let expected = "different problems (potentials is decomposed and materialized)";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn the_doctor_compares_a_program_with_itself() {
    let place = Place::new(&cpu_manifest("").replace("[1, 1000, 300000]", "[1000]"));
    let args = ["doctor", "--aa", "--runs", "24", "--manifest", "m.toml"];
    let output = place.sweeper(&args);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let shown = text(&output);
    for part in [
        "24 runs of 2 points",
        "one run a side",
        "3 pairs in turns",
        "counts on that",
    ] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
    // A comparison of single runs relies on the measured spread, and says so.
    for number in ["1", "2"] {
        place.sweeper(&["run", "m.toml", "--output-dir", number]);
    }
    let output = text(&place.sweeper(&["compare", "1", "2"]));
    assert!(output.contains("by `sweeper doctor --aa`"), "{output}");
    let given = text(&place.sweeper(&["compare", "1", "2", "--spread", "2%"]));
    assert!(given.contains("by --spread"), "{given}");
    let few = place.sweeper(&["doctor", "--aa", "--runs", "3"]);
    assert_eq!(code(&few), 2, "{}", text(&few));
    let alone = place.sweeper(&["doctor", "--runs", "30"]);
    assert_eq!(code(&alone), 2, "{}", text(&alone));
}

#[test]
fn a_scripted_device_agrees_with_itself() {
    let place = Place::new(&null_manifest(SCRIPT));
    let output = place.sweeper(&[
        "doctor",
        "--aa",
        "--runs",
        "24",
        "--manifest",
        "m.toml",
        "--json",
    ]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let found: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(found["assessment"]["runs"], 24);
    assert_eq!(found["remembered"], serde_json::Value::Null);
    for trials in found["assessment"]["trials"].as_array().unwrap() {
        assert_eq!(trials["false_positives"], 0, "{trials}");
    }
}

#[test]
fn metrics_of_programs_are_compared() {
    let place = Place::new("");
    let manifest = |sign: &str| {
        let text = format!(
            "schema = 1\n\
             [workload.work]\n\
             params = {{ level = {{ int = [1, 9] }} }}\n\
             [backend.packs]\n\
             workload = \"work\"\n\
             command = [\"sh\", \"-c\", \"seq {{level}}{sign} > {{scratch}}/out\"]\n\
             metrics = {{ size = {{ file = \"{{scratch}}/out\", bytes = true, better = \"lower\" }} }}\n\
             [case.work]\n\
             workload = \"work\"\n\
             grid = {{ level = [3] }}\n\
             [measure]\n\
             repeats = 3\n"
        );
        fs::write(place.path("m.toml"), text).unwrap();
    };
    for (folder, sign) in [("a", "000"), ("b", "500")] {
        manifest(sign);
        let ran = place.sweeper(&["run", "m.toml", "--output-dir", folder]);
        assert_eq!(code(&ran), 0, "{}", text(&ran));
    }
    // The program is another one: its points are paired by their axes.
    let compared = place.sweeper(&["compare", "a", "b", "--fail-on", "metric"]);
    let said = text(&compared);
    assert_eq!(code(&compared), 5, "{said}");
    // The numbers to 3000, and 500 more.
    assert!(said.contains("size: 13893 -> 16393"), "{said}");
    let turned = place.sweeper(&["compare", "b", "a", "--fail-on", "metric"]);
    assert_eq!(code(&turned), 0, "{}", text(&turned));
    assert!(text(&turned).contains("better"), "{}", text(&turned));
}
