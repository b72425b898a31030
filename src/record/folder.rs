//! The folder of one run.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::environment::Environment;
use super::exports::{self, About};
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
        let lock = File::create(&lock_path).map_err(io_error(&lock_path))?;
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
    /// If it is no run's folder, or one of a newer program.
    pub fn read(path: &Path) -> Result<Self, FolderError> {
        let file = path.join("environment.json");
        let bytes = fs::read(&file).map_err(|error| FolderError::Io {
            path: file.clone(),
            error,
        })?;
        let environment = serde_json::from_slice(&bytes).map_err(|error| FolderError::Foreign {
            path: file,
            reason: error.to_string(),
        })?;
        Ok(Recorded {
            path: path.to_owned(),
            environment,
        })
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

/// All runs below `dir`, newest first; folders that are no runs are passed over.
///
/// # Errors
/// If `dir` can't be read.
pub fn list(dir: &Path) -> Result<Vec<Recorded>, FolderError> {
    let io_error = |error| FolderError::Io {
        path: dir.to_owned(),
        error,
    };
    let mut runs = Vec::new();
    for entry in fs::read_dir(dir).map_err(io_error)? {
        let path = entry.map_err(io_error)?.path();
        if path.join("journal.jsonl").exists() {
            runs.extend(Recorded::read(&path).ok());
        }
    }
    runs.sort_by(|one, other| {
        let key = |run: &Recorded| run.environment.started_unix_s;
        key(other)
            .total_cmp(&key(one))
            .then_with(|| one.path.cmp(&other.path))
    });
    Ok(runs)
}

/// The run that a folder or the first digits of an id name.
///
/// # Errors
/// A sentence: none, or several and which.
pub fn find(wanted: &str, dir: &Path) -> Result<Recorded, String> {
    let path = Path::new(wanted);
    if path.join("environment.json").exists() {
        return Recorded::read(path).map_err(|error| error.to_string());
    }
    let runs = list(dir).map_err(|error| error.to_string())?;
    let mut found: Vec<Recorded> = runs
        .into_iter()
        .filter(|run| run.environment.identity.run.has_prefix(wanted))
        .collect();
    match (found.pop(), found.len()) {
        (Some(run), 0) => Ok(run),
        (None, _) => Err(format!(
            "no run in {} begins with `{wanted}`; see `sweeper runs`",
            dir.display()
        )),
        (Some(_), more) => Err(format!(
            "{} runs begin with `{wanted}`; give more digits",
            more + 1
        )),
    }
}
