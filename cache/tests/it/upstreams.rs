//! Folders and bundles that are asked before anything is made.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use sweeper_cache::{Cache, CacheConfig, CacheError, Lookup, Warning};

use crate::support::{MIB, config, entry_path, is_hit, key, keyed, open, payload, publish, store};

fn open_with(dir: &Path, upstream: &[&Path]) -> Cache {
    Cache::open(CacheConfig {
        upstream: upstream.iter().map(|path| path.to_path_buf()).collect(),
        ..config(dir, MIB)
    })
    .unwrap()
}

/// A cache with kernels 0 to 4 as a folder, and as a bundle.
fn shared(dir: &Path) -> [PathBuf; 2] {
    let (folder, bundle) = (dir.join("shared"), dir.join("shared.bundle"));
    let cache = open(&folder, MIB);
    for n in 0..5 {
        store(&cache, n, 1000);
    }
    let exported = cache.export(&bundle).unwrap();
    assert_eq!((exported.entries, exported.bad.len()), (5, 0));
    assert_eq!(exported.bytes, fs::metadata(&bundle).unwrap().len());
    [folder, bundle]
}

#[test]
fn entries_of_an_upstream_are_copied_once_and_never_made() {
    let dir = tempfile::tempdir().unwrap();
    for (number, upstream) in shared(dir.path()).iter().enumerate() {
        let own = dir.path().join(number.to_string());
        let cache = open_with(&own, &[upstream]);
        assert_eq!(cache.peek(&key(1)).unwrap().payload(), payload(1, 1000));
        assert!(
            !entry_path(&own, key(1).name()).exists(),
            "peeking copies nothing"
        );
        for _ in 0..2 {
            let Lookup::Hit(entry) = cache.lookup(&key(1)) else {
                panic!("{} has it", upstream.display())
            };
            assert_eq!(entry.payload(), payload(1, 1000));
        }
        let counted = cache.stats().unwrap().session;
        assert_eq!(
            (
                counted.hits,
                counted.fetched,
                counted.misses,
                counted.stores
            ),
            (2, 1, 0, 1)
        );
        assert!(!is_hit(&cache, &key(7)), "nobody has it");
        assert_eq!(cache.take_warnings(), []);
        // The copy needs no upstream any more, and is equal to the file there.
        drop(cache);
        assert!(is_hit(&open(&own, MIB), &key(1)));
        let copies = [&own, &dir.path().join("shared")].map(|it| entry_path(it, key(1).name()));
        let [copy, original] = copies.map(|path| fs::read(path).unwrap());
        assert_eq!(copy, original);
    }
}

#[test]
fn a_machine_without_a_compiler_finds_other_compilers_entries_upstream() {
    let dir = tempfile::tempdir().unwrap();
    for (number, upstream) in shared(dir.path()).iter().enumerate() {
        let cache = open_with(&dir.path().join(number.to_string()), &[upstream]);
        let entry = cache.lookup_any_compiler(&keyed(3, "")).unwrap();
        assert_eq!(entry.payload(), payload(3, 1000));
        assert!(cache.lookup_any_compiler(&keyed(8, "")).is_none());
        assert!(is_hit(&cache, &key(3)), "it was copied");
    }
}

#[test]
fn a_copy_that_finds_no_room_is_used_all_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let [_, bundle] = shared(dir.path());
    let tiny = Cache::open(CacheConfig {
        upstream: vec![bundle],
        ..config(&dir.path().join("tiny"), 5000)
    })
    .unwrap();
    assert!((0..5).all(|n| is_hit(&tiny, &key(n))));
    assert_eq!(tiny.stats().unwrap().entries, 1);
}

