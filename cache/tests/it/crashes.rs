//! A crowd of processes that are killed at any moment, while others collect, verify and clear,
//! leaves no wrong entry, no held right, and an account that is high enough. So it does where each
//! process sees late what the others write, but that it makes entries more than once, and that a
//! count of entries lacks the youngest.
//!
//! `SWEEPER_CACHE_SECONDS=60` keeps it up for longer.

use std::{
    env, fs,
    os::unix::process::parent_id,
    path::Path,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use sweeper_cache::{Cache, Lookup};

use crate::support::{artifact, child, child_dir, disk_usage, files, key, open, payload};

const PROCESSES: u64 = 32;
const KEYS: u64 = 40;
/// Not enough for all keys.
const CAPACITY: u64 = 300_000;
/// After this, a process that was told to end hangs.
const PATIENCE: Duration = Duration::from_secs(60);

fn bytes_of(n: u64) -> usize {
    1000 + usize::try_from(n % 4).unwrap() * 5000
}

/// Numbers without order, equal in each run.
struct Random(u64);

impl Random {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// How long processes can't see what others write, in milliseconds.
const LATE_MS: u64 = 300;

#[test]
fn a_crowd_that_is_killed_at_random_does_no_harm() {
    crowd(None);
}

#[test]
fn a_crowd_that_sees_each_other_late_does_no_harm() {
    let late = tempfile::tempdir().unwrap();
    let library = late.path().join("delayed.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/delayed/delayed.c");
    let mut cc = Command::new("cc");
    cc.args(["-O1", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .arg(source);
    assert!(cc.status().unwrap().success());
    crowd(Some(&library));
}

/// A crowd at work; processes see each other late by a library of `tests/delayed`.
fn crowd(late: Option<&Path>) {
    let seconds = env::var("SWEEPER_CACHE_SECONDS").map_or(4, |text| text.parse().unwrap());
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    drop(open(&cache, CAPACITY));
    let mut random = Random(1);
    let mut seed = 0;
    let mut spawn = || {
        seed += 1;
        worker(dir.path(), seed, late).spawn().unwrap()
    };
    let mut crowd: Vec<Child> = (0..PROCESSES).map(|_| spawn()).collect();
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut kills = 0;
    while Instant::now() < end {
        thread::sleep(Duration::from_millis(random.below(30)));
        let victim = &mut crowd[usize::try_from(random.below(PROCESSES)).unwrap()];
        victim.kill().unwrap();
        victim.wait().unwrap();
        *victim = spawn();
        kills += 1;
        let used = disk_usage(&cache);
        assert!(
            used <= CAPACITY || late.is_some(),
            "{used} bytes after {kills} kills"
        );
    }
    fs::write(dir.path().join("end"), "").unwrap();
    for process in crowd {
        await_end(process);
    }
    assert!(kills > 10);
    check_what_is_left(&cache, late.is_some());
}

fn worker(dir: &Path, seed: u64, late: Option<&Path>) -> Command {
    let mut command = child("crashes::work_until_the_end", dir);
    if let Some(library) = late {
        let root = fs::canonicalize(dir.join("cache")).unwrap();
        command
            .env("LD_PRELOAD", library)
            .env("DELAYED_ROOT", root)
            .env("DELAYED_NOTES", library.parent().unwrap())
            .env("DELAYED_MS", LATE_MS.to_string());
    }
    command.env("SEED", seed.to_string()).stdout(Stdio::null());
    command
}

fn await_end(mut process: Child) {
    let start = Instant::now();
    loop {
        if let Some(status) = process.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return;
        }
        if start.elapsed() > PATIENCE {
            process.kill().unwrap();
            panic!("a process hangs");
        }
        thread::sleep(Duration::from_millis(1));
    }
}

fn check_what_is_left(dir: &Path, is_late: bool) {
    let left = open(dir, CAPACITY);
    let accounted = left.stats().unwrap().disk_bytes;
    let used = disk_usage(dir);
    assert!(
        accounted >= used || is_late,
        "{accounted} accounted, {used} used"
    );
    let report = left.verify(false).unwrap();
    assert_eq!(report.bad, []);
    for n in 0..KEYS {
        match left.try_lookup(&key(n)) {
            Some(Lookup::Hit(entry)) => assert_eq!(entry.payload(), payload(n, bytes_of(n))),
            Some(Lookup::Miss(slot)) => assert!(slot.is_exclusive()),
            None => panic!("kernel {n} is held by the dead"),
        }
    }
    drop(left);
    let next = open(dir, CAPACITY);
    next.gc(false).unwrap();
    assert!(files(dir, "tmp").is_empty());
    let after = next.verify(false).unwrap();
    assert_eq!(after.accounted, Some(after.actual));
    (0..10).for_each(|n| want(&next, n));
}

#[test]
#[ignore = "run by a_crowd_that_is_killed_at_random_does_no_harm"]
fn work_until_the_end() {
    let dir = child_dir();
    let mut random = Random(env::var("SEED").unwrap().parse().unwrap());
    let mut cache = open(&dir.join("cache"), CAPACITY);
    // A test that is killed can't tell its processes that it has ended.
    let parent = parent_id();
    while !dir.join("end").exists() && parent_id() == parent {
        match random.below(200) {
            // These may find others at work.
            0 => drop(cache.gc(false)),
            1 => drop(cache.verify(true)),
            2 => drop(cache.clear()),
            // A cache does not evict the entries that it used, so only a new one goes on evicting.
            3..20 => cache = open(&dir.join("cache"), CAPACITY),
            _ => want(&cache, random.below(KEYS)),
        }
    }
}

fn want(cache: &Cache, n: u64) {
    match cache.lookup(&key(n)) {
        Lookup::Hit(entry) => assert_eq!(entry.payload(), payload(n, bytes_of(n))),
        Lookup::Miss(slot) => {
            let published = slot.publish(artifact(payload(n, bytes_of(n))));
            assert_eq!(published.entry.payload(), payload(n, bytes_of(n)));
        }
    }
}
