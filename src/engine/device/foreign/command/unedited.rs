//! Files whose contents belong to a run's identity: a command is measured only as long as they have
//! them.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use crate::device::DeviceError;
use sweeper_manifest::user::command_declaration::CommandSource;
use sweeper_model::files;

/// Files that had the contents that they should have when they were looked at last. Only those that
/// were written since are read again.
#[derive(Default)]
pub(super) struct Unedited {
    /// Stamp and SHA-256 by path.
    held: HashMap<PathBuf, (String, String)>,
}

impl Unedited {
    /// # Errors
    /// [`DeviceError::Interrupted`], if a file has not the contents that it had when the manifest
    /// was read: the next run has other ones, and nothing is known of this one's.
    pub(super) fn check(&mut self, files: &[CommandSource]) -> Result<(), DeviceError> {
        match files.iter().find(|file| !self.is_unedited(file)) {
            None => Ok(()),
            Some(file) => Err(DeviceError::Interrupted(format!(
                "`{}` changed since the manifest was read: run again. If the command itself writes \
                 it, name the files that the command is made of: `sources = [\"...\"]`",
                file.path
            ))),
        }
    }

    fn is_unedited(&mut self, file: &CommandSource) -> bool {
        let Some(path) = files::program(Path::new(&file.path), Path::new("")) else {
            return false;
        };
        let Ok(stamp) = fs::metadata(&path).map(|found| files::stamp(&found)) else {
            return false;
        };
        if let Some((held, sha256)) = self.held.get(&path)
            && (held, sha256) == (&stamp, &file.sha256)
        {
            return true;
        }
        let is_same = files::digest(&path).is_ok_and(|found| found.hex() == file.sha256);
        if is_same {
            self.held.insert(path, (stamp, file.sha256.clone()));
        }
        is_same
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_what_it_was_until_its_contents_change() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bench.py");
        fs::write(&path, "one").unwrap();
        let file = CommandSource {
            path: path.to_string_lossy().into_owned(),
            sha256: files::digest(&path).unwrap().hex(),
        };
        let mut unedited = Unedited::default();
        let mut check = || unedited.check(std::slice::from_ref(&file));
        check().unwrap();
        // Replaced by a file of the same contents.
        fs::remove_file(&path).unwrap();
        fs::write(&path, "one").unwrap();
        check().unwrap();
        fs::write(&path, "two").unwrap();
        let said = check().unwrap_err().to_string();
        assert!(said.contains("bench.py` changed"), "{said}");
        fs::write(&path, "one").unwrap();
        check().unwrap();
        fs::remove_file(&path).unwrap();
        assert!(check().is_err());
    }
}
