//! The cache as its users see it: ask for a key, get the entry or the right to make it.

use std::{
    cmp::Reverse,
    collections::BTreeSet,
    io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use crate::{
    account::Account,
    counters::{Counters, Event, Session},
    entry::{Artifact, Entry},
    error::{CacheError, Failure, Warning},
    evict::Evictor,
    flight::{Claim, Flight, Right},
    key::{EntryName, Key},
    layout::{Found, Layout},
    lock::Backoff,
    scan,
    store::Store,
    upstream::Upstreams,
    usage::Usage,
};

/// Where a cache is and how it behaves.
#[derive(Clone, Debug)]
pub struct CacheConfig {
    /// The root directory. Made if it doesn't exist.
    pub dir: PathBuf,
    /// The most that entries may take on disk, in bytes, rounded up to allocation units.
    pub capacity_bytes: u64,
    /// Folders of other caches, and bundles, which are asked in this order before anything is made.
    /// They are only read. Naming one is trusting its owner.
    pub upstream: Vec<PathBuf>,
    /// How long [`Cache::lookup`] waits for another thread or process that makes the same entry,
    /// before the work is done twice.
    pub flight_wait: Duration,
    /// How long one publication may spend on making room.
    pub eviction_time: Duration,
    /// How long to wait for another process that changes the account, which normally takes it
    /// microseconds. After that this cache stores nothing more, and an administrative operation
    /// ends as busy.
    pub lock_wait: Duration,
}

impl CacheConfig {
    /// A cache in `dir` of at most `capacity_bytes` bytes: two minutes of patience for a
    /// compile elsewhere, 25 ms for eviction, 5 seconds for locks.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, capacity_bytes: u64) -> Self {
        Self {
            dir: dir.into(),
            capacity_bytes,
            upstream: Vec::new(),
            flight_wait: Duration::from_mins(2),
            eviction_time: Duration::from_millis(25),
            lock_wait: Duration::from_secs(5),
        }
    }
}

/// A cache directory in use. Clones share it; the last one to go adds its counters to those on
/// disk.
///
/// Entries that were used or stored through one `Cache` are never evicted through it.
#[derive(Clone, Debug)]
pub struct Cache {
    pub(crate) inner: Arc<Inner>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) config: CacheConfig,
    pub(crate) store: Store,
    pub(crate) upstreams: Upstreams,
    flight: Flight,
}

/// How much of a run's working set is in a cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkingSet {
    /// Entries that are there, and the space that they take.
    pub present: Usage,
    /// How many are not.
    pub missing: u64,
    /// The most that the cache may hold, in bytes.
    pub capacity_bytes: u64,
}

impl WorkingSet {
    /// The space that all will take, in bytes, if one that is missing takes as much as one that is
    /// there on average, or `typical_bytes` where none is.
    #[must_use]
    pub fn estimated_bytes(&self, typical_bytes: u64) -> u64 {
        let present = self.present;
        let one = present.bytes.checked_div(present.entries);
        let missing = self.missing.saturating_mul(one.unwrap_or(typical_bytes));
        present.bytes.saturating_add(missing)
    }
}

/// The outcome of asking for a key.
#[derive(Debug)]
#[must_use = "a miss holds the right to fill the entry until it is dropped"]
#[expect(
    clippy::large_enum_variant,
    reason = "there is one at a time, and it is taken apart at once"
)]
pub enum Lookup {
    /// The entry, verified.
    Hit(Entry),
    /// There is no entry, and it is up to the caller to make it.
    Miss(Slot),
}

/// The right to make one entry. Dropping it lets the next in line try.
#[derive(Debug)]
#[must_use = "dropping a slot gives up the right to fill it"]
pub struct Slot {
    inner: Arc<Inner>,
    key: Key,
    /// `None` if locks don't work here or waiting took too long: another process may do the same
    /// work.
    right: Option<Right>,
}

/// The outcome of publishing an artifact.
#[derive(Debug)]
pub struct Published {
    /// The artifact as an entry, made of the caller's own bytes whether or not they were stored.
    pub entry: Entry,
    /// Whether the artifact is in the cache now.
    pub stored: bool,
    /// Why it isn't stored. Comes with every entry that isn't; reporting it once is up to the
    /// caller.
    pub warning: Option<Warning>,
}

