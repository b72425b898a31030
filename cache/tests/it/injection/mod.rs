//! Processes that are killed at each of their system calls, or in which each of them fails.
//!
//! Each operation is done once to list its calls, and then once for each call and each fault.
//! `SWEEPER_CACHE_EXHAUSTIVE=1` takes every error number with every call, and not one in turn.

use std::{
    env, fs,
    os::unix::{fs::DirBuilderExt as _, process::ExitStatusExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use nix::errno::Errno;
use sweeper_cache::{Cache, CacheConfig, Lookup, Published};

use crate::support::{
    artifact, child, child_dir, disk_usage, entry_path, files, key, open, payload, store,
};

mod tracer;

use tracer::{Fault, Run};

const CAPACITY: u64 = 10 * 4608;
/// Keys of all operations; the caches before have the first of them.
const KEYS: u64 = 12;
const NEW: u64 = 11;
const BYTES: usize = 600;

const ERRORS: [Errno; 12] = [
    Errno::ENOSPC,
    Errno::EDQUOT,
    Errno::EIO,
    Errno::EACCES,
    Errno::EROFS,
    Errno::EMFILE,
    Errno::EINTR,
    Errno::ESTALE,
    Errno::ENOLCK,
    Errno::ENOSYS,
    Errno::EXDEV,
    Errno::ENOMEM,
];

/// An operation and the cache that it begins with.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Put,
    Get,
    /// A publication that has to make room.
    Evict,
    /// A lookup that an upstream answers.
    Fetch,
    Collect,
    Clear,
    Repair,
    Import,
    Export,
}

use Operation::{Clear, Collect, Evict, Export, Fetch, Get, Import, Put, Repair};

impl Operation {
    const ALL: [Self; 9] = [
        Put, Get, Evict, Fetch, Collect, Clear, Repair, Import, Export,
    ];

    fn name(self) -> String {
        format!("{self:?}")
    }

    /// Makes the cache before, and all else that is needed.
    fn prepare(self, dir: &Path) {
        let cache = dir.join("cache");
        let entries = match self {
            Evict | Collect => 10,
            _ => 3,
        };
        let full = open(&cache, u64::MAX);
        for n in 0..entries {
            store(&full, n, BYTES);
        }
        match self {
            Fetch | Import => {
                let there = open(&dir.join("there"), u64::MAX);
                for n in [1, 9, 10, NEW] {
                    store(&there, n, BYTES);
                }
                there.export(&dir.join("bundle")).unwrap();
            }
            Repair => fs::write(entry_path(&cache, key(0).name()), "bad").unwrap(),
            Collect => fs::write(cache.join("v1/tmp/left"), "half an entry").unwrap(),
            Export => _ = full.export(&dir.join("bundle")).unwrap(),
            _ => {}
        }
    }

    /// Does it, in the process that suffers. Yields the keys that were stored.
    fn act(self, dir: &Path) -> Vec<u64> {
        let config = CacheConfig {
            upstream: match self {
                Fetch => vec![dir.join("bundle")],
                _ => Vec::new(),
            },
            lock_wait: Duration::from_millis(20),
            flight_wait: Duration::from_millis(20),
            eviction_time: Duration::from_millis(500),
            ..CacheConfig::new(dir.join("cache"), CAPACITY)
        };
        let Ok(cache) = Cache::open(config) else {
            return Vec::new();
        };
        let wanted = match self {
            Put | Evict => &[NEW][..],
            Get => &[1],
            Fetch => &[1, 6, NEW],
            _ => &[],
        };
        match self {
            Put | Get | Evict | Fetch => {}
            // These may fail, and then they say so.
            Collect => drop(cache.gc(false)),
            Clear => drop(cache.clear()),
            Repair => drop(cache.verify(true)),
            Import => drop(cache.import(&dir.join("bundle"))),
            Export => drop(cache.export(&dir.join("bundle"))),
        }
        let wanted = wanted.iter().copied();
        wanted.filter(|&n| is_stored(&cache, n)).collect()
    }
}

/// Looks a key up and publishes it on a miss. Both yield the right bytes, whatever happens. True if
/// it was stored.
fn is_stored(cache: &Cache, n: u64) -> bool {
    match cache.lookup(&key(n)) {
        Lookup::Hit(entry) => {
            assert_eq!(entry.payload(), payload(n, BYTES));
            false
        }
        Lookup::Miss(slot) => {
            let Published {
                entry,
                stored,
                warning,
            } = slot.publish(artifact(payload(n, BYTES)));
            assert_eq!(entry.payload(), payload(n, BYTES));
            assert_eq!(stored, warning.is_none());
            stored
        }
    }
}

#[test]
#[ignore = "run by the tests of this module"]
fn suffer() {
    let name = env::var("OPERATION").unwrap();
    let mut all = Operation::ALL.into_iter();
    let operation = all.find(|it| it.name() == name).unwrap();
    tracer::await_tracer();
    tracer::mark();
    let stored = operation.act(&child_dir());
    tracer::mark();
    for n in stored {
        println!("stored {n}");
    }
}

/// A folder in which an operation can be done again and again from one beginning.
struct Stage {
    operation: Operation,
    folder: tempfile::TempDir,
}

impl Stage {
    fn new(operation: Operation) -> Self {
        // In memory, where nothing waits for a disk.
        let memory = Path::new("/dev/shm");
        let folder = match memory.is_dir() {
            true => tempfile::tempdir_in(memory),
            false => tempfile::tempdir(),
        };
        let folder = folder.unwrap();
        let before = folder.path().join("before");
        fs::create_dir(&before).unwrap();
        operation.prepare(&before);
        Self { operation, folder }
    }

    fn dir(&self) -> PathBuf {
        self.folder.path().join("now")
    }

    fn run(&self, fault: Option<(usize, Fault)>) -> Run {
        if self.dir().exists() {
            fs::remove_dir_all(self.dir()).unwrap();
        }
        copy(&self.folder.path().join("before"), &self.dir());
        let mut command = child("injection::suffer", &self.dir());
        command.env("OPERATION", self.operation.name());
        tracer::run(&mut command, fault)
    }

    /// The calls of an undisturbed run.
    fn calls(&self) -> Vec<u64> {
        let run = self.run(None);
        assert!(run.status.success(), "{run:?}");
        self.check(&run, "nothing");
        run.calls
    }

    /// Checks the conditions that hold after every fault.
    fn check(&self, run: &Run, fault: &str) {
        let (operation, root) = (self.operation, self.dir().join("cache"));
        let cache = open(&root, CAPACITY);
        let context = || format!("{operation:?} after {fault}");
        let (stats, used) = (cache.stats().unwrap(), disk_usage(&root));
        let held = stats.disk_bytes;
        assert!(held >= used, "{}: {held} < {used}", context());
        assert!(used <= CAPACITY, "{}: {used}", context());
        let bad = cache.verify(false).unwrap().bad;
        let known = usize::from(matches!(operation, Repair));
        assert!(bad.len() <= known, "{}: {bad:?}", context());
        for n in 0..KEYS {
            match cache.try_lookup(&key(n)) {
                Some(Lookup::Hit(entry)) => assert_eq!(entry.payload(), payload(n, BYTES)),
                Some(Lookup::Miss(slot)) => {
                    assert!(slot.is_exclusive());
                    let is_promised = run.said.contains(&format!("stored {n}\n"));
                    assert!(!is_promised, "{}: {n} is lost", context());
                }
                None => panic!("{}: {n} is held by the dead", context()),
            }
        }
        if matches!(operation, Export) {
            let imported = open(&self.dir().join("other"), u64::MAX)
                .import(&self.dir().join("bundle"))
                .unwrap();
            assert_eq!((imported.copied, imported.bad.len()), (3, 0));
        }
        drop(cache);
        check_future(&root, &context());
    }
}

/// The next process puts everything in order.
fn check_future(root: &Path, context: &str) {
    let cache = open(root, CAPACITY);
    cache.gc(false).unwrap();
    assert!(files(root, "tmp").is_empty(), "{context}");
    let repaired = cache.verify(true).unwrap();
    let after = cache.verify(false).unwrap();
    assert_eq!(after.accounted, Some(repaired.actual), "{context}");
    assert_eq!(after.accounted, Some(after.actual), "{context}");
    store(&cache, 100, BYTES);
}

fn copy(from: &Path, to: &Path) {
    fs::DirBuilder::new().mode(0o700).create(to).unwrap();
    for item in fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        let (path, target) = (item.path(), to.join(item.file_name()));
        if path.is_dir() {
            copy(&path, &target);
            continue;
        }
        fs::copy(&path, &target).unwrap();
        let file = fs::File::options().append(true).open(&target).unwrap();
        let modified = item.metadata().unwrap().modified().unwrap();
        file.set_modified(modified).unwrap();
    }
}

