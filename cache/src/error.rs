//! Errors, which end an operation, and warnings, which don't.

use std::{fmt, io, path::PathBuf, time::Duration};

use serde::Serialize;

use crate::key::EntryName;

/// Why the cache can't be opened, or an administrative operation on it can't be done.
///
/// Looking up and publishing never yield one of these.
#[derive(Debug, thiserror::Error)]
pub enum CacheError {
    /// The directory doesn't exist and can't be made.
    #[error(
        "can't create the cache directory {path}: {source}; name a directory that you may write to"
    )]
    Create {
        /// The directory.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
    /// The path is of another type of file.
    #[error("{path} is not a directory; name another one for the cache, or move it away")]
    NotADirectory {
        /// The path.
        path: PathBuf,
    },
    /// The directory holds other things, and marking it as a cache would keep them out of backups.
    #[error("{path} is neither empty nor a kernel cache; name an empty or a new directory")]
    NotACache {
        /// The directory.
        path: PathBuf,
    },
    /// Code from there would be under the control of another user.
    #[error(
        "{path} belongs to user {owner}, not to user {user} who runs this; \
         name a directory of your own for the cache"
    )]
    ForeignOwner {
        /// The directory.
        path: PathBuf,
        /// Numeric id of its owner.
        owner: u32,
        /// Numeric id of the effective user.
        user: u32,
    },
    /// Other users could replace the files of the directory and so run code as this user.
    #[error(
        "users other than its owner may write to {path} (mode {mode:o}); \
         run `chmod go-w` on it, or name another directory for the cache"
    )]
    OthersMayWrite {
        /// The directory.
        path: PathBuf,
        /// The permission bits of the directory.
        mode: u32,
    },
    /// The path holds nothing that entries could be read from.
    #[error("{path} is neither a kernel cache nor a bundle of one: {reason}")]
    NotASource {
        /// The path.
        path: PathBuf,
        /// The defect.
        reason: String,
    },
    /// The path names a file that an export would destroy.
    #[error("{path} is there already, and is not a bundle of kernels; name another file")]
    NotABundle {
        /// The path.
        path: PathBuf,
    },
    /// Another process holds a lock that the operation needs.
    #[error("another process is at work in {path} since {waited:?}; try again when it is done")]
    Busy {
        /// The directory of the cache.
        path: PathBuf,
        /// The time waited.
        waited: Duration,
    },
    /// The cache can be read but not changed.
    #[error("the cache can't be changed: {0}")]
    ReadOnly(Warning),
    /// The system refused something.
    #[error("can't {action} {path}: {source}")]
    Io {
        /// The failed action, as a verb.
        action: &'static str,
        /// The file or directory that it was tried with.
        path: PathBuf,
        /// The error of the system call.
        source: io::Error,
    },
}

/// A system call that failed, before it is decided whether that ends an operation or is only worth
/// a warning.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) action: &'static str,
    pub(crate) path: PathBuf,
    pub(crate) source: io::Error,
}

impl Failure {
    /// For `map_err`: the failed action, and the path that it was tried with.
    pub(crate) fn at(
        action: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self {
            action,
            path,
            source,
        }
    }

    pub(crate) fn to_warning(&self) -> Warning {
        Warning::WritingStopped {
            action: self.action,
            path: self.path.clone(),
            reason: self.source.to_string(),
        }
    }
}

impl From<Failure> for CacheError {
    fn from(
        Failure {
            action,
            path,
            source,
        }: Failure,
    ) -> Self {
        Self::Io {
            action,
            path,
            source,
        }
    }
}

