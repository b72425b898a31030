//! How far apart two runs of one program lie on a machine, and where that is remembered.
//!
//! Samples of one process share its pages, its clock and its neighbours, so they can't show how
//! much another process would differ. `sweeper doctor --aa` measures this spread, and `compare`
//! assumes it wherever runs do not show it themselves.

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::estimate::CONFIDENCE;
use sweeper_model::files;
use sweeper_model::hardware::{DeviceIdentity, DeviceKind};
use sweeper_model::stats::student;

/// Version of the files.
const VERSION: u32 = 1;
/// Runs that a side may have, for which a spread is measured.
const RUNS: [usize; 4] = [1, 2, 4, 8];
/// Differences that a scale needs at least.
const LEAST_DIFFERENCES: usize = 6;

/// The greatest assumed scale, as a share, that still tells two single runs apart.
const MOST_TELLING_SCALE: f64 = 0.01;

/// Where a spread comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// `sweeper doctor --aa` measured it on this device.
    Measured,
    /// The spread was not measured: a common one of machines of that kind.
    Assumed,
    /// `--spread` says so.
    Given,
}

/// The spread between two sides of so many runs each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Level {
    /// Runs a side, one after the other.
    pub runs: usize,
    /// Scale of the difference of two sides' mean logarithms: 0.01 is about 1 %.
    pub scale: f64,
    /// Degrees of freedom of the t distribution that those differences follow.
    pub freedom: f64,
}

/// How far apart runs of one program lie.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Where it comes from.
    pub origin: Origin,
    /// By the number of runs a side, ascending; one run at least.
    levels: Vec<Level>,
}

impl Spread {
    /// One spread for any number of runs, as heavy in its tails as four degrees of freedom.
    fn constant(origin: Origin, scale: f64) -> Self {
        let level = Level {
            runs: 1,
            scale,
            freedom: 4.0,
        };
        Spread {
            origin,
            levels: vec![level],
        }
    }

    /// The assumed spread of a device that was not measured; that of a CPU if its kind is not
    /// known.
    pub fn assumed(kind: Option<DeviceKind>) -> Self {
        let facts = kind.unwrap_or(DeviceKind::Cpu).facts();
        Spread::constant(Origin::Assumed, facts.spread.ln_1p())
    }

    /// Whether it can tell two single runs apart. An assumption about processors can't: beside a
    /// busy neighbour the same program takes several times as long.
    pub fn tells_single_runs(&self) -> bool {
        self.origin != Origin::Assumed || self.level(1).scale <= MOST_TELLING_SCALE.ln_1p()
    }

    /// The spread that a user gives: `share` is the standard deviation of the ratio of two runs,
    /// less one.
    pub fn given(share: f64) -> Self {
        Spread::constant(Origin::Given, share.ln_1p())
    }

    /// The spread of runs of one program: `series` has for each point the logarithms of its
    /// medians, run by run, in the order made. `None` if there are too few runs to tell.
    ///
    /// For `k` runs a side, means of `k` runs in a row are compared with those of `k` others half
    /// of the series later, so that slow changes count.
    pub fn measured(series: &[Vec<f64>]) -> Option<Self> {
        let levels: Vec<Level> = RUNS
            .iter()
            .filter_map(|&runs| Level::measured(series, runs))
            .collect();
        let has_first = levels.first().is_some_and(|level| level.runs == 1);
        has_first.then_some(Spread {
            origin: Origin::Measured,
            levels,
        })
    }

    /// The spread between sides of `runs` runs each.
    pub fn level(&self, runs: usize) -> Level {
        let within = |level: &&Level| level.runs <= runs;
        let found = self.levels.iter().rfind(within).or(self.levels.first());
        found.copied().unwrap_or(Level {
            runs: 1,
            scale: f64::INFINITY,
            freedom: 1.0,
        })
    }

    /// All levels.
    pub fn levels(&self) -> &[Level] {
        &self.levels
    }

    /// The wider of two spreads, by those of one run a side.
    #[must_use]
    pub fn wider(self, other: Spread) -> Spread {
        if other.level(1).scale > self.level(1).scale {
            return other;
        }
        self
    }
}

impl Level {
    /// The relative difference that 19 of 20 comparisons of one program with itself keep below.
    pub fn reach(&self) -> f64 {
        (self.scale * student::critical(CONFIDENCE, self.freedom)).exp_m1()
    }

    fn measured(series: &[Vec<f64>], runs: usize) -> Option<Self> {
        let mut all = Vec::new();
        let mut count = usize::MAX;
        for logs in series {
            let own = far_differences(logs, runs);
            count = count.min(own.len());
            all.extend(own);
        }
        if count < LEAST_DIFFERENCES || series.is_empty() {
            return None;
        }
        let (scale, freedom) = student::fit(&all);
        // Points of one run share its fate: they do not add to the knowledge of the tails.
        let freedom = freedom.min(count as f64);
        Some(Level {
            runs,
            scale: scale.max(reach(all, count) / student::critical(CONFIDENCE, freedom)),
            freedom,
        })
    }
}

/// The size that 19 of 20 differences keep below, with a confidence of 90 %: where some runs were
/// hit by something that no t distribution fits, it counts. A tolerance limit by order statistics,
/// for `count` independent differences.
fn reach(mut differences: Vec<f64>, count: usize) -> f64 {
    const NORMAL_90: f64 = 1.2816;
    differences
        .iter_mut()
        .for_each(|difference| *difference = difference.abs());
    differences.sort_by(f64::total_cmp);
    let error = (CONFIDENCE * (1.0 - CONFIDENCE) / count as f64).sqrt();
    let rank = ((CONFIDENCE + NORMAL_90 * error) * differences.len() as f64).ceil() as usize;
    differences[rank.clamp(1, differences.len()) - 1]
}

