//! Where runs were written, so that an id is enough to find one outside of `results`.
//!
//! One small file a run in the user's state folder, named by the run's id and a digest of the
//! folder, written beside and renamed: several machines that share a home folder over a network
//! never append to one file, and need no lock. Nothing depends on it but convenience: a history
//! that can't be read or written is an empty one.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use directories::ProjectDirs;
use sha2::{Digest as _, Sha256};

use sweeper_model::files;
use sweeper_model::identity::RunId;

/// Files about folders that are gone are deleted when they are older: a file system may be away for
/// a while.
const KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// Where the history is.
fn place() -> Option<PathBuf> {
    let dirs = ProjectDirs::from("", "", "sweeper")?;
    let state = dirs.state_dir().unwrap_or_else(|| dirs.data_local_dir());
    Some(state.join("runs"))
}

/// Remembers that a run is in a folder.
pub fn remember(run: RunId, folder: &Path) {
    if let (Some(place), Ok(folder)) = (place(), std::path::absolute(folder)) {
        // Without a home folder that can be written to, runs are found below `results` alone.
        let _ = remember_in(&place, &run.to_string(), &folder);
    }
}

fn remember_in(place: &Path, run: &str, folder: &Path) -> std::io::Result<()> {
    let digest = Sha256::digest(folder.as_os_str().as_encoded_bytes());
    let short: String = digest[..6]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let path = place.join(format!("{run}.{short}"));
    if path.exists() {
        return Ok(());
    }
    fs::create_dir_all(place)?;
    let temporary = place.join(format!(".{run}.{short}.{}", std::process::id()));
    fs::write(&temporary, folder.as_os_str().as_encoded_bytes())?;
    fs::rename(&temporary, &path)
}

/// First digits of ids of runs, and the folders they were written to and may still be in.
pub fn folders() -> Vec<(String, PathBuf)> {
    place().map(|place| folders_in(&place)).unwrap_or_default()
}

/// The folder of the run in which a file was made last.
pub fn last_written() -> Option<PathBuf> {
    // Tables are made anew beside the old ones and renamed, which changes the folder.
    let written = |folder: &Path| fs::metadata(folder).ok()?.modified().ok();
    let folders = folders().into_iter().map(|(_, folder)| folder);
    let dated = folders.filter_map(|folder| Some((written(&folder)?, folder)));
    dated.max().map(|(_, folder)| folder)
}

fn folders_in(place: &Path) -> Vec<(String, PathBuf)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(place).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let Some((id, _)) = name.to_str().and_then(|name| name.split_once('.')) else {
            continue;
        };
        let Ok(folder) = files::read_to_string(&entry.path()) else {
            continue;
        };
        if id.is_empty() || folder.is_empty() {
            continue;
        }
        if Path::new(&folder).is_dir() {
            found.push((id.to_owned(), PathBuf::from(folder)));
        } else if is_old(&entry) {
            // A file that can't be deleted is passed over again the next time.
            let _ = fs::remove_file(entry.path());
        }
    }
    found.sort();
    found
}

fn is_old(entry: &fs::DirEntry) -> bool {
    let modified = entry.metadata().and_then(|held| held.modified());
    modified.is_ok_and(|time| time.elapsed().is_ok_and(|age| age > KEPT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_are_remembered_once_and_forgotten_when_long_gone() {
        let home = tempfile::tempdir().unwrap();
        let place = home.path().join("state/runs");
        assert_eq!(folders_in(&place), []);
        let folders = ["a", "b"].map(|name| home.path().join(name));
        for folder in &folders {
            fs::create_dir(folder).unwrap();
            remember_in(&place, "0123456789ab", folder).unwrap();
            remember_in(&place, "0123456789ab", folder).unwrap();
        }
        let expected = folders
            .clone()
            .map(|path| ("0123456789ab".to_owned(), path));
        assert_eq!(folders_in(&place), expected);
        fs::remove_dir(&folders[0]).unwrap();
        assert_eq!(folders_in(&place), expected[1..]);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 2, "it may come back");
        let long_ago = std::time::SystemTime::now() - 2 * KEPT;
        for entry in fs::read_dir(&place).unwrap() {
            let file = fs::File::options().write(true).open(entry.unwrap().path());
            file.unwrap().set_modified(long_ago).unwrap();
        }
        assert_eq!(folders_in(&place), expected[1..]);
        assert_eq!(fs::read_dir(&place).unwrap().count(), 1);
    }
}
