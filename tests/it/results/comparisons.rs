//! The error rates of comparisons between runs of one program.

use serde_json::Value;

use super::record::{json, unpacked};
use super::table::Table;

const RECORD: &str = "2026-11-23-cpu-comparisons";

fn number(value: &Value, key: &str) -> f64 {
    let found = value[key].as_f64();
    found.unwrap_or_else(|| panic!("no number {key} in {value}"))
}

pub(super) fn against_itself() -> String {
    let found = json(RECORD, "aa.json");
    let held = &found["assessment"];
    let mut table = Table::new(&[
        "made",
        "comparisons of a point",
        "false positives",
        "any of all points",
        "resolution",
        "3 % found",
    ]);
    for trials in held["trials"].as_array().unwrap() {
        assert!((number(trials, "injected") - 0.03).abs() < 1e-12);
        let made = match &trials["made"] {
            Value::String(word) if word == "single" => "one run a side".to_owned(),
            made => match (made["apart"].as_u64(), made["pairs"].as_u64()) {
                (Some(runs), None) => format!("{runs} runs, then {runs}"),
                (None, Some(pairs)) => format!("{pairs} pairs in turns"),
                _ => panic!("made {made}"),
            },
        };
        let count = number(trials, "comparisons");
        table.line([
            made,
            count.to_string(),
            format!("{:.1} %", 100.0 * number(trials, "false_positives") / count),
            format!("{} of {}", trials["false_families"], trials["families"]),
            format!("{:.0} %", 100.0 * number(trials, "resolution")),
            format!("{:.0} %", 100.0 * number(trials, "found")),
        ]);
    }
    format!(
        "{} runs of {} points in {:.0} s.\n\n{}",
        held["runs"],
        held["points"],
        number(&found, "seconds"),
        table.text()
    )
}

/// The benchmark's own words: its counts of verdicts, as it printed them.
pub(super) fn against_more_work() -> String {
    let printed = String::from_utf8(unpacked(RECORD, "bench.txt")).unwrap();
    assert!(printed.starts_with("20 trials of 20 pairs, "));
    format!("```\n{}\n```\n", printed.trim_end())
}
