//! Looking after a cache: how full it is, whether it is sound, and making it smaller.

use std::{fs, os::unix::fs::MetadataExt as _, path::PathBuf};

use serde::Serialize;

use crate::{
    cache::Cache,
    counters::{self, Counters},
    entry::Entry,
    error::{CacheError, Failure, Warning},
    evict::Evictor,
    key::EntryName,
    layout::absent_is_none,
    scan, summary,
    sys::ReadError,
    usage::Usage,
};

/// How full a cache is, and counters of its events.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Stats {
    /// The root directory.
    pub dir: PathBuf,
    /// How many entries there are. As `disk_bytes`, never under the truth.
    pub entries: u64,
    /// The disk space of these entries, in bytes, with an inode each.
    pub disk_bytes: u64,
    /// The most they may take, in bytes.
    pub capacity_bytes: u64,
    /// Events since the cache was made, this session included, as far as processes came to their
    /// end.
    pub total: Counters,
    /// Events of this open cache.
    pub session: Counters,
    /// Why nothing more is stored. `None` if entries are stored.
    pub warning: Option<Warning>,
}

/// The findings of [`Cache::verify`], and its changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct VerifyReport {
    /// How many entries were read.
    pub checked: u64,
    /// Bytes of payload of all sound entries.
    pub payload_bytes: u64,
    /// The entries that aren't sound, by name.
    pub bad: Vec<BadEntry>,
    /// Files that this crate never wrote. They are left alone and don't count.
    pub foreign: Vec<PathBuf>,
    /// How many bad entries were moved away.
    pub quarantined: u64,
    /// The account before, `None` if it was lost.
    pub accounted: Option<Usage>,
    /// The space that is in use, counted by the rules of the account.
    pub actual: Usage,
    /// Whether the account was set to `actual`.
    pub account_rebuilt: bool,
}

/// An entry that can't be used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BadEntry {
    /// The name of the entry.
    pub name: EntryName,
    /// The defect.
    pub reason: String,
}

/// The deletions of [`Cache::gc`], done or planned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Collected {
    /// Entries deleted, and the space that they took.
    pub evicted: Usage,
    /// The space that the cache holds now, or would hold.
    pub left: Usage,
    /// Where collecting ends, in bytes: 90 % of the capacity.
    pub goal_bytes: u64,
    /// Whether nothing was deleted.
    pub dry_run: bool,
}

/// The deletions of [`Cache::clear`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cleared {
    /// Entries, and the space that they took.
    pub entries: Usage,
    /// Files that were left over from broken writes, or set aside as bad.
    pub leftovers: u64,
}

impl BadEntry {
    /// An entry that can't be read. One that is gone isn't bad.
    pub(crate) fn of(name: EntryName, error: ReadError) -> Option<Self> {
        let reason = match error {
            ReadError::Absent => return None,
            ReadError::Bad(defect) => defect.to_string(),
            ReadError::Unavailable(error) => format!("it can't be read now: {error}"),
        };
        Some(Self { name, reason })
    }
}

impl Cache {
    /// How full the cache is, and counters of its events.
    ///
    /// # Errors
    ///
    /// When the account can't be read, and counting instead fails too.
    pub fn stats(&self) -> Result<Stats, CacheError> {
        let store = &self.inner.store;
        let held = match &store.evictor {
            Some(evictor) => evictor.account.record()?.usage(),
            None => None,
        };
        let held = match held {
            Some(held) => held,
            None => self.count_entries()?,
        };
        let session = store.session.counters();
        Ok(Stats {
            dir: store.layout.root().to_owned(),
            entries: held.entries,
            disk_bytes: held.bytes,
            capacity_bytes: self.inner.config.capacity_bytes,
            total: counters::stored(&store.layout.stats()).plus(session),
            session,
            warning: self.warning(),
        })
    }

    /// Counts the entries of a cache without an account.
    fn count_entries(&self) -> Result<Usage, CacheError> {
        let (entries, _) = summary::list(&self.inner.store.layout, |_| true)?;
        Ok(Usage {
            bytes: entries
                .iter()
                .map(|listed| listed.metadata.blocks() * 512)
                .sum(),
            entries: entries.len() as u64,
        })
    }

