//! Statistics, listing, finding, verifying, collecting, clearing, explaining.

use std::{fs, time::Duration};

use sweeper_cache::{Cache, CacheConfig, CacheError, FindError, KeyBuilder, Lookup};

use crate::support::{
    MIB, artifact, config, disk_usage, entry_path, files, is_hit, key, keyed, open, payload,
    publish, store,
};

#[test]
fn stats_count_what_happened() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    for n in 0..3 {
        store(&cache, n, 1000);
    }
    assert!(is_hit(&cache, &key(1)));
    drop(cache.lookup(&key(9)));
    let stats = cache.stats().unwrap();
    assert_eq!((stats.entries, stats.capacity_bytes), (3, MIB));
    assert_eq!(stats.disk_bytes, 3 * (4096 + 512));
    let counted = stats.session;
    assert_eq!(
        (
            counted.hits,
            counted.misses,
            counted.stores,
            counted.refusals
        ),
        (1, 4, 3, 0)
    );
    assert_eq!(stats.total, counted);
    assert_eq!(cache.path(), dir.path());
    let json = serde_json::to_value(&stats).unwrap();
    assert_eq!(json["session"]["misses"], 4);
}

#[test]
fn ls_goes_from_the_most_recently_used_to_the_least() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let names: Vec<_> = (0..4).map(|n| store(&cache, n, 1000).name()).collect();
    assert!(is_hit(&cache, &key(1)));
    let listed: Vec<_> = cache.ls().unwrap().collect();
    let order: Vec<_> = listed.iter().map(|info| info.name).collect();
    assert_eq!(order, [names[1], names[3], names[2], names[0]]);
    let summary = listed[0].summary.as_ref().unwrap();
    assert_eq!(
        (summary.payload_bytes, summary.metadata.arch.as_str()),
        (1000, "sm_90a")
    );
    assert_eq!(listed[0].disk_bytes, 4096);
    // Equal times are ordered by name.
    let time = std::time::SystemTime::now();
    for name in &names {
        let file = fs::File::options()
            .write(true)
            .open(entry_path(dir.path(), *name))
            .unwrap();
        file.set_modified(time).unwrap();
    }
    let mut sorted = names.clone();
    sorted.sort_unstable();
    let order: Vec<_> = cache.ls().unwrap().map(|info| info.name).collect();
    assert_eq!(order, sorted);
}

#[test]
fn ls_shows_what_is_broken_without_a_summary() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let name = store(&cache, 1, 10).name();
    fs::write(entry_path(dir.path(), name), "broken").unwrap();
    let listed: Vec<_> = cache.ls().unwrap().collect();
    assert_eq!((listed.len(), &listed[0].summary), (1, &None));
}

#[test]
fn long_metadata_is_listed_too() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let Lookup::Miss(slot) = cache.lookup(&key(1)) else {
        panic!("nothing was stored")
    };
    let mut verbose = artifact(vec![1; 10]);
    verbose.metadata.log_tail = "warning\n".repeat(10_000);
    let log_tail = verbose.metadata.log_tail.clone();
    assert!(slot.publish(verbose).stored);
    let listed = cache.ls().unwrap().next().unwrap();
    assert_eq!(listed.summary.unwrap().metadata.log_tail, log_tail);
}

#[test]
fn unique_prefixes_find_an_entry() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let name = store(&cache, 1, 10).name();
    let full = name.to_string();
    for length in [1, 2, 3, 12, 64, 65, 70, 81] {
        assert_eq!(
            cache.find(&full[..length]).unwrap().name,
            name,
            "{length} digits"
        );
    }
    assert_eq!(
        cache.find(&key(1).to_string().to_uppercase()).unwrap().name,
        name
    );
    for wrong in [
        "",
        "xyz",
        "../..",
        "ab.cd",
        &format!("{full}0"),
        &full.replace('.', ""),
    ] {
        let found = cache.find(wrong);
        assert!(
            matches!(found, Err(FindError::NotAPrefix { .. })),
            "{wrong}: {found:?}"
        );
    }
    assert!(matches!(
        cache.find(&key(2).to_string()),
        Err(FindError::NotFound { .. })
    ));
}

#[test]
fn an_ambiguous_prefix_names_its_candidates() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let mut expected = Vec::new();
    for compiler in ["cc 1", "cc 2"] {
        let Lookup::Miss(slot) = cache.lookup(&keyed(1, compiler)) else {
            panic!("the compiler is part of the key")
        };
        expected.push(slot.publish(artifact(vec![1])).entry.name());
    }
    expected.sort_unstable();
    let prefix = key(1).to_string();
    let Err(FindError::Ambiguous { candidates, .. }) = cache.find(&prefix) else {
        panic!("both begin with it")
    };
    assert_eq!(candidates, expected);
    assert_eq!(
        cache.find(&expected[1].to_string()[..70]).unwrap().name,
        expected[1]
    );
}