impl Cache {
    /// Opens the cache in `config.dir` and makes missing files there. Looks at no entry.
    ///
    /// A directory that can be read but not written is accepted; [`Cache::warning`] says so.
    ///
    /// # Errors
    ///
    /// When the directory can't be made, isn't a cache, or isn't to be trusted: it belongs to
    /// another user, or everybody may write to it.
    pub fn open(config: CacheConfig) -> Result<Self, CacheError> {
        let config = with_absolute_dir(config)?;
        let layout = Layout::new(&config.dir);
        layout.prepare()?;
        let session = Arc::new(Session::default());
        let account = layout
            .complete()
            .and_then(|()| Account::open(&layout, config.lock_wait));
        let evictor = account.map(|account| {
            let (layout, session) = (layout.clone(), Arc::clone(&session));
            Evictor::new(
                layout,
                account,
                session,
                config.capacity_bytes,
                config.eviction_time,
            )
        });
        Ok(Self::of(config, layout, session, evictor))
    }

    /// Opens a cache to look into it. Changes nothing, and makes nothing where there is none.
    ///
    /// # Errors
    ///
    /// As for [`open`](Self::open), where there is a directory.
    pub fn open_to_read(config: CacheConfig) -> Result<Self, CacheError> {
        let config = with_absolute_dir(config)?;
        let layout = Layout::new(&config.dir);
        if config.dir.exists() {
            layout.check()?;
        }
        let reason = io::Error::other("it was opened to look into it");
        let no_evictor = Err(Failure::at("change", &config.dir)(reason));
        Ok(Self::of(config, layout, Arc::default(), no_evictor))
    }

    fn of(
        config: CacheConfig,
        layout: Layout,
        session: Arc<Session>,
        evictor: Result<Evictor, Failure>,
    ) -> Self {
        let flight = Flight::new(layout.flight_lock());
        let store = Store::new(layout, session, evictor);
        let upstreams = Upstreams::open(&config.upstream);
        let inner = Inner {
            config,
            store,
            upstreams,
            flight,
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// The root directory.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.inner.config.dir
    }

    /// Why this cache stores nothing more. `None` if it stores entries.
    #[must_use]
    pub fn warning(&self) -> Option<Warning> {
        self.inner.store.stopped().cloned()
    }

    /// The faults of upstreams that were not yet asked for.
    pub fn take_warnings(&self) -> Vec<Warning> {
        self.inner.upstreams.take_warnings()
    }

    /// Finds the entry for `key`, or hands out the right to make it.
    ///
    /// While another thread or process makes it, this waits, at most for
    /// [`CacheConfig::flight_wait`]; after that the caller may make it anyway. A failure of the
    /// cache is a miss, never an error. A thread that still holds the slot for `key` waits for
    /// itself.
    pub fn lookup(&self, key: &Key) -> Lookup {
        let lookup = self.lookup_unless(key, || false);
        lookup.unwrap_or_else(|| unreachable!("nothing stops it"))
    }

    /// Announces the keys of a run. Their entries count as used now: otherwise, where not all
    /// fits, missing entries would take the place of those that will be asked for next.
    pub fn expect<'k>(&self, keys: impl IntoIterator<Item = &'k Key>) -> WorkingSet {
        let mut set = WorkingSet {
            capacity_bytes: self.inner.config.capacity_bytes,
            ..WorkingSet::default()
        };
        let store = &self.inner.store;
        let mut seen = BTreeSet::new();
        let names = keys.into_iter().map(Key::name);
        for name in names.filter(|name| seen.insert(*name)) {
            match store.hold(&name) {
                Some(charge) => set.present += charge,
                None => set.missing += 1,
            }
        }
        set
    }

    /// [`lookup`](Self::lookup) that can be stopped: it yields `None` at most 20 ms after
    /// `is_stopped` says so while it waits.
    pub fn lookup_unless(&self, key: &Key, is_stopped: impl Fn() -> bool) -> Option<Lookup> {
        let mut backoff = Backoff::new(self.inner.config.flight_wait);
        loop {
            if let Some(lookup) = self.try_lookup(key) {
                return Some(lookup);
            }
            if is_stopped() {
                return None;
            }
            if !backoff.pause() {
                return Some(self.fetch_or_miss(key, None));
            }
        }
    }

    /// Sets an entry aside whose checksums are right but which can't be used, such as a shared
    /// object that kills the process that loads it. Yields whether there was one.
    pub fn set_aside(&self, name: &EntryName) -> bool {
        self.inner.upstreams.reject(*name);
        self.inner.store.quarantine(name)
    }

