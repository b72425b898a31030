//! The folder of one run.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rayon::prelude::*;
use serde::Serialize;

use super::contents::{Contents, Lines, Seal};
use super::exports;
use super::find;
use super::hold::{self, Hold, Holder, Refused};
use super::journal::{Header, Journal, JournalError, Share};
use super::lock;
use super::parts;
use super::recorded::Recorded;
use super::stamp::{self, Sealing, Stamp};
use super::state::State;
use super::tables;
use crate::guides::About;
use sweeper_model::files;
use sweeper_model::identity::{Digest, RunId};
use sweeper_model::row::Row;
use sweeper_model::shard::{Part, SHARDS, Shard};

/// Why a run's folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Reading or writing failed.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The error of the system call.
        error: io::Error,
    },
    /// Another process writes it.
    #[error(
        "{path}: another sweeper is writing {what}{named}; wait for it, or use --output-dir",
        path = path.display(),
        named = holder.as_ref().map(|holder| format!(" ({holder})")).unwrap_or_default()
    )]
    Busy {
        /// The folder.
        path: PathBuf,
        /// The part that it writes.
        what: Part,
        /// The process, where it is known.
        holder: Option<Box<Holder>>,
    },
    /// The run was begun in another number of shards.
    #[error(
        "{path}: this run is shared between {count} shards; go on with --shard K/{count}, or join what is there with \
         `sweeper merge {path}`, after which any number of shards will do",
        path = path.display()
    )]
    OtherCount {
        /// The folder.
        path: PathBuf,
        /// The number that it was begun with.
        count: u32,
    },
    /// Another shard of the run has dealt out another plan.
    #[error(
        "{path}: shard {shard} has a plan of {other} points, and this one of {own}{which}: shards of one run need the \
         same `[limits]`, or another folder each (--output-dir)",
        path = path.display(),
        which = if own == other { ", others of them" } else { "" }
    )]
    OtherPlan {
        /// The folder.
        path: PathBuf,
        /// The other shard.
        shard: Shard,
        /// Points of its plan.
        other: usize,
        /// Points of this plan.
        own: usize,
    },
    /// A file of the folder is not the expected one.
    #[error("{path}: {reason}", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// The defect of the file.
        reason: String,
    },
    /// The journal is not usable.
    #[error(transparent)]
    Journal(#[from] JournalError),
}

/// A run's folder, of which this process writes a part alone.
pub struct RunFolder {
    path: PathBuf,
    part: Part,
    hold: Arc<Hold>,
    /// Held for as long as the folder is written.
    _locks: Vec<File>,
}

impl RunFolder {
    /// The folder's name: the manifest's name and the run's first 12 digits.
    pub fn name(name: &str, run: RunId) -> String {
        format!("{}-{run}", files::short_name(name))
    }

