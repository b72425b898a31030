//! Measures a device's ceilings.

use std::time::{Duration, Instant};

use sweeper_program::{Target, Tensors};
use sweeper_workloads::ceilings::{Counts, Probe, Size, probes};

use super::platform::platform;
use super::{Artifact, Device, DeviceError, DeviceIdentity, Job};
use sweeper_model::hardware::ceilings::Ceilings;

/// How long one probe runs: clocks must have risen.
const PROBE_TIME: Duration = Duration::from_millis(150);

/// A probe runs so often at least, however long it takes.
const LEAST_SAMPLES: usize = 4;

/// The probes of a device, for a caller that has their kernels compiled.
pub fn probes_of(device: &DeviceIdentity, target: &Target, threads: u32) -> Vec<Probe> {
    probes(target, size_of(device, threads))
}

fn size_of(device: &DeviceIdentity, threads: u32) -> Size {
    (platform(device.kind).probe_size)(device, threads)
}

/// Measures the ceilings of a device. `artifacts` has one for each source of the probes' kernels,
/// in their order; a probe whose kernel is missing is left out.
///
/// # Errors
/// A lost device. After any other failure of a probe, the other probes go on.
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
    // Memory of the probes must not stay in the way of the next measurement.
    device.bind(&Tensors::new())?;
    Ok(ceilings)
}

/// The best of some samples: a ceiling is a rate that was possible once.
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
    fn the_null_device_has_measurable_ceilings() {
        let mut null = crate::device::null::Null::default();
        let ceilings = measure(&mut null, 1, &[None, None]).unwrap();
        // The built-in copy alone: the others lack their kernels.
        assert!(ceilings.copy_bytes_per_s > 0.0);
        assert!(ceilings.flops_per_s.is_empty());
    }
}