    /// Reads and checks every entry. With `repair`, bad ones are set aside and the account is made
    /// anew.
    ///
    /// # Errors
    ///
    /// When the directory can't be listed; with `repair`, also when it can't be changed or others
    /// are at work in it.
    pub fn verify(&self, repair: bool) -> Result<VerifyReport, CacheError> {
        let store = &self.inner.store;
        let evictor = if repair { Some(self.evictor()?) } else { None };
        let (entries, foreign) = summary::list(&store.layout, |_| true)?;
        let mut report = VerifyReport {
            foreign,
            ..VerifyReport::default()
        };
        for listed in &entries {
            self.verify_entry(listed.name, &mut report);
        }
        if let Some(evictor) = &store.evictor {
            report.accounted = evictor.account.record()?.usage();
        }
        if let Some(evictor) = evictor {
            let quarantine = || Ok(self.quarantine_all(&report.bad));
            (report.quarantined, report.actual) = evictor.rebuild(quarantine)?;
            report.account_rebuilt = true;
        } else if let Some(evictor) = &store.evictor {
            report.actual = evictor.count()?;
        } else {
            report.actual = self.count_entries()?;
        }
        Ok(report)
    }

    fn verify_entry(&self, name: EntryName, report: &mut VerifyReport) {
        match self.check(name) {
            Ok(entry) => report.payload_bytes += entry.payload().len() as u64,
            // Evicted since it was listed.
            Err(ReadError::Absent) => return,
            Err(error) => report.bad.extend(BadEntry::of(name, error)),
        }
        report.checked += 1;
    }

    /// Reads an entry and checks all that a lookup does, and that its writer was right.
    pub(crate) fn check(&self, name: EntryName) -> Result<Entry, ReadError> {
        let (_, entry) = self.inner.store.read(&name)?;
        entry.check_writer().map_err(ReadError::Bad)?;
        Ok(entry)
    }

    /// Sets aside the entries that are still bad now that no process publishes. Yields their
    /// number.
    fn quarantine_all(&self, bad: &[BadEntry]) -> u64 {
        let still_bad = |bad: &&BadEntry| matches!(self.check(bad.name), Err(ReadError::Bad(_)));
        let moved = bad
            .iter()
            .filter(still_bad)
            .filter(|bad| self.inner.store.quarantine(&bad.name));
        moved.count() as u64
    }

    /// Deletes the least recently used entries until the cache is at most 90 % full, and the
    /// leftovers of broken writes.
    ///
    /// # Errors
    ///
    /// When the directory can't be changed or listed, or others are at work in it.
    pub fn gc(&self, dry_run: bool) -> Result<Collected, CacheError> {
        let evictor = self.evictor()?;
        let (evicted, left) = if dry_run {
            evictor.rehearse()?
        } else {
            evictor.collect()?
        };
        Ok(Collected {
            evicted,
            left,
            goal_bytes: evictor.goal_bytes(),
            dry_run,
        })
    }

    /// Deletes all entries, the leftovers of broken writes, and the quarantine. Foreign files and
    /// the counters stay.
    ///
    /// # Errors
    ///
    /// When the directory can't be changed or listed, or others are at work in it.
    pub fn clear(&self) -> Result<Cleared, CacheError> {
        let (cleared, _) = self.evictor()?.rebuild(|| self.delete_everything())?;
        Ok(cleared)
    }

    fn delete_everything(&self) -> Result<Cleared, CacheError> {
        let store = &self.inner.store;
        let evictor = self.evictor()?;
        let mut cleared = Cleared::default();
        for listed in summary::list(&store.layout, |_| true)?.0 {
            let path = store.layout.entry(&listed.name);
            // A folder in the place of an entry is not an entry.
            if !listed.metadata.is_dir() && delete(path)? {
                cleared.entries += evictor.account.charge(listed.metadata.size());
                evictor.unpin(&listed.name);
            }
        }
        let tmp = store.layout.tmp();
        let leftovers = scan::temporary_files(&store.layout).map_err(Failure::at("list", tmp))?;
        for (path, _) in leftovers {
            cleared.leftovers += u64::from(delete(path)?);
        }
        let bad = store.layout.bad();
        cleared.leftovers += store
            .empty_quarantine()
            .map_err(Failure::at("empty", bad))?;
        delete(store.layout.queue())?;
        Ok(cleared)
    }

    /// The evictor that changes the cache, or an error that says why the cache can't be changed.
    fn evictor(&self) -> Result<&Evictor, CacheError> {
        let store = &self.inner.store;
        match (&store.evictor, store.stopped()) {
            (Some(evictor), _) => Ok(evictor),
            (None, Some(warning)) => Err(CacheError::ReadOnly(warning.clone())),
            (None, None) => {
                unreachable!("a store without an evictor is stopped from the beginning")
            }
        }
    }
}

/// Deletes a file. False if it is gone already.
fn delete(path: PathBuf) -> Result<bool, Failure> {
    let deleted = absent_is_none(fs::remove_file(&path)).map_err(Failure::at("delete", path))?;
    Ok(deleted.is_some())
}
