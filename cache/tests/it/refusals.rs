//! Where the cache can't write or won't trust, it says so once and nothing else breaks.

use std::{
    fs::{self, Permissions},
    os::unix::{
        fs::{MetadataExt as _, PermissionsExt as _, chown, symlink},
        process::CommandExt as _,
    },
    path::Path,
    process::Command,
};

use sweeper_cache::{Cache, CacheConfig, CacheError, Lookup, Warning};

use crate::support::{
    MIB, child, child_dir, child_from, disk_usage, entry_path, files, is_hit, key, open, payload,
    publish, run, store,
};

/// A user who isn't root.
const NOBODY: u32 = 65534;

fn is_root() -> bool {
    nix::unistd::geteuid().is_root()
}

fn refused(dir: &Path) -> CacheError {
    Cache::open(CacheConfig::new(dir, MIB)).expect_err("such a directory is refused")
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn the_layout_is_private_and_marked() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("deep/down/cache");
    store(&open(&root, MIB), 1, 10);
    let mut ahead = vec![root.clone()];
    while let Some(folder) = ahead.pop() {
        for item in fs::read_dir(&folder).unwrap() {
            let path = item.unwrap().path();
            let metadata = fs::metadata(&path).unwrap();
            let expected = match metadata.is_dir() {
                true => 0o700,
                false => 0o600,
            };
            assert_eq!(metadata.mode() & 0o777, expected, "{}", path.display());
            if metadata.is_dir() {
                ahead.push(path);
            }
        }
    }
    assert_eq!(fs::metadata(&root).unwrap().mode() & 0o777, 0o700);
    let tag = fs::read_to_string(root.join("CACHEDIR.TAG")).unwrap();
    assert!(tag.starts_with("Signature: 8a477f597d28d172789f06886806bc55\n"));
}

#[test]
fn the_root_of_another_user_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    // Root may give directories away. Other users find a directory that isn't theirs.
    let foreign = if is_root() {
        chown(dir.path(), Some(NOBODY), None).unwrap();
        dir.path()
    } else {
        Path::new("/usr")
    };
    let error = refused(foreign);
    assert!(matches!(error, CacheError::ForeignOwner { .. }), "{error}");
}

#[test]
fn a_directory_that_others_may_write_to_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o777);
    let error = refused(dir.path());
    assert!(
        matches!(error, CacheError::OthersMayWrite { .. }),
        "{error}"
    );
    assert!(error.to_string().contains("chmod go-w"));
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0);
    set_mode(dir.path(), 0o1777);
    store(&open(dir.path(), MIB), 1, 10);
    set_mode(dir.path(), 0o700);
    set_mode(&dir.path().join("v1"), 0o777);
    assert!(matches!(
        refused(dir.path()),
        CacheError::OthersMayWrite { .. }
    ));
    for place in ["", "v1", "v1/o"] {
        let dir = tempfile::tempdir().unwrap();
        store(&open(dir.path(), MIB), 1, 10);
        set_mode(&dir.path().join(place), 0o770);
        let error = refused(dir.path());
        assert!(
            matches!(error, CacheError::OthersMayWrite { mode: 0o770, .. }),
            "{error}"
        );
    }
}

#[test]
fn entries_that_others_may_write_or_made_are_not_loaded() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    store(&cache, 1, 10);
    let entry = || entry_path(dir.path(), key(1).name());
    set_mode(&entry(), 0o664);
    let report = cache.verify(false).unwrap();
    assert_eq!(report.bad.len(), 1);
    assert!(report.bad[0].reason.contains("mode 664"), "{report:?}");
    assert!(cache.peek(&key(1)).is_none());
    set_mode(&entry(), 0o644);
    assert!(cache.peek(&key(1)).is_some());
    if is_root() {
        chown(entry(), Some(NOBODY), None).unwrap();
        assert!(cache.peek(&key(1)).is_none());
        assert!(matches!(cache.lookup(&key(1)), Lookup::Miss(_)));
        // It was set aside: a good one can take its place.
        store(&cache, 1, 10);
        assert!(cache.peek(&key(1)).is_some());
    }
}

