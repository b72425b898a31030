//! A calibration from its manifest to the profile, the table of verdicts, and the ceilings of later
//! sweeps.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::place::{Place, code, column, cpu_manifest, text};

/// The only file below `folder` whose name begins and ends so.
fn only(folder: &Path, start: &str, end: &str) -> PathBuf {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap());
    let is_it = |name: &str| name.starts_with(start) && name.ends_with(end);
    let mut found: Vec<PathBuf> = names
        .filter(|entry| is_it(entry.file_name().to_str().unwrap()))
        .map(|entry| entry.path())
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

fn json(path: &Path) -> Value {
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// A place whose device was probed, by a file that says it can do next to nothing.
fn underrated() -> Place {
    let place = Place::new(&cpu_manifest(""));
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let path = only(&place.path("cache"), "ceilings-", ".json");
    let mut held = json(&path);
    held["ceilings"]["copy_bytes_per_s"] = 1.0.into();
    held["ceilings"]["cache_bytes"] = 1.into();
    held["ceilings"]["flops_per_s"]["f32"] = 1.0.into();
    fs::write(&path, held.to_string()).unwrap();
    place
}

/// Runs the quick calibration with few rounds; returns its folder and output. A second run measures
/// nothing.
fn calibrated(place: &Place, more: &[&str]) -> (PathBuf, String) {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("manifests/calibration-quick.toml");
    let args = [
        "run",
        manifest.to_str().unwrap(),
        "--device=cpu",
        "--output-dir=calibrations",
        "--peak-gflops=100",
        "--hardware=a processor",
        "--set=measure.repeats=6",
        "--set=measure.warmup=0",
    ];
    let output = place.sweeper(&[&args[..], more].concat());
    assert_eq!(code(&output), 0, "{}", text(&output));
    let folder = only(&place.path("calibrations"), "calibration-quick-", "");
    (folder, text(&output))
}

#[test]
fn a_calibration_says_what_fusing_gains_and_raises_ceilings() {
    let place = underrated();
    let (folder, said) = calibrated(&place, &[]);
    let profile = json(&folder.join("exports/calibration_profile.json"));
    let profiles = profile["fusion_profiles"].as_object().unwrap();
    // Nine patterns of two sizes.
    assert_eq!(profiles.len(), 18);
    assert_eq!(profile["metadata"]["hardware_name"], "a processor");
    assert_eq!(profile["theoretical_peak_gflops"], 100.0);
    assert_eq!(profile["theoretical_bandwidth_gbps"], Value::Null);
    assert!(profile["measured_bandwidth_gbps"].as_f64().unwrap() > 0.0);
    for (key, one) in profiles {
        assert!(
            key.starts_with(one["fusion_pattern"].as_str().unwrap()),
            "{key}"
        );
        is_consistent(key, one);
    }
    controls_were_measured(&fs::read_to_string(folder.join("records.csv")).unwrap());
    the_table_agrees(&place, &folder, profiles);
    ceilings_rose(&place, &folder, &said);
    // Peaks on paper are not part of a run's identity: they may be given later.
    let (again, _) = calibrated(&place, &["--peak-bandwidth=10"]);
    assert_eq!(again, folder);
    let later = json(&folder.join("exports/calibration_profile.json"));
    assert_eq!(later["theoretical_bandwidth_gbps"], 10.0);
    let attained = later["measured_bandwidth_gbps"].as_f64().unwrap() / 10.0;
    // Numbers that were read back may differ in their last digit.
    let said = later["bandwidth_efficiency"].as_f64().unwrap();
    assert!((said / attained - 1.0).abs() < 1e-12, "{said} {attained}");
    assert_eq!(later["fusion_profiles"], profile["fusion_profiles"]);
}

/// The verdict follows from the intervals beside it.
fn is_consistent(key: &str, one: &Value) {
    let end = |of: &str, end: &str| one[of][end].as_f64();
    let off = end("control", "low")
        .unwrap()
        .max(1.0 / end("control", "high").unwrap())
        - 1.0;
    let verdict = one["verdict"].as_str().unwrap();
    let Some((low, high)) = end("speedup", "low").zip(end("speedup", "high")) else {
        assert_eq!(verdict, "same program", "{key}");
        return;
    };
    assert_eq!(one["speedup"]["rounds"], 6, "{key}");
    let expected = match () {
        () if off > 0.01 => "inconclusive",
        () if low >= 1.5 => "strong",
        () if low >= 1.1 && high < 1.5 => "moderate",
        () if low >= 1.1 => "at least moderate",
        () if low >= 0.95 && high < 1.1 => "minimal",
        () if high < 0.95 => "slower",
        () => "inconclusive",
    };
    assert_eq!(
        verdict, expected,
        "{key}: {low} to {high}, control off by {off}"
    );
    assert_eq!(one["verdict_reason"].is_null(), verdict != "inconclusive");
}

/// Each problem has a control, whose program is the eager one and whose times are its own.
fn controls_were_measured(records: &str) {
    let columns = [
        "problem",
        "backend",
        "same_program_as",
        "median_ns",
        "status",
    ];
    let [problems, backends, same, medians, statuses] = columns.map(|name| column(records, name));
    assert!(statuses.iter().all(|status| status == "ok"));
    let mut eager = BTreeMap::new();
    let mut controls = BTreeMap::new();
    for (row, backend) in backends.iter().enumerate() {
        match backend.as_str() {
            "eager" => _ = eager.insert(&problems[row], &medians[row]),
            "control" => {
                assert_eq!(same[row], "eager");
                controls.insert(&problems[row], &medians[row]);
            }
            _ => {}
        }
    }
    assert_eq!(controls.len(), 18);
    assert!(controls.keys().eq(eager.keys()));
    assert!(controls != eager, "the control's times are copies");
}

fn the_table_agrees(place: &Place, folder: &Path, profiles: &serde_json::Map<String, Value>) {
    let output = place.sweeper(&["report", folder.to_str().unwrap(), "--no-plots"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let table = fs::read_to_string(folder.join("report/fusion.csv")).unwrap();
    let [patterns, shapes, verdicts] =
        ["pattern", "shape", "verdict"].map(|name| column(&table, name));
    let keys: BTreeSet<String> = (0..patterns.len())
        .map(|row| {
            let key = format!("{}_{}", patterns[row], shapes[row]);
            assert_eq!(profiles[&key]["verdict"], verdicts[row], "{key}");
            key
        })
        .collect();
    assert_eq!(keys.len(), profiles.len());
}

/// The calibration's own rows are held against the earlier ceilings; rows of the next run against
/// the raised ones.
fn ceilings_rose(place: &Place, folder: &Path, said: &str) {
    assert!(said.contains("raised: copy"), "{said}");
    assert!(said.contains("raised: f32"), "{said}");
    let ceilings = |usage: &Value| usage["devices"][0]["ceilings"].clone();
    let before = ceilings(&json(&folder.join("usage.json")));
    assert_eq!(before["copy_bytes_per_s"], 1.0);
    let output = place.sweeper(&["run", "m.toml", "--output-dir=later"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let later = only(&place.path("later"), "copies-", "");
    let after = ceilings(&json(&later.join("usage.json")));
    let run = json(&folder.join("environment.json"))["identity"]["run"].clone();
    for kind in ["copy", "f32"] {
        assert_eq!(after["sources"][kind]["run"], run, "{kind}");
    }
    let measured = json(&folder.join("exports/calibration_profile.json"));
    let close = |one: &Value, other: &Value| {
        let ratio = one.as_f64().unwrap() / other.as_f64().unwrap() / 1e9;
        assert!((ratio - 1.0).abs() < 1e-9, "{one} {other}");
    };
    close(
        &after["copy_bytes_per_s"],
        &measured["measured_bandwidth_gbps"],
    );
    close(
        &after["flops_per_s"]["f32"],
        &measured["best_measured_gflops"],
    );
    let devices = text(&place.sweeper(&["devices"]));
    let short = &run.as_str().unwrap()[..12];
    assert!(
        devices.contains(&format!("calibration {short}")),
        "{devices}"
    );
}
