//! Measures what the cache costs: a verified hit, opening, publishing, and evicting from caches of
//! different sizes.
//!
//! `cargo run --release -p sweeper-cache --example latency [directory]`; the directory decides on
//! the file system.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::{
    env,
    error::Error,
    fs,
    path::Path,
    time::{Duration, Instant},
};

use sweeper_cache::{Artifact, Cache, CacheConfig, Key, KeyBuilder, Kind, Lookup, Metadata};

/// The payload of a usual kernel.
const KERNEL_BYTES: usize = 50_000;
/// A payload that fits into one allocation unit with all that comes with it, and what that counts
/// for.
const SMALL_BYTES: usize = 1_000;
const SMALL_ON_DISK: u64 = 4096 + 512;
/// Keys from here on aren't among those that were put in beforehand.
const FRESH: u64 = 1_000_000;

fn main() -> Result<(), Box<dyn Error>> {
    let parent = env::args_os().nth(1).map_or_else(env::temp_dir, Into::into);
    let dir = tempfile::tempdir_in(parent)?;
    hits_and_publications(&dir.path().join("hits"))?;
    for entries in [1_000, 10_000, 100_000] {
        opening_and_evicting(&dir.path().join(entries.to_string()), entries)?;
    }
    Ok(())
}

fn hits_and_publications(dir: &Path) -> Result<(), Box<dyn Error>> {
    let cache = Cache::open(CacheConfig::new(dir, u64::MAX))?;
    let publications = (0..500).map(|n| time(|| publish(&cache, n, KERNEL_BYTES)));
    report("publish 50 KB", publications.collect());
    let hits = (0..20_000).map(|n| time(|| hit(&cache, n % 500)));
    report("verified hit of 50 KB", hits.collect());
    let misses = (0..5_000).map(|n| time(|| drop(cache.lookup(&key(FRESH + n)))));
    report("miss with the right to fill it", misses.collect());
    Ok(())
}

/// Opens a cache that is full to the brim, and publishes into it.
fn opening_and_evicting(dir: &Path, entries: u64) -> Result<(), Box<dyn Error>> {
    make_entries(dir, entries)?;
    let full = || Cache::open(CacheConfig::new(dir, entries * SMALL_ON_DISK));
    println!("{entries} entries");
    // Their account is unknown at first, and the first to need room scans them all.
    let cache = full()?;
    let start = Instant::now();
    let refused = (0..)
        .take_while(|n| !publish(&cache, FRESH + n, SMALL_BYTES))
        .count();
    println!(
        "  a scan: {:.1?}, {refused} publications refused meanwhile",
        start.elapsed()
    );
    drop(cache);

    report("  open", (0..100).map(|_| time(|| drop(full()))).collect());
    let cache = full()?;
    let mut publications = Vec::new();
    let mut passes = Vec::new();
    for n in 0..600 {
        let before = cache.stats()?.session.evictions;
        let elapsed = time(|| publish(&cache, 2 * FRESH + n, SMALL_BYTES));
        match cache.stats()?.session.evictions - before {
            0 => publications.push(elapsed),
            victims => passes.push(elapsed.div_f64(victims as f64)),
        }
    }
    report("  publish 1 KB where there is room", publications);
    report("  publish with evictions, by victim", passes);
    Ok(())
}

/// Fills a cache with files by the names of entries. Opening and evicting don't look inside.
fn make_entries(dir: &Path, entries: u64) -> Result<(), Box<dyn Error>> {
    drop(Cache::open(CacheConfig::new(dir, u64::MAX))?);
    fs::remove_file(dir.join("v1/acct"))?;
    for n in 0..entries {
        let name = key(n).name().to_string();
        let shard = dir.join("v1/o").join(&name[..2]);
        fs::create_dir_all(&shard)?;
        fs::write(shard.join(&name[2..]), [0; SMALL_BYTES])?;
    }
    Ok(())
}

fn key(n: u64) -> Key {
    KeyBuilder::new("latency")
        .field("n", n.to_le_bytes())
        .compiler("none")
        .finish()
}

/// Publishes kernel `n`, which isn't there yet. True if it was stored.
fn publish(cache: &Cache, n: u64, bytes: usize) -> bool {
    let Lookup::Miss(slot) = cache.lookup(&key(n)) else {
        return true;
    };
    let artifact = Artifact {
        kind: Kind::Cubin,
        payload: n.to_le_bytes().into_iter().cycle().take(bytes).collect(),
        metadata: Metadata::default(),
    };
    slot.publish(artifact).stored
}

fn hit(cache: &Cache, n: u64) -> usize {
    match cache.lookup(&key(n)) {
        Lookup::Hit(entry) => entry.payload().len(),
        Lookup::Miss(_) => unreachable!("it was published"),
    }
}

fn time<T>(work: impl FnOnce() -> T) -> Duration {
    let start = Instant::now();
    std::hint::black_box(work());
    start.elapsed()
}

fn report(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let at = |percent: usize| {
        times.get((times.len() * percent / 100).min(times.len().saturating_sub(1)))
    };
    if let (Some(median), Some(p99), Some(worst)) = (at(50), at(99), at(100)) {
        let count = times.len();
        println!("{what}: median {median:.1?}, 99 % {p99:.1?}, worst {worst:.1?} ({count} times)");
    }
}
