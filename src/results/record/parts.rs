//! The parts of a run that have files in its folder.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sweeper_model::shard::{Part, SHARDS, Shard};

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
