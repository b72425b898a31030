//! All workloads, in the order in which they are listed.

use crate::copy::Copy;
use crate::semicrf::SemiCrf;
use crate::{economics, operations, patterns};
use sweeper_program::workload::Workload;

static WORKLOADS: &[&dyn Workload] = &[
    &Copy,
    &SemiCrf,
    &operations::LAYERNORM,
    &operations::RMSNORM,
    &operations::SOFTMAX,
    &operations::GELU,
    &operations::SWISH,
    &operations::MSE,
    &operations::CROSS_ENTROPY,
    &economics::MATMUL_CHAIN,
    &economics::MLP,
    &economics::ATTENTION_BLOCK,
    &economics::MIXED,
    &patterns::MATMUL,
    &patterns::LINEAR,
    &patterns::CONV,
    &patterns::ATTENTION,
    #[cfg(feature = "faults")]
    &crate::faults::Faults,
];

/// Every workload of this build.
pub fn workloads() -> &'static [&'static dyn Workload] {
    WORKLOADS
}

/// The workload called `name`.
pub fn workload(name: &str) -> Option<&'static dyn Workload> {
    workloads()
        .iter()
        .copied()
        .find(|workload| workload.info().name == name)
}
