//! Submissions to a scheduler: folders below the folder of results, with the jobs' scripts, output
//! and numbers.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::find::{self, Found};
use super::parts;
use super::recorded::Recorded;
use super::state::{End, State};
use sweeper_model::files;
use sweeper_model::identity::{Digest, ManifestHash};
use sweeper_model::shard::{Part, Shard};

/// Folder of submissions, in the folder of results.
pub const FOLDER: &str = ".submissions";

/// Name of the file about the jobs.
const FILE: &str = "jobs.json";

/// Jobs that share a run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Submission {
    /// Name of the manifest.
    pub name: String,
    /// The keys of the manifest that change the meaning of rows.
    pub manifest: ManifestHash,
    /// Digest of the engine's sources.
    pub engine: Digest,
    /// Digest of the kind of nodes that were asked for; none in files of older versions.
    #[serde(default)]
    pub nodes: Option<Digest>,
    /// Number of shards.
    pub shards: u32,
    /// Numbers of the arrays, in the order submitted.
    pub arrays: Vec<String>,
    /// Numbers of the jobs that compile and report.
    pub others: Vec<String>,
}

impl Submission {
    /// The submission in a folder, if it is one's.
    pub fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&files::read(&folder.join(FILE)).ok()?).ok()
    }

    /// Writes it to its folder.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, folder: &Path) -> std::io::Result<()> {
        files::write(&folder.join(FILE), &serde_json::to_vec_pretty(self)?)
    }

    /// All submissions below a folder of results.
    pub fn all(results: &Path) -> Vec<(PathBuf, Self)> {
        let entries = fs::read_dir(results.join(FOLDER));
        let paths = entries
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path());
        let read = paths.filter_map(|path| Some((path.clone(), Submission::read(&path)?)));
        let mut all: Vec<(PathBuf, Self)> = read.collect();
        all.sort_by(|one, other| one.0.cmp(&other.0));
        all
    }

    /// True if a task of one of its arrays is this job.
    pub fn has_job(&self, job: &str) -> bool {
        let array = job.split_once('_').map_or(job, |(array, _)| array);
        self.arrays.iter().any(|held| held == array)
    }

    /// Numbers of all jobs.
    pub fn jobs(&self) -> impl Iterator<Item = &str> {
        self.arrays.iter().chain(&self.others).map(String::as_str)
    }

    /// The runs that its jobs have measured.
    pub fn runs(&self, results: &Path) -> Vec<Recorded> {
        let found = find::list(results).unwrap_or_default().runs.into_iter();
        let runs = found.filter(|found| found.attempt.is_none());
        let runs = runs.filter_map(|found: Found| found.run.ok());
        runs.filter(|run| self.has_measured(run)).collect()
    }

    /// True if its jobs have measured a run.
    pub fn has_measured(&self, run: &Recorded) -> bool {
        let identity = &run.environment.identity;
        let is_alike = identity.manifest == self.manifest && identity.engine == self.engine;
        is_alike && jobs_of(run).iter().any(|job| self.has_job(job))
    }

    /// The only run that its jobs have measured.
    ///
    /// # Errors
    /// A sentence: none, or several.
    pub fn only_run(&self, folder: &Path) -> Result<Recorded, String> {
        // Results, the folder of submissions, this one.
        let results = folder.parent().and_then(Path::parent);
        let mut runs = self.runs(results.unwrap_or(Path::new(".")));
        match (runs.pop(), runs.is_empty()) {
            (Some(run), true) => Ok(run),
            (None, _) => Err(nothing_begun(folder)),
            (Some(last), false) => {
                let runs = runs
                    .iter()
                    .chain([&last])
                    .map(|run| run.path.display().to_string());
                Err(format!(
                    "jobs of {} have measured several runs, on different devices; name one: {}",
                    folder.display(),
                    runs.collect::<Vec<_>>().join(", ")
                ))
            }
        }
    }

    /// True if the jobs of another submission share the work of this one's in another number of
    /// shards.
    pub fn is_shared_otherwise(&self, other: &Submission) -> bool {
        let work = |it: &Submission| (it.manifest, it.engine, it.nodes);
        self.nodes.is_some() && work(self) == work(other) && self.shards != other.shards
    }

    /// The shards that are done in a run of its jobs.
    pub fn done(&self, results: &Path) -> BTreeSet<u32> {
        self.having(results, |state| state.end == Some(End::Done))
    }

    /// The shards whose state in a run of its jobs is such.
    pub fn having(&self, results: &Path, is_such: impl Fn(&State) -> bool) -> BTreeSet<u32> {
        let runs = self.runs(results);
        let has = |index: &u32| {
            let shard = Shard {
                count: self.shards,
                index: *index,
            };
            let mut states = runs.iter().filter_map(|run| state(run, shard));
            states.any(|state| is_such(&state))
        };
        (1..=self.shards).filter(has).collect()
    }
}

/// A sentence about a submission without a run, as far as files tell.
pub fn nothing_begun(folder: &Path) -> String {
    let logs = folder.join("logs");
    let folder = folder.display();
    match last_words(&logs) {
        Some((log, line)) => format!(
            "no job of {folder} has begun a run; {} ends with: {line}",
            log.display()
        ),
        None => format!(
            "no job of {folder} has begun a run, and none has written into {}: they are queued (`squeue --me` says \
             why), or ended since their nodes don't see this folder",
            logs.display()
        ),
    }
}

/// The last line of the log that was written last, and that log.
fn last_words(logs: &Path) -> Option<(PathBuf, String)> {
    let entries = fs::read_dir(logs).ok()?.flatten();
    let written = entries.filter_map(|entry| {
        let found = entry.metadata().ok().filter(|found| found.len() > 0)?;
        Some((found.modified().ok()?, entry.path()))
    });
    let (_, log) = written.max()?;
    let text = fs::read(&log).ok()?;
    let text = String::from_utf8_lossy(&text);
    let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
    Some((log, line.trim().chars().take(300).collect()))
}

/// The state of a shard, or of the whole run.
fn state(run: &Recorded, shard: Shard) -> Option<State> {
    let is_shared = parts::shards(&run.path).is_ok_and(|shards| !shards.is_empty());
    let part = match is_shared {
        true => Part::Shard(shard),
        // Joined.
        false => Part::Whole,
    };
    State::read(&part.state(&run.path))
}

/// The jobs that have measured a run, as far as its files know.
pub fn jobs_of(run: &Recorded) -> BTreeSet<String> {
    let shards = parts::shards(&run.path).unwrap_or_default().into_iter();
    let states = shards.filter_map(|shard| State::read(&Part::Shard(shard).state(&run.path)));
    let mut jobs: BTreeSet<String> = states.filter_map(|state| state.holder.job).collect();
    let described = ["SLURM_ARRAY_JOB_ID", "SLURM_JOB_ID"];
    let variables = &run.environment.variables;
    jobs.extend(
        described
            .iter()
            .find_map(|name| variables.get(*name).cloned()),
    );
    jobs
}
