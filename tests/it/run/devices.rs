//! Devices during a run: several devices, one that hangs, ways of launching, and drift.

use crate::place::{Place, SCRIPT, code, column, null_manifest, text};

#[test]
fn several_devices_share_a_run() {
    let script = format!("{SCRIPT}units = 3\n");
    let places = [
        Place::new(&null_manifest(&script)),
        Place::new(&null_manifest(&script)),
    ];
    let mut names = Vec::new();
    for place in &places {
        let output = place.sweeper(&["run", "m.toml"]);
        assert_eq!(code(&output), 0, "{}", text(&output));
        assert!(text(&output).contains("3 x null"), "{}", text(&output));
        let records = place.read("records.csv");
        let points = column(&records, "point");
        let mut rows: Vec<_> = points
            .into_iter()
            .zip(column(&records, "median_ns"))
            .collect();
        rows.sort();
        assert_eq!(rows.len(), 8);
        rows.dedup_by(|one, other| one.0 == other.0);
        assert_eq!(rows.len(), 8);
        names.extend(column(&records, "device_name"));
        let usage: serde_json::Value = serde_json::from_str(&place.read("usage.json")).unwrap();
        let blocks = usage["devices"].as_array().unwrap().iter();
        let blocks: u64 = blocks
            .map(|device| device["blocks"].as_u64().unwrap())
            .sum();
        assert_eq!(blocks, 4);
    }
    names.sort();
    names.dedup();
    assert!(names.len() > 1, "{names:?}");
}

#[test]
fn anchor_points_are_measured_again() {
    let place = Place::new(&null_manifest(&format!(
        "{SCRIPT}[limits]\nanchor_s = 0.000001\n"
    )));
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    assert!(
        text(&output).contains("anchor points, measured again ")
            && text(&output).contains("moved by 0.0 % at most"),
        "{}",
        text(&output)
    );
    let usage: serde_json::Value = serde_json::from_str(&place.read("usage.json")).unwrap();
    let anchors = usage["anchors"].as_array().unwrap();
    assert!(!anchors.is_empty());
    let records = place.read("records.csv");
    let first = &column(&records, "point")[0];
    for anchor in anchors {
        assert_eq!(anchor["point"].as_str(), Some(first.as_str()));
        assert_eq!(anchor["ratio"], 1.0);
    }
    assert_eq!(
        column(&records, "status"),
        ["ok"; 8],
        "anchors are not rows"
    );
}

#[test]
fn a_device_that_hangs_does_not_hold_up_others() {
    let outcomes = "units = 2\noutcomes = [{ when = \"elements == 40 and backend == 'builtin'\", \
        status = \"timeout\" }]\n[limits]\npoint_timeout_s = 1\n";
    let place = Place::new(&null_manifest(&format!("{SCRIPT}{outcomes}")));
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 4, "{}", text(&output));
    let records = place.read("records.csv");
    let statuses = column(&records, "status");
    assert_eq!(statuses.iter().filter(|status| *status == "ok").count(), 7);
    assert_eq!(statuses[6], "timeout", "tables are in the plan's order");
    // The others' rows were written meanwhile, but for the block that the hanging device was given
    // ahead.
    let journal = place.read("journal.jsonl");
    let last: Vec<&str> = journal.lines().rev().take(4).collect();
    assert!(
        last.iter().any(|row| row.contains("\"timeout\"")),
        "{last:?}"
    );
}

#[test]
fn points_are_measured_in_several_ways_within_a_block() {
    let place = Place::new(&null_manifest(&format!(
        "mode = [\"launch\", \"graph\"]\n{SCRIPT}"
    )));
    let output = place.sweeper(&["run", "m.toml"]);
    assert_eq!(code(&output), 0, "{}", text(&output));
    let records = place.read("records.csv");
    assert_eq!(column(&records, "mode"), ["launch", "graph"].repeat(8));
    let mut points = column(&records, "point");
    points.sort();
    points.dedup();
    assert_eq!(points.len(), 16);
    let listed = text(&place.sweeper(&["plan", "m.toml", "--list"]));
    assert_eq!(
        listed
            .lines()
            .filter(|line| line.ends_with(" graph"))
            .count(),
        8,
        "{listed}"
    );
    let again = place.sweeper(&["run", "m.toml"]);
    assert!(
        text(&again).contains("nothing to do, 16 points"),
        "{}",
        text(&again)
    );
}
