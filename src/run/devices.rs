//! The devices of a manifest, and their properties for plans and compilers.

use std::collections::BTreeSet;

use sweeper_program::Target;

use super::RunError;
use sweeper_engine::compile::toolchain::Toolchain;
use sweeper_engine::device::foreign::python;
use sweeper_engine::device::null::Null;
use sweeper_engine::device::{Device, cpu, cuda};
use sweeper_engine::execute::protocol::DeviceRequest;
use sweeper_manifest::Manifest;
use sweeper_manifest::plan::{PlanDevice, conditions};
use sweeper_manifest::settings::DeviceUse;
use sweeper_manifest::user::Declared;
use sweeper_model::hardware::{DeviceIdentity, DeviceKind};
use sweeper_model::mode::{Launching, Mode};

/// The devices that a manifest asks for, at least one, all of one kind and architecture.
///
/// # Errors
/// If a device is missing, or if they differ: a plan is made for one architecture.
pub fn device_requests(manifest: &Manifest) -> Result<Vec<DeviceRequest>, RunError> {
    let (kind, ordinals) = match &manifest.device.use_ {
        DeviceUse::Auto if cuda::identity::of(0).is_ok() => (DeviceKind::Cuda, vec![0]),
        DeviceUse::Auto | DeviceUse::Cpu => (DeviceKind::Cpu, vec![0]),
        DeviceUse::Null => {
            let units = manifest.null.as_ref().map_or(1, |null| null.units);
            (DeviceKind::Null, (0..units).collect())
        }
        DeviceUse::Cuda(ordinals) => (DeviceKind::Cuda, ordinals.clone()),
        DeviceUse::AllCuda => {
            let all = cuda::identity::all().map_err(RunError::Impossible)?;
            (DeviceKind::Cuda, (0..all.len() as u32).collect())
        }
    };
    if kind == DeviceKind::Cuda {
        check_alike(&ordinals)?;
    }
    let cache = conditions(manifest, kind, Mode::Each(Launching::Launch)).cache;
    let request = |ordinal| DeviceRequest {
        kind,
        ordinal,
        threads: manifest.device.threads,
        spare: Vec::new(),
        cache,
        silence_limit: manifest.limits.point_timeout,
        answers: None,
        compiled_code: None,
        declared: manifest.declared().map(|it| it.json().to_owned()).collect(),
    };
    Ok(ordinals.into_iter().map(request).collect())
}

/// Refuses devices that are not there, or not of one product.
fn check_alike(ordinals: &[u32]) -> Result<(), RunError> {
    let mut first: Option<&DeviceIdentity> = None;
    for &ordinal in ordinals {
        let device = cuda::identity::of(ordinal).map_err(RunError::Impossible)?;
        let expected = *first.get_or_insert(device);
        if device.name != expected.name || device.details["arch"] != expected.details["arch"] {
            return Err(RunError::Impossible(format!(
                "cuda:{ordinal} is {}, and not {} as the first: run different devices apart",
                device.name, expected.name
            )));
        }
    }
    Ok(())
}

/// The kind of device that a manifest asks for, as far as can be told before a driver was started.
pub fn likely_kind(manifest: &Manifest) -> DeviceKind {
    match &manifest.device.use_ {
        DeviceUse::Auto if cuda::identity::has_driver() => DeviceKind::Cuda,
        DeviceUse::Auto | DeviceUse::Cpu => DeviceKind::Cpu,
        DeviceUse::Null => DeviceKind::Null,
        DeviceUse::Cuda(_) | DeviceUse::AllCuda => DeviceKind::Cuda,
    }
}

/// The first device that a manifest asks for.
///
/// # Errors
/// As [`device_requests`].
pub fn device_request(manifest: &Manifest) -> Result<DeviceRequest, RunError> {
    let requests = device_requests(manifest)?;
    let none = || RunError::Impossible("the manifest names no device".to_owned());
    requests.into_iter().next().ok_or_else(none)
}

/// The plan device of a device request.
pub fn plan_device(request: &DeviceRequest) -> PlanDevice {
    let target = match request.kind {
        DeviceKind::Cpu | DeviceKind::Null => Target::Cpu,
        DeviceKind::Cuda => Target::Cuda {
            arch: local_device(request).details["arch"].clone(),
        },
    };
    PlanDevice {
        kind: request.kind,
        target,
    }
}

/// The compilers that count for a device.
pub fn toolchain_for(kind: DeviceKind, found: &Toolchain) -> Toolchain {
    match kind {
        DeviceKind::Null => Toolchain::none("the null device compiles nothing"),
        DeviceKind::Cpu | DeviceKind::Cuda => found.clone(),
    }
}

/// The interpreters of a manifest's functions in Python, in one line; empty where it has none.
///
/// # Errors
/// [`RunError::Impossible`]: one was ended from outside.
pub fn interpreters(manifest: &Manifest) -> Result<String, RunError> {
    let names: BTreeSet<&str> = manifest
        .declared()
        .flat_map(Declared::interpreters)
        .collect();
    let names = names.into_iter();
    let texts: Result<Vec<String>, _> = names.map(python::identity::identity).collect();
    let texts = texts.map_err(|error| RunError::Impossible(error.to_string()))?;
    Ok(texts.join("; "))
}

/// The identities of this machine's devices, without a worker.
///
/// # Errors
/// As [`device_requests`].
pub fn local_devices(manifest: &Manifest) -> Result<Vec<DeviceIdentity>, RunError> {
    Ok(device_requests(manifest)?
        .iter()
        .map(local_device)
        .collect())
}

/// The identity of this machine's device, without a worker.
///
/// # Panics
/// If a CUDA device is asked for that is not there: [`device_requests`] does not.
pub fn local_device(request: &DeviceRequest) -> DeviceIdentity {
    match request.kind {
        DeviceKind::Null => Null::unit(request.ordinal).identity().clone(),
        DeviceKind::Cpu => cpu::identity::host(),
        DeviceKind::Cuda => match cuda::identity::of(request.ordinal) {
            Ok(device) => device.clone(),
            Err(reason) => unreachable!("`device_requests` found the device: {reason}"),
        },
    }
}
