//! Other file formats, made from rows: names and columns are a contract for people's scripts.
//!
//! The guides' own formats, and those that other programs read. A guide's file has columns for some
//! parameters only. Where another parameter has several values, the files are written once for each
//! combination, in a folder such as `potentials=materialized`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use crate::hardware::DeviceIdentity;
use crate::identity::RunId;
use crate::manifest::Manifest;
use crate::manifest::settings::{Hardware, Order};
use crate::row::Row;

pub mod semicrf;
pub mod operations;
pub mod economics;
pub mod calibration_profile;
pub mod nvbench;
pub mod json;
#[cfg(feature = "parquet")]
pub mod parquet;
mod typed;

/// The export that makes a run a calibration: a finished one raises the known ceilings of its
/// devices.
pub const CALIBRATION_PROFILE: &str = "calibration_profile";

/// The export of the operations guide.
pub const BENCHMARK_RESULTS: &str = "benchmark_results";

/// Facts about a run, beside its rows.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The run.
    pub run: RunId,
    /// Name of its manifest.
    pub name: &'a str,
    /// The devices of the run.
    pub devices: &'a [DeviceIdentity],
    /// The manifest's settings of the devices' hardware.
    pub hardware: &'a Hardware,
    /// The backend that others are relative to.
    pub baseline: Option<&'a str>,
    /// Iterations of the loop that economics is about.
    pub iterations: u32,
    /// True if the backends of a problem were sampled in turns.
    pub in_turns: bool,
}

impl<'a> About<'a> {
    /// Facts about a run of a manifest.
    pub fn new(run: RunId, manifest: &'a Manifest, devices: &'a [DeviceIdentity]) -> Self {
        About {
            run,
            name: &manifest.name,
            devices,
            hardware: &manifest.device.hardware,
            baseline: manifest.report.baseline,
            iterations: manifest.report.iterations,
            in_turns: manifest.plan.order == Order::Interleaved,
        }
    }
}

/// Writes the exports called `names` below `folder`; exports without a row are left out. Values
/// that are relative to a backend are to the baseline, or where there is none to the guide's.
///
/// # Errors
/// Those of the file system.
pub fn write(names: &[&str], rows: &[Row], about: &About<'_>, folder: &Path) -> io::Result<()> {
    for name in names {
        match *name {
            "json" => json::write_records(rows, create(folder, "records.json")?)?,
            "nvbench" => nvbench::write(rows, folder)?,
            "compilation_economics" => write_economics(rows, about, folder)?,
            BENCHMARK_RESULTS => write_operations(rows, folder)?,
            CALIBRATION_PROFILE => {
                let out = create(folder, "calibration_profile.json")?;
                calibration_profile::write(rows, about, out)?;
            }
            "parquet" => write_parquet(rows, folder)?,
            _ => {}
        }
    }
    write_semicrf(names, rows, folder)
}

/// The file of the compilation guide.
fn write_economics(rows: &[Row], about: &About<'_>, folder: &Path) -> io::Result<()> {
    let baseline = about.baseline.unwrap_or(EAGER);
    let found = economics::comparisons(rows, baseline, about.iterations);
    match found.is_empty() {
        true => Ok(()),
        false => json::write_objects(&found, create(folder, "compilation_economics.json")?),
    }
}

/// The file of the operations guide, for each phase if there are several: it has no column for
/// that.
fn write_operations(rows: &[Row], folder: &Path) -> io::Result<()> {
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| operations::is_its_row(row))
        .collect();
    for (path, rows) in combinations(&rows, &operations::COLUMNS) {
        let results: Vec<_> = rows.into_iter().filter_map(operations::result).collect();
        if !results.is_empty() {
            let out = create(&folder.join(path), "benchmark_results.json")?;
            json::write_objects(&results, out)?;
        }
    }
    Ok(())
}

#[cfg(feature = "parquet")]
fn write_parquet(rows: &[Row], folder: &Path) -> io::Result<()> {
    parquet::write_records(rows, create(folder, "records.parquet")?)
}

/// Refuses exports that this build can't write, before anything is measured for them.
///
/// # Errors
/// Advice.
pub fn check(names: &[&str]) -> Result<(), String> {
    match names.contains(&"parquet") && cfg!(not(feature = "parquet")) {
        true => Err(NO_PARQUET.to_owned()),
        false => Ok(()),
    }
}

/// The baseline of the compilation guide: an eager framework.
const EAGER: &str = "eager";

