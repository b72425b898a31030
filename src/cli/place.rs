//! Properties of the machine: processors, scratch, and the folder of the kernel cache.

use std::env;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use directories::ProjectDirs;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use sweeper_cache::is_network;

use sweeper_engine::compile::NEVER;
use sweeper_engine::compile::toolchain::Toolchain;
use sweeper_manifest::Manifest;
use sweeper_manifest::settings::Threads;

/// Processors of the job: the scheduler's allocation first, because visible processors lie on
/// clusters that do not confine their jobs; then affinity and control group.
pub fn processors() -> (usize, &'static str) {
    let number = |name: &str| {
        env::var(name)
            .ok()?
            .split(['(', ','])
            .next()?
            .trim()
            .parse()
            .ok()
    };
    let alone = number("SLURM_NTASKS").is_none_or(|tasks: usize| tasks == 1);
    let variables = [
        ("SLURM_CPUS_PER_TASK", true),
        ("SLURM_CPUS_ON_NODE", alone),
        ("PBS_NCPUS", true),
        ("NCPUS", true),
        ("LSB_DJOB_NUMPROC", true),
        ("OMP_NUM_THREADS", true),
    ];
    for (name, counts) in variables {
        if let Some(count) = number(name).filter(|&count| counts && count > 0) {
            return (count, name);
        }
    }
    (
        std::thread::available_parallelism().map_or(1, usize::from),
        "affinity and control group",
    )
}

/// Allows as many open files as the system lets this process have: a run has a journal for each of
/// its shards.
pub fn allow_open_files() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit {
        current: limit.maximum.map(|most| most.min(1 << 16)),
        ..limit
    };
    // With fewer, a file that can't be opened says so.
    let _ = setrlimit(Resource::Nofile, most);
}

/// The compilers of this machine; `CC` names the C compiler. Facts about them that a cache's folder
/// remembers need not be read again.
pub fn toolchain(cache: Option<&Path>) -> Toolchain {
    toolchain_until(cache, &NEVER)
}

/// The compilers of this machine, as [`toolchain`] finds them; searches end when `stop` is set.
pub fn toolchain_until(cache: Option<&Path>, stop: &'static AtomicBool) -> Toolchain {
    Toolchain::here_until(env::var_os("CC").map(PathBuf::from), cache, stop)
}

/// Threads that compile.
pub fn compile_threads(manifest: &Manifest) -> usize {
    match manifest.cache.compile_threads {
        Threads::All => processors().0,
        Threads::Count(count) => count as usize,
    }
}

/// The variable that names the kernel cache: over the manifest, under `--set` and `--cache-dir`.
pub const CACHE_DIR: &str = "SWEEPER_CACHE_DIR";

/// The kernel cache that the environment names.
pub fn cache_dir_of_environment() -> Option<PathBuf> {
    let dir = env::var_os(CACHE_DIR).filter(|dir| !dir.is_empty());
    dir.map(PathBuf::from)
}

/// The folder of the kernel cache, and the origin of this setting. A folder that the environment
/// names is part of a resolved manifest.
pub fn cache_dir(manifest: Option<&Manifest>) -> (PathBuf, String) {
    if let Some(manifest) = manifest
        && let Some(dir) = &manifest.cache.dir
    {
        let origin = manifest.provenance().origin("cache.dir");
        return (dir.clone(), origin.to_string());
    }
    if let Some(dir) = cache_dir_of_environment() {
        return (dir, format!("environment variable {CACHE_DIR}"));
    }
    let home = ProjectDirs::from("", "", "sweeper").map(|dirs| dirs.cache_dir().to_owned());
    match home {
        Some(dir) if !is_network(&dir) => (dir, "the user's cache folder".to_owned()),
        _ => {
            let scratch = ["SLURM_TMPDIR", "PBS_JOBFS", "LOCAL_SCRATCH", "TMPDIR"]
                .into_iter()
                .filter_map(env::var_os)
                .map(PathBuf::from)
                .find(|dir| dir.is_dir() && !is_network(dir));
            let base = scratch.unwrap_or_else(|| PathBuf::from("/tmp"));
            (
                base.join("sweeper"),
                "scratch, because the home folder is on a network".to_owned(),
            )
        }
    }
}
