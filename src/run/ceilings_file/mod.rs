//! The file of a device's ceilings beside the kernel cache: rates that probes measured, and better
//! ones of calibrations since then.
//!
//! A calibration is a finished run whose manifest asks for the export `calibration_profile`. It
//! raises a ceiling or leaves it alone: a worse run has no information about the limits of a
//! device. `sweeper devices --calibrate` begins anew.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use sweeper_model::files;
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::hardware::ceilings::{COPY, CeilingSource, Ceilings};
use sweeper_model::identity::{CacheState, RunId};
use sweeper_model::row::Row;
use sweeper_model::row::outcome::{Checked, Status};

/// Version of the probes: a new one makes them be measured again.
const VERSION: u32 = 1;

/// Files begin with this.
const PREFIX: &str = "ceilings-";

/// A copy counts as a copy of memory if it moves so many times the size of the last cache.
const LEAST_CACHES: f64 = 4.0;

/// The workloads that calibrations raise ceilings by.
const COPIES: &str = "copy";
const PRODUCTS: &str = "matmul";

/// The ceilings of one device with a number of threads.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CeilingsFile {
    version: u32,
    /// The device.
    pub device: DeviceIdentity,
    /// CPU threads of a measured program.
    pub threads: u32,
    /// Rates that probes measured.
    ceilings: Ceilings,
    /// Time of the probes, in seconds since 1970.
    #[serde(default)]
    probed_unix_s: f64,
    /// Rates that calibrations measured, by kind: copies, then kinds of arithmetic.
    #[serde(default)]
    calibrated: BTreeMap<String, Calibrated>,
}

/// A rate that a calibration measured.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
struct Calibrated {
    /// Bytes or operations a second.
    per_s: f64,
    run: RunId,
    unix_s: f64,
}

/// A ceiling that a calibration raised.
#[derive(Clone, Debug, PartialEq)]
pub struct Raised {
    /// [`COPY`], or a kind of arithmetic.
    pub kind: String,
    /// Bytes or operations a second before; none where no rate was known.
    pub from_per_s: Option<f64>,
    /// Bytes or operations a second from now on.
    pub to_per_s: f64,
}

impl CeilingsFile {
    /// The rates of probes that just ran.
    pub(super) fn probed(
        device: DeviceIdentity,
        threads: u32,
        ceilings: Ceilings,
        unix_s: f64,
    ) -> Self {
        CeilingsFile {
            version: VERSION,
            device,
            threads,
            ceilings,
            probed_unix_s: unix_s,
            calibrated: BTreeMap::new(),
        }
    }

    /// The file of a device in `folder`, if the probes of this program measured it.
    pub(super) fn of(folder: &Path, device: &DeviceIdentity, threads: u32) -> Option<Self> {
        let held = read(&path(folder, device, threads)?)?;
        (held.device == *device && held.threads == threads).then_some(held)
    }

    /// All files of a device in `folder`, by the number of threads.
    pub fn all_of(folder: &Path, device: &DeviceIdentity) -> Vec<Self> {
        let files = fs::read_dir(folder).into_iter().flatten().flatten();
        let is_ours = |path: &PathBuf| {
            let name = path.file_name().and_then(|name| name.to_str());
            name.is_some_and(|name| name.starts_with(PREFIX) && name.ends_with(".json"))
        };
        let paths = files.map(|file| file.path()).filter(is_ours);
        let mut held: Vec<Self> = paths
            .filter_map(|path| read(&path))
            .filter(|held| held.device == *device)
            .collect();
        held.sort_by_key(|held| held.threads);
        held
    }

    /// Writes it beside the cache's own files.
    pub(super) fn keep(&self, folder: &Path) -> io::Result<()> {
        let path = path(folder, &self.device, self.threads);
        let path = path.ok_or_else(|| io::Error::other("a device that can't be written down"))?;
        files::write_beside_cache(&path, &serde_json::to_vec_pretty(self)?)
    }

