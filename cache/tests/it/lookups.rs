//! A hit returns exactly the published bytes. A miss is the right to publish.

use std::{
    fs,
    time::{Duration, Instant},
};

use sweeper_cache::{Artifact, Cache, CacheConfig, Counters, Kind, Lookup, Metadata};

use crate::support::{
    MIB, artifact, child, child_dir, config, entry_path, is_hit, key, keyed, open, payload,
    publish, run, store,
};

#[test]
fn a_hit_is_what_was_published() {
    let dir = tempfile::tempdir().unwrap();
    let published = store(&open(dir.path(), MIB), 1, 5000);
    let Lookup::Hit(found) = open(dir.path(), MIB).lookup(&key(1)) else {
        panic!("it was stored")
    };
    assert_eq!(found, published);
    assert_eq!(found.payload(), payload(1, 5000));
    assert_eq!(found.metadata().key_fields, key(1).fields());
    assert_eq!(found.metadata().compile_ns, 5_000_000);
}

#[test]
fn failures_are_kept_too() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let Lookup::Miss(slot) = cache.lookup(&key(1)) else {
        panic!("nothing was stored")
    };
    let log = "error: too many registers";
    let failure = Artifact {
        kind: Kind::Failure,
        payload: log.into(),
        metadata: Metadata::default(),
    };
    assert!(slot.publish(failure).stored);
    let found = cache.peek(&key(1)).unwrap();
    assert_eq!(
        (found.kind(), found.payload()),
        (Kind::Failure, log.as_bytes())
    );
}

#[test]
fn another_key_is_a_miss() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    store(&cache, 1, 100);
    assert!(!is_hit(&cache, &key(2)));
    assert!(!is_hit(&cache, &keyed(1, "cc 13.3")));
}

#[test]
fn peeking_leaves_no_trace() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    assert!(cache.peek(&key(1)).is_none());
    let entry = store(&cache, 1, 100);
    let path = entry_path(dir.path(), entry.name());
    let before = fs::metadata(&path).unwrap().modified().unwrap();
    let counters = cache.stats().unwrap().session;
    assert!(cache.peek(&key(1)).is_some());
    assert_eq!(cache.stats().unwrap().session, counters);
    assert_eq!(fs::metadata(&path).unwrap().modified().unwrap(), before);
    fs::write(&path, "broken").unwrap();
    assert!(cache.peek(&key(1)).is_none());
    assert!(path.exists());
}

#[test]
fn without_a_compiler_the_most_recent_of_all_compilers_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    for compiler in ["cc 1", "cc 2", "cc 3"] {
        let Lookup::Miss(slot) = cache.lookup(&keyed(1, compiler)) else {
            panic!("the compiler is part of the key")
        };
        slot.publish(artifact(compiler.into()));
    }
    let no_compiler = sweeper_cache::KeyBuilder::new("test 1")
        .field("source", "kernel 1")
        .field("arch", "sm_90a")
        .finish();
    let found = || {
        cache
            .lookup_any_compiler(&no_compiler)
            .unwrap()
            .payload()
            .to_vec()
    };
    assert_eq!(found(), b"cc 3");
    assert!(is_hit(&cache, &keyed(1, "cc 2")));
    assert_eq!(found(), b"cc 2");
    // A broken one is passed over.
    fs::write(entry_path(dir.path(), keyed(1, "cc 2").name()), "broken").unwrap();
    assert_eq!(found(), b"cc 3");
    assert!(cache.lookup_any_compiler(&key(2)).is_none());
    assert!(!is_hit(&cache, &no_compiler));
}

#[test]
fn a_slot_keeps_others_off_until_it_is_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let Lookup::Miss(slot) = cache.lookup(&key(1)) else {
        panic!("nothing was stored")
    };
    assert!(slot.is_exclusive());
    assert!(cache.try_lookup(&key(1)).is_none());
    assert!(cache.try_lookup(&key(2)).is_some());
    drop(slot);
    assert!(matches!(cache.try_lookup(&key(1)), Some(Lookup::Miss(slot)) if slot.is_exclusive()));
}

#[test]
fn a_stopped_holder_costs_a_bounded_wait_and_double_work() {
    let dir = tempfile::tempdir().unwrap();
    let wait = Duration::from_millis(50);
    let cache = Cache::open(CacheConfig {
        flight_wait: wait,
        ..config(dir.path(), MIB)
    })
    .unwrap();
    let Lookup::Miss(stopped) = cache.lookup(&key(1)) else {
        panic!("nothing was stored")
    };
    let start = Instant::now();
    let Lookup::Miss(impatient) = cache.lookup(&key(1)) else {
        panic!("nothing was stored")
    };
    assert!(start.elapsed() >= wait);
    assert!(!impatient.is_exclusive());
    assert!(impatient.publish(artifact(b"the same".to_vec())).stored);
    // The loser keeps its own bytes, and no entry is replaced.
    let late = stopped.publish(artifact(b"of the stopped one".to_vec()));
    assert!(late.stored);
    assert_eq!(late.entry.payload(), b"of the stopped one");
    assert_eq!(cache.peek(&key(1)).unwrap().payload(), b"the same");
    assert_eq!(cache.stats().unwrap().entries, 1);
}

#[test]
fn counters_outlive_the_process() {
    let dir = tempfile::tempdir().unwrap();
    run(child(
        "lookups::one_store_if_need_be_and_two_hits",
        dir.path(),
    ));
    run(child(
        "lookups::one_store_if_need_be_and_two_hits",
        dir.path(),
    ));
    let stats = open(dir.path(), MIB).stats().unwrap();
    assert_eq!(
        (stats.total.misses, stats.total.stores, stats.total.hits),
        (1, 1, 4)
    );
    assert_eq!(stats.session, Counters::default());
}

#[test]
#[ignore = "run by counters_outlive_the_process"]
fn one_store_if_need_be_and_two_hits() {
    let cache = open(&child_dir(), MIB);
    if cache.peek(&key(1)).is_none() {
        store(&cache, 1, 100);
    }
    assert!(is_hit(&cache, &key(1)) && is_hit(&cache, &key(1)));
}

#[test]
fn what_is_longer_than_any_entry_comes_back_with_a_warning() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let Lookup::Miss(slot) = cache.lookup(&key(1)) else {
        panic!("nothing was stored")
    };
    let mut long = artifact(b"x".to_vec());
    long.metadata.log_tail = "x".repeat(sweeper_cache::MAX_METADATA_BYTES as usize);
    let published = slot.publish(long);
    assert!(!published.stored);
    assert!(matches!(
        published.warning,
        Some(sweeper_cache::Warning::TooLong { .. })
    ));
    assert_eq!(published.entry.payload(), b"x");
    assert!(cache.warning().is_none());
    assert!(publish(&cache, 2, 100).stored);
}
