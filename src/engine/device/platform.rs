//! Platforms: what is known of a kind of device before one is open.
//!
//! A new kind of device is a folder next to `cpu` and `cuda`, and a line in [`PLATFORMS`].

use sweeper_program::{Language, Target};
use sweeper_workloads::ceilings::Size;

use super::foreign::python::Place;
use super::{Device, DeviceError, DeviceIdentity, DeviceKind, cpu, cuda, null};
use sweeper_model::identity::CacheState;

/// All kinds of devices, in the order in which they are listed.
pub static PLATFORMS: &[&Platform] = &[&cpu::PLATFORM, &cuda::PLATFORM, &null::PLATFORM];

/// One kind of device. Functions that may fail say what is missing, and how to change that.
pub struct Platform {
    /// The kind.
    pub kind: DeviceKind,
    /// The language of its kernels.
    pub language: Language,
    /// Whether there may be such devices here, as far as can be told before a driver was started.
    pub may_be_here: fn() -> bool,
    /// All devices of the kind that this process may use, by number.
    pub discover: fn() -> Result<Vec<DeviceIdentity>, String>,
    /// The device with this number, if kernels can run on it.
    pub device: fn(u32) -> Result<DeviceIdentity, String>,
    /// A device that need not be here, by its architecture; none where the kind has none.
    pub device_of_arch: fn(&str) -> Option<Result<DeviceIdentity, String>>,
    /// The target of programs for a device.
    pub target: fn(&DeviceIdentity) -> Target,
    /// A device in one line, on a host with so many processors.
    pub describe: fn(&DeviceIdentity, usize) -> String,
    /// Libraries that programs may call: the version and the purpose of each.
    pub libraries: fn() -> Vec<Finding>,
    /// The sizes that probes of a device's ceilings must exceed, with so many CPU threads.
    pub probe_size: fn(&DeviceIdentity, u32) -> Size,
    /// Opens a device.
    pub open: fn(&Opening) -> Result<Opened, DeviceError>,
    /// Copies of a block's inputs that are in the host's memory while it is measured.
    pub input_copies: u64,
    /// Threads of a worker, on so many processors, for work that the device does not do, such as
    /// the oracle's; 0 for the environment's number, which can be returned if it `is_told`.
    pub host_threads: fn(processors: usize, is_told: bool) -> usize,
    /// Processors on which blocks may be made ready while one is measured by so many threads, of
    /// all processors of the job; none where that needs none of its own.
    pub spare_processors: fn(threads: usize, all: usize) -> Vec<usize>,
    /// Greatest number of blocks that a worker has, without spare processors and with some: where
    /// it disturbs no clock, the next ones are made ready while one is measured.
    pub blocks_at_once: [usize; 2],
}

/// One line of a report on this machine: its subject, and what is there or what is wrong.
pub type Finding = (&'static str, Result<String, String>);

/// An open device, and the place where other processes run programs; none for a device that has no
/// such programs.
pub type Opened = (Box<dyn Device>, Option<Place>);

/// How a device is opened.
#[derive(Clone, Copy, Debug)]
pub struct Opening {
    /// Which of its kind.
    pub ordinal: u32,
    /// Threads of a measured program on a CPU.
    pub threads: u32,
    /// State of the second-level cache before each sample.
    pub cache: CacheState,
}

/// The platform of a kind of device.
///
/// # Panics
/// If [`PLATFORMS`] lacks it.
pub fn platform(kind: DeviceKind) -> &'static Platform {
    let found = PLATFORMS.iter().find(|platform| platform.kind == kind);
    found.unwrap_or_else(|| unreachable!("`PLATFORMS` lacks {kind:?}"))
}

/// The platforms of GPUs.
pub fn gpus() -> impl Iterator<Item = &'static Platform> {
    let all = PLATFORMS.iter().copied();
    all.filter(|platform| platform.kind.facts().is_gpu)
}

/// A device that need not be here, by its architecture.
///
/// # Errors
/// If no platform has that architecture.
pub fn device_of_arch(arch: &str) -> Result<DeviceIdentity, String> {
    let mut reason = format!("`{arch}` is not an architecture of a GPU");
    for found in PLATFORMS.iter().filter_map(|it| (it.device_of_arch)(arch)) {
        match found {
            Ok(device) => return Ok(device),
            Err(refusal) => reason = refusal,
        }
    }
    Err(reason)
}

/// As many threads as there are processors, where the environment does not say how many.
pub(super) fn threads_of_all(processors: usize, is_told: bool) -> usize {
    if is_told { 0 } else { processors.max(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_those_of_the_allocation() {
        let threads =
            |kind, processors, is_told| (platform(kind).host_threads)(processors, is_told);
        assert_eq!(threads(DeviceKind::Cpu, 4, false), 4);
        assert_eq!(threads(DeviceKind::Cpu, 4, true), 0);
        assert_eq!(threads(DeviceKind::Cuda, 4, true), 3);
        assert_eq!(threads(DeviceKind::Cuda, 1, false), 1);
    }
}
