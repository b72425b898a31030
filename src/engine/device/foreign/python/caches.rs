//! The folder in which libraries of an interpreter keep the code that they compile.
//!
//! They find it again by content themselves; here it is bounded, and no other program's.

use std::fs;
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

/// A folder that has grown over this is emptied before an interpreter is started.
const MOST_BYTES: u64 = 8 << 30;

/// Variables that name a library's cache, and the folder of each below ours.
const FOLDERS: [(&str, &str); 7] = [
    // Without it PyTorch's compiler puts Triton's files below its own in one process, and not in
    // the next.
    ("TRITON_CACHE_DIR", "triton"),
    ("TORCHINDUCTOR_CACHE_DIR", "inductor"),
    ("TORCH_EXTENSIONS_DIR", "extensions"),
    ("JAX_COMPILATION_CACHE_DIR", "jax"),
    ("CUPY_CACHE_DIR", "cupy"),
    ("NUMBA_CACHE_DIR", "numba"),
    ("CUDA_CACHE_PATH", "cuda"),
];

/// Variables that let a library keep compiled code and tuned choices. What a variable does not tell
/// in all versions of a library is in `child/caches.py`.
const SWITCHES: [(&str, &str); 4] = [
    ("TORCHINDUCTOR_FX_GRAPH_CACHE", "1"),
    ("TRITON_CACHE_AUTOTUNING", "1"),
    // JAX would keep what took it a second to compile.
    ("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0"),
    ("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1"),
];

/// The variables of an interpreter whose libraries keep their files below `cache`. Each interpreter
/// and kind of device has a folder of its own.
pub(in crate::device::foreign) fn variables(
    cache: &Path,
    exe: &str,
    device: &str,
) -> Vec<(String, String)> {
    let digest = Sha256::digest(format!("{exe}\0{device}"));
    let folder = cache.join("foreign").join(&hex::encode(digest)[..12]);
    if bytes_below(&folder) > MOST_BYTES {
        // A folder that can't be removed now is too large the next time, too.
        let _ = fs::remove_dir_all(&folder);
    }
    let folders = FOLDERS.iter().map(|(variable, name)| {
        let path = folder.join(name);
        ((*variable).to_owned(), path.to_string_lossy().into_owned())
    });
    let switches = SWITCHES.iter();
    let switches = switches.map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    folders.chain(switches).collect()
}

/// Bytes of all files below a folder; those that can't be seen count for nothing.
fn bytes_below(folder: &Path) -> u64 {
    let mut open: Vec<PathBuf> = vec![folder.to_owned()];
    let mut bytes = 0;
    while let Some(folder) = open.pop() {
        for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(held) if held.is_dir() => open.push(entry.path()),
                Ok(held) => bytes += held.len(),
                Err(_) => {}
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interpreters_have_folders_of_their_own() {
        let cache = tempfile::tempdir().unwrap();
        let of = |exe: &str| -> PathBuf {
            let found = variables(cache.path(), exe, "sm_90");
            let triton = found.iter().find(|(name, _)| name == "TRITON_CACHE_DIR");
            PathBuf::from(&triton.unwrap().1)
        };
        assert_eq!(of("a"), of("a"));
        assert_ne!(of("a"), of("b"));
        assert!(of("a").starts_with(cache.path()));
        fs::create_dir_all(of("a")).unwrap();
        fs::write(of("a").join("kernel"), [0; 100]).unwrap();
        assert_eq!(bytes_below(cache.path()), 100);
    }
}
