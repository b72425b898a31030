//! Measures the costs of the cache, beside ccache and sccache where they are installed.
//!
//! `cargo bench -p sweeper-cache --bench speed [-- directory]`; the directory decides on the file
//! system. Figures and goals are in `docs/performance/cache.md`.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::{
    env,
    error::Error,
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use nix::sys::{
    resource::{UsageWho, getrusage},
    time::TimeValLike as _,
};
use sweeper_cache::{Artifact, Cache, CacheConfig, Key, KeyBuilder, Kind, Lookup, Metadata};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The payload of a usual kernel.
const KERNEL_BYTES: usize = 32 << 10;
/// A payload that fits into one allocation unit with all that comes with it, and the space that it
/// counts for.
const SMALL_BYTES: usize = 1_000;
const SMALL_ON_DISK: u64 = 4096 + 512;
/// Keys from here on aren't among those that were put in beforehand.
const FRESH: u64 = 1_000_000;
/// Entries that are hit in turns.
const HIT: u64 = 500;
const PROCESSES: usize = 8;

fn main() -> Result<()> {
    let mut args = env::args().skip(1).filter(|arg| arg != "--bench");
    match args.next().as_deref() {
        Some("hits") => {
            let (dir, count) = (args.next().unwrap_or_default(), args.next());
            hits(Path::new(&dir), count.unwrap_or_default().parse()?)
        }
        parent => measure(parent.map_or_else(env::temp_dir, Into::into)),
    }
}

fn measure(parent: PathBuf) -> Result<()> {
    let dir = tempfile::tempdir_in(parent)?;
    let small = dir.path().join("hits");
    hits_and_publications(&small)?;
    peers(&small, &dir.path().join("peers"))?;
    for entries in [1_000, 10_000, 100_000] {
        opening_and_evicting(&dir.path().join(entries.to_string()), entries)?;
    }
    Ok(())
}

fn hits_and_publications(dir: &Path) -> Result<()> {
    let cache = Cache::open(CacheConfig::new(dir, u64::MAX))?;
    let publications = (0..HIT).map(|n| time(|| publish(&cache, n, KERNEL_BYTES)));
    report("publish 32 KiB", publications.collect());
    let hits = (0..20_000).map(|n| time(|| hit(&cache, n % HIT)));
    report("verified hit of 32 KiB", hits.collect());
    let misses = (0..5_000).map(|n| time(|| drop(cache.lookup(&key(FRESH + n)))));
    report("miss with the right to fill it", misses.collect());
    Ok(())
}

/// This work by other caches of compilers, each hit a process, as they are used; and many
/// processes at once.
fn peers(cache: &Path, dir: &Path) -> Result<()> {
    fs::create_dir(dir)?;
    let source = dir.join("kernel.c");
    // An object of about 32 KiB.
    let numbers: Vec<String> = (0..7_900).map(|n| n.to_string()).collect();
    fs::write(
        &source,
        format!("const int table[] = {{{}}};\n", numbers.join(",")),
    )?;
    let this = env::current_exe()?;
    let own = |count: usize| {
        let mut command = Command::new(&this);
        command.arg("hits").arg(cache).arg(count.to_string());
        command
    };
    let (start, before) = (Instant::now(), processor_s()?);
    let each = 20_000;
    at_once(|_| own(each))?;
    let all = (PROCESSES * each) as f64;
    let rate = all / start.elapsed().as_secs_f64();
    let each_us = (processor_s()? - before) / all * 1e6;
    println!(
        "{PROCESSES} processes: {rate:.0} verified hits of 32 KiB a second, {each_us:.1} us of a \
         processor each"
    );
    one_hit_a_process("this cache", |_| own(1))?;
    for name in ["ccache", "sccache"] {
        let command = |number: usize| {
            let mut command = Command::new(name);
            command
                .args(["gcc", "-O1", "-c"])
                .arg(&source)
                .arg("-o")
                .arg(dir.join(format!("{number}.o")))
                .env("CCACHE_DIR", dir.join("ccache"))
                .env("SCCACHE_DIR", dir.join("sccache"))
                .stdout(Stdio::null());
            command
        };
        if Command::new(name).arg("--version").output().is_err() {
            println!("{name} is not installed");
            continue;
        }
        one_hit_a_process(name, command)?;
    }
    if let Ok(mut server) = Command::new("sccache").arg("--stop-server").spawn() {
        server.wait()?;
    }
    Ok(())
}

