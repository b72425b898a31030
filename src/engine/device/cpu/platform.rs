//! The host's processors as a platform.

use std::sync::LazyLock;

use sweeper_program::{Language, Target};
use sweeper_workloads::ceilings::Size;

use super::{Cpu, identity};
use crate::device::foreign::python::Place;
use crate::device::platform::{Opened, Opening, Platform, threads_of_all};
use crate::device::{DeviceError, DeviceIdentity, DeviceKind};

static HOST: LazyLock<DeviceIdentity> = LazyLock::new(identity::host);

/// The host, the only device of its kind.
pub static PLATFORM: Platform = Platform {
    kind: DeviceKind::Cpu,
    language: Language::C,
    may_be_here: || true,
    discover: || Ok(vec![HOST.clone()]),
    device: |_| Ok(HOST.clone()),
    device_of_arch: |_| None,
    target: |_| Target::Cpu,
    describe: |device, processors| format!("{} ({processors} processors)", device.name),
    libraries: Vec::new,
    probe_size,
    open,
    // What is measured has its memory on the host, too.
    input_copies: 2,
    host_threads: threads_of_all,
    spare_processors: identity::spare_cpus,
    // To make blocks ready takes longer than to measure some of them.
    blocks_at_once: [1, 3],
};

/// The sizes that probes of the host must exceed.
pub(in crate::device) fn probe_size(_device: &DeviceIdentity, threads: u32) -> Size {
    Size {
        workers: threads,
        cache_bytes: identity::last_cache_bytes(),
    }
}

fn open(opening: &Opening) -> Result<Opened, DeviceError> {
    let threads = opening.threads as usize;
    let device = Cpu::new(threads)?.beginning(opening.cache);
    let place = Place::of_cpu(threads, opening.cache);
    Ok((Box::new(device), Some(place)))
}