#[test]
fn entries_can_be_set_aside_and_waiting_can_be_stopped() {
    let dir = tempfile::tempdir().unwrap();
    let cache = open(dir.path(), MIB);
    store(&cache, 1, 10);
    assert!(cache.set_aside(&key(1).name()));
    assert!(!cache.set_aside(&key(1).name()));
    let Some(Lookup::Miss(slot)) = cache.lookup_unless(&key(1), || false) else {
        panic!("it was set aside");
    };
    assert!(cache.lookup_unless(&key(1), || true).is_none());
    drop(slot);
    assert!(cache.lookup_unless(&key(1), || true).is_some());
}

#[test]
fn what_is_no_directory_and_what_is_no_cache_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(refused(&file), CacheError::NotADirectory { .. }));
    assert!(matches!(
        refused(&file.join("below")),
        CacheError::Create { .. }
    ));
    assert!(matches!(refused(dir.path()), CacheError::NotACache { .. }));
    assert!(!dir.path().join("CACHEDIR.TAG").exists());
    let linked = tempfile::tempdir().unwrap();
    symlink("/tmp", linked.path().join("v1")).unwrap();
    assert!(matches!(
        refused(linked.path()),
        CacheError::NotADirectory { .. }
    ));
}

/// Runs an ignored test as a user whom permissions bind, on a cache of that user.
fn run_unprivileged(name: &str, dir: &Path) {
    if !is_root() {
        return run(child(name, dir));
    }
    // Where this binary lies, others may not be able to go.
    let binary = tempfile::tempdir().unwrap();
    set_mode(binary.path(), 0o755);
    let copy = binary.path().join("it");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    set_mode(&copy, 0o755);
    chown(dir, Some(NOBODY), Some(NOBODY)).unwrap();
    let mut command = child_from(&copy, name, dir);
    command.uid(NOBODY).gid(NOBODY).current_dir("/");
    run(command);
}

#[test]
fn a_directory_that_can_only_be_read_is_read() {
    let dir = tempfile::tempdir().unwrap();
    run_unprivileged("refusals::read_only", dir.path());
}

#[test]
#[ignore = "run by a_directory_that_can_only_be_read_is_read"]
fn read_only() {
    let root = child_dir().join("cache");
    store(&open(&root, MIB), 1, 10);
    let mut paths = vec![root.clone(), root.join("v1")];
    paths.extend(
        ["o", "tmp", "lock", "gc", "bad", "acct", "stats"].map(|name| root.join("v1").join(name)),
    );
    paths.extend(files(&root, "lock"));
    for path in &paths {
        set_mode(path, if path.is_dir() { 0o500 } else { 0o400 });
    }
    let cache = open(&root, MIB);
    assert!(matches!(
        cache.warning(),
        Some(Warning::WritingStopped { .. })
    ));
    assert!(is_hit(&cache, &key(1)));
    let published = publish(&cache, 2, 10);
    assert_eq!(published.entry.payload(), payload(2, 10));
    assert_eq!(
        (published.stored, published.warning),
        (false, cache.warning())
    );
    assert_eq!(cache.stats().unwrap().entries, 1);
    assert!(matches!(cache.clear(), Err(CacheError::ReadOnly(_))));
    assert!(matches!(cache.gc(true), Err(CacheError::ReadOnly(_))));
    assert_eq!(cache.verify(false).unwrap().checked, 1);
    assert_eq!(cache.ls().unwrap().count(), 1);
    drop(cache);
    for path in &paths {
        set_mode(path, if path.is_dir() { 0o700 } else { 0o600 });
    }
}

#[test]
fn permissions_that_vanish_stop_writing_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    run_unprivileged("refusals::vanishing_permissions", dir.path());
}