fn is_exhaustive() -> bool {
    env::var_os("SWEEPER_CACHE_EXHAUSTIVE").is_some()
}

/// Yields the number of kills.
fn kill_everywhere(operation: Operation) -> usize {
    let stage = Stage::new(operation);
    let calls = stage.calls();
    assert!(calls.len() > 10, "{operation:?}: {calls:?}");
    for position in 0..calls.len() {
        let run = stage.run(Some((position, Fault::Kill)));
        assert_eq!(run.status.signal(), Some(9), "{run:?}");
        assert_eq!(run.calls, calls[..=position], "{operation:?} does the same");
        stage.check(&run, &format!("a kill at call {position} of {calls:?}"));
    }
    calls.len()
}

/// Yields the number of faults.
fn fail_everywhere(operation: Operation) -> usize {
    let stage = Stage::new(operation);
    let calls = stage.calls();
    let (mut turn, mut count) = (0, 0);
    for (position, &call) in calls.iter().enumerate() {
        if !tracer::concerns_files(call) {
            continue;
        }
        let mut faults = Vec::new();
        for errno in ERRORS {
            faults.push(Fault::Fail(errno));
            // Waiting for a call to succeed at last is right.
            if errno != Errno::EINTR {
                faults.push(Fault::FailFromNowOn(errno));
            }
        }
        if !is_exhaustive() {
            turn += 7;
            faults = vec![faults[turn % faults.len()]];
        }
        if tracer::is_transfer(call) {
            faults.push(Fault::Short);
        }
        for fault in faults {
            count += 1;
            let run = stage.run(Some((position, fault)));
            let context = format!("{fault:?} at call {position} ({call}) of {calls:?}");
            let is_done = run.status.success();
            assert!(is_done, "{operation:?} after {context}: {run:?}");
            stage.check(&run, &context);
        }
    }
    count
}

/// A network file system may know no rename that never replaces.
#[test]
fn where_there_is_no_such_rename_entries_are_linked_to_their_places() {
    let stage = Stage::new(Put);
    let rename = nix::libc::SYS_renameat2.cast_unsigned();
    let calls = stage.calls();
    let position = calls.iter().position(|&call| call == rename).unwrap();
    for errno in [Errno::EINVAL, Errno::ENOSYS, Errno::EOPNOTSUPP] {
        let run = stage.run(Some((position, Fault::FailFromNowOn(errno))));
        assert_eq!(run.said.matches("stored 11").count(), 1, "{run:?}");
        stage.check(&run, "renames that fail");
    }
}

macro_rules! each_operation {
    ($($name:ident: $operation:ident),*) => {
        mod kills {
            $(#[test] fn $name() {
                println!("{} kills", super::kill_everywhere(super::$operation));
            })*
        }
        mod errors {
            $(#[test] fn $name() {
                println!("{} faults", super::fail_everywhere(super::$operation));
            })*
        }
    };
}

each_operation!(
    put: Put, get: Get, evict: Evict, fetch: Fetch, collect: Collect, clear: Clear,
    repair: Repair, import: Import, export: Export
);
