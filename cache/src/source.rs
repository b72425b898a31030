//! A place that entries are only read from: the folder of another cache, or a bundle.
//!
//! Whoever names it trusts its owner. Nobody else may have written its content.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use crate::{
    bundle::Bundle,
    entry::Entry,
    error::{CacheError, Failure},
    key::EntryName,
    layout::{Found, Layout},
    queue::Candidate,
    scan,
    summary::{self, Summary},
    sys::ReadError,
};

#[derive(Debug)]
pub(crate) enum Source {
    Folder {
        layout: Layout,
        /// The user whose files count.
        owner: u32,
    },
    Bundle(Bundle),
}

impl Source {
    /// The source at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, CacheError> {
        // Links are followed: whoever named the path meant its target.
        let metadata = fs::metadata(path).map_err(Failure::at("open", path))?;
        check_writers(path, &metadata)?;
        let not_a_source = |reason: &str| CacheError::NotASource {
            path: path.to_owned(),
            reason: reason.to_owned(),
        };
        if metadata.is_dir() {
            let layout = Layout::new(path);
            let objects = layout.objects();
            return match fs::symlink_metadata(&objects) {
                Ok(inside) if inside.is_dir() => {
                    check_writers(&objects, &inside)?;
                    let owner = metadata.uid();
                    Ok(Self::Folder { layout, owner })
                }
                _ => Err(not_a_source("it has no folder v1/o")),
            };
        }
        if !metadata.is_file() {
            return Err(not_a_source("it is neither a folder nor a file"));
        }
        let file = File::open(path).map_err(Failure::at("open", path))?;
        match Bundle::open(file) {
            Ok(bundle) => Ok(Self::Bundle(bundle)),
            Err(ReadError::Bad(defect)) => Err(not_a_source(&format!("a bundle with {defect}"))),
            Err(ReadError::Unavailable(error)) => Err(Failure::at("read", path)(error).into()),
            Err(ReadError::Absent) => Err(not_a_source("it is gone")),
        }
    }

    /// Reads and verifies an entry.
    pub(crate) fn read(&self, name: &EntryName) -> Result<Entry, ReadError> {
        match self {
            Self::Folder { layout, owner } => {
                Entry::read(&layout.entry(name), name, *owner).map(|(_, entry)| entry)
            }
            Self::Bundle(bundle) => bundle.read(name),
        }
    }

    pub(crate) fn summary(&self, name: &EntryName) -> Result<Summary, ReadError> {
        match self {
            Self::Folder { layout, owner } => summary::of_file(layout, name, *owner),
            Self::Bundle(bundle) => bundle.summary(name),
        }
    }

    /// Entries in the shard of `name`, in no order.
    pub(crate) fn beside(&self, name: &EntryName) -> io::Result<Vec<Candidate>> {
        let shard = name.shard();
        match self {
            Self::Folder { layout, .. } => Ok(candidates(layout.list(&shard)?)),
            Self::Bundle(bundle) => Ok(bundle
                .candidates()
                .filter(|candidate| candidate.name.shard() == shard)
                .collect()),
        }
    }

    /// All entries, in no order.
    pub(crate) fn all(&self) -> io::Result<Vec<Candidate>> {
        let layout = match self {
            Self::Folder { layout, .. } => layout,
            Self::Bundle(bundle) => return Ok(bundle.candidates().collect()),
        };
        let (shards, _) = layout.shards()?;
        let listed = shards.iter().map(|shard| layout.list(shard));
        let found: Vec<Vec<Found>> = listed.collect::<io::Result<_>>()?;
        Ok(candidates(found.into_iter().flatten()))
    }
}

fn candidates(found: impl IntoIterator<Item = Found>) -> Vec<Candidate> {
    let entry = |found| match found {
        Found::Entry(name, metadata) => Some(Candidate {
            last_use_ns: scan::last_use_ns(&metadata),
            name,
        }),
        Found::Foreign(_) => None,
    };
    found.into_iter().filter_map(entry).collect()
}

/// Refuses a file or folder that others than its owner may write.
fn check_writers(path: &Path, metadata: &fs::Metadata) -> Result<(), CacheError> {
    let mode = metadata.mode() & 0o7777;
    match mode & 0o022 {
        0 => Ok(()),
        _ => Err(CacheError::OthersMayWrite {
            path: path.to_owned(),
            mode,
        }),
    }
}
