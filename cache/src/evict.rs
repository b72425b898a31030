//! Keeping the cache under its capacity: who is let in, and who has to go.
//!
//! The least recently used go first, down to 90 % of the capacity once that is exceeded. What this process used or
//! stored itself never goes: under LRU a sweep that is one percent larger than the cache would find nothing on its
//! next run, but if the last percent isn't let in, the rest is there.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use crate::{
    account::{Account, NotReserved, Usage},
    counters::{Event, Session},
    error::{CacheError, Failure, Warning},
    key::EntryName,
    layout::{Layout, absent_is_none},
    lock::RangeLock,
    pins::Pins,
    queue::{Candidate, Queue},
    scan::{self, Census, Scan},
};

/// Most entries that one publication evicts.
const VICTIMS: u64 = 256;

/// Fewest entries that a scan puts into the queue, if there are so many. More if a quarter of all is more.
const QUEUE_FLOOR: usize = 1024;

/// How long a scan waits for the quiet moment that lets it settle the account.
const QUIET_WAIT: Duration = Duration::from_millis(20);

/// Where eviction ends, from a capacity in bytes.
pub(crate) fn low_watermark(capacity: u64) -> u64 {
    capacity - capacity / 10
}

/// The right to write an entry for which there is room. While it lives, nobody settles the account.
#[derive(Debug)]
pub(crate) struct Admission {
    pub(crate) charge: Usage,
    _ledger: RangeLock<File>,
}

/// Why an entry isn't let in.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// There is no room, for the reason given.
    NoRoom(Warning),
    /// The cache can't be written.
    Failed(Failure),
}

impl From<Failure> for Refusal {
    fn from(failure: Failure) -> Self {
        Self::Failed(failure)
    }
}

/// How much one pass may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    deadline: Option<Instant>,
    victims: u64,
}

impl Budget {
    pub(crate) const UNBOUNDED: Self = Self {
        deadline: None,
        victims: u64::MAX,
    };