#[test]
fn verify_finds_and_repairs() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let names: Vec<_> = (0..5).map(|n| store(&cache, n, 1000).name()).collect();
    let sound = cache.verify(false).unwrap();
    assert_eq!(
        (sound.checked, sound.payload_bytes, sound.bad.len()),
        (5, 5000, 0)
    );
    assert_eq!(sound.accounted, Some(sound.actual));

    let path = entry_path(dir.path(), names[2]);
    let mut bytes = fs::read(&path).unwrap();
    bytes[300] ^= 1;
    fs::write(&path, bytes).unwrap();
    let found = cache.verify(false).unwrap();
    assert_eq!(
        (found.bad.len(), found.bad[0].name, found.quarantined),
        (1, names[2], 0)
    );
    assert_eq!(found.bad[0].reason, "a wrong checksum");
    assert!(path.exists() && !found.account_rebuilt);

    let repaired = cache.verify(true).unwrap();
    assert_eq!(
        (
            repaired.bad.len(),
            repaired.quarantined,
            repaired.actual.entries
        ),
        (1, 1, 4)
    );
    assert!(repaired.account_rebuilt);
    let after = cache.verify(false).unwrap();
    assert_eq!(
        (after.checked, after.bad.len(), after.accounted),
        (4, 0, Some(after.actual))
    );
    assert_eq!(files(dir.path(), "bad").len(), 1);
}

#[test]
fn gc_does_what_its_dry_run_said() {
    let dir = tempfile::tempdir().unwrap();
    let big = open(dir.path(), MIB);
    let names: Vec<_> = (0..20).map(|n| store(&big, n, 1000).name()).collect();
    drop(big);
    let cache = open(dir.path(), 10 * 4608);
    assert!(is_hit(&cache, &key(0)), "used, and so not evicted");
    let planned = cache.gc(true).unwrap();
    assert_eq!(
        (
            planned.evicted.entries,
            planned.left.entries,
            planned.goal_bytes
        ),
        (11, 9, 9 * 4608)
    );
    assert_eq!(cache.ls().unwrap().count(), 20);
    let done = cache.gc(false).unwrap();
    assert_eq!((done.evicted, done.left), (planned.evicted, planned.left));
    let mut left: Vec<_> = cache.ls().unwrap().map(|info| info.name).collect();
    left.sort_unstable();
    let mut expected = vec![names[0]];
    expected.extend(&names[12..]);
    expected.sort_unstable();
    assert_eq!(left, expected);
    assert_eq!(cache.gc(false).unwrap().evicted.entries, 0);
}

#[test]
fn clear_leaves_an_empty_cache_that_works() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    for n in 0..5 {
        store(&cache, n, 1000);
    }
    fs::write(entry_path(dir.path(), key(0).name()), "broken").unwrap();
    assert!(!is_hit(&cache, &key(0)));
    fs::write(dir.path().join("v1/tmp/left"), "over").unwrap();
    let cleared = cache.clear().unwrap();
    assert_eq!((cleared.entries.entries, cleared.leftovers), (4, 2));
    let stats = cache.stats().unwrap();
    assert_eq!(
        (stats.entries, stats.disk_bytes, disk_usage(dir.path())),
        (0, 0, 0)
    );
    assert!(files(dir.path(), "bad").is_empty());
    assert_eq!(publish(&cache, 1, 1000).entry.payload(), payload(1, 1000));
    assert!(is_hit(&cache, &key(1)));
}

#[test]
fn explain_names_the_fields_that_differ_from_the_nearest() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let base = |source: &str, arch: &str| {
        KeyBuilder::new("s")
            .field("source", source)
            .field("arch", arch)
    };
    let asked = base("a", "sm_90a").compiler("cc 14, at last").finish();
    let explain = |cache: &Cache| cache.catalog().unwrap().explain(&asked, "cc 14");
    let nothing = explain(&cache);
    assert_eq!(
        (nothing.present, nothing.compared, nothing.nearest),
        (false, 0, None)
    );

    let add = |key: &sweeper_cache::Key| match cache.lookup(key) {
        Lookup::Hit(_) => panic!("it is there already"),
        Lookup::Miss(slot) => slot.publish(artifact(vec![1])).entry.name(),
    };
    let nearest = |expected_name, expected: &[&str]| {
        let nearest = explain(&cache).nearest.unwrap();
        let words: Vec<String> = nearest
            .differences
            .iter()
            .map(ToString::to_string)
            .collect();
        assert_eq!(
            (nearest.name, words),
            (
                expected_name,
                expected.iter().map(ToString::to_string).collect()
            )
        );
    };
    let far = add(&base("b", "sm_80").compiler("cc 1").finish());
    nearest(
        far,
        &[
            "source: b -> a",
            "arch: sm_80 -> sm_90a",
            "compiler: cc 13.2 -> cc 14",
        ],
    );
    let nearer = add(&base("b", "sm_90a").compiler("cc 14, at last").finish());
    nearest(nearer, &["source: b -> a"]);
    let other_compiler = add(&base("a", "sm_90a").compiler("cc 1").finish());
    nearest(other_compiler, &["compiler: cc 13.2 -> cc 14"]);
    let swapped = KeyBuilder::new("s")
        .field("arch", "sm_90a")
        .field("source", "a");
    let reordered = add(&swapped.compiler("cc 14, at last").finish());
    nearest(reordered, &["fields: another order"]);
}

