//! The tables and exports of a run's folder, and their sources: where sources have changed, or a
//! file is missing, cut or edited, the files are made again.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::contents::{Contents, Seal, Seals};
use crate::guides::About;
use sweeper_model::files;

/// Name of the stamp's file in a run's folder.
pub(super) const FILE: &str = ".tables.json";

/// The sources of tables.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Stamp {
    journal: Seals,
    /// Facts about the run, beside its rows, that exports contain.
    about: String,
    /// Exports that were asked for, now or before.
    pub(super) exports: BTreeSet<String>,
    /// The files that were made, by their paths in the folder.
    pub(super) files: BTreeMap<PathBuf, Seal>,
}

impl Stamp {
    /// The stamp of tables that are not made yet.
    pub(super) fn new(contents: &Contents, about: &About<'_>, names: &[&str]) -> Self {
        Stamp {
            journal: contents.seals(),
            about: format!("{about:?}"),
            exports: names.iter().map(ToString::to_string).collect(),
            files: BTreeMap::new(),
        }
    }

    /// The stamp that a folder has, if it has one that can be read.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        let bytes = files::read(&folder.join(FILE)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    /// True if these tables hold all that `wanted` asks for.
    pub(super) fn covers(&self, wanted: &Stamp) -> bool {
        self.journal == wanted.journal
            && self.about == wanted.about
            && self.exports.is_superset(&wanted.exports)
    }

    /// True if every file is as it was made.
    pub(super) fn is_whole(&self, folder: &Path) -> bool {
        let mut files = self.files.iter();
        files.all(|(path, seal)| sealed(&folder.join(path)).is_ok_and(|held| held == *seal))
    }
}

/// A stream whose content is sealed while it is written.
pub(super) struct Sealing<W> {
    inner: W,
    hasher: crc32fast::Hasher,
    bytes: u64,
}

impl<W: Write> Sealing<W> {
    /// Nothing was written to it.
    pub(super) fn new(inner: W) -> Self {
        Sealing {
            inner,
            hasher: crc32fast::Hasher::new(),
            bytes: 0,
        }
    }

    /// The stream, and the seal of its content.
    pub(super) fn finish(self) -> (W, Seal) {
        (self.inner, (self.bytes, self.hasher.finalize()))
    }
}

impl<W: Write> Write for Sealing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..length]);
        self.bytes += length as u64;
        Ok(length)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// The seal of a regular file.
pub(super) fn sealed(path: &Path) -> io::Result<Seal> {
    let mut file = files::open(path)?;
    let mut hasher = crc32fast::Hasher::new();
    let mut piece = vec![0; 1 << 16];
    let mut bytes = 0;
    loop {
        let length = file.read(&mut piece)?;
        if length == 0 {
            return Ok((bytes, hasher.finalize()));
        }
        hasher.update(&piece[..length]);
        bytes += length as u64;
    }
}

/// All files below a folder, by their paths in it.
pub(super) fn files_below(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    let mut left = vec![PathBuf::new()];
    while let Some(inner) = left.pop() {
        for entry in fs::read_dir(folder.join(&inner))? {
            let entry = entry?;
            let path = inner.join(entry.file_name());
            match entry.file_type()?.is_dir() {
                true => left.push(path),
                false => found.push(path),
            }
        }
    }
    found.sort();
    Ok(found)
}
