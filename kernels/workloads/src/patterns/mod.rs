//! The fusion patterns of the calibration guide, unfused against fused, one file a workload.
//!
//! `primitive` and `eager` compute a pattern operation by operation; `compiled` fuses it, `library`
//! makes it one call where there is one. A pattern is a graph whose value is the oracle
//! ([`crate::graph_oracle`]). All are forward passes, as at inference. Useful work is as the guide
//! counts it: a product is two for each term, a GELU is 8, scaling and softmax 6.

pub(crate) mod attention;
pub(crate) mod conv;
pub(crate) mod linear;
pub(crate) mod matmul;

use crate::graph_problem;
use sweeper_program::workload::{ParameterInfo, Phase, WorkloadInfo, size};

const M: ParameterInfo = size("m", 1 << 24, None, "rows of the first factor");
const K: ParameterInfo = size("k", 1 << 20, None, "terms of each inner product");
const N: ParameterInfo = size("n", 1 << 20, None, "columns of the result");

const PLAIN: WorkloadInfo = WorkloadInfo {
    phases: &[Phase::Forward],
    ..graph_problem::PLAIN
};

fn product(extents: &[usize]) -> f64 {
    extents.iter().map(|&extent| extent as f64).product()
}

#[cfg(test)]
mod tests;
