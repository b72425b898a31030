//! One kernel launched by this program and by a function in Python, in the rounds of one block: the
//! two ways to take its time must agree.

use super::copied;
use crate::place::{Place, column, text};
use crate::support::has_package;

/// Medians of a long call differ by less than this part.
const MOST: f64 = 0.005;

/// Means of a short one over 32 places in memory, which make its time differ by 1.5 %: four
/// standard errors (docs/performance/engine.md).
const MOST_OF_SHORT: f64 = 0.015;

/// The medians of the rows of the only run, in their order: kernel and function in turns.
fn medians(folder: &Place) -> Vec<f64> {
    let records = folder.read("records.csv");
    assert!(column(&records, "flags").iter().all(String::is_empty));
    let medians = column(&records, "median_ns").into_iter();
    medians.map(|median| median.parse().unwrap()).collect()
}

#[test]
fn a_function_in_python_is_timed_as_kernels_are() {
    if crate::cuda::missing().is_some() || !has_package("cupy", "cupy") {
        return;
    }
    for l2 in ["cold", "clean"] {
        for (manifest, more, most) in [
            ("parity.toml", "case.copied.grid.n=16777216", MOST),
            ("placements.toml", "measure.repeats=100", MOST_OF_SHORT),
        ] {
            let folder = copied();
            let l2 = format!("measure.l2={l2}");
            let ran = folder.sweeper(&["run", manifest, "--set", &l2, "--set", more]);
            assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
            let medians = medians(&folder);
            let sum = |of| medians.iter().skip(of).step_by(2).sum::<f64>();
            let ratio: f64 = sum(1) / sum(0);
            assert!((ratio - 1.0).abs() < most, "{manifest}, {l2}: {ratio}");
        }
    }
}
