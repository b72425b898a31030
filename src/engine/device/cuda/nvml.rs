//! Readings of NVIDIA's management library while a device works. Where the library is missing, only
//! these readings are.

use std::ffi::OsStr;
use std::time::{Duration, Instant};

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::error::NvmlError;

use sweeper_model::hardware::clocks::Clocks;
use sweeper_model::proc_stat::{is_there, parent_of};

/// The name that drivers install; the one without a number comes with developers' packages.
const LIBRARY: &str = "libnvidia-ml.so.1";

/// A reading is used for so long: asking takes time that would be better spent at measuring.
const INTERVAL: Duration = Duration::from_millis(20);

/// Processes come and go less often than clocks change.
const INTERVAL_OF_PROCESSES: Duration = Duration::from_millis(500);

/// Reads one device's clocks.
pub struct Monitor {
    nvml: Nvml,
    index: u32,
    last: Option<(Instant, Clocks)>,
    last_shared: Option<(Instant, bool)>,
}

impl Monitor {
    /// A monitor of the device with this UUID, where the library is there and knows it.
    pub fn of(uuid: &str) -> Option<Self> {
        let nvml = Nvml::builder().lib_path(OsStr::new(LIBRARY)).init().ok()?;
        let index = nvml.device_by_uuid(uuid).ok()?.index().ok()?;
        let mut monitor = Monitor {
            nvml,
            index,
            last: None,
            last_shared: None,
        };
        // Virtual GPUs may answer none of the questions: then there is nothing to watch.
        monitor.read().ok()?;
        Some(monitor)
    }

    /// How the device is doing, as of a moment ago.
    pub fn clocks(&mut self) -> Option<Clocks> {
        if let Some((at, clocks)) = self.last
            && at.elapsed() < INTERVAL
        {
            return Some(clocks);
        }
        let clocks = self.read().ok()?;
        self.last = Some((Instant::now(), clocks));
        Some(clocks)
    }

    fn read(&mut self) -> Result<Clocks, NvmlError> {
        let is_shared = self.is_shared();
        let device = self.nvml.device_by_index(self.index)?;
        Ok(Clocks {
            sm_mhz: device.clock_info(Clock::SM)?,
            temperature_c: device.temperature(TemperatureSensor::Gpu)?,
            power_mw: device.power_usage().unwrap_or(0),
            reasons: device.current_throttle_reasons()?.bits(),
            is_shared,
        })
    }

    /// Whether a process of others has the device open, as of a moment ago; false where the library
    /// can't tell.
    fn is_shared(&mut self) -> bool {
        if let Some((at, is_shared)) = self.last_shared
            && at.elapsed() < INTERVAL_OF_PROCESSES
        {
            return is_shared;
        }
        let device = self.nvml.device_by_index(self.index);
        let listed = device.and_then(|device| device.running_compute_processes());
        // Asked while a process begins or ends, the library may fail: what was so last time is so.
        let Ok(listed) = listed else {
            return self.last_shared.is_some_and(|(_, is_shared)| is_shared);
        };
        let listed = listed.into_iter().map(|process| process.pid);
        // A driver may list processes for a while that have ended.
        let listed: Vec<u32> = listed.filter(|process| is_there(*process)).collect();
        let is_shared = has_others(&listed, own_root(), parent_of);
        self.last_shared = Some((Instant::now(), is_shared));
        is_shared
    }
}

/// The process that all processes of this sweep come from: the parent of a worker, which runs the
/// same program, or else this process.
fn own_root() -> u32 {
    let own = std::process::id();
    let program = |process: u32| std::fs::read_link(format!("/proc/{process}/exe")).ok();
    match parent_of(own) {
        Some(parent) if program(parent).is_some_and(|it| program(own) == Some(it)) => parent,
        _ => own,
    }
}

/// Whether some of the `listed` processes are none of those that come from `root`. A list without
/// any of them has numbers of another name space, as in a container: it tells nothing.
fn has_others(listed: &[u32], root: u32, parent_of: impl Fn(u32) -> Option<u32>) -> bool {
    let is_own = |process: u32| {
        let ancestors = std::iter::successors(Some(process), |process| parent_of(*process));
        ancestors.take(MOST_ANCESTORS).any(|it| it == root)
    };
    let own = listed.iter().filter(|process| is_own(**process)).count();
    own > 0 && own < listed.len()
}

/// Parents are asked for one after the other while processes end: a circle must not be followed.
const MOST_ANCESTORS: usize = 100;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_of_others_are_told_from_those_of_the_sweep() {
        // 1 has started a shell 10, that a sweep 20 with a worker 21, and that an interpreter 22;
        // and another program 30.
        let parent_of = |process| match process {
            10 | 30 => Some(1),
            20 => Some(10),
            21 => Some(20),
            22 => Some(21),
            _ => None,
        };
        let has_others = |listed: &[u32]| has_others(listed, 20, parent_of);
        assert!(!has_others(&[21]));
        assert!(!has_others(&[22, 21, 20]));
        assert!(has_others(&[21, 30]));
        assert!(has_others(&[10, 21]));
        assert!(has_others(&[22, 30]), "the interpreter alone uses the GPU");
        assert!(has_others(&[21, 99]), "one that is not to be seen");
        assert!(!has_others(&[4021, 4030]), "numbers of another name space");
        assert!(!has_others(&[]));
    }
}
