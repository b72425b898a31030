//! Events of the cache, counted in memory and added to the file `stats` at the end of a process.

use std::{
    io,
    path::Path,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use serde::Serialize;

use crate::{
    lock::{self, Mode},
    record, sys,
};

const MAGIC: &[u8; 8] = b"SWPSTAT2";

/// How long the end of a process may wait for another one's.
const PATIENCE: Duration = Duration::from_secs(1);

/// How often each event happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    /// Lookups that found an entry.
    pub hits: u64,
    /// Lookups that found no entry.
    pub misses: u64,
    /// Entries published, without those that another process had published first.
    pub stores: u64,
    /// Entries that weren't stored, for any reason.
    pub refusals: u64,
    /// Entries deleted to make room.
    pub evictions: u64,
    /// Files moved to `bad/`.
    pub quarantined: u64,
    /// Hits that an upstream had.
    pub fetched: u64,
}

impl Counters {
    fn to_array(self) -> [u64; 7] {
        let Self {
            hits,
            misses,
            stores,
            refusals,
            evictions,
            quarantined,
            fetched,
        } = self;
        [
            hits,
            misses,
            stores,
            refusals,
            evictions,
            quarantined,
            fetched,
        ]
    }

    fn from_array(
        [
            hits,
            misses,
            stores,
            refusals,
            evictions,
            quarantined,
            fetched,
        ]: [u64; 7],
    ) -> Self {
        Self {
            hits,
            misses,
            stores,
            refusals,
            evictions,
            quarantined,
            fetched,
        }
    }

    pub(crate) fn plus(self, other: Self) -> Self {
        let (mut sum, other) = (self.to_array(), other.to_array());
        for (sum, other) in sum.iter_mut().zip(other) {
            *sum = sum.saturating_add(other);
        }
        Self::from_array(sum)
    }
}

/// An event that is counted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Hit,
    Miss,
    Store,
    Refusal,
    Eviction,
    Quarantine,
    Fetch,
}

/// The counters of one open cache.
#[derive(Debug, Default)]
pub(crate) struct Session([AtomicU64; 7]);

impl Session {
    pub(crate) fn count(&self, event: Event, times: u64) {
        self.0[event as usize].fetch_add(times, Ordering::Relaxed);
    }

    pub(crate) fn counters(&self) -> Counters {
        Counters::from_array(
            self.0
                .each_ref()
                .map(|counter| counter.load(Ordering::Relaxed)),
        )
    }

    /// Adds the counters to those in the file and starts again at zero.
    pub(crate) fn merge(&self, path: &Path) -> io::Result<()> {
        let file = sys::open_shared(path)?;
        let held = lock::lock_within(&file, 0, Mode::Exclusive, PATIENCE)?;
        let _held = held.ok_or(io::ErrorKind::TimedOut)?;
        let before = Counters::from_array(record::read(&file, 0, MAGIC)?.unwrap_or_default());
        let session = Counters::from_array(
            self.0
                .each_ref()
                .map(|counter| counter.swap(0, Ordering::Relaxed)),
        );
        record::write(&file, 0, MAGIC, before.plus(session).to_array())
    }
}

/// The counters of all processes that have ended. Zero if there is no file.
pub(crate) fn stored(path: &Path) -> Counters {
    let file = sys::open_unknown(path).ok();
    let read = file.and_then(|(file, _)| record::read(&file, 0, MAGIC).ok()?);
    Counters::from_array(read.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_add_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("stats");
        assert_eq!(stored(&path), Counters::default());
        let session = Session::default();
        session.count(Event::Hit, 3);
        session.count(Event::Quarantine, 1);
        session.merge(&path).unwrap();
        session.count(Event::Hit, 2);
        session.merge(&path).unwrap();
        let expected = Counters {
            hits: 5,
            quarantined: 1,
            ..Counters::default()
        };
        assert_eq!(
            (stored(&path), session.counters()),
            (expected, Counters::default())
        );
    }
}
