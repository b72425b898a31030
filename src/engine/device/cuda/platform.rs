//! NVIDIA's GPUs as a platform.

use sweeper_program::{Language, Target};
use sweeper_workloads::ceilings::Size;

use super::libraries::{Facts, Nvidia};
use super::{Cuda, identity};
use crate::device::foreign::python::Place;
use crate::device::platform::{Finding, Opened, Opening, Platform};
use crate::device::{Device as _, DeviceError, DeviceIdentity, DeviceKind};
use sweeper_model::quantity;

/// The GPUs that the driver shows this process.
pub static PLATFORM: Platform = Platform {
    kind: DeviceKind::Cuda,
    language: Language::Cuda,
    may_be_here: identity::has_driver,
    discover: || identity::all().map(<[_]>::to_vec),
    device: |ordinal| identity::of(ordinal).cloned(),
    device_of_arch: |arch| Some(identity::of_arch(arch)),
    target: |device| Target::Cuda {
        arch: device.details["arch"].clone(),
    },
    describe,
    libraries,
    probe_size: |device, _| Size {
        workers: number(device, "multiprocessors").unwrap_or(1) as u32,
        cache_bytes: number(device, "l2_bytes").unwrap_or(0),
    },
    open,
    input_copies: 1,
    // The thread that has the device must not wait for a processor while the oracle works.
    host_threads: |processors, _| processors.saturating_sub(1).max(1),
    spare_processors: |_, _| Vec::new(),
    blocks_at_once: [2, 2],
};

/// A number among a device's details.
fn number(device: &DeviceIdentity, name: &str) -> Option<u64> {
    device.details.get(name)?.parse().ok()
}

fn describe(gpu: &DeviceIdentity, _processors: usize) -> String {
    let detail = |name: &str| gpu.details.get(name).map_or("?", String::as_str);
    format!(
        "{} ({}, {}, {} multiprocessors, driver {} for CUDA {}, {})",
        gpu.name,
        detail("arch"),
        quantity::bytes(number(gpu, "memory_bytes").unwrap_or(0)),
        detail("multiprocessors"),
        detail("driver"),
        detail("cuda"),
        gpu.unit
    )
}

fn libraries() -> Vec<Finding> {
    let found = Nvidia::ALL.map(|library| {
        let Facts { word, purpose, .. } = library.facts();
        let found = match library.version() {
            Ok(version) => Ok(format!("{version}, for {purpose}")),
            Err(reason) => Err(format!("no {purpose}: {reason}")),
        };
        (word, found)
    });
    found.into()
}

fn open(opening: &Opening) -> Result<Opened, DeviceError> {
    let ordinal = opening.ordinal;
    let device = Cuda::open(ordinal, opening.cache)?;
    let unit = device.identity().unit.clone();
    Ok((Box::new(device), Some(Place::Cuda { unit, ordinal })))
}