#[test]
fn bad_entries_of_an_upstream_are_passed_over_and_said_once() {
    let dir = tempfile::tempdir().unwrap();
    let [folder, _] = shared(dir.path());
    let path = entry_path(&folder, key(2).name());
    let mut bytes = fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    fs::write(&path, bytes).unwrap();
    fs::set_permissions(
        entry_path(&folder, key(3).name()),
        fs::Permissions::from_mode(0o666),
    )
    .unwrap();
    let cache = open_with(&dir.path().join("own"), &[&folder]);
    for _ in 0..3 {
        assert!(!is_hit(&cache, &key(2)) && !is_hit(&cache, &key(3)));
    }
    let warnings = cache.take_warnings();
    assert_eq!(warnings.len(), 2, "{warnings:?}");
    assert!(warnings[0].to_string().contains("a wrong checksum"));
    assert!(
        warnings[1]
            .to_string()
            .contains("others could have written")
    );
    assert_eq!(cache.take_warnings(), []);
    assert!(path.exists(), "nothing is changed there");
    // Bad entries are not failures of the upstream.
    assert!(is_hit(&cache, &key(4)));
}

/// An entry that kills whoever loads it must not come back.
#[test]
fn what_was_set_aside_is_not_fetched_again() {
    let dir = tempfile::tempdir().unwrap();
    let [_, bundle] = shared(dir.path());
    let cache = open_with(&dir.path().join("own"), &[&bundle]);
    assert!(is_hit(&cache, &key(1)));
    assert!(cache.set_aside(&key(1).name()));
    assert!(!is_hit(&cache, &key(1)));
    publish(&cache, 1, 30);
    assert!(is_hit(&cache, &key(1)));
}

#[test]
fn a_bad_entry_of_one_upstream_is_a_good_one_of_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let [folder, bundle] = shared(dir.path());
    fs::write(entry_path(&folder, key(1).name()), "bad").unwrap();
    let cache = open_with(&dir.path().join("own"), &[&folder, &bundle]);
    assert!(is_hit(&cache, &key(1)));
    assert_eq!(cache.take_warnings().len(), 1);
}

#[test]
fn what_is_no_upstream_is_a_warning_and_not_the_end() {
    let dir = tempfile::tempdir().unwrap();
    let [folder, bundle] = shared(dir.path());
    let cut = dir.path().join("cut");
    let bytes = fs::read(&bundle).unwrap();
    fs::write(&cut, &bytes[..bytes.len() - 1]).unwrap();
    let open_to_all = dir.path().join("open");
    fs::write(&open_to_all, &bytes).unwrap();
    fs::set_permissions(&open_to_all, fs::Permissions::from_mode(0o620)).unwrap();
    let nothing = dir.path().join("nothing");
    let empty = dir.path().join("empty");
    fs::create_dir(&empty).unwrap();
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRUSR).unwrap();
    let wrong = [
        (&nothing, "No such file"),
        (&empty, "no folder v1/o"),
        (&pipe, "neither a folder nor a file"),
        (&cut, "a bundle with no magic number"),
        (&open_to_all, "chmod go-w"),
    ];
    for (path, reason) in wrong {
        let cache = open_with(&dir.path().join("own"), &[path, &folder]);
        let warnings = cache.take_warnings();
        let [Warning::Upstream { reason: said, .. }] = &warnings[..] else {
            panic!("{warnings:?}")
        };
        assert!(said.contains(reason), "{said}");
        assert!(is_hit(&cache, &key(1)), "the other one works");
    }
}

#[test]
fn an_import_is_as_good_as_making_everything() {
    let dir = tempfile::tempdir().unwrap();
    for (number, from) in shared(dir.path()).iter().enumerate() {
        let cache = open(&dir.path().join(number.to_string()), MIB);
        store(&cache, 2, 1000);
        fs::write(entry_path(cache.path(), key(2).name()), "bad").unwrap();
        store(&cache, 3, 1000);
        let imported = cache.import(from).unwrap();
        assert_eq!(
            (imported.copied, imported.present, imported.refused),
            (4, 1, 0)
        );
        assert!((0..5).all(|n| is_hit(&cache, &key(n))));
        assert_eq!(cache.import(from).unwrap().present, 5);
        let verified = cache.verify(false).unwrap();
        assert_eq!(verified.actual.entries, 5);
    }
    let nothing = open(&dir.path().join("2"), MIB).import(&dir.path().join("none"));
    assert!(matches!(nothing, Err(CacheError::Io { .. })), "{nothing:?}");
}

