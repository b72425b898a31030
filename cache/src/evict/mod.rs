//! Keeping the cache under its capacity: which entries are admitted, and which are evicted for
//! them.
//!
//! The least recently used entries are evicted first, down to 90 % of the capacity once that is
//! exceeded. Entries that this process used or stored are never evicted: under LRU a sweep that is
//! one percent larger than the cache would find nothing on its next run, but if the last percent
//! isn't admitted, the rest is found.

mod pass;

use std::{
    fs::File,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::{
    account::{Account, NotReserved},
    counters::Session,
    error::{CacheError, Failure, Warning},
    key::EntryName,
    layout::Layout,
    lock::RangeLock,
    pins::Pins,
    usage::Usage,
};
use pass::{Budget, State};

/// Where eviction ends, from a capacity in bytes.
pub(crate) fn low_watermark(capacity: u64) -> u64 {
    capacity - capacity / 10
}

/// The right to write an entry for which there is room. While it lives, no process settles the
/// account.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) charge: Usage,
    _ledger: RangeLock<File>,
}

/// Why an entry isn't let in.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no room, for this reason.
    NoRoom(Warning),
    /// The cache can't be written.
    Failed(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// Decides which entries stay.
#[derive(Debug)]
pub(crate) struct Evictor {
    pub(crate) layout: Layout,
    pub(crate) account: Account,
    capacity: u64,
    pass_time: Duration,
    pub(crate) session: Arc<Session>,
    pub(crate) pins: Mutex<Pins>,
    state: Mutex<State>,
}

impl Evictor {
    /// An evictor for a cache of `capacity` bytes, of which a publication takes at most
    /// `pass_time`.
    pub(crate) fn new(
        layout: Layout,
        account: Account,
        session: Arc<Session>,
        capacity: u64,
        pass_time: Duration,
    ) -> Self {
        Self {
            layout,
            account,
            capacity,
            pass_time,
            session,
            pins: Mutex::default(),
            state: Mutex::default(),
        }
    }

    /// Notes that this process uses an entry of `bytes` bytes on disk and won't evict it.
    pub(crate) fn pin(&self, name: EntryName, bytes: u64) {
        lock(&self.pins).hold(name, bytes);
    }

    pub(crate) fn unpin(&self, name: &EntryName) {
        lock(&self.pins).let_go(name);
    }

    /// Makes room for an entry of `file_bytes` bytes and reserves it.
    pub(crate) fn admit(&self, name: EntryName, file_bytes: u64) -> Result<Admission, Refusal> {
        let charge = self.account.charge(file_bytes);
        if let Some(admission) = self.try_admit(charge)? {
            return Ok(admission);
        }
        // Evicting makes no sense if even all the rest isn't enough.
        let hopeless = lock(&self.pins).held_bytes().saturating_add(charge.bytes) > self.capacity;
        if !hopeless {
            self.make_room(charge)?;
            if let Some(admission) = self.try_admit(charge)? {
                return Ok(admission);
            }
        }
        Err(Refusal::NoRoom(self.no_room(name, charge)))
    }

    fn no_room(&self, name: EntryName, charge: Usage) -> Warning {
        let working_set_bytes = lock(&self.pins).refuse(name, charge.bytes);
        if working_set_bytes > self.capacity {
            Warning::OverCapacity {
                working_set_bytes,
                capacity_bytes: self.capacity,
            }
        } else {
            Warning::NoRoomYet {
                bytes: charge.bytes,
                capacity_bytes: self.capacity,
            }
        }
    }

    fn try_admit(&self, charge: Usage) -> Result<Option<Admission>, Failure> {
        let ledger = self.account.join_ledger()?;
        match self.account.reserve(charge, self.capacity) {
            Ok(()) => Ok(Some(Admission {
                charge,
                _ledger: ledger,
            })),
            Err(NotReserved::Full) => Ok(None),
            Err(NotReserved::Failed(failure)) => Err(failure),
        }
    }

    /// Evicts until `need` fits with a tenth to spare, within the bounds of one pass.
    fn make_room(&self, need: Usage) -> Result<(), Failure> {
        let mut state = lock(&self.state);
        let Some(_gc) = self.account.lock_gc(self.pass_time)? else {
            return Ok(());
        };
        // Leftovers of dead processes are deleted before entries that a living one may need.
        self.reap()?;
        self.run(
            &mut state,
            self.goal_bytes().saturating_sub(need.bytes),
            Budget::for_publication(self.pass_time),
        )?;
        Ok(())
    }

    /// Evicts a tenth of the cache: the file system is fuller than the cache.
    pub(crate) fn relieve(&self) -> Result<(), Failure> {
        let mut state = lock(&self.state);
        let Some(_gc) = self.account.lock_gc(self.pass_time)? else {
            return Ok(());
        };
        self.reap()?;
        let held = self.account.record()?.usage().unwrap_or_default();
        self.run(
            &mut state,
            low_watermark(held.bytes),
            Budget::for_publication(self.pass_time),
        )?;
        Ok(())
    }

    /// Evicts down to the low watermark, however long that takes, and settles the account. Yields
    /// the evicted space and the space that is left.
    pub(crate) fn collect(&self) -> Result<(Usage, Usage), CacheError> {
        let mut state = lock(&self.state);
        let _gc = self.lock_gc_for_admin()?;
        self.reap()?;
        *state = State::default();
        self.scan(&mut state, Budget::UNBOUNDED)?;
        let evicted = self.run(&mut state, self.goal_bytes(), Budget::UNBOUNDED)?;
        let left = self.account.record()?.usage();
        Ok((evicted, left.map_or_else(|| self.count(), Ok)?))
    }

    /// The space that [`collect`](Self::collect) would evict, and the space that it would leave.
    pub(crate) fn rehearse(&self) -> Result<(Usage, Usage), CacheError> {
        let mut census = self.census()?;
        census.found.sort_unstable();
        let mut evicted = Usage::default();
        for candidate in census.found {
            if census.seen.saturating_sub(evicted).bytes <= self.goal_bytes() {
                break;
            }
            evicted += self
                .victim(&candidate)?
                .map_or(Usage::default(), |(_, charge)| charge);
        }
        Ok((evicted, census.seen.saturating_sub(evicted)))
    }

    /// Where [`collect`](Self::collect) ends, in bytes.
    pub(crate) fn goal_bytes(&self) -> u64 {
        low_watermark(self.capacity)
    }

    /// Counts the space in use by the rules of the account.
    pub(crate) fn count(&self) -> Result<Usage, Failure> {
        Ok(self.census()?.seen)
    }

    /// Runs `change` while no process publishes or evicts, then counts the remaining files and sets
    /// the account to that.
    pub(crate) fn rebuild<T>(
        &self,
        change: impl FnOnce() -> Result<T, CacheError>,
    ) -> Result<(T, Usage), CacheError> {
        let mut state = lock(&self.state);
        let _gc = self.lock_gc_for_admin()?;
        let ledger = self.account.close_ledger(self.account.patience())?;
        let _ledger = ledger.ok_or_else(|| self.busy())?;
        let result = change()?;
        let record = self.account.record()?;
        let census = self.census()?;
        self.account.settle(&record, census.seen)?;
        *state = State::default();
        Ok((result, census.seen))
    }

    fn lock_gc_for_admin(&self) -> Result<RangeLock<File>, CacheError> {
        self.account
            .lock_gc(self.account.patience())?
            .ok_or_else(|| self.busy())
    }

    fn busy(&self) -> CacheError {
        CacheError::Busy {
            path: self.layout.root().to_owned(),
            waited: self.account.patience(),
        }
    }
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
