//! The content of a cache's folder: names, and summaries of entries.

use std::{fs, path::PathBuf};

use serde::Serialize;

use crate::{
    entry::Metadata,
    error::{CacheError, Failure},
    format::{Defect, Head, Kind},
    key::{Digest, EntryName},
    layout::{Found, Layout},
    sys::{self, ReadError},
};

/// How much of an entry is read for its summary at first, in bytes. Few have longer metadata.
const FIRST_READ: u64 = 16 << 10;

/// An entry's description of itself.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// The kind of the payload.
    pub kind: Kind,
    /// The length of the payload in bytes.
    pub payload_bytes: u64,
    /// SHA-256 of the payload.
    pub payload_digest: Digest,
    /// The digest of all fields of the key but the compiler.
    pub content: Digest,
    /// The digest of the compiler's identity.
    pub compiler: Digest,
    /// Everything else that is known.
    pub metadata: Metadata,
}

/// The name of an entry and the file system's metadata of it.
pub(crate) struct Listed {
    pub(crate) name: EntryName,
    pub(crate) metadata: fs::Metadata,
}

/// Lists the shards whose names pass `wanted`: all names of entries, and everything else, each
/// sorted by name.
pub(crate) fn list(
    layout: &Layout,
    wanted: impl Fn(&str) -> bool,
) -> Result<(Vec<Listed>, Vec<PathBuf>), CacheError> {
    let (mut entries, mut foreign) = (Vec::new(), Vec::new());
    let (shards, strangers) = layout
        .shards()
        .map_err(Failure::at("list", layout.objects()))?;
    foreign.extend(strangers);
    for shard in shards.iter().filter(|shard| wanted(shard)) {
        let path = layout.objects().join(shard);
        for found in layout.list(shard).map_err(Failure::at("list", path))? {
            match found {
                Found::Entry(name, metadata) => entries.push(Listed { name, metadata }),
                Found::Foreign(path) => foreign.push(path),
            }
        }
    }
    entries.sort_unstable_by_key(|listed| listed.name);
    foreign.sort_unstable();
    Ok((entries, foreign))
}

/// Reads an entry's description of itself, and not its payload. `read` yields the first bytes of
/// the entry, as many as it is asked for, and its length.
pub(crate) fn summary(
    name: &EntryName,
    read: impl Fn(u64) -> Result<(Vec<u8>, u64), ReadError>,
) -> Result<Summary, ReadError> {
    let (mut bytes, length) = read(FIRST_READ)?;
    let head = Head::parse(&bytes, length).map_err(ReadError::Bad)?;
    if head.payload_start() > bytes.len() {
        (bytes, _) = read(head.payload_start() as u64)?;
    }
    if head.name() != *name {
        return Err(ReadError::Bad(Defect::WrongKey));
    }
    Ok(Summary {
        kind: head.kind,
        payload_bytes: head.payload_bytes,
        payload_digest: head.payload_digest,
        content: head.content,
        compiler: head.compiler,
        metadata: Metadata::read(&head, &bytes).map_err(ReadError::Bad)?,
    })
}

/// The summary of an entry in a folder that belongs to `owner`.
pub(crate) fn of_file(layout: &Layout, name: &EntryName, owner: u32) -> Result<Summary, ReadError> {
    let path = layout.entry(name);
    summary(name, |limit| {
        let (_, bytes, length) = sys::read(&path, limit, owner)?;
        Ok((bytes, length))
    })
}