#[test]
fn an_import_that_is_too_large_takes_the_last_used() {
    let dir = tempfile::tempdir().unwrap();
    let [folder, _] = shared(dir.path());
    assert!(is_hit(&open(&folder, MIB), &key(0)));
    let bundle = dir.path().join("again");
    open(&folder, MIB).export(&bundle).unwrap();
    for from in [&folder, &bundle] {
        let own = tempfile::tempdir().unwrap();
        let cache = open(own.path(), 2 * 4608 + 100);
        let imported = cache.import(from).unwrap();
        assert_eq!((imported.copied, imported.refused), (2, 3));
        assert!(matches!(
            imported.warning,
            Some(Warning::OverCapacity { .. })
        ));
        assert!(is_hit(&cache, &key(0)) && is_hit(&cache, &key(4)));
    }
}

#[test]
fn an_export_takes_the_place_of_a_bundle_and_of_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let [folder, bundle] = shared(dir.path());
    let cache = open(&folder, MIB);
    let before = fs::read(&bundle).unwrap();
    cache.export(&bundle).unwrap();
    assert_eq!(
        fs::read(&bundle).unwrap(),
        before,
        "the same entries, the same bytes"
    );
    fs::write(entry_path(&folder, key(1).name()), "bad").unwrap();
    let exported = cache.export(&bundle).unwrap();
    assert_eq!((exported.entries, exported.bad.len()), (4, 1));
    let manifest = dir.path().join("sweep.toml");
    fs::write(&manifest, "[sweep]").unwrap();
    let pipe = dir.path().join("pipe");
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let link = dir.path().join("link");
    std::os::unix::fs::symlink("shared.bundle", &link).unwrap();
    for taken in [&manifest, &folder, &pipe, &link] {
        let refused = cache.export(taken);
        assert!(matches!(refused, Err(CacheError::NotABundle { .. })));
    }
    assert_eq!(fs::read(&manifest).unwrap(), b"[sweep]");
    // Whatever happens, no draft stays.
    let kept: Vec<_> = fs::read_dir(dir.path())
        .unwrap()
        .map(|item| item.unwrap().file_name())
        .collect();
    assert_eq!(kept.len(), 5, "{kept:?}");
    assert!(cache.export(&dir.path().join("none/bundle")).is_err());
}

/// A bundle may be as large as a cache.
#[test]
fn what_a_killed_export_left_is_deleted_an_hour_later() {
    let dir = tempfile::tempdir().unwrap();
    let [folder, bundle] = shared(dir.path());
    let drafts = ["1.1", "2.2"].map(|end| dir.path().join(format!(".shared.bundle.draft.{end}")));
    for draft in &drafts {
        fs::write(draft, "half a bundle").unwrap();
    }
    let old = fs::File::options().append(true).open(&drafts[0]).unwrap();
    let two_hours = std::time::Duration::from_secs(7200);
    old.set_modified(std::time::SystemTime::now() - two_hours)
        .unwrap();
    open(&folder, MIB).export(&bundle).unwrap();
    assert_eq!(drafts.map(|draft| draft.exists()), [false, true]);
}

#[test]
fn two_processes_that_miss_the_same_entry_copy_it_once() {
    let dir = tempfile::tempdir().unwrap();
    let [_, bundle] = shared(dir.path());
    let own = dir.path().join("own");
    let stores: u64 = std::thread::scope(|scope| {
        let work = || {
            let cache = open_with(&own, &[&bundle]);
            assert!((0..5).all(|n| is_hit(&cache, &key(n))));
            cache.stats().unwrap().session.stores
        };
        let workers = [(); 4].map(|()| scope.spawn(work));
        workers.map(|worker| worker.join().unwrap()).iter().sum()
    });
    assert_eq!(stores, 5);
}