/// Time that processors spent on processes that have ended, in seconds.
fn processor_s() -> Result<f64> {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN)?;
    let times = [usage.user_time(), usage.system_time()];
    Ok(times
        .iter()
        .map(|time| time.num_microseconds() as f64 / 1e6)
        .sum())
}

/// Times a process that has one hit, alone and with others.
fn one_hit_a_process(name: &str, command: impl Fn(usize) -> Command) -> Result<()> {
    let run = |number| -> Result<()> {
        match command(number).status()?.success() {
            true => Ok(()),
            false => Err(format!("{name} failed").into()),
        }
    };
    // The first may have to compile, and each file name is its own.
    (0..PROCESSES).try_for_each(run)?;
    let mut times = Vec::new();
    for number in 0..100 {
        let start = Instant::now();
        run(number % PROCESSES)?;
        times.push(start.elapsed());
    }
    report(&format!("{name}: a process with one hit"), times);
    let start = Instant::now();
    let rounds = 20;
    for _ in 0..rounds {
        at_once(&command)?;
    }
    let rate = (rounds * PROCESSES) as f64 / start.elapsed().as_secs_f64();
    println!("{name}: {PROCESSES} such processes at once: {rate:.0} hits a second");
    Ok(())
}

fn at_once(command: impl Fn(usize) -> Command) -> Result<()> {
    let mut children = Vec::new();
    for number in 0..PROCESSES {
        children.push(command(number).stdout(Stdio::null()).spawn()?);
    }
    for mut child in children {
        if !child.wait()?.success() {
            return Err("a process failed".into());
        }
    }
    Ok(())
}

/// A process that has hits and does nothing else.
fn hits(dir: &Path, count: u64) -> Result<()> {
    let cache = Cache::open(CacheConfig::new(dir, u64::MAX))?;
    let start = u64::from(std::process::id());
    for n in 0..count {
        std::hint::black_box(hit(&cache, (start + n) % HIT));
    }
    Ok(())
}

/// Opens a cache that is full to the brim, and publishes into it.
fn opening_and_evicting(dir: &Path, entries: u64) -> Result<()> {
    make_entries(dir, entries)?;
    let full = || Cache::open(CacheConfig::new(dir, entries * SMALL_ON_DISK));
    println!("{entries} entries");
    // Their account is unknown at first, and the first to need room scans them all.
    let cache = full()?;
    let mut refused = Vec::new();
    loop {
        let start = Instant::now();
        let is_stored = publish(&cache, FRESH + refused.len() as u64, SMALL_BYTES);
        refused.push(start.elapsed());
        if is_stored {
            break;
        }
    }
    report("  publish while they are scanned", refused);
    drop(cache);

    report("  open", (0..100).map(|_| time(|| drop(full()))).collect());
    let cache = full()?;
    let (mut publications, mut passes, mut by_victim) = (Vec::new(), Vec::new(), Vec::new());
    for n in 0..600 {
        let before = cache.session().evictions;
        let elapsed = time(|| publish(&cache, 2 * FRESH + n, SMALL_BYTES));
        match cache.session().evictions - before {
            0 => publications.push(elapsed),
            victims => {
                passes.push(elapsed);
                by_victim.push(elapsed.div_f64(victims as f64));
            }
        }
    }
    report("  publish 1 KB where there is room", publications);
    report("  publish with evictions", passes);
    report("  the same by victim", by_victim);
    Ok(())
}

/// Fills a cache with files by the names of entries. Opening and evicting don't look inside.
fn make_entries(dir: &Path, entries: u64) -> Result<()> {
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
    KeyBuilder::new("speed")
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
