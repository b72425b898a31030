//! Folders that compilers work in, and reaping those that killed processes left behind.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use tempfile::TempDir;

use crate::files;

const PREFIX: &str = "sweeper-cc-";

/// The file that the owner of a folder holds locked for as long as it lives.
const LOCK: &str = ".lock";

/// A folder that is younger may not be locked yet.
const LEAST_AGE: Duration = Duration::from_secs(60);

/// How long to wait for the lock of a process that was killed: the last of its threads lets it go.
const LOCK_WAIT: Duration = Duration::from_millis(20);

/// The folders of this process.
static OWN: Folders = Folders(Mutex::new(BTreeSet::new()));

/// A folder of one process, removed at its end.
pub struct Scratch {
    folder: TempDir,
    // It goes after the folder.
    _listed: Listed<'static>,
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
        let listed = OWN.list(folder.path());
        let lock = File::create(folder.path().join(LOCK))?;
        // Without locks no process reaps.
        let _ = lock.try_lock();
        Ok(Scratch {
            folder,
            _listed: listed,
            _lock: lock,
        })
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// Folders that are to be removed should their process end at once.
struct Folders(Mutex<BTreeSet<PathBuf>>);

/// A folder that is there.
struct Listed<'a> {
    list: &'a Folders,
    folder: PathBuf,
}

impl Folders {
    fn list(&self, folder: &Path) -> Listed<'_> {
        let folder = folder.to_owned();
        self.change(|folders| folders.insert(folder.clone()));
        Listed { list: self, folder }
    }

    fn remove(&self) {
        for folder in self.change(std::mem::take) {
            // What can't be removed is left to the next process.
            let _ = fs::remove_dir_all(folder);
        }
    }

    fn change<T>(&self, change: impl FnOnce(&mut BTreeSet<PathBuf>) -> T) -> T {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Drop for Listed<'_> {
    fn drop(&mut self) {
        self.list.change(|folders| folders.remove(&self.folder));
    }
}

/// Removes the folders of this process, which ends at once: their owners do not get to it.
pub fn remove_own() {
    OWN.remove();
}

/// How names of a process's folders begin.
fn prefix_of(process: u32) -> String {
    format!("{PREFIX}{process}-")
}

/// Removes the folders of processes that were killed: programs may have left gigabytes there.
pub fn remove_of(processes: &BTreeSet<u32>) {
    remove_of_in(&std::env::temp_dir(), processes, LOCK_WAIT);
}

fn remove_of_in(parent: &Path, processes: &BTreeSet<u32>, wait: Duration) {
    let prefixes: Vec<_> = processes.iter().copied().map(prefix_of).collect();
    let start = Instant::now();
    // Of a process elsewhere that has the same number and this folder, too, the lock is held.
    while remove(parent, &prefixes, Duration::ZERO) > 0 && start.elapsed() < wait {
        thread::sleep(Duration::from_millis(1));
    }
}

/// Removes this user's folders whose owner is gone: no process holds their lock.
fn reap(parent: &Path) {
    remove(parent, &[PREFIX.to_owned()], LEAST_AGE);
}

/// Removes those folders whose names begin like one of these, that are so old, and whose owner is
/// gone. Returns how many such names are left.
fn remove(parent: &Path, prefixes: &[String], least_age: Duration) -> usize {
    let found = fs::read_dir(parent).into_iter().flatten().flatten();
    let is_left = |item: &fs::DirEntry| {
        let name = item.file_name();
        let name = name.to_string_lossy();
        let is_asked_for = prefixes.iter().any(|prefix| name.starts_with(prefix));
        // A folder that can't be removed is tried again by the next process.
        is_asked_for
            && !(is_abandoned(&item.path(), least_age) && fs::remove_dir_all(item.path()).is_ok())
    };
    found.filter(is_left).count()
}

fn is_abandoned(folder: &Path, least_age: Duration) -> bool {
    let Ok(metadata) = fs::symlink_metadata(folder) else {
        return false;
    };
    // By a server's clock it may be of the future.
    let age = metadata.modified().map(|time| {
        let age = SystemTime::now().duration_since(time);
        age.unwrap_or_default()
    });
    let is_old = age.is_ok_and(|age| age >= least_age);
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
    use std::ffi::OsString;

    use super::*;

    fn names_in(folder: &Path) -> Vec<OsString> {
        let items = fs::read_dir(folder).unwrap();
        let mut names: Vec<_> = items.map(|item| item.unwrap().file_name()).collect();
        names.sort();
        names
    }

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
        let left = names_in(parent.path());
        assert_eq!(left, ["other", "sweeper-cc-held", "sweeper-cc-young"]);
    }

    #[test]
    fn folders_of_processes_that_were_killed_go_at_once() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            File::create(folder.join(LOCK)).unwrap()
        };
        let held = make("sweeper-cc-12-held");
        held.try_lock().unwrap();
        drop(make("sweeper-cc-12-left"));
        drop(make("sweeper-cc-45-left"));
        drop(make("sweeper-cc-123-left"));
        remove_of_in(parent.path(), &BTreeSet::from([12, 45]), LOCK_WAIT);
        let left = names_in(parent.path());
        assert_eq!(left, ["sweeper-cc-12-held", "sweeper-cc-123-left"]);
    }

    #[test]
    fn a_lock_that_is_let_go_soon_is_waited_for() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("sweeper-cc-12-dying");
        fs::create_dir(&folder).unwrap();
        let lock = File::create(folder.join(LOCK)).unwrap();
        lock.try_lock().unwrap();
        thread::scope(|scope| {
            scope.spawn(move || {
                thread::sleep(Duration::from_millis(2));
                drop(lock);
            });
            let long = Duration::from_secs(60);
            remove_of_in(parent.path(), &BTreeSet::from([12]), long);
        });
        assert!(!folder.exists());
    }

    #[test]
    fn folders_that_are_there_still_go_when_their_process_ends_at_once() {
        let parent = tempfile::tempdir().unwrap();
        let make = |name: &str| {
            let folder = parent.path().join(name);
            fs::create_dir(&folder).unwrap();
            fs::write(folder.join("object"), "").unwrap();
            folder
        };
        let folders = Folders(Mutex::new(BTreeSet::new()));
        let there = make("there");
        let _listed = folders.list(&there);
        let gone = make("gone");
        drop(folders.list(&gone));
        folders.remove();
        assert!(!there.exists() && gone.exists());
    }

    #[test]
    fn a_folder_is_listed_for_as_long_as_it_is_there() {
        let is_listed = |folder: &Path| OWN.change(|folders| folders.contains(folder));
        let scratch = Scratch::new().unwrap();
        let path = scratch.path().to_owned();
        assert!(is_listed(&path));
        drop(scratch);
        assert!(!is_listed(&path) && !path.exists());
    }
}