    /// The better rates of probes and calibrations, with their sources.
    pub fn ceilings(&self) -> Ceilings {
        let mut best = self.ceilings.clone();
        let probe = CeilingSource {
            run: None,
            unix_s: self.probed_unix_s,
        };
        let kinds = best.flops_per_s.keys().cloned();
        best.sources = kinds
            .chain([COPY.to_owned()])
            .map(|kind| (kind, probe.clone()))
            .collect();
        for (kind, found) in &self.calibrated {
            let held = match kind.as_str() {
                COPY => &mut best.copy_bytes_per_s,
                _ => best.flops_per_s.entry(kind.clone()).or_default(),
            };
            if found.per_s > *held {
                *held = found.per_s;
                let source = CeilingSource {
                    run: Some(found.run),
                    unix_s: found.unix_s,
                };
                best.sources.insert(kind.clone(), source);
            }
        }
        best
    }

    /// Raises ceilings to the rates that a calibration measured, where these are higher.
    fn raise(&mut self, rates: BTreeMap<String, f64>, run: RunId, unix_s: f64) -> Vec<Raised> {
        let held = self.ceilings();
        let mut raised = Vec::new();
        for (kind, per_s) in rates {
            let from_per_s = match kind.as_str() {
                COPY => Some(held.copy_bytes_per_s),
                _ => held.flops_per_s.get(&kind).copied(),
            };
            let from_per_s = from_per_s.filter(|&rate| rate > 0.0);
            if from_per_s.is_none_or(|from| per_s > from) {
                let found = Calibrated { per_s, run, unix_s };
                self.calibrated.insert(kind.clone(), found);
                raised.push(Raised {
                    kind,
                    from_per_s,
                    to_per_s: per_s,
                });
            }
        }
        raised
    }
}

/// Raises the remembered ceilings of a device to the rates in rows of a finished calibration.
///
/// Without remembered ceilings, nothing is raised: a device is probed before it measures.
///
/// # Errors
/// Errors of the file system.
pub fn learn(
    folder: &Path,
    device: &DeviceIdentity,
    threads: u32,
    rows: &[&Row],
    run: RunId,
) -> io::Result<Vec<Raised>> {
    let Some(mut held) = CeilingsFile::of(folder, device, threads) else {
        return Ok(Vec::new());
    };
    let ended_s = rows.iter().map(|row| row.unix_time_s).fold(0.0, f64::max);
    let raised = held.raise(rates(rows, held.ceilings.cache_bytes), run, ended_s);
    if !raised.is_empty() {
        held.keep(folder)?;
    }
    Ok(raised)
}

/// The best rates by kind, from medians of rows with right results, as in the profile.
///
/// Copies that partly fit in a cache of `cache_bytes` do not count, nor copies from a clean cache:
/// their last lines reach memory after the measured time.
fn rates(rows: &[&Row], cache_bytes: u64) -> BTreeMap<String, f64> {
    let mut rates = BTreeMap::new();
    for row in rows.iter().filter(|row| row.outcome.status == Status::Ok) {
        let (Some(found), Some(summary)) = (&row.outcome.measurement, row.summary()) else {
            continue;
        };
        let (kind, amount) = match row.workload.as_str() {
            COPIES
                if found.compulsory_bytes >= LEAST_CACHES * cache_bytes as f64
                    && row.l2 != CacheState::Clean.word() =>
            {
                (COPY, found.compulsory_bytes)
            }
            PRODUCTS => (row.arithmetic(), found.flops),
            _ => continue,
        };
        let per_s = amount / summary.median * 1e9;
        if found.checked != Checked::None && per_s.is_finite() && per_s > 0.0 {
            let held = rates.entry(kind.to_owned()).or_insert(0.0);
            *held = per_s.max(*held);
        }
    }
    rates
}

fn path(folder: &Path, device: &DeviceIdentity, threads: u32) -> Option<PathBuf> {
    let text = serde_json::to_string(&(device, threads)).ok()?;
    let digest = hex::encode(Sha256::digest(text));
    Some(folder.join(format!("{PREFIX}{digest:.16}.json")))
}

fn read(path: &Path) -> Option<CeilingsFile> {
    let held: CeilingsFile = serde_json::from_slice(&files::read(path).ok()?).ok()?;
    (held.version == VERSION).then_some(held)
}

#[cfg(test)]
mod tests;
