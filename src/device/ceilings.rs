//! A device's limits, measured on it: what others attain is held against them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sweeper_kernels::ceilings::{Counts, Probe, Size, probes};
use sweeper_kernels::{Target, Tensors};

use super::{Artifact, Device, DeviceError, DeviceIdentity, DeviceKind, Job};
use crate::identity::RunId;

/// How long one probe runs: clocks must have risen.
const PROBE_TIME: Duration = Duration::from_millis(150);

/// A probe runs so often at least, however long it takes.
const LEAST_SAMPLES: usize = 4;

/// A time under this part of what the ceilings allow is too good to be true.
const MARGIN: f64 = 0.9;

/// What a device can do at most.
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

/// What [`Ceilings::sources`] calls the rate of copies.
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
    /// What the null device pretends: a terabyte and ten teraflops a second.
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
    /// `arithmetic` is the kind of its operations, a key of `flops_per_s`. None where operations are counted
    /// whose rate is not known.
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

    /// True if a time is more than a tenth below what is possible, even if the cache holds as much of
    /// the data as it can.
    pub fn are_surpassed(&self, arithmetic: &str, flops: f64, bytes: f64, time_ns: f64) -> bool {
        let certain_bytes = (bytes - self.cache_bytes as f64).max(0.0);
        let least_ns = self.roofline_ns(arithmetic, flops, certain_bytes);
        least_ns.is_some_and(|least_ns| time_ns < MARGIN * least_ns)
    }
}

/// The probes of a device, for whoever has their kernels compiled.
pub fn probes_of(device: &DeviceIdentity, target: &Target, threads: u32) -> Vec<Probe> {
    probes(target, size_of(device, threads))
}

fn size_of(device: &DeviceIdentity, threads: u32) -> Size {
    let detail = |name: &str| device.details.get(name)?.parse().ok();
    match device.kind {
        DeviceKind::Cpu | DeviceKind::Null => Size {
            workers: threads,
            cache_bytes: super::cpu::identity::last_cache_bytes(),
        },
        DeviceKind::Cuda => Size {
            workers: detail("multiprocessors").unwrap_or(1) as u32,
            cache_bytes: detail("l2_bytes").unwrap_or(0),
        },
    }
}

/// Measures what a device can do. `artifacts` has one for each source of the probes' kernels, in their
/// order; a probe whose kernel is missing is left out.
///
/// # Errors
/// A lost device. Whatever else a probe fails with, it fails alone.
pub fn measure(
    device: &mut dyn Device,
    threads: u32,
    artifacts: &[Option<Artifact>],
) -> Result<Ceilings, DeviceError> {
    let identity = device.identity().clone();
    let mut ceilings = Ceilings {
        cache_bytes: size_of(&identity, threads).cache_bytes,
        ..Ceilings::default()
    };
    let mut artifacts = artifacts.iter();
    for probe in probes_of(&identity, &device.target(), threads) {
        let needed = probe.program.sources().len();
        let own: Vec<Option<Artifact>> = artifacts.by_ref().take(needed).cloned().collect();
        let own: Option<Vec<Artifact>> = own.into_iter().collect();
        let Some(own) = own.filter(|own| own.len() == needed) else {
            continue;
        };
        let rate = match best_rate(device, &probe, &own) {
            Ok(rate) => rate,
            Err(DeviceError::Lost(reason)) => return Err(DeviceError::Lost(reason)),
            Err(_) => continue,
        };
        let held = match probe.counts {
            Counts::Bytes => &mut ceilings.copy_bytes_per_s,
            Counts::Flops(kind) => ceilings.flops_per_s.entry(kind.to_owned()).or_default(),
        };
        *held = rate.max(*held);
    }
    // Nothing of the probes stays in the way of what is measured next.
    device.bind(&Tensors::new())?;
    Ok(ceilings)
}

/// The best of some samples: a ceiling is what was possible once.
fn best_rate(
    device: &mut dyn Device,
    probe: &Probe,
    artifacts: &[Artifact],
) -> Result<f64, DeviceError> {
    device.bind(&Tensors::new())?;
    let prepared = device.prepare(Job {
        program: probe.program.clone(),
        artifacts,
        script: None,
    })?;
    device.poison(prepared)?;
    device.sample(prepared, 1)?;
    let start = Instant::now();
    let mut best_ns = f64::INFINITY;
    let mut taken = 0;
    while taken < LEAST_SAMPLES || start.elapsed() < PROBE_TIME {
        best_ns = best_ns.min(device.sample(prepared, 1)?.per_iteration_ns());
        taken += 1;
    }
    Ok(probe.amount / best_ns * 1e9)
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

    #[test]
    fn the_null_device_has_measurable_ceilings() {
        let mut null = crate::device::null::Null::default();
        let ceilings = measure(&mut null, 1, &[None, None]).unwrap();
        // The built-in copy alone: the others lack their kernels.
        assert!(ceilings.copy_bytes_per_s > 0.0);
        assert!(ceilings.flops_per_s.is_empty());
    }
}