    fn is_spent(&self) -> bool {
        self.victims == 0
            || self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// What is left over from the pass before.
#[derive(Debug, Default)]
struct State {
    queue: Queue,
    scan: Option<Scan>,
}

/// Decides what stays.
#[derive(Debug)]
pub(crate) struct Evictor {
    layout: Layout,
    pub(crate) account: Account,
    capacity: u64,
    pass_time: Duration,
    session: Arc<Session>,
    pins: Mutex<Pins>,
    state: Mutex<State>,
}

impl Evictor {
    /// An evictor for a cache of `capacity` bytes, of which a publication takes at most `pass_time`.
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
        // What the dead left goes before what the living may want.
        self.reap()?;
        let low = low_watermark(self.capacity);
        let limit = if need.bytes <= low {
            low
        } else {
            self.capacity
        };
        self.run(&mut state, limit.saturating_sub(need.bytes), self.budget())?;
        Ok(())
    }

    /// Evicts a tenth of what is there: the file system is fuller than the cache.
    pub(crate) fn relieve(&self) -> Result<(), Failure> {
        let mut state = lock(&self.state);
        let Some(_gc) = self.account.lock_gc(self.pass_time)? else {
            return Ok(());
        };
        self.reap()?;
        let held = self.account.record()?.usage().unwrap_or_default();
        self.run(&mut state, low_watermark(held.bytes), self.budget())?;
        Ok(())
    }

    /// Evicts down to the low watermark, however long that takes, and settles the account. Yields what went and what
    /// is left.
    pub(crate) fn collect(&self) -> Result<(Usage, Usage), CacheError> {
        let mut state = lock(&self.state);
        let _gc = self.lock_gc_for_admin()?;
        self.reap()?;
        state.scan = None;
        self.scan(&mut state, Budget::UNBOUNDED)?;
        let evicted = self.run(&mut state, self.goal_bytes(), Budget::UNBOUNDED)?;
        let left = self.account.record()?.usage();
        Ok((evicted, left.map_or_else(|| self.count(), Ok)?))
    }

    /// What [`collect`](Self::collect) would evict and leave.
    pub(crate) fn rehearse(&self) -> Result<(Usage, Usage), CacheError> {
        let census = self.census()?;
        let mut evicted = Usage::default();
        for candidate in census.oldest {
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

    /// Counts what is there as the account does.
    pub(crate) fn count(&self) -> Result<Usage, Failure> {
        Ok(self.census()?.seen)
    }

    /// Counts everything while nobody publishes or evicts, runs `change` on it, and makes what is left the account.
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

    /// Deletes temporary files of dead writers. Call it with the right to evict.
    ///
    /// Who writes one shares the ledger, so once that is closed they are all dead, and otherwise those of an hour ago.
    pub(crate) fn reap(&self) -> Result<(), Failure> {
        let list =
            || scan::temporary_files(&self.layout).map_err(Failure::at("list", self.layout.tmp()));
        if list()?.is_empty() {
            return Ok(());
        }
        let quiet = self.account.close_ledger(QUIET_WAIT)?;
        let mut reaped = Usage::default();
        for (path, metadata) in list()? {
            if quiet.is_none() && !scan::is_abandoned(&metadata) {
                continue;
            }
            let unlinked =
                absent_is_none(fs::remove_file(&path)).map_err(Failure::at("delete", path))?;
            // With a second name it was published, and is still there.
            if unlinked.is_some() && metadata.nlink() == 1 {
                reaped += self.account.charge(metadata.size());
            }
        }
        if reaped.entries > 0 {
            self.account.release(reaped)?;
        }
        Ok(())
    }

    fn budget(&self) -> Budget {
        Budget {
            deadline: Some(Instant::now() + self.pass_time),
            victims: VICTIMS,
        }
    }

    /// One pass: empties the queue from its head until `goal` bytes are left, and scans when there is no queue. Yields
    /// what it evicted.
    fn run(&self, state: &mut State, goal: u64, mut budget: Budget) -> Result<Usage, Failure> {
        let mut evicted = Usage::default();
        // The queue is fresh from a scan and nothing was evicted from it: there is nothing left that may go.
        let mut fruitless = false;
        let mut round = 0;
        loop {
            let held = self.account.record()?.usage();
            if let Some(held) = held {
                if held.bytes <= goal {
                    return Ok(evicted);
                }
                let freed = self.drain(&mut state.queue, held.bytes - goal, &mut budget)?;
                evicted += freed;
                fruitless &= freed.entries == 0;
            }
            // Every pass gets something done, however little time it has.
            if round > 0 && budget.is_spent() {
                return Ok(evicted);
            }
            round += 1;
            if held.is_some() && !state.queue.is_empty() {
                continue;
            }
            if fruitless || !self.scan(state, budget)? {
                return Ok(evicted);
            }
            fruitless = true;
        }
    }

    /// Evicts from the head of the queue until `excess` bytes are free, then releases them in one go.
    fn drain(&self, queue: &mut Queue, excess: u64, budget: &mut Budget) -> Result<Usage, Failure> {
        if queue.is_empty() {
            *queue = Queue::load(&self.layout);
        }
        let mut freed = Usage::default();
        let mut trouble = Ok(());
        while let Some(candidate) = queue.pop() {
            match self.evict(&candidate) {
                Ok(charge) => {
                    freed += charge;
                    budget.victims = budget.victims.saturating_sub(charge.entries);
                }
                Err(failure) => trouble = Err(failure),
            }
            if freed.bytes >= excess || trouble.is_err() || budget.is_spent() {
                break;
            }
        }
        if freed.entries > 0 {
            self.session.count(Event::Eviction, freed.entries);
            self.account.release(freed)?;
        }
        queue.note(&self.layout);
        trouble.map(|()| freed)
    }

    fn evict(&self, candidate: &Candidate) -> Result<Usage, Failure> {
        let Some((path, charge)) = self.victim(candidate)? else {
            return Ok(Usage::default());
        };
        let unlinked =
            absent_is_none(fs::remove_file(&path)).map_err(Failure::at("delete", path))?;
        Ok(unlinked.map_or(Usage::default(), |()| charge))
    }

    /// The file behind a candidate, if nobody used it since, and what it counts for.
    fn victim(&self, candidate: &Candidate) -> Result<Option<(PathBuf, Usage)>, Failure> {
        if lock(&self.pins).holds(&candidate.name) {
            return Ok(None);
        }
        let path = self.layout.entry(&candidate.name);
        let metadata =
            absent_is_none(fs::symlink_metadata(&path)).map_err(Failure::at("look at", &path))?;
        let unused = |metadata: &fs::Metadata| {
            metadata.is_file() && scan::last_use_ns(metadata) == candidate.last_use_ns
        };
        Ok(metadata
            .filter(unused)
            .map(|metadata| (path, self.account.charge(metadata.size()))))
    }

    /// Goes on with a scan. True when it is complete, and the queue made from it.
    fn scan(&self, state: &mut State, budget: Budget) -> Result<bool, Failure> {
        let mut scan = match state.scan.take() {
            Some(scan) => scan,
            None => self.begin_scan()?,
        };
        if !scan
            .step(&self.layout, &self.account, budget.deadline)
            .map_err(self.scan_failed())?
        {
            state.scan = Some(scan);
            return Ok(false);
        }
        let census = scan.finish();
        if let Some(before) = census.before
            && let Some(_quiet) = self.account.close_ledger(QUIET_WAIT)?
        {
            self.account.settle(&before, census.seen)?;
        }
        state.queue = Queue::replace(&self.layout, self.oldest_unused(census.oldest));
        Ok(true)
    }

    fn begin_scan(&self) -> Result<Scan, Failure> {
        let quiet = self.account.close_ledger(QUIET_WAIT)?;
        let record = self.account.record()?;
        Scan::begin(&self.layout, quiet.map(|_| record)).map_err(self.scan_failed())
    }

    fn census(&self) -> Result<Census, Failure> {
        let mut scan = Scan::begin(&self.layout, None).map_err(self.scan_failed())?;
        scan.step(&self.layout, &self.account, None)
            .map_err(self.scan_failed())?;
        Ok(scan.finish())
    }

    fn oldest_unused(&self, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
        let length = QUEUE_FLOOR.max(candidates.len() / 4);
        let pins = lock(&self.pins);
        candidates.retain(|candidate| !pins.holds(&candidate.name));
        candidates.truncate(length);
        candidates
    }

    fn scan_failed(&self) -> impl FnOnce(io::Error) -> Failure {
        Failure::at("list", self.layout.objects())
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
