//! The reading side of reports: runs, bare `records.csv` files, and the semi-CRF guide's CSV, as
//! one kind of thing.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use crate::guides::semicrf::read;
use crate::record::environment::Environment;
use crate::record::find;
use crate::record::folder::FolderError;
use crate::record::recorded::Recorded;
use crate::record::submission::Submission;
use crate::record::usage::RunUsage;
use sweeper_manifest::settings::Order;
use sweeper_model::files;
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::word::Word;

pub mod folders;
mod records;
mod run;

use sweeper_model::row::entry::Entry;
use sweeper_model::row::lines::{Table, TableError};

/// Why a path can't be reported on.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// A CSV file can't be read.
    #[error(transparent)]
    Table(#[from] TableError),
    /// There is no such file, folder or run.
    #[error("{0}")]
    Unknown(String),
    /// A run's folder is not usable.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// The file or folder is in no known format.
    #[error("{path}: {reason}", path = path.display())]
    Foreign {
        /// The file or folder.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// A CSV file lacks columns.
    #[error(
        "{path}: no column {columns}; {format} needs them",
        path = path.display(),
        columns = quoted(missing)
    )]
    MissingColumns {
        /// The file.
        path: PathBuf,
        /// The closest format.
        format: &'static str,
        /// All missing columns.
        missing: Vec<String>,
    },
    /// A file is from a newer program.
    #[error(
        "{path}: version {found} of `records.csv`, this program knows {known}; use a newer sweeper",
        path = path.display(),
        known = sweeper_model::row::schema::SCHEMA
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// Version of the file.
        found: u32,
    },
    /// Sources whose rows have different columns or meanings.
    #[error(
        "{one} has rows of version {versions_0}, {other} of version {versions_1}: they can't be in one \
         report; measure the older one again, or report on each alone",
        one = one.display(),
        other = other.display(),
        versions_0 = versions[0],
        versions_1 = versions[1]
    )]
    Mixed {
        /// One source.
        one: PathBuf,
        /// Another source.
        other: PathBuf,
        /// Versions of the rows of both sources.
        versions: [u32; 2],
    },
}

fn quoted(names: &[String]) -> String {
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

/// The file format of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A run's journal.
    Run,
    /// A `records.csv`.
    Records,
    /// The semi-CRF guide's `benchmark_full.csv`.
    Guide,
}

/// Rows, and information about their origin.
#[derive(Clone, Debug)]
pub struct Source {
    /// The machine, as reports name it; unique among the sources of a report.
    pub label: String,
    /// The run's folder, or the file.
    pub origin: PathBuf,
    /// The format that it was read from.
    pub kind: Kind,
    /// The version of the rows' format; none for files that are not ours.
    pub schema: Option<u32>,
    /// The environment of the run: for runs, and for files with an `environment.json` beside them.
    pub environment: Option<Environment>,
    /// The use of the devices, with their ceilings, where the run recorded them.
    pub usage: Option<RunUsage>,
    /// The text of the resolved manifest, where there is one.
    pub manifest: Option<String>,
    /// The rows, in the order written; one for each point.
    pub entries: Vec<Entry>,
    /// Reasons to doubt the rows.
    pub warnings: Vec<String>,
}

impl Source {
    /// The models of its devices, `NVIDIA H200`, without the number of the device, which the
    /// environment states. Empty if neither the environment nor the rows name a model.
    pub fn machine(&self) -> String {
        let names: BTreeSet<&str> = match &self.environment {
            Some(environment) => {
                let devices = environment.identity.devices.iter();
                devices.map(|device| device.name.as_str()).collect()
            }
            None => {
                let entries = self.entries.iter();
                let names = entries.filter_map(|entry| entry.device_name.as_deref());
                names.map(DeviceIdentity::model).collect()
            }
        };
        names.into_iter().collect::<Vec<_>>().join(", ")
    }

    /// True if the backends of a problem were sampled in turns, so that samples with equal indexes
    /// belong to one round; true unless the manifest turns it off.
    pub fn is_in_turns(&self) -> bool {
        let order = || {
            let manifest: toml::Table = self.manifest.as_deref()?.parse().ok()?;
            Order::parse(manifest.get("plan")?.get("order")?.as_str()?)
        };
        order().is_none_or(|order| order == Order::Interleaved)
    }
}

/// Opens sources: a run's folder, the first digits of a run's id under `dir`, or a CSV file.
///
/// # Errors
/// If a source can't be read, or if the sources' rows have different versions.
pub fn open_all(names: &[String], dir: &Path) -> Result<Vec<Source>, SourceError> {
    let mut sources = names
        .iter()
        .map(|name| open(name, dir))
        .collect::<Result<Vec<Source>, _>>()?;
    refuse_mixed(&sources)?;
    make_unique(&mut sources);
    Ok(sources)
}

