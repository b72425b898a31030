//! Processes that are killed at any moment leave no wrong entry, no held right, and an account that
//! is high enough.

use std::{
    fs,
    process::{Child, Stdio},
    thread,
    time::Duration,
};

use sweeper_cache::Lookup;

use crate::support::{
    artifact, await_file, child, child_dir, disk_usage, files, key, open, payload, run,
};

const CAPACITY: u64 = 300_000;
const KEYS: u64 = 60;
const KILLS: u64 = 60;

fn bytes_of(n: u64) -> usize {
    1000 + usize::try_from(n % 4).unwrap() * 5000
}

#[test]
fn kills_in_the_middle_of_everything_do_no_harm() {
    let dir = tempfile::tempdir().unwrap();
    let cache = dir.path().join("cache");
    for round in 0..KILLS {
        let ready = dir.path().join("ready");
        let mut writers = [
            spawn_writer(dir.path(), round),
            spawn_writer(dir.path(), round + 1000),
        ];
        await_file(&ready);
        // Delays spread over the time of a few publications.
        thread::sleep(Duration::from_micros(round * 7919 % 15_000));
        for writer in &mut writers {
            writer.kill().unwrap();
            writer.wait().unwrap();
        }
        fs::remove_file(ready).unwrap();
        let accounted = open(&cache, CAPACITY).stats().unwrap().disk_bytes;
        let used = disk_usage(&cache);
        assert!(
            accounted >= used,
            "round {round}: {accounted} accounted, {used} used"
        );
        assert!(used <= CAPACITY, "round {round}: {used} bytes");
    }
    let left = open(&cache, CAPACITY);
    let report = left.verify(false).unwrap();
    assert_eq!(report.bad, []);
    assert!(
        report.checked > 5,
        "the writers got something done: {report:?}"
    );
    for n in 0..KEYS {
        match left.try_lookup(&key(n)) {
            Some(Lookup::Hit(entry)) => assert_eq!(entry.payload(), payload(n, bytes_of(n))),
            Some(Lookup::Miss(slot)) => assert!(slot.is_exclusive()),
            None => panic!("kernel {n} is held by the dead"),
        }
    }
    let repaired = left.verify(true).unwrap();
    assert_eq!(left.stats().unwrap().disk_bytes, repaired.actual.bytes);
    assert!(repaired.actual.bytes >= disk_usage(&cache));
    // And it goes on.
    drop(left);
    let mut last = writer(dir.path(), 5);
    last.env("STEPS", "200");
    run(last);
    assert_eq!(open(&cache, CAPACITY).verify(false).unwrap().bad, []);
    assert!(!files(&cache, "o").is_empty());
}

fn writer(dir: &std::path::Path, seed: u64) -> std::process::Command {
    let mut command = child("crashes::write_and_evict", dir);
    command
        .env("SEED", seed.to_string())
        .env("STEPS", "1000000");
    command
}

fn spawn_writer(dir: &std::path::Path, seed: u64) -> Child {
    writer(dir, seed).stdout(Stdio::null()).spawn().unwrap()
}

#[test]
#[ignore = "run by kills_in_the_middle_of_everything_do_no_harm"]
fn write_and_evict() {
    let dir = child_dir();
    let number = |name: &str| std::env::var(name).unwrap().parse::<u64>().unwrap();
    let mut random = number("SEED") + 1;
    let mut cache = open(&dir.join("cache"), CAPACITY);
    fs::write(dir.join("ready"), "").unwrap();
    for step in 0..number("STEPS") {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let n = (random >> 33) % KEYS;
        match cache.lookup(&key(n)) {
            Lookup::Hit(entry) => assert_eq!(entry.payload(), payload(n, bytes_of(n))),
            Lookup::Miss(slot) => drop(slot.publish(artifact(payload(n, bytes_of(n))))),
        }
        // A cache does not evict the entries that it used, so only a new one goes on evicting.
        if step % 10 == 9 {
            cache = open(&dir.join("cache"), CAPACITY);
        }
    }
}