const NO_PARQUET: &str = "this program was built without Parquet; `cargo build --release --features \
     parquet` builds one with it, and `exports = [\"json\"]` needs none";

#[cfg(not(feature = "parquet"))]
fn write_parquet(_rows: &[Row], _folder: &Path) -> io::Result<()> {
    Err(io::Error::other(NO_PARQUET))
}

/// The files of the semi-CRF guide.
fn write_semicrf(names: &[&str], rows: &[Row], folder: &Path) -> io::Result<()> {
    let rows: Vec<&Row> = rows
        .iter()
        .filter(|row| row.workload == "semicrf")
        .collect();
    if rows.is_empty() {
        return Ok(());
    }
    for (path, rows) in combinations(&rows, &semicrf::COLUMNS) {
        let folder = folder.join(path);
        for name in names {
            match *name {
                "benchmark_full" => {
                    let out = create(&folder, "benchmark_full.csv")?;
                    semicrf::write_benchmark_full(&rows, out)?;
                }
                "memory_breakdown" => {
                    let out = create(&folder, "memory_breakdown.csv")?;
                    semicrf::write_memory_breakdown(&rows, out)?;
                }
                "heatmap_data" => {
                    let out = create(&folder, "heatmap_data.json")?;
                    semicrf::write_heatmap_data(&rows, out)?;
                }
                _ => {}
            }
        }
    }
    Ok(())
}

fn create(folder: &Path, name: &str) -> io::Result<BufWriter<File>> {
    fs::create_dir_all(folder)?;
    Ok(BufWriter::new(File::create(folder.join(name))?))
}

/// The name of the way in which timed steps are given to the device, which is treated as a
/// parameter.
const MODE: &str = "mode";

/// So is the phase.
const PHASE: &str = "phase";

/// Rows by the values of those parameters that are not in `columns` and take several values.
fn combinations<'r>(rows: &[&'r Row], columns: &[&str]) -> BTreeMap<PathBuf, Vec<&'r Row>> {
    let mut seen: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for row in rows {
        for (name, value) in &row.parameters {
            seen.entry(name).or_default().insert(value.to_string());
        }
        seen.entry(MODE).or_default().insert(row.mode.clone());
        let phase = row.phase.to_string();
        seen.entry(PHASE).or_default().insert(phase);
    }
    let several: Vec<&str> = seen
        .into_iter()
        .filter(|(name, values)| values.len() > 1 && !columns.contains(name))
        .map(|(name, _)| name)
        .collect();
    let mut groups: BTreeMap<PathBuf, Vec<&Row>> = BTreeMap::new();
    for &row in rows {
        let folder = several
            .iter()
            .map(|name| match row.parameters.get(*name) {
                _ if *name == MODE => format!("{name}={}", row.mode),
                _ if *name == PHASE => format!("{name}={}", row.phase),
                Some(value) => format!("{name}={value}"),
                None => format!("{name}="),
            })
            .collect();
        groups.entry(folder).or_default().push(row);
    }
    groups
}

/// Facts about a run of tests.
#[cfg(test)]
fn about(hardware: &Hardware) -> About<'_> {
    About {
        run: RunId(crate::identity::Digest::from_bytes([1; 32])),
        name: "test",
        devices: &[],
        hardware,
        baseline: None,
        iterations: crate::manifest::settings::ITERATIONS,
        in_turns: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::row::outcome::{Outcome, Status};
    use crate::row::test_row;

    #[test]
    fn a_parameter_without_a_column_becomes_a_folder() {
        let mut rows: Vec<Row> = (0..3)
            .map(|number| test_row(number, Outcome::without_measurement(Status::Oom, "")))
            .collect();
        rows[1]
            .parameters
            .insert("potentials".to_owned(), "decomposed".into());
        let folder = tempfile::tempdir().unwrap();
        let hardware = Hardware::default();
        let about = about(&hardware);
        let names = ["benchmark_full", "heatmap_data"];
        write(&names, &rows, &about, folder.path()).unwrap();
        let lines = |path: &str| {
            fs::read_to_string(folder.path().join(path).join("benchmark_full.csv"))
                .unwrap()
                .lines()
                .count()
        };
        assert_eq!(lines("potentials=materialized"), 3);
        assert_eq!(lines("potentials=decomposed"), 2);
        assert!(
            folder
                .path()
                .join("potentials=decomposed/heatmap_data.json")
                .exists()
        );
        assert!(
            !folder
                .path()
                .join("potentials=decomposed/memory_breakdown.csv")
                .exists()
        );
    }
}