/// Opens a source: a run's folder, the first digits of a run's id under `dir`, or a CSV file.
///
/// # Errors
/// A [`SourceError`].
pub fn open(name: &str, dir: &Path) -> Result<Source, SourceError> {
    let path = Path::new(name);
    let mut source = if path.is_file() {
        from_csv(path)?
    } else if path.is_dir() {
        match Submission::read(path) {
            None => from_folder(path)?,
            Some(submission) => {
                let run = submission.only_run(path).map_err(SourceError::Unknown)?;
                from_folder(&run.path)?
            }
        }
    } else if name.contains(['/', '.']) {
        let reason = format!("{name}: there is no such file or folder");
        return Err(SourceError::Unknown(reason));
    } else {
        let run = find::find(name, dir).map_err(SourceError::Unknown)?;
        from_folder(&run.path)?
    };
    // Journals have one row of a point.
    if source.kind != Kind::Run {
        keep_last_of_each(&mut source);
    }
    source.label = label(&source);
    Ok(source)
}

fn from_folder(path: &Path) -> Result<Source, SourceError> {
    if path.join("journal.jsonl").is_file() {
        return from_run(path);
    }
    for name in [
        "records.csv",
        "benchmark_full.csv",
        "exports/benchmark_full.csv",
    ] {
        if path.join(name).is_file() {
            let mut source = from_csv(&path.join(name))?;
            path.clone_into(&mut source.origin);
            return Ok(source);
        }
    }
    let mut reason =
        "no run is here: there is no journal.jsonl, records.csv or benchmark_full.csv".to_owned();
    let below = runs_below(path);
    if !below.is_empty() {
        reason += &format!("; runs in it: {}", below.join(" "));
    }
    Err(SourceError::Foreign {
        path: path.to_owned(),
        reason,
    })
}

/// The first runs right below a folder, by their paths.
fn runs_below(path: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let mut runs: Vec<String> = paths
        .filter(|path| path.join("journal.jsonl").is_file())
        .map(|path| path.display().to_string())
        .collect();
    runs.sort();
    runs.truncate(4);
    runs
}

fn from_run(path: &Path) -> Result<Source, SourceError> {
    let recorded = Recorded::read(path)?;
    let journal = path.join("journal.jsonl");
    let contents = recorded.contents()?;
    // As in the tables: declared skips, then the plan's order, whatever the order of execution.
    let mut order: Vec<usize> = (0..contents.len()).collect();
    {
        let places = recorded.plan_order();
        order.sort_by_cached_key(|&row| places.get(&contents.point(row)));
    }
    let entries = run::entries(&contents, &order).map_err(|reason| SourceError::Foreign {
        path: journal,
        reason,
    })?;
    let mut warnings = Vec::new();
    if contents.torn_bytes > 0 {
        warnings.push("the journal's last line is torn: the run was killed, or goes on".to_owned());
    }
    let has_state = entries.iter().all(|entry| entry.l2.is_some());
    let mut source = Source {
        schema: Some(u32::from(has_state)),
        entries,
        warnings,
        environment: Some(recorded.environment),
        ..blank(path, Kind::Run)
    };
    add_surroundings(&mut source, path);
    Ok(source)
}

/// The warning about a file that ends within a line.
const OPEN_ENDED: &str = "the last line has no end: the file may have been cut off there";

fn from_csv(path: &Path) -> Result<Source, SourceError> {
    if path
        .extension()
        .is_some_and(|extension| extension == "toml")
    {
        let shown = path.display();
        let reason = format!(
            "{shown} is a manifest: `sweeper run {shown}` measures it, then `sweeper report`"
        );
        return Err(SourceError::Unknown(reason));
    }
    if path.file_name().is_some_and(|name| name == "journal.jsonl") {
        return from_run(path.parent().unwrap_or(Path::new(".")));
    }
    let table = Table::read(path)?;
    let mut source = if table.missing(&records::REQUIRED).is_empty() {
        let mut source = blank(path, Kind::Records);
        source.schema = Some(records::schema(&table, path)?);
        source.entries = records::entries(&table)?;
        let beside = path.parent().unwrap_or(Path::new("."));
        let samples = beside.join("samples.csv");
        if samples.is_file() {
            let samples = Table::read(&samples)?;
            if samples.missing(&["point", "time_ns"]).is_empty() {
                let warnings = records::add_samples(&mut source.entries, &samples)?;
                source.warnings.extend(warnings);
                if samples.is_open_ended() {
                    source.warnings.push(format!("samples.csv: {OPEN_ENDED}"));
                }
            }
        }
        if beside.join("environment.json").is_file() {
            source.environment = Some(Recorded::read(beside)?.environment);
            add_surroundings(&mut source, beside);
        }
        source
    } else if table.missing(&read::REQUIRED).is_empty() {
        let (entries, warnings) = read::entries(&table, path)?;
        Source {
            entries,
            warnings,
            ..blank(path, Kind::Guide)
        }
    } else {
        return Err(missing(&table, path));
    };
    if table.is_open_ended() {
        source.warnings.push(OPEN_ENDED.to_owned());
    }
    if source.entries.is_empty() {
        source.warnings.push("the file has no rows".to_owned());
    }
    Ok(source)
}

