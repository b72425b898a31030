//! One pass of eviction: the oldest entries are deleted, as far as time and numbers allow.
//!
//! A candidate at the head of the queue that wasn't used since the scan is older than all other
//! entries, so this is exact LRU without a list of all entries.

use std::{
    fs, io,
    os::unix::fs::MetadataExt as _,
    path::PathBuf,
    time::{Duration, Instant},
};

use super::{Evictor, lock};
use crate::{
    counters::Event,
    error::Failure,
    layout::absent_is_none,
    queue::{Candidate, Queue},
    scan::{self, Census, Scan},
    usage::Usage,
};

/// Most entries that one publication evicts.
const VICTIMS: u64 = 256;

/// How long a scan waits to begin at a quiet moment, which lets it settle the account.
const QUIET_WAIT: Duration = Duration::from_millis(20);

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

    /// The budget of one publication, with at most `time`.
    pub(crate) fn for_publication(time: Duration) -> Self {
        Self {
            deadline: Some(Instant::now() + time),
            victims: VICTIMS,
        }
    }

    fn is_spent(&self) -> bool {
        self.victims == 0
            || self
                .deadline
                .is_some_and(|deadline| Instant::now() >= deadline)
    }
}

/// The state that the previous pass left.
#[derive(Debug, Default)]
pub(crate) struct State {
    queue: Queue,
    scan: Option<Scan>,
}

impl Evictor {
    /// Deletes temporary files of dead writers. Call it with the right to evict.
    ///
    /// A writer of one shares the ledger, so once that is closed, all writers of the files are
    /// dead; otherwise the writers of files that are an hour old.
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

    /// One pass: empties the queue from its head until `goal` bytes are left, and scans when there
    /// is not a queue. Yields the evicted space.
    pub(crate) fn run(
        &self,
        state: &mut State,
        goal: u64,
        mut budget: Budget,
    ) -> Result<Usage, Failure> {
        let mut evicted = Usage::default();
        // The queue is fresh from a scan and nothing was evicted from it: there is nothing left
        // that may go.
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

    /// Evicts from the head of the queue until `excess` bytes are free, then releases them in one
    /// go.
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

    /// The file of a candidate and the space that it is charged, if it wasn't used since the scan.
    pub(crate) fn victim(
        &self,
        candidate: &Candidate,
    ) -> Result<Option<(PathBuf, Usage)>, Failure> {
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
    pub(crate) fn scan(&self, state: &mut State, budget: Budget) -> Result<bool, Failure> {
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
        if let Some(before) = census.before {
            self.account.settle(&before, census.seen)?;
        }
        state.queue = Queue::replace(&self.layout, self.oldest_unused(census.found));
        Ok(true)
    }

    fn begin_scan(&self) -> Result<Scan, Failure> {
        let quiet = self.account.close_ledger(QUIET_WAIT)?;
        let record = self.account.record()?;
        Scan::begin(&self.layout, quiet.map(|_| record)).map_err(self.scan_failed())
    }

    pub(crate) fn census(&self) -> Result<Census, Failure> {
        let mut scan = Scan::begin(&self.layout, None).map_err(self.scan_failed())?;
        scan.step(&self.layout, &self.account, None)
            .map_err(self.scan_failed())?;
        Ok(scan.finish())
    }

    fn oldest_unused(&self, mut candidates: Vec<Candidate>) -> Vec<Candidate> {
        let length = candidates.len() / 4 + 1;
        let pins = lock(&self.pins);
        candidates.retain(|candidate| !pins.holds(&candidate.name));
        if length < candidates.len() {
            candidates.select_nth_unstable(length);
            candidates.truncate(length);
        }
        candidates.sort_unstable();
        candidates
    }

    fn scan_failed(&self) -> impl FnOnce(io::Error) -> Failure {
        Failure::at("list", self.layout.objects())
    }
}
