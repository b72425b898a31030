//! The devices of a manifest, and their properties for plans and compilers.

use std::collections::BTreeSet;

use super::RunError;
use sweeper_engine::compile::toolchain::Toolchain;
use sweeper_engine::device::foreign::python;
use sweeper_engine::device::platform::{self, Platform, platform};
use sweeper_engine::execute::protocol::DeviceRequest;
use sweeper_manifest::Manifest;
use sweeper_manifest::plan::{PlanDevice, conditions};
use sweeper_manifest::settings::DeviceUse;
use sweeper_manifest::user::Declared;
use sweeper_model::hardware::{DeviceIdentity, DeviceKind};
use sweeper_model::mode::{Launching, Mode};

/// The kind of the first GPU platform that `is_here`, else the CPU.
fn chosen(is_here: impl Fn(&Platform) -> bool) -> DeviceKind {
    let found = platform::gpus().find(|gpus| is_here(gpus));
    found.map_or(DeviceKind::Cpu, |gpus| gpus.kind)
}

/// The devices that a manifest asks for, at least one, all of one kind and architecture.
///
/// # Errors
/// If a device is missing, or if they differ: a plan is made for one architecture.
pub fn device_requests(manifest: &Manifest) -> Result<Vec<DeviceRequest>, RunError> {
    let (kind, ordinals) = match &manifest.device.use_ {
        DeviceUse::Auto => (chosen(|gpus| (gpus.device)(0).is_ok()), vec![0]),
        DeviceUse::Listed(kind, ordinals) => (*kind, ordinals.clone()),
        DeviceUse::All(kind) => {
            let units = manifest.null.as_ref().map_or(1, |null| null.units);
            let all = (platform(*kind).discover)().map_err(RunError::Impossible)?;
            let scripted = !kind.facts().computes;
            let count = if scripted { units } else { all.len() as u32 };
            (*kind, (0..count).collect())
        }
    };
    if kind.facts().is_gpu {
        check_alike(kind, &ordinals)?;
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
fn check_alike(kind: DeviceKind, ordinals: &[u32]) -> Result<(), RunError> {
    let mut first: Option<DeviceIdentity> = None;
    for &ordinal in ordinals {
        let device = (platform(kind).device)(ordinal);
        let device = device.map_err(RunError::Impossible)?;
        let expected = first.get_or_insert_with(|| device.clone());
        if device.name != expected.name || device.details["arch"] != expected.details["arch"] {
            return Err(RunError::Impossible(format!(
                "{}:{ordinal} is {}, and not {} as the first: run different devices apart",
                kind.name(),
                device.name,
                expected.name
            )));
        }
    }
    Ok(())
}

/// The kind of device that a manifest asks for, as far as can be told before a driver was started.
pub fn likely_kind(manifest: &Manifest) -> DeviceKind {
    match &manifest.device.use_ {
        DeviceUse::Auto => chosen(|gpus| (gpus.may_be_here)()),
        DeviceUse::All(kind) | DeviceUse::Listed(kind, _) => *kind,
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
    PlanDevice {
        kind: request.kind,
        target: (platform(request.kind).target)(&local_device(request)),
    }
}

/// The compilers that count for a device.
pub fn toolchain_for(kind: DeviceKind, found: &Toolchain) -> Toolchain {
    match kind.facts().computes {
        true => found.clone(),
        false => Toolchain::none("the null device compiles nothing"),
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
/// If a device is asked for that is not there: [`device_requests`] does not.
pub fn local_device(request: &DeviceRequest) -> DeviceIdentity {
    let found = (platform(request.kind).device)(request.ordinal);
    found.unwrap_or_else(|reason| unreachable!("`device_requests` found the device: {reason}"))
}
