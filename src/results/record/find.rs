//! Recorded runs, found by id or listed, wherever below a folder they were written.
//!
//! Folders are read, never an index of them alone: an index can be stale, and none of its files can
//! be locked safely on every network file system. [`super::history`] adds folders elsewhere.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use super::folder::FolderError;
use super::history;
use super::recorded::Recorded;
use super::submission::Submission;

/// Levels between the searched folder and a run: `results/quick/host/quick-29fcbb991eb4`. An
/// attempt lies one deeper.
pub const DEPTH: usize = 4;

/// A run's folder, whether or not it can be read.
pub struct Found {
    /// The folder.
    pub path: PathBuf,
    /// Which attempt it is, where it lies in the folder of its run.
    pub attempt: Option<u32>,
    /// The run; or the defect of its description.
    pub run: Result<Recorded, FolderError>,
}

impl Found {
    fn at(path: PathBuf) -> Self {
        Found {
            attempt: attempt_number(&path),
            run: Recorded::read(&path),
            path,
        }
    }

    /// First digits of the run's id, which a damaged run's folder still names.
    pub fn id(&self) -> Option<String> {
        if let Ok(run) = &self.run {
            return Some(run.environment.identity.run.to_string());
        }
        let folder = match self.attempt {
            Some(_) => self.path.parent()?,
            None => &self.path,
        };
        let name = folder.file_name()?.to_str()?;
        let (_, digits) = name.rsplit_once('-')?;
        let is_id = digits.len() == 12 && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_id.then(|| digits.to_owned())
    }

    fn has_prefix(&self, wanted: &str) -> bool {
        match &self.run {
            Ok(run) => run.environment.identity.run.has_prefix(wanted),
            Err(_) => self
                .id()
                .is_some_and(|id| id.starts_with(&wanted.to_ascii_lowercase())),
        }
    }

    /// In a line, for a choice between several.
    fn line(&self) -> String {
        let about = match &self.run {
            Ok(run) => format!(
                "{}, {}",
                run.environment.name,
                sweeper_model::quantity::date(run.environment.started_unix_s)
            ),
            Err(_) => "damaged".to_owned(),
        };
        let id = self.id().unwrap_or_default();
        format!("  {id}  {}  ({about})", self.path.display())
    }
}

/// The number of a folder called `attempt-N`.
pub fn attempt_number(path: &Path) -> Option<u32> {
    path.file_name()?
        .to_str()?
        .strip_prefix("attempt-")?
        .parse()
        .ok()
}

/// The attempts in the folder of a run, the last one first.
pub fn attempts(path: &Path) -> Vec<(u32, PathBuf)> {
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = entries
        .filter_map(|entry| Some((attempt_number(&entry.path())?, entry.path())))
        .filter(|(_, path)| path.is_dir())
        .collect();
    found.sort();
    found.reverse();
    found
}

/// The runs below a folder.
#[derive(Default)]
pub struct Listing {
    /// Runs and their attempts: the newest run first, a run before its attempts.
    pub runs: Vec<Found>,
    /// Folders that can't be looked into.
    pub unread: Vec<FolderError>,
}

impl Listing {
    /// Adds the runs at `path` and up to `depth` folders below it. A run's own folders, such as its
    /// exports, are not runs; only its attempts are.
    fn look(&mut self, path: PathBuf, depth: usize) {
        if is_run(&path) {
            let attempts = attempts(&path);
            self.runs.push(Found::at(path));
            let attempts = attempts.into_iter().rev().map(|(_, path)| path);
            self.runs
                .extend(attempts.filter(|path| is_run(path)).map(Found::at));
            return;
        }
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) => return self.unread.push(FolderError::Io { path, error }),
        };
        let mut folders: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| depth > 0 && !is_hidden(path) && path.is_dir())
            .collect();
        folders.sort();
        for folder in folders {
            let deeper = match attempt_number(&folder) {
                Some(_) => 0,
                None => depth - 1,
            };
            self.look(folder, deeper);
        }
    }

    fn sort(&mut self) {
        let home = |found: &Found| match found.attempt {
            Some(_) => found.path.parent().map(Path::to_owned),
            None => Some(found.path.clone()),
        };
        let started = |found: &Found| match &found.run {
            Ok(run) => run.environment.started_unix_s,
            Err(_) => 0.0,
        };
        let mut newest: BTreeMap<Option<PathBuf>, f64> = BTreeMap::new();
        for found in &self.runs {
            let held = newest.entry(home(found)).or_insert(0.0);
            *held = held.max(started(found));
        }
        self.runs.sort_by(|one, other| {
            let (homes, attempts) = ([home(one), home(other)], [one.attempt, other.attempt]);
            newest[&homes[1]]
                .total_cmp(&newest[&homes[0]])
                .then_with(|| homes[0].cmp(&homes[1]))
                .then_with(|| attempts[0].cmp(&attempts[1]))
        });
    }
}

