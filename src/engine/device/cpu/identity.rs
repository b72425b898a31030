//! The identity of this host: its processors, clock and memory.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::time::Instant;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use sha2::{Digest, Sha256};

use sweeper_model::hardware::{DeviceIdentity, DeviceKind};

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
    if !cpus.is_empty() {
        keep_current_thread_on(&[cpus[cpus.len() - 1 - index % cpus.len()]]);
    }
}

/// The processors beside those that `threads` measuring threads are pinned to, and beside others of
/// the same cores; as many as leave the measuring threads theirs of all `processors` of the job.
pub fn spare_cpus(threads: usize, processors: usize) -> Vec<usize> {
    let allowed = allowed_cpus();
    let (others, measuring) = allowed.split_at(allowed.len().saturating_sub(threads));
    let busy: BTreeSet<usize> = measuring.iter().flat_map(|&cpu| core_of(cpu)).collect();
    let spare = others.iter().copied().filter(|cpu| !busy.contains(cpu));
    spare.take(processors.saturating_sub(threads)).collect()
}

/// The processors of a processor's core; it alone where the system does not say.
fn core_of(cpu: usize) -> Vec<usize> {
    let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
    let text = fs::read_to_string(path).unwrap_or_default();
    std::iter::once(cpu).chain(numbers_in(&text)).collect()
}

/// The numbers in a list of the system's, as `0-3,8`.
fn numbers_in(list: &str) -> impl Iterator<Item = usize> {
    let ranges = list.trim().split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.parse::<usize>().ok()?..=last.parse().ok()?)
    });
    ranges.flatten()
}

/// Keeps the calling thread, and processes that it starts, on some processors.
pub fn keep_current_thread_on(cpus: &[usize]) {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
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

/// The greatest resident size of another process of this user so far, in bytes.
pub fn peak_resident_of(process: u32) -> u64 {
    status_bytes(&format!("/proc/{process}/status"), "VmHWM").unwrap_or(0)
}

/// A line `Name:   123 kB` of a file of the proc file system, in bytes.
fn status_bytes(path: &str, name: &str) -> Option<u64> {
    let text = fs::read_to_string(path).ok()?;
    let line = text.lines().find(|line| line.starts_with(name))?;
    let kilobytes: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kilobytes * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spare_processors_share_no_core_with_those_that_measure() {
        let allowed = allowed_cpus();
        for threads in 1..=allowed.len() {
            let spare = spare_cpus(threads, allowed.len());
            let mut measuring = allowed.iter().rev().take(threads).map(|&cpu| core_of(cpu));
            assert!(measuring.all(|core| core.iter().all(|cpu| !spare.contains(cpu))));
            assert!(spare_cpus(threads, threads).is_empty());
        }
        assert!(spare_cpus(allowed.len(), usize::MAX).is_empty());
    }

    #[test]
    fn lists_of_processors_have_ranges() {
        let numbers = |list| numbers_in(list).collect::<Vec<_>>();
        assert_eq!(numbers("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(numbers(""), [0; 0]);
    }
}
