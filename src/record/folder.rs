//! The folder of one run.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::environment::Environment;
use super::exports::{self, About};
use super::find;
use super::journal::{Contents, Journal, JournalError};
use super::row::Row;
use super::tables;
use crate::identity::RunId;

/// Why a run's folder can't be used.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Reading or writing failed.
    #[error("{path}: {error}", path = path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// Another process writes it.
    #[error("{path}: another sweeper is writing this run; wait for it, or use --output-dir", path = path.display())]
    Busy {
        /// The folder.
        path: PathBuf,
    },
    /// A file of it is not what it should be.
    #[error("{path}: {reason}", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong.
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
        let lock = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&lock_path)
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

    /// The folder of a run that is to be measured again beside `path`: the last attempt if that was left
    /// unfinished and nobody works on it, else a new one.
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

    /// The journal, and what it holds.
    ///
    /// # Errors
    /// A [`JournalError`].
    pub fn journal(&self, run: RunId) -> Result<(Journal, Contents), FolderError> {
        Ok(Journal::open(&self.path.join("journal.jsonl"), run)?)
    }

    /// Writes a file of the folder as a whole: a reader sees the old one or the new one.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), FolderError> {
        let path = self.path.join(name);
        let temporary = self.path.join(format!(".{name}.new"));
        let written = fs::write(&temporary, content).and_then(|()| fs::rename(&temporary, &path));
        written.map_err(|error| FolderError::Io { path, error })
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

    /// Makes the tables from rows, and the exports called `names`.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write_tables(
        &self,
        rows: &[Row],
        about: &About<'_>,
        names: &[&str],
    ) -> Result<(), FolderError> {
        let io_error = |path: &Path| {
            let path = path.to_owned();
            move |error: io::Error| FolderError::Io { path, error }
        };
        let mut records = Vec::new();
        let mut samples = Vec::new();
        tables::write_records(rows, &mut records)
            .and_then(|()| tables::write_samples(rows, &mut samples))
            .map_err(|error| io_error(&self.path)(io::Error::other(error)))?;
        self.write("records.csv", &records)?;
        self.write("samples.csv", &samples)?;
        let folder = self.path.join("exports");
        exports::write(names, rows, about, &folder).map_err(io_error(&folder))
    }
}

/// A run that was recorded, for reading.
pub struct Recorded {
    /// Its folder.
    pub path: PathBuf,
    /// Where and with what it was made.
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
        let bytes = fs::read(&file).map_err(|error| match error.kind() {
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
        let bytes = fs::read(self.path.join("plan.json")).ok()?;
        let plan: Points = serde_json::from_slice(&bytes).ok()?;
        Some(plan.points.len())
    }

    /// The folder in which the run's folder lies; an attempt lies one deeper.
    pub fn results_folder(&self) -> Option<&Path> {
        match find::attempt_number(&self.path) {
            Some(_) => self.path.parent()?.parent(),
            None => self.path.parent(),
        }
    }

    /// Its rows, in the order written.
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
        fs::read_to_string(&path).map_err(|error| FolderError::Io { path, error })
    }
}
