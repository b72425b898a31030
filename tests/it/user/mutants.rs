//! Kernels with one mistake each are wrong, by the judge's own rules, and right ones are not.

use std::fs;

use super::rows;
use crate::place::Place;

const MANIFEST: &str = include_str!("../../mutants/mutants.toml");
const OPERATIONS: &str = include_str!("../../mutants/operations.c");
const SEMICRF: &str = include_str!("../../mutants/semicrf.c");

#[test]
fn each_mistake_is_found() {
    let place = Place::new(MANIFEST);
    fs::write(place.path("operations.c"), OPERATIONS).unwrap();
    fs::write(place.path("semicrf.c"), SEMICRF).unwrap();
    // Wrong rows are not a success.
    place.sweeper(&["run", "m.toml"]);
    let rows = rows(&place);
    let right = rows.iter().filter(|row| is_right(&row["backend"]));
    assert!(right.count() >= 20, "{} rows", rows.len());
    let misjudged: Vec<String> = rows
        .iter()
        .filter(|row| {
            row["status"]
                != if is_right(&row["backend"]) {
                    "ok"
                } else {
                    "wrong"
                }
        })
        .map(|row| {
            let of = |column: &str| row.get(column).map_or("", String::as_str);
            let sizes = ["axis_sequence", "axis_dimension", "axis_T", "axis_C"].map(of);
            let judged = ["status", "reason", "worst_tensor", "worst_spreads"].map(of);
            format!("{} {sizes:?}: {judged:?}", row["backend"])
        })
        .collect();
    assert!(misjudged.is_empty(), "{misjudged:#?}");
}

fn is_right(backend: &str) -> bool {
    backend.contains("fault=0")
}
