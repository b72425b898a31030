//! All workloads, in the order in which they are listed.

use crate::copy::Copy;
use crate::semicrf::SemiCrf;
use crate::workload::Workload;

/// Every workload of this build.
pub fn workloads() -> &'static [&'static dyn Workload] {
    &[
        &Copy,
        &SemiCrf,
        #[cfg(feature = "faults")]
        &crate::faults::Faults,
    ]
}

/// The workload called `name`.
pub fn workload(name: &str) -> Option<&'static dyn Workload> {
    workloads()
        .iter()
        .copied()
        .find(|workload| workload.info().name == name)
}