/// Differences of means of `runs` logarithms in a row, each with that half of the series later.
pub(super) fn far_differences(logs: &[f64], runs: usize) -> Vec<f64> {
    let means: Vec<f64> = logs
        .chunks_exact(runs)
        .map(|chunk| chunk.iter().sum::<f64>() / runs as f64)
        .collect();
    let half = means.len() / 2;
    let pairs = means.iter().zip(&means[half..]);
    pairs.take(half).map(|(one, other)| other - one).collect()
}

/// A device's spread, as its file has it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SpreadFile {
    version: u32,
    /// The device.
    pub device: DeviceIdentity,
    /// CPU threads of the measured programs.
    pub threads: u32,
    /// Runs that it was made from.
    pub runs: usize,
    /// Seconds that the runs took together, breaks included.
    pub seconds: f64,
    /// When they were made, in seconds since 1970.
    pub unix_time_s: f64,
    /// The spread.
    pub spread: Spread,
}

impl SpreadFile {
    /// The file that remembers the spread of `runs` runs.
    pub fn new(
        device: DeviceIdentity,
        threads: u32,
        runs: usize,
        times_s: [f64; 2],
        spread: Spread,
    ) -> Self {
        let [began_s, ended_s] = times_s;
        SpreadFile {
            version: VERSION,
            device,
            threads,
            runs,
            seconds: ended_s - began_s,
            unix_time_s: ended_s,
            spread,
        }
    }

    /// Reads the remembered spread of a device in the cache's `folder`. None, too, for a file of
    /// another version or device.
    pub fn read(folder: &Path, device: &DeviceIdentity, threads: u32) -> Option<Self> {
        let bytes = files::read(&path(folder, device, threads)?).ok()?;
        let held: SpreadFile = serde_json::from_slice(&bytes).ok()?;
        let is_it = held.version == VERSION && held.device == *device && held.threads == threads;
        let is_whole = held
            .spread
            .levels
            .first()
            .is_some_and(|level| level.runs == 1);
        let is_finite = |level: &Level| level.scale.is_finite() && level.freedom >= 1.0;
        (is_it && is_whole && held.spread.levels.iter().all(is_finite)).then_some(held)
    }

    /// Writes the file into the cache's `folder`.
    ///
    /// # Errors
    /// Those of the file system; if the folder is not a cache.
    pub fn write(&self, folder: &Path) -> io::Result<PathBuf> {
        let path = path(folder, &self.device, self.threads)
            .ok_or_else(|| io::Error::other("the device has no text"))?;
        files::write_beside_cache(&path, &serde_json::to_vec_pretty(self)?)?;
        Ok(path)
    }
}

fn path(folder: &Path, device: &DeviceIdentity, threads: u32) -> Option<PathBuf> {
    let text = serde_json::to_string(&(device, threads)).ok()?;
    let digest = hex::encode(Sha256::digest(text));
    Some(folder.join(format!("spread-{digest:.16}.json")))
}

#[cfg(test)]
mod tests {
    use super::super::testing::Random;
    use std::fs;

    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn independent_runs_average_out_and_slow_changes_do_not() {
        let mut random = Random::new(5);
        let independent = vec![(0..800).map(|_| 0.01 * random.normal()).collect()];
        let spread = Spread::measured(&independent).unwrap();
        let expected = |runs: usize| 0.01 * (2.0 / runs as f64).sqrt();
        for runs in [1, 4] {
            let level = spread.level(runs);
            assert!(
                (level.scale / expected(runs)).ln().abs() < 0.25,
                "{level:?}"
            );
        }
        let mut state = 0.0;
        let slow = vec![
            (0..800)
                .map(|_| {
                    state = 0.98 * state + 0.2 * random.normal();
                    0.01 * state
                })
                .collect::<Vec<f64>>(),
        ];
        let spread = Spread::measured(&slow).unwrap();
        assert!(
            spread.level(8).scale > 0.8 * spread.level(1).scale,
            "{spread:?}"
        );
        // In between, the smaller number counts; beyond, the largest.
        assert_eq!(spread.level(7), spread.level(4));
        assert_eq!(spread.level(1000).runs, 8);
    }

    #[test]
    fn too_few_runs_say_nothing() {
        assert_eq!(Spread::measured(&[vec![0.0; 11]]), None);
        assert_eq!(Spread::measured(&[]), None);
        assert_eq!(
            Spread::measured(&[vec![0.0; 12]]).unwrap().level(5).scale,
            0.0
        );
    }

    #[test]
    fn it_is_remembered_by_device_and_threads() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("CACHEDIR.TAG"), "").unwrap();
        let device = DeviceIdentity {
            kind: DeviceKind::Cpu,
            name: "a processor".to_owned(),
            unit: String::new(),
            details: BTreeMap::new(),
        };
        let spread = Spread::measured(&[vec![0.5; 40]]).unwrap();
        let kept = SpreadFile::new(device.clone(), 1, 40, [10.0, 12.0], spread);
        let path = kept.write(folder.path()).unwrap();
        assert_eq!(
            SpreadFile::read(folder.path(), &device, 1).as_ref(),
            Some(&kept)
        );
        assert_eq!(SpreadFile::read(folder.path(), &device, 2), None);
        fs::write(path, "{}").unwrap();
        assert_eq!(SpreadFile::read(folder.path(), &device, 1), None);
    }
}