#[test]
fn an_entry_is_explained_by_the_nearest_other() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    let [own, other] = [keyed(1, "cc 1"), keyed(1, "cc 2")];
    for key in [&own, &other] {
        let Lookup::Miss(slot) = cache.lookup(key) else {
            panic!("the compiler is part of the key")
        };
        assert!(slot.publish(artifact(vec![1])).stored);
    }
    let catalog = cache.catalog().unwrap();
    let found = catalog.explain(&own, "cc 1");
    assert_eq!((found.present, found.compared), (true, 1));
    let entry = catalog.explain_entry(&own.name()).unwrap();
    assert_eq!(entry.nearest.unwrap().name, other.name());
    assert!(catalog.explain_entry(&key(7).name()).is_none());
}

#[test]
fn entries_of_upstreams_explain_too() {
    let dir = tempfile::tempdir().unwrap();
    let [folder, bundle] = ["folder", "bundle"].map(|name| dir.path().join(name));
    let there = open(&folder, MIB);
    store(&there, 1, 10);
    there.export(&bundle).unwrap();
    for upstream in [folder, bundle] {
        let config = CacheConfig {
            upstream: vec![upstream],
            ..config(&dir.path().join("own"), MIB)
        };
        let catalog = Cache::open_to_read(config).unwrap().catalog().unwrap();
        let explained = catalog.explain(&keyed(1, "cc 14"), "cc 14");
        let differences = explained.nearest.unwrap().differences;
        assert_eq!(differences[0].to_string(), "compiler: cc 13.2 -> cc 14");
    }
}

/// Looking into a cache that isn't there doesn't make it, and no look leaves a trace.
#[test]
fn a_cache_that_is_opened_to_read_stays_as_it_is() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("own");
    let look = || Cache::open_to_read(CacheConfig::new(&root, MIB)).unwrap();
    assert_eq!(look().ls().unwrap().count(), 0);
    assert_eq!(look().stats().unwrap().entries, 0);
    assert!(look().peek(&key(1)).is_none() && look().lookup_any_compiler(&key(1)).is_none());
    assert!(!root.exists());
    store(&open(&root, MIB), 1, 10);
    fs::write(
        entry_path(&root, store(&open(&root, MIB), 2, 10).name()),
        "bad",
    )
    .unwrap();
    let state = || {
        let all = files(&root, "").into_iter();
        all.map(|path| {
            (
                path.metadata().unwrap().modified().unwrap(),
                fs::read(&path).unwrap(),
                path,
            )
        })
        .collect::<Vec<_>>()
    };
    let before = state();
    assert!(look().lookup_any_compiler(&key(1)).is_some());
    assert!(look().lookup_any_compiler(&key(2)).is_none());
    assert!(!look().set_aside(&key(1).name()));
    assert!(matches!(look().clear(), Err(CacheError::ReadOnly(_))));
    assert!(matches!(look().gc(false), Err(CacheError::ReadOnly(_))));
    assert_eq!(look().verify(false).unwrap().bad.len(), 1);
    assert_eq!(state(), before);
}

#[test]
fn nobody_waits_for_a_stopped_process_for_ever() {
    let dir = tempfile::tempdir().unwrap();
    let cache = Cache::open(CacheConfig {
        lock_wait: Duration::from_millis(20),
        ..config(dir.path(), MIB)
    })
    .unwrap();
    let stopped = fs::File::options()
        .write(true)
        .read(true)
        .create(true)
        .truncate(false)
        .open(dir.path().join("v1/lock/gc"));
    let everything = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as i16,
        l_whence: 0,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    let stopped = stopped.unwrap();
    nix::fcntl::fcntl(&stopped, nix::fcntl::FcntlArg::F_OFD_SETLK(&everything)).unwrap();
    assert!(matches!(cache.gc(false), Err(CacheError::Busy { .. })));
    assert!(matches!(cache.clear(), Err(CacheError::Busy { .. })));
    let published = publish(&cache, 1, 10);
    assert_eq!(
        (published.stored, published.warning),
        (false, cache.warning())
    );
    assert!(cache.warning().is_some());
}
