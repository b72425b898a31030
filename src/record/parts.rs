//! The files of the parts of a run, in its folder: journals, holds and states.
//!
//! The whole has `journal.jsonl`, `.hold` and `.state.json`; the third of 16 shards has
//! `shards/3-of-16.jsonl`, `.hold` and `.state.json`.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::shard::{Part, Shard};

/// Folder of the shards' files.
pub const SHARDS: &str = "shards";

impl Part {
    fn file(self, folder: &Path, whole: &str, ending: &str) -> PathBuf {
        match self {
            Part::Whole => folder.join(whole),
            Part::Shard(Shard { count, index }) => folder
                .join(SHARDS)
                .join(format!("{index}-of-{count}.{ending}")),
        }
    }

    /// The part's journal in the folder of a run.
    pub fn journal(self, folder: &Path) -> PathBuf {
        self.file(folder, "journal.jsonl", "jsonl")
    }

    /// The file that names the process that writes the part.
    pub fn hold(self, folder: &Path) -> PathBuf {
        self.file(folder, ".hold", "hold")
    }

    /// The file that says how far the part is.
    pub fn state(self, folder: &Path) -> PathBuf {
        self.file(folder, ".state.json", "state.json")
    }

    /// All files of the part.
    pub fn files(self, folder: &Path) -> [PathBuf; 4] {
        [
            self.journal(folder),
            self.hold(folder),
            self.state(folder),
            self.lock(folder),
        ]
    }

    /// The lock of the part, for file systems that have locks.
    pub(super) fn lock(self, folder: &Path) -> PathBuf {
        self.file(folder, ".lock", "lock")
    }
}

/// The shards that have any file in the folder of a run, in their order.
///
/// # Errors
/// Those of the file system; a folder without shards is none.
pub fn shards(folder: &Path) -> io::Result<Vec<Shard>> {
    let entries = match fs::read_dir(folder.join(SHARDS)) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut found = Vec::new();
    for entry in entries {
        let name = entry?.file_name();
        found.extend(name.to_str().and_then(shard_of));
    }
    found.sort();
    found.dedup();
    Ok(found)
}

/// The shard that a file is of.
fn shard_of(name: &str) -> Option<Shard> {
    let (stem, ending) = name.split_once('.')?;
    let (index, count) = stem.split_once("-of-")?;
    let is_lasting = ["jsonl", "state.json"].contains(&ending);
    let shard = format!("{index}/{count}").parse().ok()?;
    is_lasting.then_some(shard)
}

/// All journals in the folder of a run: that of the whole first, then those of shards.
///
/// # Errors
/// Those of the file system.
pub fn journals(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let whole = Part::Whole.journal(folder);
    let shards = shards(folder)?.into_iter();
    let shards = shards.map(|shard| Part::Shard(shard).journal(folder));
    let mut all: Vec<PathBuf> = shards.filter(|path| path.exists()).collect();
    // One that is missing is an error of reading, unless there are others.
    if all.is_empty() || whole.exists() {
        all.insert(0, whole);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shards_are_found_by_their_files() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(shards(folder.path()).unwrap(), []);
        let whole = folder.path().join("journal.jsonl");
        assert_eq!(journals(folder.path()).unwrap(), [whole.as_path()]);
        fs::create_dir(folder.path().join(SHARDS)).unwrap();
        let shard = |index| Shard { count: 16, index };
        for name in [
            "10-of-16.jsonl",
            "2-of-16.jsonl",
            "2-of-16.state.json",
            "3-of-16.state.json",
            "4-of-16.hold",
            ".5-of-16.state.json.x.new",
            "notes.txt",
        ] {
            fs::write(folder.path().join(SHARDS).join(name), "").unwrap();
        }
        assert_eq!(shards(folder.path()).unwrap(), [2, 3, 10].map(shard));
        let of = |index| Part::Shard(shard(index)).journal(folder.path());
        assert_eq!(journals(folder.path()).unwrap(), [of(2), of(10)]);
        fs::write(&whole, "").unwrap();
        assert_eq!(journals(folder.path()).unwrap(), [whole, of(2), of(10)]);
    }
}
