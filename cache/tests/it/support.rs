//! Small entries to store, measuring the disk usage, and running this binary again as another
//! process.

use std::{
    collections::BTreeSet,
    env, fs, io,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::Duration,
};

use sweeper_cache::{
    Artifact, Cache, CacheConfig, Entry, EntryName, Key, KeyBuilder, Kind, Lookup, Metadata,
    Published,
};

pub(crate) const MIB: u64 = 1 << 20;

/// Keys that differ in one field.
pub(crate) fn key(n: u64) -> Key {
    keyed(n, "cc 13.2")
}

pub(crate) fn keyed(n: u64, compiler: &str) -> Key {
    KeyBuilder::new("test 1")
        .field("source", format!("kernel {n}"))
        .field("arch", "sm_90a")
        .compiler(compiler)
        .finish()
}

/// A payload that says which key it belongs to.
pub(crate) fn payload(n: u64, bytes: usize) -> Vec<u8> {
    format!("code of kernel {n}; ")
        .into_bytes()
        .into_iter()
        .cycle()
        .take(bytes)
        .collect()
}

pub(crate) fn artifact(payload: Vec<u8>) -> Artifact {
    Artifact {
        kind: Kind::Cubin,
        payload,
        metadata: Metadata {
            sources: vec!["forward.cu".into()],
            arch: "sm_90a".into(),
            compiler: "cc 13.2".into(),
            compile_ns: 5_000_000,
            ..Metadata::default()
        },
    }
}

/// A configuration with time enough to evict, however slow the machine.
pub(crate) fn config(dir: &Path, capacity_bytes: u64) -> CacheConfig {
    CacheConfig {
        eviction_time: Duration::from_secs(60),
        ..CacheConfig::new(dir, capacity_bytes)
    }
}

pub(crate) fn open(dir: &Path, capacity_bytes: u64) -> Cache {
    Cache::open(config(dir, capacity_bytes)).unwrap()
}

/// Looks up kernel `n`, which must not be there, and publishes it.
pub(crate) fn publish(cache: &Cache, n: u64, bytes: usize) -> Published {
    match cache.lookup(&key(n)) {
        Lookup::Hit(_) => panic!("kernel {n} is there already"),
        Lookup::Miss(slot) => slot.publish(artifact(payload(n, bytes))),
    }
}

/// Publishes kernel `n`, which must be stored.
pub(crate) fn store(cache: &Cache, n: u64, bytes: usize) -> Entry {
    let published = publish(cache, n, bytes);
    assert_eq!((published.stored, published.warning), (true, None));
    published.entry
}

pub(crate) fn is_hit(cache: &Cache, key: &Key) -> bool {
    matches!(cache.lookup(key), Lookup::Hit(_))
}

pub(crate) fn entry_path(dir: &Path, name: EntryName) -> PathBuf {
    let name = name.to_string();
    dir.join("v1/o").join(&name[..2]).join(&name[2..])
}

/// The names of all files in one folder of the cache, however deep.
pub(crate) fn files(dir: &Path, folder: &str) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut ahead = vec![dir.join("v1").join(folder)];
    while let Some(folder) = ahead.pop() {
        for item in fs::read_dir(folder).unwrap() {
            let path = item.unwrap().path();
            if path
                .symlink_metadata()
                .is_ok_and(|metadata| metadata.is_dir())
            {
                ahead.push(path);
            } else {
                found.insert(path);
            }
        }
    }
    found
}

/// Disk usage of entries and temporary files, in bytes of allocated blocks, as `du` counts.
pub(crate) fn disk_usage(dir: &Path) -> u64 {
    let blocks = |path: &PathBuf| match path.symlink_metadata() {
        Ok(metadata) => metadata.blocks(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
        Err(error) => panic!("{error}"),
    };
    let paths = [files(dir, "o"), files(dir, "tmp")];
    paths.iter().flatten().map(blocks).sum::<u64>() * 512
}

/// This test binary, to run only the ignored test `name` with `dir` as its argument.
pub(crate) fn child(name: &str, dir: &Path) -> Command {
    child_from(&env::current_exe().unwrap(), name, dir)
}

pub(crate) fn child_from(binary: &Path, name: &str, dir: &Path) -> Command {
    let mut command = Command::new(binary);
    command.args([
        "--exact",
        name,
        "--ignored",
        "--nocapture",
        "--test-threads=1",
    ]);
    command.env("SWEEPER_CACHE_TEST_DIR", dir);
    command
}

/// The argument of a child.
pub(crate) fn child_dir() -> PathBuf {
    env::var_os("SWEEPER_CACHE_TEST_DIR")
        .expect("started by another test")
        .into()
}

/// Runs a child to its end, which must be a good one.
pub(crate) fn run(mut command: Command) {
    let output = loop {
        match command.output() {
            // A copy of the binary is busy while another test's child, just forked, still has it
            // open for writing.
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy => {
                thread::sleep(Duration::from_millis(1));
            }
            output => break output.unwrap(),
        }
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}\n{text}", output.status);
    assert!(
        text.contains("1 passed"),
        "the child ran another number of tests:\n{text}"
    );
}

/// Waits until a file exists.
pub(crate) fn await_file(path: &Path) {
    for _ in 0..20_000 {
        if path.exists() {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("{} never came", path.display());
}
