//! How long samples waited for a processor.

use crate::device::Sample;

/// How long the samples that are kept waited for processors.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Waits {
    /// None where nobody can tell.
    waited_ns: Option<f64>,
    elapsed_ns: f64,
    /// One of them waited for more than it may.
    pub(super) has_waited: bool,
}

impl Waits {
    pub(super) fn add(&mut self, sample: &Sample) {
        if let Some(waited_ns) = sample.waited_ns {
            *self.waited_ns.get_or_insert_default() += waited_ns;
            self.elapsed_ns += sample.elapsed_ns;
            self.has_waited |= sample.has_waited();
        }
    }

    /// The part of the samples' time.
    pub(super) fn share(&self) -> Option<f64> {
        Some(self.waited_ns? / self.elapsed_ns.max(1.0))
    }
}
