//! The contents of the cache, entry by entry.

use std::os::unix::fs::MetadataExt as _;

use serde::Serialize;

use crate::{
    cache::Cache,
    error::{CacheError, FindError},
    key::EntryName,
    layout::Layout,
    scan,
    summary::{self, Listed, Summary, list},
    sys,
};

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

impl Listed {
    pub(crate) fn info(&self, layout: &Layout) -> EntryInfo {
        EntryInfo {
            name: self.name,
            last_use_ns: scan::last_use_ns(&self.metadata),
            disk_bytes: self.metadata.blocks() * 512,
            summary: summary::of_file(layout, &self.name, sys::user()).ok(),
        }
    }
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