/// Why a prefix names no entry.
#[derive(Debug, thiserror::Error)]
pub enum FindError {
    /// Not the beginning of an entry's name.
    #[error(
        "`{prefix}` is not the beginning of an entry's name, \
         which is hexadecimal digits with a dot after 64"
    )]
    NotAPrefix {
        /// The prefix that was looked up.
        prefix: String,
    },
    /// No entry begins like that.
    #[error("no entry begins with `{prefix}`")]
    NotFound {
        /// The prefix that was looked up.
        prefix: String,
    },
    /// Several entries begin like that.
    #[error(
        "`{prefix}` begins {count} entries, `{first}` for one; give more digits",
        count = candidates.len(),
        first = candidates[0]
    )]
    Ambiguous {
        /// The prefix that was looked up.
        prefix: String,
        /// All entries that the prefix may mean, sorted, at least two.
        candidates: Vec<EntryName>,
    },
    /// The cache can't be read.
    #[error(transparent)]
    Cache(#[from] CacheError),
}

/// Why an artifact wasn't stored. The work goes on without; report it once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "warning", rename_all = "snake_case")]
pub enum Warning {
    /// Writing failed. This [`Cache`](crate::Cache) writes no more.
    #[error(
        "the cache stores nothing more: can't {action} {path}: {reason}",
        path = path.display()
    )]
    WritingStopped {
        /// The failed action, as a verb.
        action: &'static str,
        /// The file or directory that it was tried with.
        path: PathBuf,
        /// The text of the system's error.
        reason: String,
    },
    /// Entries that this run used fill the cache. Storing more would only evict entries that it
    /// will need again.
    #[error(
        "working set {} > cap {}: what doesn't fit is compiled each time; raise the cap",
        Size(*working_set_bytes),
        Size(*capacity_bytes)
    )]
    OverCapacity {
        /// The size of all entries that this run used, stored and wanted to store, in bytes on
        /// disk.
        working_set_bytes: u64,
        /// The most that the cache may hold, in bytes on disk.
        capacity_bytes: u64,
    },
    /// The cache is full and making room takes longer than a publication may. The next publications
    /// go on with it.
    #[error(
        "no room yet for {} in a cache of {}; more is made with each kernel",
        Size(*bytes),
        Size(*capacity_bytes)
    )]
    NoRoomYet {
        /// The space that the entry would take, in bytes on disk.
        bytes: u64,
        /// The most that the cache may hold, in bytes on disk.
        capacity_bytes: u64,
    },
    /// An upstream can't be used, or not in full. Its entries are made here instead.
    #[error("upstream {path}: {reason}", path = path.display())]
    Upstream {
        /// The folder or bundle.
        path: PathBuf,
        /// The fault.
        reason: String,
    },
    /// Longer than any entry may be.
    #[error("{} are too long: at most {} go into an entry", Size(*bytes), Size(*limit))]
    TooLong {
        /// The length of the entry or of its metadata.
        bytes: u64,
        /// The longest it may have.
        limit: u64,
    },
}

/// A number of bytes as people read it.
struct Size(u64);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const UNITS: [&str; 4] = ["KiB", "MiB", "GiB", "TiB"];
        if self.0 < 1024 {
            return write!(f, "{} bytes", self.0);
        }
        let mut scaled = self.0 as f64 / 1024.0;
        let mut unit = 0;
        while scaled >= 1024.0 && unit + 1 < UNITS.len() {
            scaled /= 1024.0;
            unit += 1;
        }
        write!(f, "{scaled:.2} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_rounded_for_people() {
        let sizes = [1023, 1024, 1536 << 10, (1 << 30) + (1 << 24), u64::MAX];
        let texts = sizes.map(|bytes| Size(bytes).to_string());
        let expected = [
            "1023 bytes",
            "1.00 KiB",
            "1.50 MiB",
            "1.02 GiB",
            "16777216.00 TiB",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn warnings_say_what_to_do() {
        let warning = Warning::OverCapacity {
            working_set_bytes: 3 << 20,
            capacity_bytes: 2 << 20,
        };
        assert_eq!(
            warning.to_string(),
            "working set 3.00 MiB > cap 2.00 MiB: what doesn't fit is compiled each time; \
             raise the cap"
        );
    }
}
