//! Files of right outputs that a manifest names, read at the edge: digests and heads. A name may
//! have expressions of parameters in braces, whose values are not known here: all files are read
//! that any values could mean.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use sweeper_program::Dtype;

use crate::text::braces::pieces;
use sweeper_model::files;
use sweeper_model::identity::Digest;
use sweeper_model::tensor_file::{HEAD_LENGTH_BYTES, heads};

/// The most files that a name may mean.
const MOST_FILES: usize = 10_000;

/// The longest head of a file of tensors.
const MOST_HEAD_BYTES: u64 = 100_000_000;

/// Files with the right outputs: one, or one for each value of the parameters in its name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileReference {
    /// The folder from which names are relative; part of no identity.
    pub folder: String,
    /// The name, with expressions of parameters in braces.
    pub name: String,
    /// All files that such a name may have.
    pub files: Vec<ExpectedFile>,
}

/// A file of tensors, as it was when the manifest was read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedFile {
    /// Its name below the folder.
    pub name: String,
    /// SHA-256 of its contents in hex digits.
    pub sha256: String,
    /// Its tensors, or why it has none.
    pub tensors: Result<Vec<ExpectedTensor>, String>,
}

/// A tensor of a file without its elements.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedTensor {
    /// Its name.
    pub name: String,
    /// Type of its elements.
    pub dtype: Dtype,
    /// Its extents, outermost first.
    pub shape: Vec<usize>,
}

/// Reads the files that `path` may mean.
///
/// # Errors
/// A name with a brace that is not closed, a file or folder that can't be read, no file at all, or
/// too many.
pub(crate) fn read(path: &Path) -> Result<FileReference, String> {
    let path = std::path::absolute(path).map_err(|error| error.to_string())?;
    let (folder, steps) = split(&path)?;
    let mut names = vec![PathBuf::new()];
    for step in &steps {
        names = match step.as_slice() {
            [plain] => names.iter().map(|name| name.join(plain)).collect(),
            parts => below(&folder, &names, parts)?,
        };
        if names.len() > MOST_FILES {
            return Err(format!("more than {MOST_FILES} files could be meant"));
        }
    }
    if names.is_empty() {
        return Err("there is no such file, whatever stands for the braces".to_owned());
    }
    names.sort();
    let name = path.strip_prefix(&folder).unwrap_or(&path);
    let files = names.iter().map(|name| expected(&folder, name));
    Ok(FileReference {
        folder: folder.to_string_lossy().into_owned(),
        name: name.to_string_lossy().into_owned(),
        files: files.collect::<Result<_, _>>()?,
    })
}

/// The folder above the first name with braces, or above the file; and the names from there on, as
/// the texts between braces.
fn split(path: &Path) -> Result<(PathBuf, Vec<Vec<String>>), String> {
    let mut folder = PathBuf::new();
    let mut steps: Vec<Vec<String>> = Vec::new();
    let mut components = path.components().peekable();
    while let Some(component) = components.next() {
        let text = component.as_os_str().to_string_lossy();
        let pieces = pieces(&text)?;
        let is_last = components.peek().is_none();
        if steps.is_empty() && pieces.len() == 1 && !is_last {
            folder.push(component);
        } else {
            steps.push(pieces.into_iter().map(|(plain, _)| plain).collect());
        }
    }
    Ok((folder, steps))
}

/// The entries of folders whose names have these parts in their order, the first and the last at
/// their ends.
fn below(folder: &Path, names: &[PathBuf], parts: &[String]) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    for name in names {
        let place = folder.join(name);
        let at = |error: io::Error| format!("{}: {error}", place.display());
        if !place.is_dir() {
            continue;
        }
        for entry in fs::read_dir(&place).map_err(at)? {
            let entry = entry.map_err(at)?.file_name();
            if entry.to_str().is_some_and(|entry| is_like(entry, parts)) {
                found.push(name.join(entry));
            }
        }
    }
    Ok(found)
}

fn is_like(name: &str, parts: &[String]) -> bool {
    let [first, between @ .., last] = parts else {
        return false;
    };
    let inside = name.strip_prefix(first.as_str());
    let Some(mut inside) = inside.and_then(|name| name.strip_suffix(last.as_str())) else {
        return false;
    };
    for part in between {
        match inside.find(part.as_str()) {
            Some(at) => inside = &inside[at + part.len()..],
            None => return false,
        }
    }
    true
}

/// A file, with its digest and what its head announces.
fn expected(folder: &Path, name: &Path) -> Result<ExpectedFile, String> {
    let path = folder.join(name);
    let at = |error: io::Error| format!("{}: {error}", path.display());
    let mut file = files::open(&path).map_err(at)?;
    let bytes = file.metadata().map_err(at)?.len();
    let mut hasher = Sha256::new();
    let head = head(&mut file).map_err(at)?;
    hasher.update(&head);
    io::copy(&mut file, &mut hasher).map_err(at)?;
    let tensors = heads(&head, bytes).map(|heads| {
        let tensors = heads.into_iter();
        let tensors = tensors.map(|(name, dtype, shape)| ExpectedTensor { name, dtype, shape });
        tensors.collect()
    });
    Ok(ExpectedFile {
        name: name.to_string_lossy().into_owned(),
        sha256: Digest::from_bytes(hasher.finalize().into()).hex(),
        tensors: tensors.map_err(|reason| format!("not a file of safetensors: {reason}")),
    })
}

/// The beginning of a file: the length of its head and the head, if it has one.
fn head(file: &mut impl Read) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    file.take(HEAD_LENGTH_BYTES as u64).read_to_end(&mut head)?;
    if let Ok(length) = <[u8; HEAD_LENGTH_BYTES]>::try_from(head.as_slice()) {
        let length = u64::from_le_bytes(length);
        if length <= MOST_HEAD_BYTES {
            file.take(length).read_to_end(&mut head)?;
        }
    }
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_values_in_place_of_braces() {
        let parts = |name: &str| split(Path::new(name)).unwrap();
        let (folder, steps) = parts("/data/n={n}/y-{n}-{m}.safetensors");
        assert_eq!(folder, Path::new("/data"));
        assert!(is_like("n=12", &steps[0]));
        assert!(!is_like("m=12", &steps[0]));
        assert!(is_like("y-12-3.safetensors", &steps[1]));
        assert!(!is_like("y-12.safetensors", &steps[1]));
        let (folder, steps) = parts("/data/y.safetensors");
        assert_eq!((folder.as_path(), steps.len()), (Path::new("/data"), 1));
        assert!(split(Path::new("/data/y-{n.safetensors")).is_err());
    }

    #[test]
    fn every_file_that_could_be_meant_is_read() {
        let folder = tempfile::tempdir().unwrap();
        for n in [3, 20] {
            fs::create_dir(folder.path().join(format!("n{n}"))).unwrap();
            fs::write(folder.path().join(format!("n{n}/y")), "no tensors").unwrap();
        }
        let found = read(&folder.path().join("n{n}/y")).unwrap();
        let names: Vec<&str> = found.files.iter().map(|file| &*file.name).collect();
        assert_eq!(names, ["n20/y", "n3/y"]);
        assert_eq!(found.name, "n{n}/y");
        let reason = found.files[0].tensors.clone().unwrap_err();
        assert!(reason.starts_with("not a file of safetensors"), "{reason}");
        assert!(read(&folder.path().join("m{n}/y")).is_err());
        assert!(read(&folder.path().join("n3/z")).is_err());
    }
}
