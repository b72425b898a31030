//! Digests of compilers' files, remembered: a library of a hundred megabytes is not read at every
//! start.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use sha2::{Digest, Sha256};
use sweeper_model::files;

/// The file in the cache's folder.
const FILE: &str = "digests.json";

/// Smaller files are read as quickly as they would be looked up.
const LEAST_BYTES: u64 = 1 << 20;

/// Larger files are read in pieces of this size.
const PIECE_BYTES: u64 = 4 << 20;

/// Digests of files: SHA-256 of the SHA-256 of their pieces.
///
/// The memo is an optimisation: where it can't be read or written, files are.
#[derive(Debug, Default)]
pub struct Digests {
    /// Where the memo is kept; without it nothing is remembered.
    memo: Option<PathBuf>,
}

/// The remembered digest of one file.
#[derive(Clone, Serialize, Deserialize)]
struct Remembered {
    /// That of [`files::stamp`].
    stamp: String,
    digest: String,
}

impl Digests {
    /// Digests that are remembered in a cache's folder.
    pub fn remembered_in(cache: Option<&Path>) -> Self {
        Digests {
            memo: cache.map(|folder| folder.join(FILE)),
        }
    }

    /// The SHA-256 of a file, in hexadecimal digits.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn of(&self, path: &Path) -> io::Result<String> {
        let path = fs::canonicalize(path)?;
        let data = fs::metadata(&path)?;
        if data.len() < LEAST_BYTES || self.memo.is_none() {
            return read(&path);
        }
        let stamp = files::stamp(&data);
        let name = path.to_string_lossy().into_owned();
        let held = self.load().remove(&name);
        if let Some(held) = held.filter(|held| held.stamp == stamp) {
            return Ok(held.digest);
        }
        let digest = read(&path)?;
        let entry = Remembered {
            stamp,
            digest: digest.clone(),
        };
        self.remember(name, entry);
        Ok(digest)
    }

    fn load(&self) -> BTreeMap<String, Remembered> {
        let bytes = self.memo.as_ref().and_then(|memo| files::read(memo).ok());
        bytes
            .and_then(|bytes| serde_json::from_slice(&bytes).ok())
            .unwrap_or_default()
    }

    /// Of two processes that remember at once, one forgets: it will read the file again.
    fn remember(&self, name: String, entry: Remembered) {
        let Some(memo) = &self.memo else { return };
        let mut all = self.load();
        all.retain(|path, _| Path::new(path).exists());
        all.insert(name, entry);
        let Ok(bytes) = serde_json::to_vec_pretty(&all) else {
            return;
        };
        // A folder that can't be written to is the cache's to complain about.
        let _ = files::write_beside_cache(memo, &bytes);
    }
}

/// The digest of the digests of a file's pieces: they are read at once, by all processors.
fn read(path: &Path) -> io::Result<String> {
    let pieces = fs::metadata(path)?.len().div_ceil(PIECE_BYTES);
    let digest = |piece: u64| -> io::Result<[u8; 32]> {
        let (mut file, mut bytes) = (File::open(path)?, Vec::new());
        file.seek(SeekFrom::Start(piece * PIECE_BYTES))?;
        file.take(PIECE_BYTES).read_to_end(&mut bytes)?;
        Ok(Sha256::digest(&bytes).into())
    };
    let digests: Vec<[u8; 32]> = (0..pieces)
        .into_par_iter()
        .map(digest)
        .collect::<io::Result<_>>()?;
    Ok(hex::encode(Sha256::digest(digests.concat())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_remembered_until_the_file_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("library");
        fs::write(&file, vec![7; 2 << 20]).unwrap();
        let cache = folder.path().join("cache");
        let digests = Digests::remembered_in(Some(&cache));
        digests.of(&file).unwrap();
        assert!(
            !cache.exists(),
            "a folder that is not a cache stays as it is"
        );
        fs::create_dir(&cache).unwrap();
        fs::write(cache.join("CACHEDIR.TAG"), "").unwrap();
        let first = digests.of(&file).unwrap();
        assert_eq!(first, Digests::default().of(&file).unwrap());
        // The file of remembered digests is believed: the test writes a wrong one, and expects it
        // back.
        let memo = cache.join(FILE);
        let lie = fs::read_to_string(&memo).unwrap().replace(&first, "lie");
        fs::write(&memo, lie).unwrap();
        assert_eq!(digests.of(&file).unwrap(), "lie");
        fs::write(&file, vec![8; 2 << 20]).unwrap();
        let second = digests.of(&file).unwrap();
        assert_ne!(first, second);
        assert_eq!(second, digests.of(&file).unwrap());
        fs::write(&memo, "nonsense").unwrap();
        assert_eq!(second, digests.of(&file).unwrap());
        assert!(digests.of(Path::new("/nowhere")).is_err());
    }
}