    /// [`lookup`](Self::lookup) without waiting: it yields `None` if another thread or process is
    /// making the entry.
    pub fn try_lookup(&self, key: &Key) -> Option<Lookup> {
        let name = key.name();
        let hit = |entry| {
            self.count(Event::Hit);
            Some(Lookup::Hit(entry))
        };
        if let Some(entry) = self.inner.store.get(&name) {
            return hit(entry);
        }
        let right = match self.inner.flight.claim(&name) {
            Claim::Mine(right) => Some(right),
            Claim::NoLocks => None,
            Claim::Theirs => return None,
        };
        // The previous holder of the right may have published between the look and the claim.
        match self.inner.store.get(&name) {
            Some(entry) => hit(entry),
            None => Some(self.fetch_or_miss(key, right)),
        }
    }

    fn fetch_or_miss(&self, key: &Key, right: Option<Right>) -> Lookup {
        match self.inner.upstreams.get(&key.name()) {
            Some(entry) => Lookup::Hit(self.keep(entry)),
            None => self.miss(key, right),
        }
    }

    /// Copies an upstream's entry to this cache. Where that fails, the entry is as good.
    fn keep(&self, entry: Entry) -> Entry {
        self.count(Event::Hit);
        self.count(Event::Fetch);
        let _ = self.inner.store.put(&entry);
        entry
    }

    fn miss(&self, key: &Key, right: Option<Right>) -> Lookup {
        self.count(Event::Miss);
        Lookup::Miss(Slot {
            inner: Arc::clone(&self.inner),
            key: key.clone(),
            right,
        })
    }

    /// Events of this open cache so far.
    #[must_use]
    pub fn session(&self) -> Counters {
        self.inner.store.session.counters()
    }

    fn count(&self, event: Event) {
        self.inner.store.session.count(event, 1);
    }

    /// The entry for `key`, from here or from an upstream, without counting, locking, copying, or
    /// noting that it was used.
    #[must_use]
    pub fn peek(&self, key: &Key) -> Option<Entry> {
        let name = key.name();
        let own = self.inner.store.read(&name).ok();
        own.map(|(_, entry)| entry)
            .or_else(|| self.inner.upstreams.get(&name))
    }

    /// The entry for `key`, or else the most recently used one that agrees with it in everything
    /// but the compiler, for where nothing can be compiled. Its metadata says which compiler made
    /// it.
    #[must_use]
    pub fn lookup_any_compiler(&self, key: &Key) -> Option<Entry> {
        let name = key.name();
        let (store, upstreams) = (&self.inner.store, &self.inner.upstreams);
        let own = store.get(&name).or_else(|| {
            let listed = store.layout.list(&name.shard()).unwrap_or_default();
            let mut candidates: Vec<_> = listed
                .into_iter()
                .filter_map(|found| match found {
                    Found::Entry(other, metadata) if other.same_content(&name) => {
                        Some((Reverse(scan::last_use_ns(&metadata)), other))
                    }
                    _ => None,
                })
                .collect();
            candidates.sort_unstable();
            candidates.iter().find_map(|(_, name)| store.get(name))
        });
        if own.is_some() {
            self.count(Event::Hit);
            return own;
        }
        let fetched = upstreams
            .get(&name)
            .or_else(|| upstreams.with_content_of(&name));
        if fetched.is_none() {
            self.count(Event::Miss);
        }
        fetched.map(|entry| self.keep(entry))
    }
}

/// The process may change its directory later on.
fn with_absolute_dir(mut config: CacheConfig) -> Result<CacheConfig, CacheError> {
    config.dir = std::path::absolute(&config.dir).map_err(Failure::at("find", &config.dir))?;
    Ok(config)
}

impl Slot {
    /// The key that is to be filled.
    #[must_use]
    pub fn key(&self) -> &Key {
        &self.key
    }

    /// Whether no other thread or process can be making this entry.
    #[must_use]
    pub fn is_exclusive(&self) -> bool {
        self.right.is_some()
    }

    /// Stores the artifact and gives the right back. Never fails: at worst the caller has its bytes
    /// and a warning.
    pub fn publish(self, artifact: Artifact) -> Published {
        let entry = Entry::new(&self.key, artifact, crate::clock::now_ns());
        let warning = self.inner.store.put(&entry).err();
        Published {
            entry,
            stored: warning.is_none(),
            warning,
        }
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if self.store.evictor.is_some() {
            // Counters aren't worth a complaint.
            let _ = self.store.session.merge(&self.store.layout.stats());
        }
    }
}
