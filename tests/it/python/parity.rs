//! One kernel launched by this program and by a function in Python, in the rounds of one block: the
//! two ways to take its time must agree.

use super::copied;
use crate::place::{column, text};
use crate::support::has_package;

/// Medians of long calls differ by less than this part.
const MOST: f64 = 0.005;

/// Those of short ones, whose tensors have a page or two of memory: by where these lie, a kernel of
/// one launcher alone takes 7.07 to 7.40 us on an H100 (docs/performance/engine.md).
const MOST_OF_SHORT: f64 = 0.06;

#[test]
fn a_function_in_python_is_timed_as_kernels_are() {
    if crate::cuda::missing().is_some() || !has_package("cupy", "cupy") {
        return;
    }
    for l2 in ["cold", "clean"] {
        let folder = copied();
        let l2 = format!("measure.l2={l2}");
        let ran = folder.sweeper(&["run", "parity.toml", "--set", &l2]);
        assert_eq!(ran.status.code(), Some(0), "{}", text(&ran));
        let records = folder.read("records.csv");
        let medians = column(&records, "median_ns").into_iter();
        let medians: Vec<f64> = medians.map(|median| median.parse().unwrap()).collect();
        let [small, large] = [&medians[..2], &medians[2..]];
        for (pair, most) in [(small, MOST_OF_SHORT), (large, MOST)] {
            let ratio = (pair[0] / pair[1] - 1.0).abs();
            assert!(ratio < most, "{l2}: {} and {} ns", pair[0], pair[1]);
        }
        assert!(column(&records, "flags").iter().all(String::is_empty));
    }
}
