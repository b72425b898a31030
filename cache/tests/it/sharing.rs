//! Of many threads and processes that want a key at one time, exactly one makes it.

use std::{
    collections::BTreeMap,
    fs::{self, OpenOptions},
    io::Write as _,
    path::Path,
    sync::Barrier,
    thread,
    time::Duration,
};

use sweeper_cache::{Cache, Lookup};

use crate::support::{MIB, artifact, await_file, child, child_dir, key, open, payload};

const KEYS: u64 = 40;
const PROCESSES: u64 = 32;

/// Wants all keys, each worker in an order of its own, and notes in `builds` the keys that it had
/// to make.
fn want_all(cache: &Cache, dir: &Path, worker: u64) {
    let builds = OpenOptions::new()
        .append(true)
        .create(true)
        .open(dir.join("builds"))
        .unwrap();
    for step in 0..KEYS {
        let n = (step * 7 + worker * 3) % KEYS;
        let entry = match cache.lookup(&key(n)) {
            Lookup::Hit(entry) => entry,
            Lookup::Miss(slot) => {
                // In one write, so that lines of two workers never mix.
                (&builds).write_all(format!("{n}\n").as_bytes()).unwrap();
                thread::sleep(Duration::from_millis(5));
                slot.publish(artifact(payload(n, 2000))).entry
            }
        };
        assert_eq!(entry.payload(), payload(n, 2000));
    }
}

fn assert_one_build_each(dir: &Path) {
    let mut builds = BTreeMap::new();
    for line in fs::read_to_string(dir.join("builds")).unwrap().lines() {
        *builds.entry(line.parse::<u64>().unwrap()).or_insert(0) += 1;
    }
    let expected: BTreeMap<u64, i32> = (0..KEYS).map(|n| (n, 1)).collect();
    assert_eq!(builds, expected);
}

#[test]
fn eight_threads_build_each_key_once() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(&dir.path().join("cache"), MIB);
    thread::scope(|scope| {
        for worker in 0..8 {
            let cache = cache.clone();
            let dir = dir.path();
            scope.spawn(move || want_all(&cache, dir, worker));
        }
    });
    assert_one_build_each(dir.path());
    let stats = cache.stats().unwrap();
    assert_eq!(
        (stats.session.misses, stats.session.hits, stats.entries),
        (KEYS, 7 * KEYS, KEYS)
    );
}

/// Builds that take no time, so that some publication falls between another's look and its claim.
#[test]
fn instant_builds_are_done_once_too() {
    const MANY: u64 = 400;
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), 64 * MIB);
    let start = Barrier::new(4);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for n in 0..MANY {
                    start.wait();
                    if let Lookup::Miss(slot) = cache.lookup(&key(n)) {
                        assert!(slot.publish(artifact(payload(n, 10))).stored);
                    }
                }
            });
        }
    });
    let counted = cache.stats().unwrap().session;
    assert_eq!(
        (counted.misses, counted.stores, counted.hits),
        (MANY, MANY, 3 * MANY)
    );
}

#[test]
fn a_crowd_of_processes_builds_each_key_once() {
    let dir = tempfile::tempdir().unwrap();
    let children: Vec<_> = (0..PROCESSES)
        .map(|worker| {
            let mut command = child("sharing::worker", dir.path());
            command.env("WORKER", worker.to_string());
            command.stdout(std::process::Stdio::null()).spawn().unwrap()
        })
        .collect();
    fs::write(dir.path().join("go"), "").unwrap();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    assert_one_build_each(dir.path());
    let stats = open(&dir.path().join("cache"), MIB).stats().unwrap();
    assert_eq!(
        (stats.total.misses, stats.total.hits, stats.entries),
        (KEYS, (PROCESSES - 1) * KEYS, KEYS)
    );
}

#[test]
#[ignore = "run by a_crowd_of_processes_builds_each_key_once"]
fn worker() {
    let dir = child_dir();
    await_file(&dir.join("go"));
    let worker = std::env::var("WORKER").unwrap().parse().unwrap();
    want_all(&open(&dir.join("cache"), MIB), &dir, worker);
}

#[test]
fn a_killed_holder_gives_up_its_right() {
    let dir = tempfile::tempdir().unwrap();
    let mut holder = child("sharing::hold_for_ever", dir.path()).spawn().unwrap();
    await_file(&dir.path().join("held"));
    let cache = open(&dir.path().join("cache"), MIB);
    assert!(cache.try_lookup(&key(1)).is_none());
    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(50));
        holder.kill().unwrap();
        holder.wait().unwrap();
    });
    // A wait that is given up after a while yields no right of one's own.
    assert!(matches!(cache.lookup(&key(1)), Lookup::Miss(slot) if slot.is_exclusive()));
    killer.join().unwrap();
}

#[test]
#[ignore = "run by a_killed_holder_gives_up_its_right"]
fn hold_for_ever() {
    let dir = child_dir();
    let _slot = open(&dir.join("cache"), MIB).lookup(&key(1));
    fs::write(dir.join("held"), "").unwrap();
    thread::sleep(Duration::from_secs(600));
}

/// Hammers a cache that is far too small from many threads, each with a cache of its own, as
/// separate processes would.
#[test]
fn the_capacity_holds_against_many_writers() {
    const CAPACITY: u64 = 200_000;
    let dir = tempfile::tempdir().unwrap();
    thread::scope(|scope| {
        for writer in 0..4 {
            let dir = dir.path();
            scope.spawn(move || {
                for n in 0..60 {
                    // A fresh cache now and then holds nothing of the past.
                    let cache = open(dir, CAPACITY);
                    let n = writer * 1000 + n;
                    if let Lookup::Miss(slot) = cache.lookup(&key(n)) {
                        let _ = slot.publish(artifact(payload(n, 9000)));
                    }
                    let used = crate::support::disk_usage(dir);
                    assert!(used <= CAPACITY, "{used} bytes");
                }
            });
        }
    });
    let cache = open(dir.path(), CAPACITY);
    let report = cache.verify(false).unwrap();
    assert_eq!(report.bad, []);
    assert!(report.actual.entries >= 10, "{report:?}");
    let stats = cache.stats().unwrap();
    assert!(
        stats.disk_bytes >= report.actual.bytes && stats.total.evictions > 100,
        "{stats:?}"
    );
}