fn is_hidden(path: &Path) -> bool {
    let name = path.file_name().map(|name| name.to_string_lossy());
    name.is_some_and(|name| name.starts_with('.'))
}

/// True for a folder that a run was written to, even if its files are damaged since.
pub fn is_run(path: &Path) -> bool {
    ["journal.jsonl", "environment.json"]
        .iter()
        .any(|file| path.join(file).exists())
}

/// All runs in `dir` and below.
///
/// # Errors
/// If `dir` itself can't be read.
pub fn list(dir: &Path) -> Result<Listing, FolderError> {
    let mut listing = Listing::default();
    fs::read_dir(dir).map_err(|error| FolderError::Io {
        path: dir.to_owned(),
        error,
    })?;
    listing.look(dir.to_owned(), DEPTH);
    listing.sort();
    Ok(listing)
}

/// All runs that were written on this machine, or by this user, and are still there.
pub fn list_remembered() -> Listing {
    let mut listing = Listing::default();
    let folders = history::folders();
    listing.runs = folders
        .into_iter()
        .filter(|(_, path)| is_run(path))
        .map(|(_, path)| Found::at(path))
        .collect();
    listing.sort();
    listing
}

/// The run that a folder or the first digits of an id name: below `dir`, else wherever this user's
/// runs were written. Of a run and its attempts it is the run, or where that has no journal the
/// last attempt.
///
/// # Errors
/// A sentence: none and where was looked, or several and which.
pub fn find(wanted: &str, dir: &Path) -> Result<Recorded, String> {
    let path = Path::new(wanted);
    if path.is_dir() && is_run(path) {
        return Recorded::read(path).map_err(|error| error.to_string());
    }
    if let Some(submission) = Submission::read(path) {
        return submission.only_run(path);
    }
    if wanted.contains(['/', '.']) {
        return Err(match path.is_dir() {
            true => format!("no run is in {wanted}: it has no journal.jsonl"),
            false => format!("there is no folder {wanted}"),
        });
    }
    let below = list(dir);
    let missing = below.as_ref().err().map(ToString::to_string);
    let listed = below.map(|listing| listing.runs).unwrap_or_default();
    let mut matching: Vec<Found> = listed
        .into_iter()
        .filter(|found| found.has_prefix(wanted))
        .collect();
    if matching.is_empty() {
        let remembered = history::folders().into_iter();
        matching = remembered
            .filter(|(id, path)| id.starts_with(&wanted.to_ascii_lowercase()) && is_run(path))
            .map(|(_, path)| Found::at(path))
            .collect();
    }
    if matching.is_empty() {
        let place = missing.unwrap_or_else(|| format!("{}, {DEPTH} folders deep", dir.display()));
        return Err(format!(
            "no run begins with `{wanted}`, neither below the folder of results ({place}) nor among the runs \
             remembered from elsewhere; `sweeper runs --all` lists them, --output-dir (of `report`: --runs-dir) \
             names another folder"
        ));
    }
    choose(wanted, matching)
}

/// The one run that a query means.
fn choose(wanted: &str, matching: Vec<Found>) -> Result<Recorded, String> {
    let mut own: Vec<&Found> = matching
        .iter()
        .filter(|found| found.attempt.is_none())
        .collect();
    if own.is_empty() {
        let mut homes: Vec<Option<&Path>> =
            matching.iter().map(|found| found.path.parent()).collect();
        homes.dedup();
        if homes.len() == 1 {
            own.extend(matching.last());
        }
    }
    if let [only] = own[..] {
        return Recorded::read(&only.path).map_err(|error| error.to_string());
    }
    let lines: Vec<String> = matching.iter().map(Found::line).collect();
    let mut ids: Vec<Option<String>> = matching.iter().map(Found::id).collect();
    ids.dedup();
    let advice = match ids.len() {
        1 => "name the folder",
        _ => "give more digits, or the folder",
    };
    Err(format!(
        "`{wanted}` is several runs; {advice}:\n{}",
        lines.join("\n")
    ))
}