fn blank(path: &Path, kind: Kind) -> Source {
    Source {
        label: String::new(),
        origin: path.to_owned(),
        kind,
        schema: None,
        environment: None,
        usage: None,
        manifest: None,
        entries: Vec::new(),
        warnings: Vec::new(),
    }
}

/// All columns that the closest format would need.
fn missing(table: &Table, path: &Path) -> SourceError {
    let ours = table.missing(&records::REQUIRED);
    let guides = table.missing(&read::REQUIRED);
    let (format, missing) = match table.has("point") || ours.len() < guides.len() {
        true => ("a `records.csv`", ours),
        false => ("a `benchmark_full.csv` of the semi-CRF guide", guides),
    };
    SourceError::MissingColumns {
        path: path.to_owned(),
        format,
        missing,
    }
}

/// Adds the manifest and the devices' ceilings, where the folder has them. No row depends on them,
/// so that a damaged file costs the roofline and no more.
fn add_surroundings(source: &mut Source, folder: &Path) {
    source.manifest = files::read_to_string(&folder.join("manifest.toml")).ok();
    let Ok(bytes) = files::read(&folder.join("usage.json")) else {
        return;
    };
    match serde_json::from_slice(&bytes) {
        Ok(usage) => source.usage = Some(usage),
        Err(error) => source.warnings.push(format!(
            "usage.json is damaged ({error}) and left out: how busy devices were and their \
             ceilings are not known"
        )),
    }
}

/// Keeps the last row of each point: files that were put together by hand may have several.
fn keep_last_of_each(source: &mut Source) {
    let mut last: HashMap<String, usize> = HashMap::with_capacity(source.entries.len());
    for (index, entry) in source.entries.iter().enumerate() {
        last.insert(identity(entry), index);
    }
    let doubled = source.entries.len() - last.len();
    if doubled == 0 {
        return;
    }
    let mut index = 0;
    source.entries.retain(|entry| {
        index += 1;
        last.get(&identity(entry)) == Some(&(index - 1))
    });
    source.warnings.push(format!(
        "{doubled} rows are about points that have later rows: the last of each is used"
    ));
}

fn identity(entry: &Entry) -> String {
    match entry.point {
        Some(point) => point.0.hex(),
        None => format!(
            "{} {} {} {:?}",
            entry.workload, entry.backend, entry.phase, entry.parameters
        ),
    }
}

/// The machine's name, or the file's name where the machine is unknown.
fn label(source: &Source) -> String {
    match source.machine() {
        machine if machine.is_empty() => {
            let stem = source.origin.file_stem().unwrap_or_default();
            stem.to_string_lossy().into_owned()
        }
        machine => machine,
    }
}

/// Tells sources with equal labels apart by their run, else by their paths.
fn make_unique(sources: &mut [Source]) {
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources.iter() {
        *counts.entry(source.label.clone()).or_default() += 1;
    }
    for source in sources.iter_mut() {
        if counts[&source.label] > 1 {
            let run = source.environment.as_ref().map(|held| held.identity.run);
            let which = match run {
                Some(run) => run.to_string(),
                None => source.origin.display().to_string(),
            };
            source.label = format!("{} ({which})", source.label);
        }
    }
    // Two sources of one run.
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    for source in sources {
        let number = seen.entry(source.label.clone()).or_default();
        *number += 1;
        if *number > 1 {
            source.label = format!("{} #{number}", source.label);
        }
    }
}

fn refuse_mixed(sources: &[Source]) -> Result<(), SourceError> {
    let mut ours = sources
        .iter()
        .filter_map(|source| Some((source, source.schema?)));
    let Some((first, version)) = ours.next() else {
        return Ok(());
    };
    match ours.find(|(_, found)| *found != version) {
        Some((other, found)) => Err(SourceError::Mixed {
            one: first.origin.clone(),
            other: other.origin.clone(),
            versions: [version, found],
        }),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
