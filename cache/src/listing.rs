//! The contents of the cache, entry by entry.

use std::{fs, os::unix::fs::MetadataExt as _, path::PathBuf};

use serde::Serialize;

use crate::{
    cache::Cache,
    entry::Metadata,
    error::{CacheError, Failure, FindError},
    format::{Defect, Head, Kind},
    key::{Digest, EntryName},
    layout::{Found, Layout},
    scan,
    sys::{self, ReadError},
};

/// How much of a file is read for its summary at first, in bytes. Few have longer metadata.
const FIRST_READ: u64 = 16 << 10;

/// One entry as a listing shows it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EntryInfo {
    /// The name of the entry.
    pub name: EntryName,
    /// When it was last used, in nanoseconds since 1970.
    pub last_use_ns: u64,
    /// The space that the entry takes on disk, in bytes of allocated blocks.
    pub disk_bytes: u64,
    /// The summary in the file, not verified. `None` if the file isn't an entry.
    pub summary: Option<Summary>,
}

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

impl Listed {
    pub(crate) fn info(&self, layout: &Layout) -> EntryInfo {
        EntryInfo {
            name: self.name,
            last_use_ns: scan::last_use_ns(&self.metadata),
            disk_bytes: self.metadata.blocks() * 512,
            summary: summary(layout, &self.name).ok(),
        }
    }
}

/// Reads an entry's description of itself, and not its payload.
pub(crate) fn summary(layout: &Layout, name: &EntryName) -> Result<Summary, ReadError> {
    let path = layout.entry(name);
    let (_, mut bytes, length) = sys::read(&path, FIRST_READ)?;
    let head = Head::parse(&bytes, length).map_err(ReadError::Bad)?;
    if head.payload_start() > bytes.len() {
        (_, bytes, _) = sys::read(&path, head.payload_start() as u64)?;
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

impl Cache {
    /// All entries, the most recently used first, ties by name. Each is read when it is asked for.
    ///
    /// # Errors
    ///
    /// When the directory can't be listed.
    pub fn ls(&self) -> Result<impl Iterator<Item = EntryInfo> + '_, CacheError> {
        let layout = &self.inner.store.layout;
        let (mut entries, _) = list(layout, |_| true)?;
        entries.sort_by_key(|listed| std::cmp::Reverse(scan::last_use_ns(&listed.metadata)));
        Ok(entries.into_iter().map(|listed| listed.info(layout)))
    }

    /// The one entry whose name begins with `prefix`.
    ///
    /// # Errors
    ///
    /// When the prefix isn't one, no entry or more than one begins with it, or the directory can't
    /// be listed.
    pub fn find(&self, prefix: &str) -> Result<EntryInfo, FindError> {
        let layout = &self.inner.store.layout;
        let lower = prefix.to_ascii_lowercase();
        let prefix = || prefix.to_owned();
        if !is_prefix(&lower) {
            return Err(FindError::NotAPrefix { prefix: prefix() });
        }
        let first = &lower[..lower.len().min(2)];
        let (mut entries, _) = list(layout, |shard| shard.starts_with(first))?;
        entries.retain(|listed| listed.name.to_string().starts_with(&lower));
        match &entries[..] {
            [] => Err(FindError::NotFound { prefix: prefix() }),
            [one] => Ok(one.info(layout)),
            several => Err(FindError::Ambiguous {
                prefix: prefix(),
                candidates: several.iter().map(|listed| listed.name).collect(),
            }),
        }
    }
}

fn is_prefix(text: &str) -> bool {
    let is_hex = |part: &str| part.bytes().all(|byte| byte.is_ascii_hexdigit());
    match text.split_once('.') {
        None => !text.is_empty() && text.len() <= 64 && is_hex(text),
        Some((content, compiler)) => {
            content.len() == 64 && is_hex(content) && compiler.len() <= 16 && is_hex(compiler)
        }
    }
}
