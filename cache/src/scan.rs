//! Walking all entries in steps, to find the oldest and to count the space in use.

use std::{fs, io, os::unix::fs::MetadataExt as _, path::PathBuf, time::Instant};

use crate::{
    account::Account,
    clock,
    key::EntryName,
    layout::{Found, Layout, absent_is_none},
    queue::Candidate,
    usage::{Record, Usage},
};

/// A temporary file is thought to be abandoned when it is this old, in nanoseconds: an hour.
const ABANDONED_NS: u64 = 3_600_000_000_000;

/// A walk that stops and goes on.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Shards still to be seen, last first.
    ahead: Vec<String>,
    /// The record when it began, if that is known to have been a quiet moment.
    before: Option<Record>,
    seen: Usage,
    found: Vec<Candidate>,
}

/// The findings of a scan.
#[derive(Debug)]
pub(crate) struct Census {
    /// The record when it began, if that was a quiet moment.
    pub(crate) before: Option<Record>,
    /// All space that counts: entries, and temporary files.
    pub(crate) seen: Usage,
    /// All entries, in no order.
    pub(crate) found: Vec<Candidate>,
}

impl Scan {
    /// Starts a scan. `before` is the record at a moment when no process was between reserving and
    /// publishing.
    pub(crate) fn begin(layout: &Layout, before: Option<Record>) -> io::Result<Self> {
        let (mut shards, _) = layout.shards()?;
        shards.reverse();
        Ok(Self {
            ahead: shards,
            before,
            seen: Usage::default(),
            found: Vec::new(),
        })
    }

    /// Goes on until the end, which yields true, or until `deadline` has passed.
    /// A step gets through one shard at least.
    pub(crate) fn step(
        &mut self,
        layout: &Layout,
        account: &Account,
        deadline: Option<Instant>,
    ) -> io::Result<bool> {
        while let Some(shard) = self.ahead.pop() {
            for found in layout.list(&shard)? {
                if let Found::Entry(name, metadata) = found {
                    self.count(name, &metadata, account);
                }
            }
            let late = deadline.is_some_and(|deadline| Instant::now() >= deadline);
            if late && !self.ahead.is_empty() {
                return Ok(false);
            }
        }
        for (_, metadata) in temporary_files(layout)? {
            self.seen += account.charge(metadata.size());
        }
        Ok(true)
    }

    fn count(&mut self, name: EntryName, metadata: &fs::Metadata, account: &Account) {
        if metadata.is_file() {
            self.seen += account.charge(metadata.size());
            let last_use_ns = last_use_ns(metadata);
            self.found.push(Candidate { last_use_ns, name });
        }
    }

    pub(crate) fn finish(self) -> Census {
        Census {
            before: self.before,
            seen: self.seen,
            found: self.found,
        }
    }
}

/// When an entry was last used, in nanoseconds since 1970.
pub(crate) fn last_use_ns(metadata: &fs::Metadata) -> u64 {
    metadata.modified().map_or(0, clock::since_epoch_ns)
}

/// Everything in `tmp/`, by path.
pub(crate) fn temporary_files(layout: &Layout) -> io::Result<Vec<(PathBuf, fs::Metadata)>> {
    let mut files = Vec::new();
    for item in absent_is_none(fs::read_dir(layout.tmp()))?
        .into_iter()
        .flatten()
    {
        let item = item?;
        if let Some(metadata) = absent_is_none(item.metadata())?.filter(fs::Metadata::is_file) {
            files.push((item.path(), metadata));
        }
    }
    files.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(files)
}

/// Whether a temporary file can have no writer any more.
pub(crate) fn is_abandoned(metadata: &fs::Metadata) -> bool {
    last_use_ns(metadata).saturating_add(ABANDONED_NS) < clock::now_ns()
}
