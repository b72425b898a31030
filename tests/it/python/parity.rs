//! One kernel launched by this program and by a function in Python, in the rounds of one block: the
//! two ways to take its time must agree.

use super::copied;
use crate::place::{Place, column, text};
use crate::support::has_package;

/// Medians of a long call differ by less than this part.
const MOST: f64 = 0.005;

/// Means of a short one over 32 places in memory, which make its time differ by 1.5 %. Even two
/// processes with one launcher and one pair of tensors were up to 2.3 % apart
/// (docs/performance/engine.md).
const MOST_OF_SHORT: f64 = 0.04;

/// The mean of the function's medians over that of the kernel's: rows of the only run, in turns. A
/// pair is left out whose gate came too late, as where other tests keep the host busy.
fn ratio(folder: &Place) -> f64 {
    let records = folder.read("records.csv");
    let flags = column(&records, "flags");
    let medians = column(&records, "median_ns").into_iter();
    let medians: Vec<f64> = medians.map(|median| median.parse().unwrap()).collect();
    let rows: Vec<(f64, bool)> = medians
        .into_iter()
        .zip(flags.iter().map(|flags| flags.contains("ungated")))
        .collect();
    let gated = rows
        .chunks(2)
        .filter(|pair| pair.iter().all(|(_, is_ungated)| !is_ungated));
    let pairs: Vec<[f64; 2]> = gated.map(|pair| [pair[0].0, pair[1].0]).collect();
    assert!(2 * pairs.len() >= rows.len() / 2, "{flags:?}");
    let sum = |of: usize| pairs.iter().map(|pair| pair[of]).sum::<f64>();
    sum(1) / sum(0)
}

#[test]
fn a_function_in_python_is_timed_as_kernels_are() {
    let Some(_gpu) = crate::cuda::gpu_alone() else {
        return;
    };
    if !has_package("cupy", "cupy") {
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
            let ratio = ratio(&folder);
            assert!((ratio - 1.0).abs() < most, "{manifest}, {l2}: {ratio}");
        }
    }
}
