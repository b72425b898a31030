//! Folders that compilers work in, and reaping those that killed processes left behind.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Once;
use std::time::{Duration, SystemTime};

use tempfile::TempDir;

use crate::files;

const PREFIX: &str = "sweeper-cc-";

/// The file that the owner of a folder holds locked for as long as it lives.
const LOCK: &str = ".lock";

/// A folder that is younger may not be locked yet.
const LEAST_AGE: Duration = Duration::from_secs(60);

/// A folder of one process, removed at its end.
pub struct Scratch {
    folder: TempDir,
    _lock: File,
}

impl Scratch {
    /// A new folder. The first one of a process reaps folders of processes that are gone.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn new() -> io::Result<Self> {
        static REAPED: Once = Once::new();
        let parent = std::env::temp_dir();
        REAPED.call_once(|| reap(&parent));
        let prefix = prefix_of(std::process::id());
        let folder = tempfile::Builder::new()
            .prefix(&prefix)
            .tempdir_in(parent)?;
        let lock = File::create(folder.path().join(LOCK))?;
        // Without locks no process reaps.
        let _ = lock.try_lock();
        Ok(Scratch {
            folder,
            _lock: lock,
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// How names of a process's folders begin.
fn prefix_of(process: u32) -> String {
    format!("{PREFIX}{process}-")
}

/// Removes the folders of a process that was killed: programs may have left gigabytes there.
pub fn remove_of(process: u32) {
    // Of a process elsewhere that has the same number and this folder, too, the lock is held.
    remove(&std::env::temp_dir(), &prefix_of(process), Duration::ZERO);
}

/// Removes this user's folders whose owner is gone: no process holds their lock.
fn reap(parent: &Path) {
    remove(parent, PREFIX, LEAST_AGE);
}

/// Removes those folders whose names begin like this, that are so old, and whose owner is gone.
fn remove(parent: &Path, prefix: &str, least_age: Duration) {
    let found = fs::read_dir(parent).into_iter().flatten().flatten();
    for item in found {
        let name = item.file_name();
        let is_ours = name.to_string_lossy().starts_with(prefix);
        if is_ours && is_abandoned(&item.path(), least_age) {
            // A folder that can't be removed is tried again by the next process.
            let _ = fs::remove_dir_all(item.path());
        }
    }
}

fn is_abandoned(folder: &Path, least_age: Duration) -> bool {
    let Ok(metadata) = fs::symlink_metadata(folder) else {
        return false;
    };
    let age = metadata
        .modified()
        .map(|time| SystemTime::now().duration_since(time));
    let is_old = matches!(age, Ok(Ok(age)) if age >= least_age);
    let is_own = metadata.uid() == rustix::process::geteuid().as_raw();
    if !metadata.is_dir() || !is_old || !is_own {
        return false;
    }
    match File::open(folder.join(LOCK)).map(|lock| lock.try_lock()) {
        Ok(Ok(())) => true,
        Ok(Err(TryLockError::WouldBlock | TryLockError::Error(_))) => false,
        // Killed before it made the lock.
        Err(error) => error.kind() == io::ErrorKind::NotFound,
    }
}

/// The bytes of a regular file of at most `limit` bytes; no link is followed, no pipe waited for.
///
/// # Errors
/// The end of a sentence about the file.
pub fn read(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "is missing".to_owned(),
        _ => format!("can't be read: {error}"),
    };
    let file = files::open_own(OpenOptions::new().read(true), path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if metadata.len() > limit {
        return Err(format!("has {} bytes, more than {limit}", metadata.len()));
    }
    let mut bytes = Vec::new();
    file.take(limit)
        .read_to_end(&mut bytes)
        .map_err(unreadable)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_old_folders_without_an_owner_are_reaped() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str, is_old: bool| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            let lock = File::create(folder.join(LOCK)).unwrap();
            if is_old {
                let long_ago = SystemTime::now() - Duration::from_secs(3600);
                File::open(&folder).unwrap().set_modified(long_ago).unwrap();
            }
            lock
        };
        let held = make("sweeper-cc-held", true);
        held.try_lock().unwrap();
        drop(make("sweeper-cc-left", true));
        drop(make("sweeper-cc-young", false));
        drop(make("other", true));
        reap(parent.path());
        let mut left: Vec<_> = fs::read_dir(parent.path())
            .unwrap()
            .map(|item| item.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(left, ["other", "sweeper-cc-held", "sweeper-cc-young"]);
    }

    #[test]
    fn folders_of_a_process_that_was_killed_go_at_once() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            File::create(folder.join(LOCK)).unwrap()
        };
        let held = make("sweeper-cc-12-held");
        held.try_lock().unwrap();
        drop(make("sweeper-cc-12-left"));
        drop(make("sweeper-cc-123-left"));
        remove(parent.path(), &prefix_of(12), Duration::ZERO);
        let left = fs::read_dir(parent.path()).unwrap();
        let mut left: Vec<_> = left.map(|item| item.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["sweeper-cc-12-held", "sweeper-cc-123-left"]);
    }
}
