//! A device's ceilings: the most that it can do, against which rows are held.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::identity::RunId;

/// A time under this part of the roofline's is too good to be true.
const MARGIN: f64 = 0.9;

/// The highest rates of a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Ceilings {
    /// Bytes read and written a second, in a copy of far more than the caches hold.
    pub copy_bytes_per_s: f64,
    /// The last cache before memory, in bytes.
    pub cache_bytes: u64,
    /// Operations a second by kind of arithmetic: `f32`, and with `mma.sync` `bf16` and `tf32`.
    pub flops_per_s: BTreeMap<String, f64>,
    /// Where these come from: that of copies is called [`COPY`].
    #[serde(default)]
    pub sources: BTreeMap<String, CeilingSource>,
}

/// The key of copies in [`Ceilings::sources`].
pub const COPY: &str = "copy";

/// Where a ceiling comes from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CeilingSource {
    /// The calibration that measured it; none where a probe did.
    pub run: Option<RunId>,
    /// When that was, in seconds since 1970; zero where that was not written down.
    pub unix_s: f64,
}

impl Ceilings {
    /// The rates that the null device pretends: a terabyte and ten teraflops a second.
    pub fn scripted() -> Self {
        Ceilings {
            copy_bytes_per_s: 1e12,
            cache_bytes: 0,
            flops_per_s: [("f32".to_owned(), 1e13)].into(),
            sources: BTreeMap::new(),
        }
    }

    /// The least time of an iteration that does such work, if data lies in memory: nanoseconds.
    ///
    /// `arithmetic` is the kind of its operations, a key of `flops_per_s`. None where operations
    /// are counted whose rate is not known.
    pub fn roofline_ns(&self, arithmetic: &str, flops: f64, bytes: f64) -> Option<f64> {
        let arithmetic_s = match self.flops_per_s.get(arithmetic) {
            _ if flops == 0.0 => 0.0,
            Some(&rate) if rate > 0.0 => flops / rate,
            _ => return None,
        };
        let memory_s = match self.copy_bytes_per_s {
            rate if rate > 0.0 => bytes / rate,
            _ => return None,
        };
        Some(arithmetic_s.max(memory_s) * 1e9)
    }

    /// True if a time is more than a tenth below the possible one, even if the cache holds as much
    /// of the data as it can.
    pub fn are_surpassed(&self, arithmetic: &str, flops: f64, bytes: f64, time_ns: f64) -> bool {
        let certain_bytes = (bytes - self.cache_bytes as f64).max(0.0);
        let least_ns = self.roofline_ns(arithmetic, flops, certain_bytes);
        least_ns.is_some_and(|least_ns| time_ns < MARGIN * least_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_larger_of_two_times_is_the_roofline() {
        let ceilings = Ceilings {
            cache_bytes: 1000,
            ..Ceilings::scripted()
        };
        let close = |found: Option<f64>, expected: f64| (found.unwrap() - expected).abs() < 1e-9;
        assert!(close(ceilings.roofline_ns("f32", 1e4, 5e3), 5.0));
        assert!(close(ceilings.roofline_ns("f32", 1e5, 5e3), 10.0));
        assert!(close(ceilings.roofline_ns("f64", 0.0, 5e3), 5.0));
        assert_eq!(ceilings.roofline_ns("f64", 1.0, 5e3), None);
        assert_eq!(Ceilings::default().roofline_ns("f32", 0.0, 1.0), None);
        // A thousand of the bytes may never have left the cache.
        assert!(!ceilings.are_surpassed("f32", 0.0, 5e3, 3.7));
        assert!(ceilings.are_surpassed("f32", 0.0, 5e3, 3.5));
        assert!(!ceilings.are_surpassed("f32", 0.0, 900.0, 0.1));
    }
}
