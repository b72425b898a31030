//! The measurement of a row of a table: a [`Measurement`] without the lists that tables have in
//! columns or files of their own. Half as large, of which a report may hold a million.

use std::sync::Arc;

use sweeper_program::Totals;

use super::hot_path::HotPath;
use super::outcome::{Checked, FirstRuns, Flag, KernelUse, Measurement, own_prepare_ns};
use crate::hardware::clocks::ClockSummary;

/// Stands between texts of a list in a column.
const SEPARATOR: &str = "; ";

/// Fields of a [`Measurement`], under the names that they have there.
#[derive(Clone, Debug, Default, PartialEq)]
#[expect(
    missing_docs,
    reason = "each is the field of that name of `Measurement`, or a part of one"
)]
pub struct Measured {
    pub iterations: u32,
    pub warmup_samples: u32,
    pub launch_floor_ns: Option<f64>,
    pub waited_share: Option<f64>,
    pub referee_ns: Option<u64>,
    pub referee_spread_ns: Option<u64>,
    pub library_share: Option<f64>,
    pub prepare_ns: Option<u64>,
    pub import_ns: Option<u64>,
    pub first_call_ns: Option<u64>,
    pub unlisted_sources: Option<Box<str>>,
    pub process_changes: Option<Box<str>>,
    pub autotuned: Option<Box<str>>,
    pub first_runs: Option<FirstRuns>,
    pub totals: Option<Totals>,
    pub kernels: Arc<[KernelUse]>,
    pub same_program_as: Option<Arc<str>>,
    pub checked: Checked,
    pub input_digest: Option<Box<str>>,
    pub output_digest: Option<Box<str>>,
    pub flops: f64,
    pub compulsory_bytes: f64,
    pub hot_path: Option<Box<HotPath>>,
    pub clocks: Option<Box<ClockSummary>>,
    pub flags: Vec<Flag>,
}

impl From<Measurement> for Measured {
    fn from(measurement: Measurement) -> Self {
        Measured {
            iterations: measurement.iterations,
            warmup_samples: measurement.warmup_samples,
            launch_floor_ns: measurement.launch_floor_ns,
            waited_share: measurement.waited_share,
            referee_ns: measurement.referee_ns,
            referee_spread_ns: measurement.referee_spread_ns,
            library_share: measurement.library_use.map(|found| found.share),
            prepare_ns: measurement.prepare_ns,
            import_ns: measurement.import_ns,
            first_call_ns: measurement.first_call_ns,
            unlisted_sources: joined(&measurement.unlisted_sources),
            process_changes: joined(&measurement.process_changes),
            autotuned: joined(&measurement.autotuned),
            first_runs: measurement.first_runs,
            totals: measurement.totals,
            kernels: measurement.kernels.into(),
            same_program_as: measurement.same_program_as.map(Arc::from),
            checked: measurement.checked,
            input_digest: measurement.input_digest.map(Box::from),
            output_digest: measurement.output_digest.map(Box::from),
            flops: measurement.flops,
            compulsory_bytes: measurement.compulsory_bytes,
            hot_path: measurement.hot_path,
            clocks: measurement.clocks.map(Box::new),
            flags: measurement.flags,
        }
    }
}

/// Texts of a list as a column has them; none of an empty one.
fn joined(texts: &[String]) -> Option<Box<str>> {
    (!texts.is_empty()).then(|| texts.join(SEPARATOR).into())
}

impl Measured {
    /// The configurations that autotuners chose, each with the name of its kernel.
    pub fn choices(&self) -> impl Iterator<Item = &str> {
        self.autotuned.iter().flat_map(|all| all.split(SEPARATOR))
    }

    /// As [`Measurement::own_prepare_ns`].
    pub fn own_prepare_ns(&self) -> Option<u64> {
        own_prepare_ns(self.prepare_ns, self.import_ns)
    }
}