    /// Makes the folder if there is none and takes hold of all of it.
    ///
    /// # Errors
    /// Those of the file system, or [`FolderError::Busy`].
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        RunFolder::open_part(path, Part::Whole, &|_, _| {})
    }

    /// Makes the folder if there is none and takes hold of a part of it. `waits` is told when only
    /// time can tell whether another machine's process lives.
    ///
    /// # Errors
    /// Those of the file system, [`FolderError::Busy`] or [`FolderError::OtherCount`].
    pub fn open_part(
        path: &Path,
        part: Part,
        waits: &dyn Fn(&Holder, Duration),
    ) -> Result<Self, FolderError> {
        let io_error = |error| FolderError::Io {
            path: path.to_owned(),
            error,
        };
        let busy = |what, holder| FolderError::Busy {
            path: path.to_owned(),
            what,
            holder,
        };
        let lock = |locked, alone| lock::take(path, locked, alone, part);
        let mut locks = Vec::new();
        match part {
            Part::Whole => {
                fs::create_dir_all(path).map_err(io_error)?;
                locks.push(lock(part, true)?);
            }
            Part::Shard(shard) => {
                fs::create_dir_all(path.join(SHARDS)).map_err(io_error)?;
                let mut others = parts::shards(path).map_err(io_error)?.into_iter();
                if let Some(other) = others.find(|other| other.count != shard.count) {
                    return Err(FolderError::OtherCount {
                        path: path.to_owned(),
                        count: other.count,
                    });
                }
                locks.push(lock(Part::Whole, false)?);
                locks.push(lock(part, true)?);
            }
        }
        let hold = Hold::take(&part.hold(path), &part.state(path), waits);
        let hold = hold.map_err(|refused| match refused {
            Refused::Held(holder) => busy(part, Some(holder)),
            Refused::Io(error) => FolderError::Io {
                path: part.hold(path),
                error,
            },
        })?;
        let others: Vec<Part> = match part {
            Part::Shard(_) => vec![Part::Whole],
            Part::Whole => {
                let shards = parts::shards(path).map_err(io_error)?.into_iter();
                shards.map(Part::Shard).collect()
            }
        };
        let held = others.into_iter();
        let held: Vec<_> = held
            .map(|other| (other, other.hold(path), other.state(path)))
            .collect();
        if let Some((other, holder)) = hold::find_living(&held, waits) {
            return Err(busy(other, Some(Box::new(holder))));
        }
        Ok(RunFolder {
            path: path.to_owned(),
            part,
            hold: Arc::new(hold),
            _locks: locks,
        })
    }

    /// Takes hold of the tables alone, of a run that others may be measuring. Another process that
    /// makes them is waited for, for as long as `longest`.
    ///
    /// # Errors
    /// Those of the file system, or [`FolderError::Busy`].
    pub fn open_for_tables(path: &Path, longest: Duration) -> Result<Self, FolderError> {
        let hold = path.join(".tables.hold");
        let taken = Hold::take_within(&hold, longest);
        let hold = taken.map_err(|refused| match refused {
            Refused::Held(holder) => FolderError::Busy {
                path: path.to_owned(),
                what: Part::Whole,
                holder: Some(holder),
            },
            Refused::Io(error) => FolderError::Io { path: hold, error },
        })?;
        Ok(RunFolder {
            path: path.to_owned(),
            part: Part::Whole,
            hold: Arc::new(hold),
            _locks: Vec::new(),
        })
    }

    /// The part that this process writes.
    pub fn part(&self) -> Part {
        self.part
    }

    /// The hold of this process.
    pub fn hold(&self) -> &Arc<Hold> {
        &self.hold
    }

    /// The folder of a run that is to be measured again beside `path`: the last attempt if that was
    /// left unfinished and no process works on it, else a new one.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn open_attempt(
        path: &Path,
        is_finished: impl Fn(&RunFolder) -> bool,
    ) -> Result<Self, FolderError> {
        let attempts = find::attempts(path);
        for (_, attempt) in &attempts {
            match RunFolder::open(attempt) {
                Ok(folder) if is_finished(&folder) => break,
                Ok(folder) => return Ok(folder),
                Err(FolderError::Busy { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        let mut number = attempts.first().map_or(1, |(number, _)| number + 1);
        loop {
            match RunFolder::open(&path.join(format!("attempt-{number}"))) {
                // Another process was faster.
                Err(FolderError::Busy { .. }) => number += 1,
                opened => return opened,
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The journal of this process's part, and the contents of all journals that may hold points of
    /// the part. `plan` is the digest of the plan that was dealt out, of a shard.
    ///
    /// # Errors
    /// A [`JournalError`].
    pub fn journal(
        &self,
        run: RunId,
        plan: Option<Digest>,
    ) -> Result<(Journal, Contents), FolderError> {
        let whole = Part::Whole.journal(&self.path);
        let own = self.part.journal(&self.path);
        let share = match (self.part, plan) {
            (Part::Shard(shard), Some(plan)) => Some(Share { shard, plan }),
            _ => None,
        };
        let mut header = Header::of(run);
        // A search for runs looks for this file.
        Journal::make(&whole, header)?;
        header.share = share;
        let (journal, lines) = Journal::open(&own, header)?;
        let mut others = match self.part {
            Part::Shard(_) => vec![whole],
            Part::Whole => parts::journals(&self.path).map_err(|error| FolderError::Io {
                path: self.path.clone(),
                error,
            })?,
        };
        others.retain(|path| *path != own);
        let others = others.par_iter().map(|path| Lines::read(path));
        let mut all = vec![lines];
        all.extend(others.collect::<Result<Vec<Lines>, _>>()?);
        Ok((journal, Contents::of(all)?))
    }

    /// Refuses a plan of so many points that is not the one whose shares other shards measure.
    ///
    /// # Errors
    /// [`FolderError::OtherPlan`], and those of the file system.
    pub fn check_plan(&self, plan: Digest, points: usize) -> Result<(), FolderError> {
        let shards = parts::shards(&self.path).map_err(|error| FolderError::Io {
            path: self.path.clone(),
            error,
        })?;
        for shard in shards {
            let state = State::read(&Part::Shard(shard).state(&self.path));
            if let Some(state) = state
                && state.plan.is_some_and(|other| other != plan)
                && self.part != Part::Shard(shard)
            {
                return Err(FolderError::OtherPlan {
                    path: self.path.clone(),
                    shard,
                    other: state.run_points,
                    own: points,
                });
            }
        }
        Ok(())
    }

    /// Writes a file of the folder as a whole: a reader sees the old one or the new one, also after
    /// a crash.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), FolderError> {
        let path = self.path.join(name);
        self.write_to(&path, content)
            .map_err(|error| FolderError::Io { path, error })
    }

    /// Other shards may write this file, too.
    fn write_to(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        match self.part {
            Part::Whole => files::write(path, content),
            Part::Shard(_) => files::write_shared(path, content),
        }
    }

    /// Writes a file below the folder, and makes the folders that lead to it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_below(&self, path: &str, content: &[u8]) -> Result<(), FolderError> {
        let path = self.path.join(path);
        let folder = path.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder)
            .and_then(|()| self.write_to(&path, content))
            .map_err(|error| FolderError::Io { path, error })
    }

    /// Writes a file of the folder as JSON.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_json(&self, name: &str, value: &impl Serialize) -> Result<(), FolderError> {
        let bytes = serde_json::to_vec_pretty(value).map_err(|error| FolderError::Io {
            path: self.path.join(name),
            error: error.into(),
        })?;
        self.write(name, &bytes)
    }

    /// True if the tables and the exports called `names` are whole, and made from this journal.
    pub fn has_tables(&self, contents: &Contents, about: &About<'_>, names: &[&str]) -> bool {
        let wanted = Stamp::new(contents, about, names);
        let held = Stamp::read(&self.path);
        held.is_some_and(|held| held.covers(&wanted) && held.is_whole(&self.path))
    }

    /// Makes the tables from the rows in this order, and the exports called `names` as well as
    /// those that were asked for before. A file is replaced when its successor is whole. Returns
    /// the rows if exports needed all of them at once.
    ///
    /// # Errors
    /// Those of the file system; the next run makes the tables again.
    pub fn write_tables(
        &self,
        contents: &Contents,
        order: &[usize],
        about: &About<'_>,
        names: &[&str],
    ) -> Result<Option<Vec<Row>>, FolderError> {
        let mut made = Stamp::new(contents, about, names);
        let before = Stamp::read(&self.path);
        if let Some(before) = &before {
            let can_be_made = |name: &&String| exports::check(&[name.as_str()]).is_ok();
            let held = before.exports.iter().filter(can_be_made);
            made.exports.extend(held.cloned());
        }
        let (samples, held) = self.table("samples.csv", |out| {
            tables::write_samples_of(contents, order, out)
        })?;
        let (records, ()) = self.table("records.csv", |out| {
            tables::write_records_of(contents, order, &held, out)
        })?;
        made.files.extend([records, samples]);
        let rows = match made.exports.is_empty() {
            true => None,
            false => Some(self.rows_of(contents, order)?),
        };
        self.write_exports(rows.as_deref().unwrap_or_default(), about, &mut made)?;
        for stale in before.iter().flat_map(|before| before.files.keys()) {
            if !made.files.contains_key(stale) {
                // One that is gone already is as well.
                let _ = fs::remove_file(self.path.join(stale));
            }
        }
        self.write_json(stamp::FILE, &made)?;
        Ok(rows)
    }

    fn rows_of(&self, contents: &Contents, order: &[usize]) -> Result<Vec<Row>, FolderError> {
        let rows = order.par_iter().map(|&index| contents.row(index));
        rows.collect::<Result<_, _>>()
            .map_err(|reason| FolderError::Foreign {
                path: Part::Whole.journal(&self.path),
                reason,
            })
    }

    /// Writes a table as a whole, without holding all of it.
    fn table<T>(
        &self,
        name: &str,
        write: impl FnOnce(&mut Sealing<File>) -> csv::Result<T>,
    ) -> Result<((PathBuf, Seal), T), FolderError> {
        let path = self.path.join(name);
        let new = self.path.join(format!(".{name}.new"));
        let mut options = OpenOptions::new();
        let opened = files::open_own(options.write(true).create(true).truncate(true), &new);
        let written = opened.and_then(|file| {
            let mut out = Sealing::new(file);
            let value = write(&mut out).map_err(io::Error::other)?;
            let (file, seal) = out.finish();
            file.sync_all()?;
            fs::rename(&new, &path)?;
            Ok((seal, value))
        });
        match written {
            Ok((seal, value)) => Ok(((PathBuf::from(name), seal), value)),
            Err(error) => {
                let _ = fs::remove_file(&new);
                Err(FolderError::Io { path, error })
            }
        }
    }

    /// Makes the exports beside, then puts each in its place.
    fn write_exports(
        &self,
        rows: &[Row],
        about: &About<'_>,
        made: &mut Stamp,
    ) -> Result<(), FolderError> {
        let (folder, new) = (self.path.join("exports"), self.path.join(".exports.new"));
        // Left by a process that was killed.
        let _ = fs::remove_dir_all(&new);
        let names: Vec<&str> = made.exports.iter().map(String::as_str).collect();
        let moved = exports::write(&names, rows, about, &new).and_then(|()| {
            let files = match new.is_dir() {
                true => stamp::files_below(&new)?,
                false => Vec::new(),
            };
            let mut seals = Vec::new();
            for path in files {
                let (from, to) = (new.join(&path), folder.join(&path));
                File::open(&from)?.sync_all()?;
                let seal = stamp::sealed(&from)?;
                fs::create_dir_all(to.parent().unwrap_or(&folder))?;
                fs::rename(&from, &to)?;
                seals.push((Path::new("exports").join(path), seal));
            }
            Ok(seals)
        });
        let _ = fs::remove_dir_all(&new);
        let path = folder;
        made.files
            .extend(moved.map_err(|error| FolderError::Io { path, error })?);
        Ok(())
    }

    /// True if the files that describe the run are there and can be read.
    pub fn is_described(&self) -> bool {
        let has_manifest = fs::metadata(self.path.join("manifest.toml"));
        Recorded::read(&self.path).is_ok_and(|run| run.has_plan())
            && has_manifest.is_ok_and(|file| file.is_file() && file.len() > 0)
    }
}
