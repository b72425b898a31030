//! The folder of one run.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::environment::Environment;
use super::exports;
use super::find;
use super::journal::{Contents, Journal, JournalError};
use super::stamp::{self, Stamp};
use super::tables;
use crate::files;
use crate::guides::About;
use crate::identity::{PointId, RunId};
use crate::row::Row;

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
    #[error("{path}: another sweeper is writing this run; wait for it, or use --output-dir", path = path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
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

/// A run's folder that this process writes alone.
pub struct RunFolder {
    path: PathBuf,
    /// Held for as long as the folder is written.
    _lock: File,
}

impl RunFolder {
    /// The folder's name: the manifest's name and the run's first 12 digits.
    pub fn name(name: &str, run: RunId) -> String {
        format!("{name}-{run}")
    }

    /// Makes the folder if there is none and takes hold of it.
    ///
    /// # Errors
    /// Those of the file system, or [`FolderError::Busy`].
    pub fn open(path: &Path) -> Result<Self, FolderError> {
        let io_error = |path: &Path| {
            let path = path.to_owned();
            move |error| FolderError::Io { path, error }
        };
        fs::create_dir_all(path).map_err(io_error(path))?;
        let lock_path = path.join(".lock");
        // A link would be followed to a file that is none of ours.
        let mut options = OpenOptions::new();
        let lock = files::open_own(options.write(true).create(true).truncate(false), &lock_path)
            .map_err(io_error(&lock_path))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(fs::TryLockError::WouldBlock) => {
                return Err(FolderError::Busy {
                    path: path.to_owned(),
                });
            }
            // A file system without locks: two runs at once would be the user's doing.
            Err(fs::TryLockError::Error(_)) => {}
        }
        Ok(RunFolder {
            path: path.to_owned(),
            _lock: lock,
        })
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

    /// The journal, and its contents.
    ///
    /// # Errors
    /// A [`JournalError`].
    pub fn journal(&self, run: RunId) -> Result<(Journal, Contents), FolderError> {
        Ok(Journal::open(&self.path.join("journal.jsonl"), run)?)
    }

    /// Writes a file of the folder as a whole: a reader sees the old one or the new one, also after
    /// a crash.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), FolderError> {
        let path = self.path.join(name);
        files::write(&path, content).map_err(|error| FolderError::Io { path, error })
    }

    /// Writes a file below the folder, and makes the folders that lead to it.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_below(&self, path: &str, content: &[u8]) -> Result<(), FolderError> {
        let path = self.path.join(path);
        let folder = path.parent().unwrap_or(&self.path);
        fs::create_dir_all(folder)
            .and_then(|()| files::write(&path, content))
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

    /// Makes the tables from rows, and the exports called `names` as well as those that were asked
    /// for before. A file is replaced when its successor is whole.
    ///
    /// # Errors
    /// Those of the file system; the next run makes the tables again.
    pub fn write_tables(
        &self,
        contents: &Contents,
        rows: &[Row],
        about: &About<'_>,
        names: &[&str],
    ) -> Result<(), FolderError> {
        let mut made = Stamp::new(contents, about, names);
        let before = Stamp::read(&self.path);
        if let Some(before) = &before {
            let can_be_made = |name: &&String| exports::check(&[name.as_str()]).is_ok();
            let held = before.exports.iter().filter(can_be_made);
            made.exports.extend(held.cloned());
        }
        let table = |name: &str, write: &dyn Fn(&mut Vec<u8>) -> csv::Result<()>| {
            let mut bytes = Vec::new();
            write(&mut bytes).map_err(|error| FolderError::Io {
                path: self.path.join(name),
                error: io::Error::other(error),
            })?;
            self.write(name, &bytes)?;
            let seal = (bytes.len() as u64, crc32fast::hash(&bytes));
            Ok::<_, FolderError>((PathBuf::from(name), seal))
        };
        made.files.extend([
            table("records.csv", &|out| tables::write_records(rows, out))?,
            table("samples.csv", &|out| tables::write_samples(rows, out))?,
        ]);
        self.write_exports(rows, about, &mut made)?;
        for stale in before.iter().flat_map(|before| before.files.keys()) {
            if !made.files.contains_key(stale) {
                // One that is gone already is as well.
                let _ = fs::remove_file(self.path.join(stale));
            }
        }
        self.write_json(stamp::FILE, &made)
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
        Recorded::read(&self.path).is_ok_and(|run| run.planned_points().is_some())
            && has_manifest.is_ok_and(|file| file.is_file() && file.len() > 0)
    }
}

/// A run that was recorded, for reading.
pub struct Recorded {
    /// The folder of the run.
    pub path: PathBuf,
    /// The machine, devices and compilers of the run.
    pub environment: Environment,
}

impl Recorded {
    /// Reads the run in `path`.
    ///
    /// # Errors
    /// If it is no run's folder, one that was damaged, or one of a newer program.
    pub fn read(path: &Path) -> Result<Self, FolderError> {
        let file = path.join("environment.json");
        let unusable = |reason: String| FolderError::Foreign {
            path: file.clone(),
            reason,
        };
        let advice = "`sweeper run` of its manifest, with the same flags, writes it again";
        let bytes = files::read(&file).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound if path.join("journal.jsonl").exists() => unusable(format!(
                "the file is missing, the journal is there; {advice}"
            )),
            _ => FolderError::Io {
                path: file.clone(),
                error,
            },
        })?;
        let environment = serde_json::from_slice(&bytes)
            .map_err(|error| unusable(format!("damaged: {error}; {advice}")))?;
        Ok(Recorded {
            path: path.to_owned(),
            environment,
        })
    }

    /// Points of its plan, where the plan can be read.
    pub fn planned_points(&self) -> Option<usize> {
        #[derive(serde::Deserialize)]
        struct Points {
            points: Vec<serde::de::IgnoredAny>,
        }
        let bytes = files::read(&self.path.join("plan.json")).ok()?;
        let plan: Points = serde_json::from_slice(&bytes).ok()?;
        Some(plan.points.len())
    }

    /// The place of each point in its plan, where the plan can be read. The journal has rows as
    /// they were finished, which differs from run to run.
    pub fn plan_order(&self) -> HashMap<PointId, usize> {
        #[derive(serde::Deserialize)]
        struct Point {
            point: PointId,
        }
        #[derive(serde::Deserialize)]
        struct Points {
            points: Vec<Point>,
        }
        let bytes = files::read(&self.path.join("plan.json")).unwrap_or_default();
        let plan: Option<Points> = serde_json::from_slice(&bytes).ok();
        let points = plan.into_iter().flat_map(|plan| plan.points).enumerate();
        points.map(|(place, point)| (point.point, place)).collect()
    }

    /// The folder in which the run's folder lies; an attempt lies one deeper.
    pub fn results_folder(&self) -> Option<&Path> {
        match find::attempt_number(&self.path) {
            Some(_) => self.path.parent()?.parent(),
            None => self.path.parent(),
        }
    }

    /// Rows of the run, in the order written.
    ///
    /// # Errors
    /// If the journal can't be read.
    pub fn rows(&self) -> Result<Vec<Row>, FolderError> {
        let path = self.path.join("journal.jsonl");
        let contents = Contents::read(&path)?;
        contents
            .rows()
            .map_err(|reason| FolderError::Foreign { path, reason })
    }

    /// The text of its resolved manifest.
    ///
    /// # Errors
    /// If it can't be read.
    pub fn manifest_text(&self) -> Result<String, FolderError> {
        let path = self.path.join("manifest.toml");
        files::read_to_string(&path).map_err(|error| FolderError::Io { path, error })
    }
}
