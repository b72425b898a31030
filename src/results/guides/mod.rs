//! The files of the published guides, read and written: only in this module the engine knows
//! workloads by name, because names and columns are a contract for people's scripts.
//!
//! A file has columns for some parameters only. Where another parameter has several values, the
//! files are written once for each combination, in a folder such as `potentials=materialized`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use sweeper_manifest::Manifest;
use sweeper_manifest::settings::{Hardware, Order};
use sweeper_model::files;
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::identity::RunId;
use sweeper_model::row::Row;

pub mod semicrf;
pub mod operations;
pub mod economics;
pub mod calibration_profile;
pub mod attention;
pub mod transformer;
mod lines;

/// The export that makes a run a calibration: when finished, it raises the ceilings of its devices.
pub const CALIBRATION_PROFILE: &str = "calibration_profile";

/// The export of the operations guide.
pub const BENCHMARK_RESULTS: &str = "benchmark_results";

/// The identity of a run, for files that need more than its rows.
#[derive(Clone, Copy, Debug)]
pub struct About<'a> {
    /// The run.
    pub run: RunId,
    /// Name of the run's manifest.
    pub name: &'a str,
    /// Devices of the run.
    pub devices: &'a [DeviceIdentity],
    /// The nominal data of the devices in the manifest.
    pub hardware: &'a Hardware,
    /// The backend that others are relative to.
    pub baseline: Option<&'a str>,
    /// Further backends that loops are held against.
    pub more_baselines: &'a [String],
    /// Iterations of the loop in the files of economics.
    pub iterations: u32,
    /// True if the backends of a problem were sampled in turns.
    pub in_turns: bool,
}

impl<'a> About<'a> {
    /// The identity of a run of a manifest.
    pub fn new(run: RunId, manifest: &'a Manifest, devices: &'a [DeviceIdentity]) -> Self {
        About {
            run,
            name: &manifest.name,
            devices,
            hardware: &manifest.device.hardware,
            baseline: manifest.report.baseline,
            more_baselines: &manifest.report.more_baselines,
            iterations: manifest.report.iterations,
            in_turns: manifest.plan.order == Order::Interleaved,
        }
    }
}

/// The baseline of the compilation guide: an eager framework's way of computing.
const EAGER: &str = "eager";

/// The file of the compilation guide. Ratios are relative to the baseline, or to the guide's
/// backend where there is none.
///
/// # Errors
/// Errors of the file system, as of all writers here; files without rows are left out.
pub fn write_economics(rows: &[Row], about: &About<'_>, folder: &Path) -> io::Result<()> {
    let mut baselines = vec![about.baseline.unwrap_or(EAGER)];
    baselines.extend(about.more_baselines.iter().map(String::as_str));
    let found = economics::comparisons(rows, &baselines, about.iterations);
    match found.is_empty() {
        true => Ok(()),
        false => write_objects(&found, files::create(folder, "compilation_economics.json")?),
    }
}

/// The file of the calibration guide.
///
/// # Errors
/// Errors of the file system.
pub fn write_calibration(rows: &[Row], about: &About<'_>, folder: &Path) -> io::Result<()> {
    let out = files::create(folder, "calibration_profile.json")?;
    calibration_profile::write(rows, about, out)
}

/// The file of the operations guide, for each of several phases: the file has no column for them.
///
/// # Errors
/// Errors of the file system.
pub fn write_operations(rows: &[Row], folder: &Path) -> io::Result<()> {
    let rows = rows.iter().filter(|row| operations::is_its_row(row));
    for (path, rows) in combinations(&rows.collect::<Vec<_>>(), &operations::COLUMNS) {
        let results: Vec<_> = rows.into_iter().filter_map(operations::result).collect();
        if !results.is_empty() {
            let out = files::create(&folder.join(path), "benchmark_results.json")?;
            write_objects(&results, out)?;
        }
    }
    Ok(())
}

/// The file of the attention guide about attention.
///
/// # Errors
/// Errors of the file system.
pub fn write_attention(rows: &[Row], about: &About<'_>, folder: &Path) -> io::Result<()> {
    let baseline = about.baseline.unwrap_or(EAGER);
    let its = (attention::WORKLOAD, &attention::COLUMNS[..]);
    let name = "compiled_attention_benchmark.csv";
    write_each(rows, its, folder, name, |rows, out| {
        attention::write(rows, baseline, out)
    })
}

/// The file of the attention guide about models.
///
/// # Errors
/// Errors of the file system.
pub fn write_transformer(rows: &[Row], about: &About<'_>, folder: &Path) -> io::Result<()> {
    let baseline = about.baseline.unwrap_or(EAGER);
    let its = (transformer::WORKLOAD, &transformer::COLUMNS[..]);
    let name = "compiled_transformer_benchmark.csv";
    write_each(rows, its, folder, name, |rows, out| {
        transformer::write(rows, baseline, out)
    })
}

/// A file of the semi-CRF guide.
///
/// # Errors
/// Errors of the file system.
pub fn write_semicrf(
    rows: &[Row],
    folder: &Path,
    name: &str,
    write: fn(&[&Row], BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let its = ("semicrf", &semicrf::write::COLUMNS[..]);
    write_each(rows, its, folder, name, write)
}

/// Writes a file of a workload's rows for each combination of the parameters that it has no column
/// for.
fn write_each(
    rows: &[Row],
    (workload, columns): (&str, &[&str]),
    folder: &Path,
    name: &str,
    write: impl Fn(&[&Row], BufWriter<File>) -> io::Result<()>,
) -> io::Result<()> {
    let rows = rows.iter().filter(|row| row.workload == workload);
    for (path, rows) in combinations(&rows.collect::<Vec<_>>(), columns) {
        write(&rows, files::create(&folder.join(path), name)?)?;
    }
    Ok(())
}

/// Writes a list of objects, one a line.
fn write_objects(objects: &[impl Serialize], mut out: impl Write) -> io::Result<()> {
    out.write_all(b"[")?;
    for (number, object) in objects.iter().enumerate() {
        out.write_all(if number == 0 { b"\n" } else { b",\n" })?;
        serde_json::to_writer(&mut out, object)?;
    }
    out.write_all(b"\n]\n")?;
    out.flush()
}

/// The way of launching work on the device is treated as a parameter.
const MODE: &str = "mode";

/// So is the phase.
const PHASE: &str = "phase";

/// Rows by the values of the parameters that have several values and are not in `columns`.
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

/// Shortest text that reads back as the same number; `nan` in lower case, as Python writes it.
fn number(value: f64) -> String {
    if value.is_nan() {
        "nan".to_owned()
    } else {
        value.to_string()
    }
}

/// The identity of a run, for tests.
#[cfg(test)]
fn about(hardware: &Hardware) -> About<'_> {
    About {
        run: RunId(sweeper_model::identity::Digest::from_bytes([1; 32])),
        name: "test",
        devices: &[],
        hardware,
        baseline: None,
        more_baselines: &[],
        iterations: sweeper_manifest::settings::ITERATIONS,
        in_turns: true,
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::record::exports;
    use sweeper_model::row::outcome::{Outcome, Status};
    use sweeper_model::row::test_row;

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
        exports::write(&names, &rows, &about, folder.path()).unwrap();
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
