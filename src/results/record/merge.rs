//! One journal of all that a run's journals hold, those of copies of its folder too.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::contents::Contents;
use super::environment::Difference;
use super::folder::{FolderError, RunFolder};
use super::journal::{Header, sealed};
use super::parts;
use super::recorded::Recorded;
use super::state::{End, State};
use sweeper_model::files;
use sweeper_model::identity::Digest;
use sweeper_model::shard::{Part, SHARDS};

/// Why folders can't be joined.
#[derive(Debug, thiserror::Error)]
pub enum MergeError {
    /// A file or folder.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A folder is of another run.
    #[error(
        "{path} does not belong to {run}: the field `{field}` differs, {other} there and {own} here",
        path = path.display(),
        run = run.display(),
        field = difference.field,
        other = difference.other,
        own = difference.own
    )]
    OtherRun {
        /// The folder.
        path: PathBuf,
        /// The folder that it was to be joined with.
        run: PathBuf,
        /// The first field that differs.
        difference: Box<Difference>,
    },
    /// A folder's plan has other points.
    #[error(
        "{path} does not belong to {run}: the field `plan` differs, which has {other} points there and {own} here{which}",
        path = path.display(),
        run = run.display(),
        which = if own == other { ", others of them" } else { "" }
    )]
    OtherPlan {
        /// The folder.
        path: PathBuf,
        /// The folder that it was to be joined with.
        run: PathBuf,
        /// Points of its plan.
        other: usize,
        /// Points of the run's plan.
        own: usize,
    },
}

/// What a merge has found, and left.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    /// Journals.
    pub journals: usize,
    /// Rows of the joined journal.
    pub rows: usize,
    /// Points of the plan that have a row.
    pub points: usize,
    /// Points of the plan; none where the folder does not have it any more.
    pub planned: usize,
    /// Shards were dealt shares of several plans: points that none of them has may be missing.
    pub plans: usize,
    /// Names of files in the folder of shards that are none of theirs.
    pub left: Vec<String>,
}

/// Joins the journals of a run, and those of other folders, into one. Rows are in the order of the
/// plan then, whoever measured them. The files of shards whose journals were read are deleted once
/// the joined one is on the disk: a crash leaves rows in both, which are read once. Other files
/// stay.
///
/// # Errors
/// A folder that is in use or of another run, or the file system.
pub fn merge(folder: &RunFolder, run: &Recorded, others: &[PathBuf]) -> Result<Merged, MergeError> {
    let order = run.plan_order();
    let mut plans = plans(&run.path);
    let mut journals = journals(&run.path)?;
    for path in others {
        let other = Recorded::read(path)?;
        let differences = run
            .environment
            .identity
            .differences(&other.environment.identity);
        if let Some(difference) = differences.into_iter().next() {
            return Err(MergeError::OtherRun {
                path: path.clone(),
                run: run.path.clone(),
                difference: Box::new(difference),
            });
        }
        let there = other.plan_order();
        if there != order {
            return Err(MergeError::OtherPlan {
                path: path.clone(),
                run: run.path.clone(),
                other: there.len(),
                own: order.len(),
            });
        }
        plans.extend(self::plans(path));
        journals.extend(self::journals(path)?);
    }
    let contents = Contents::read_all(&journals).map_err(FolderError::from)?;
    let mut rows: Vec<usize> = (0..contents.len()).collect();
    rows.sort_by_cached_key(|&row| order.get(&contents.point(row)));
    let is_planned = |row: &&usize| order.contains_key(&contents.point(**row));
    let mut merged = Merged {
        journals: journals.len(),
        rows: rows.len(),
        points: rows.iter().filter(is_planned).count(),
        planned: order.len(),
        plans: plans.len(),
        left: Vec::new(),
    };
    if journals.len() > 1 {
        let header = Header::of(run.environment.identity.run);
        let path = Part::Whole.journal(folder.path());
        write(&path, &header, &contents, &rows).map_err(|error| FolderError::Io {
            path: path.clone(),
            error,
        })?;
        write_state(folder, &merged)?;
        merged.left = remove_shards(folder.path())?;
    }
    Ok(merged)
}

/// The state of the whole, from those of its shards.
fn write_state(folder: &RunFolder, merged: &Merged) -> Result<(), FolderError> {
    let path = Part::Whole.state(folder.path());
    let shards = parts::shards(folder.path()).unwrap_or_default().into_iter();
    let shards = shards.filter_map(|shard| State::read(&Part::Shard(shard).state(folder.path())));
    let mut state = State {
        done: merged.points,
        end: Some(match merged.points == merged.planned {
            true => End::Done,
            false => End::Stopped,
        }),
        ..State::new(folder.hold().holder().clone(), merged.planned)
    };
    for shard in shards {
        for (status, count) in shard.statuses {
            *state.statuses.entry(status).or_insert(0) += count;
        }
        state.failures += shard.failures;
        state.last_failure = shard.last_failure.or(state.last_failure);
    }
    let written = serde_json::to_vec(&state).map_err(io::Error::from);
    let written = written.and_then(|text| files::replace(&path, &text));
    written.map_err(|error| FolderError::Io { path, error })
}

fn journals(folder: &Path) -> Result<Vec<PathBuf>, FolderError> {
    parts::journals(folder).map_err(|error| FolderError::Io {
        path: folder.to_owned(),
        error,
    })
}

/// Writes the rows beside, then puts them in their place.
fn write(path: &Path, header: &Header, contents: &Contents, rows: &[usize]) -> io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let new = folder.join(".journal.jsonl.new");
    let mut options = fs::OpenOptions::new();
    let file = files::open_own(options.write(true).create(true).truncate(true), &new)?;
    let written = (|| {
        let mut out = BufWriter::with_capacity(1 << 20, &file);
        out.write_all(&sealed(header)?)?;
        for &row in rows {
            out.write_all(&contents.line(row)?)?;
            out.write_all(b"\n")?;
        }
        out.flush()?;
        drop(out);
        file.sync_all()?;
        fs::rename(&new, path)?;
        // The name, too: only then are other journals deleted.
        fs::File::open(folder)?.sync_all()
    })();
    written.inspect_err(|_| {
        let _ = fs::remove_file(&new);
    })
}

/// Digests of the plans whose shares the shards in a folder measure.
fn plans(folder: &Path) -> BTreeSet<Digest> {
    let shards = parts::shards(folder).unwrap_or_default().into_iter();
    let states = shards.filter_map(|shard| State::read(&Part::Shard(shard).state(folder)));
    states.filter_map(|state| state.plan).collect()
}

/// Deletes the files of shards, and the folder if nothing else is in it; the names of what is.
fn remove_shards(folder: &Path) -> Result<Vec<String>, FolderError> {
    let path = folder.join(SHARDS);
    let remove = || -> io::Result<Vec<String>> {
        for shard in parts::shards(folder)? {
            for file in Part::Shard(shard).files(folder) {
                match fs::remove_file(&file) {
                    Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                    _ => {}
                }
            }
        }
        let left = match fs::read_dir(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned())),
        };
        let mut left: Vec<String> = left.collect::<io::Result<_>>()?;
        left.sort();
        if left.is_empty() {
            fs::remove_dir(&path)?;
        }
        Ok(left)
    };
    remove().map_err(|error| FolderError::Io { path, error })
}