#[test]
#[ignore = "run by permissions_that_vanish_stop_writing_and_nothing_else"]
fn vanishing_permissions() {
    let root = child_dir().join("cache");
    let cache = open(&root, MIB);
    let readable = store(&cache, 1, 10);
    set_mode(&root.join("v1/tmp"), 0o500);
    let published = publish(&cache, 2, 10);
    assert!(!published.stored);
    let warning = published.warning.unwrap();
    assert!(
        matches!(
            &warning,
            Warning::WritingStopped {
                action: "write",
                ..
            }
        ),
        "{warning}"
    );
    set_mode(&root.join("v1/tmp"), 0o700);
    assert_eq!(
        publish(&cache, 3, 10).warning,
        Some(warning),
        "it has stopped for good"
    );
    assert!(is_hit(&cache, &key(1)));
    assert!(open(&root, MIB).warning().is_none());
    // An entry that can't be opened is set aside, or it would be a miss for ever.
    let path = crate::support::entry_path(&root, readable.name());
    set_mode(&path, 0o000);
    let cache = open(&root, MIB);
    assert!(!is_hit(&cache, &key(1)));
    store(&cache, 1, 10);
}

/// A limit on the size of files acts like a full disk or a quota, and needs no privileges.
#[test]
fn a_full_disk_stops_writing_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let binary = std::env::current_exe().unwrap();
    let mut limited = Command::new("sh");
    // The signal that comes with it is ignored, so that the write fails.
    limited
        .args(["-c", r#"trap '' XFSZ; ulimit -f 16; exec "$0" "$@""#])
        .arg(binary);
    let inner = child("refusals::full_disk", dir.path());
    limited
        .args(inner.get_args())
        .env("SWEEPER_CACHE_TEST_DIR", dir.path());
    run(limited);
}

#[test]
#[ignore = "run by a_full_disk_stops_writing_and_nothing_else"]
fn full_disk() {
    fill_until_full(&child_dir().join("cache"), 100_000, 1);
}

/// A command with mounts of its own, which requires that Linux allows user namespaces.
fn with_mounts() -> Command {
    let mut command = Command::new("unshare");
    command.args(["--user", "--map-root-user", "--mount"]);
    command
}

/// The test of a full disk, on a file system of its own.
#[test]
fn a_full_file_system_stops_writing_and_nothing_else() {
    let dir = tempfile::tempdir().unwrap();
    let mut tried = with_mounts();
    tried.args(["mount", "-t", "tmpfs", "none"]).arg(dir.path());
    if !tried.output().is_ok_and(|tried| tried.status.success()) {
        // Not by a macro, whose output is hidden if the test passes.
        let said = "skipped for want of mounts: a full file system\n";
        std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes()).unwrap();
        return;
    }
    let binary = std::env::current_exe().unwrap();
    let script =
        r#"mount -t tmpfs -o size=1m,mode=700 none "$SWEEPER_CACHE_TEST_DIR" && exec "$0" "$@""#;
    let mut limited = with_mounts();
    limited.args(["sh", "-c", script]).arg(binary);
    let inner = child("refusals::full_file_system", dir.path());
    limited
        .args(inner.get_args())
        .env("SWEEPER_CACHE_TEST_DIR", dir.path());
    run(limited);
}

#[test]
#[ignore = "run by a_full_file_system_stops_writing_and_nothing_else"]
fn full_file_system() {
    let root = child_dir().join("cache");
    fill_until_full(&root, 100_000, 5);
    // The next run wants other entries, and a tenth of the space is freed for them, once.
    let later = open(&root, 1 << 40);
    store(&later, 5000, 100_000);
    assert!(later.stats().unwrap().session.evictions > 0);
}

/// Publishes until there is no space. At least `at_least` small entries must have been stored
/// before.
fn fill_until_full(root: &Path, bytes: usize, at_least: u64) {
    let cache = open(root, 1 << 40);
    for n in 0..at_least {
        store(&cache, n, 100);
    }
    let full = (1000..)
        .map(|n| (n, publish(&cache, n, bytes)))
        .find(|(_, published)| !published.stored);
    let (n, published) = full.unwrap();
    assert!(
        matches!(published.warning, Some(Warning::WritingStopped { .. })),
        "{:?}",
        published.warning
    );
    assert_eq!(published.entry.payload(), payload(n, bytes));
    assert_eq!(
        publish(&cache, 9999, 100).warning,
        cache.warning(),
        "it has stopped for good"
    );
    assert!(files(root, "tmp").is_empty());
    assert!((0..at_least).all(|n| is_hit(&cache, &key(n))));
    let report = cache.verify(false).unwrap();
    assert_eq!(report.bad, []);
    assert!(report.accounted.unwrap().bytes >= disk_usage(root));
}
