//! Whether times on a CPU are right, held against a program in C that times the same kernel, and
//! what calls are in them; and whether floating-point modes stay a program's own.

#![cfg(target_arch = "x86_64")]

use std::collections::BTreeMap;
use std::fs;
use std::process::Command;

use crate::place::{Place, text};
use crate::support::skip;

/// Tries of a measurement that a busy machine may spoil.
const TRIES: usize = 5;

type Rows = Vec<BTreeMap<String, String>>;

/// A folder with the manifests and sources of this file.
fn place() -> Place {
    let place = Place::new("");
    for entry in fs::read_dir("tests/manifests/clock").unwrap() {
        let path = entry.unwrap().path();
        fs::copy(
            &path,
            place.path(path.file_name().unwrap().to_str().unwrap()),
        )
        .unwrap();
    }
    place
}

/// The rows of a run of a manifest with more lines at its end.
fn rows(manifest: &str, more: &str) -> Rows {
    let place = place();
    let text_of = fs::read_to_string(place.path(manifest)).unwrap();
    fs::write(place.path(manifest), text_of + more).unwrap();
    let ran = place.sweeper(&["run", manifest]);
    assert!(ran.status.success(), "{}", text(&ran));
    let records = place.read("records.csv");
    let mut reader = csv::Reader::from_reader(records.as_bytes());
    reader.deserialize().map(Result::unwrap).collect()
}

fn number(row: &BTreeMap<String, String>, column: &str) -> f64 {
    row[column].parse().unwrap()
}

/// The least times of the spinning kernel by hand, hot and cold, in nanoseconds, by its ticks.
fn by_hand(ticks: &[&str]) -> Vec<[f64; 2]> {
    let place = place();
    let built = Command::new("cc")
        .args(["-O2", "-o", "by_hand", "by_hand.c", "spin.c"])
        .current_dir(place.path("."))
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", text(&built));
    let ran = Command::new(place.path("by_hand"))
        .args(ticks)
        .output()
        .unwrap();
    let said = text(&ran);
    let line = |line: &str| {
        let mut words = line.split(' ').map(|word| word.parse().unwrap());
        [words.next().unwrap(), words.next().unwrap()]
    };
    said.lines().map(line).collect()
}

fn has_even_counter() -> bool {
    let processors = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let is_even = ["constant_tsc", "nonstop_tsc"]
        .iter()
        .all(|flag| processors.contains(flag));
    if !is_even {
        skip("tsc", "the time stamp counter is not said to be even");
    }
    is_even
}

/// The times that are too far from those by hand: of 1, 10, 100 us and 1 ms, hot by 2 % when what
/// calls take is taken off, and cold by 5 % and what a program without optimization adds.
fn far(state: &str) -> Vec<String> {
    let rows = rows("spin.toml", &format!("l2 = \"{state}\"\n"));
    let ticks: Vec<&str> = rows.iter().map(|row| &*row["ticks"]).collect();
    let by_hand = by_hand(&ticks);
    let mut far = vec![];
    for (row, [hot, cold]) in rows.iter().zip(by_hand) {
        let floor = number(row, "launch_floor_ns");
        let (right, bound, calls) = match state {
            "hot" => (hot, 0.02 * hot, floor),
            _ => (cold, 0.05 * cold + 1500.0, 0.0),
        };
        let found = number(row, "min_ns") - calls;
        if (found - right).abs() > bound {
            far.push(format!(
                "{} ticks {state}: {found} ns, {right} by hand",
                row["ticks"]
            ));
        }
        assert!((1.0..3000.0).contains(&floor), "{floor}");
    }
    far
}

#[test]
fn a_kernel_of_known_duration_takes_as_long_as_by_hand() {
    if !has_even_counter() {
        return;
    }
    for state in ["hot", "cold", "clean"] {
        let mut tries = (0..TRIES).map(|_| far(state));
        let last = tries.by_ref().find(Vec::is_empty);
        assert!(last.is_some(), "{:?}", far(state));
    }
}

/// The neighbour computes with denormal numbers, whichever is first, and the row of the one that
/// flushed them says so.
#[test]
fn floating_point_modes_are_a_programs_own() {
    let rows = rows("modes.toml", "");
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert_eq!(
            &*row["status"], "ok",
            "{}: {}",
            row["backend"], row["reason"]
        );
        let says_so = row["flags"].contains("float_modes");
        assert_eq!(says_so, row["backend"] == "flushes", "{}", row["flags"]);
    }
}
