//! The identity of this host: its processors, clock and memory.

use std::collections::BTreeMap;
use std::fs;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sha2::{Digest, Sha256};

use crate::hardware::{DeviceIdentity, DeviceKind};

/// The identity of the host's processors: model and instruction set.
pub fn host() -> DeviceIdentity {
    let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let field = |name: &str| {
        info.lines()
            .find(|line| line.split(':').next().is_some_and(|key| key.trim() == name))
            .and_then(|line| line.split_once(':'))
            .map(|(_, value)| value.trim().to_owned())
    };
    let mut details = BTreeMap::new();
    details.insert("arch".to_owned(), std::env::consts::ARCH.to_owned());
    for (key, name) in [
        ("family", "cpu family"),
        ("model", "model"),
        ("stepping", "stepping"),
    ] {
        if let Some(value) = field(name) {
            details.insert(key.to_owned(), value);
        }
    }
    if let Some(flags) = field("flags").or_else(|| field("Features")) {
        let mut flags: Vec<&str> = flags.split_whitespace().collect();
        flags.sort_unstable();
        details.insert(
            "isa".to_owned(),
            hex::encode(Sha256::digest(flags.join(" "))),
        );
    }
    let name = field("model name").unwrap_or_else(|| std::env::consts::ARCH.to_owned());
    DeviceIdentity {
        kind: DeviceKind::Cpu,
        name,
        unit: String::new(),
        details,
    }
}

/// The processors that this process may run on, ascending.
pub fn allowed_cpus() -> Vec<usize> {
    let Ok(set) = sched_getaffinity(None) else {
        return Vec::new();
    };
    (0..CpuSet::MAX_CPU)
        .filter(|&cpu| set.is_set(cpu))
        .collect()
}

/// Keeps the calling thread on the `index`-th of `cpus` from the end: systems like to place
/// interrupts and daemons on the first. Without permission the thread stays as it is.
pub fn pin_current_thread(cpus: &[usize], index: usize) {
    if cpus.is_empty() {
        return;
    }
    let mut set = CpuSet::new();
    set.set(cpus[cpus.len() - 1 - index % cpus.len()]);
    // A refusal costs only steadiness, and the samples show that.
    let _ = sched_setaffinity(None, &set);
}

/// The least positive difference of two readings of the clock, in nanoseconds.
pub fn clock_resolution_ns() -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..64 {
        let start = Instant::now();
        let elapsed = loop {
            let elapsed = start.elapsed().as_nanos() as f64;
            if elapsed > 0.0 {
                break elapsed;
            }
        };
        least = least.min(elapsed);
    }
    least
}

/// The size of the largest cache of the first processor, in bytes; 0 where the system does not say.
pub fn last_cache_bytes() -> u64 {
    let size = |index: usize| {
        let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/size");
        let text = fs::read_to_string(path).ok()?;
        let text = text.trim();
        let (digits, unit) = text.split_at(text.len().checked_sub(1)?);
        let unit = match unit {
            "K" => 1 << 10,
            "M" => 1 << 20,
            _ => return None,
        };
        Some(digits.parse::<u64>().ok()? * unit)
    };
    (0..8).filter_map(size).max().unwrap_or(0)
}

/// Forgets the greatest resident size, so that the next reading is of later use only.
pub fn reset_peak_resident() {
    // Where the system refuses, peaks are those of the process so far: too large, never too small.
    let _ = fs::write("/proc/self/clear_refs", "5");
}

/// The greatest resident size of this process since the last reset, in bytes.
pub fn peak_resident_bytes() -> u64 {
    status_bytes("/proc/self/status", "VmHWM").unwrap_or(0)
}

/// A line `Name:   123 kB` of a file of the proc file system, in bytes.
fn status_bytes(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}
