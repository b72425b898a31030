//! The bound of a kernel cache as the last sweep that filled it had it: a cache itself has none,
//! each process that writes to it says its own.

use std::fs;
use std::path::Path;

use sweeper_model::files;

/// Beside the cache's own files.
const FILE: &str = "bound_bytes";

/// Remembers the bound that a sweep has. Where it can't, nothing is lost: only `sweeper cache`
/// reads it.
pub fn remember(folder: &Path, bytes: u64) {
    if remembered(folder) != Some(bytes) {
        let _ = files::write_beside_cache(&folder.join(FILE), format!("{bytes}\n").as_bytes());
    }
}

/// The bound that the last sweep had.
pub fn remembered(folder: &Path) -> Option<u64> {
    let text = fs::read_to_string(folder.join(FILE)).ok()?;
    text.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bound_is_remembered_beside_a_cache() {
        let folder = tempfile::tempdir().unwrap();
        remember(folder.path(), 5);
        assert_eq!(remembered(folder.path()), None, "that is not a cache");
        fs::write(folder.path().join("CACHEDIR.TAG"), "").unwrap();
        remember(folder.path(), 5);
        assert_eq!(remembered(folder.path()), Some(5));
        remember(folder.path(), 7 << 30);
        assert_eq!(remembered(folder.path()), Some(7 << 30));
    }
}
