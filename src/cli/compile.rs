//! `sweeper compile`: the kernel cache, filled ahead, for this machine or another one.

use std::path::Path;

use clap::Args;
use serde_json::{Value as Json, json};

use super::exit::Exit;
use super::screen::Screen;
use super::settings::ManifestArgs;
use super::target::Target;
use super::{place, signals};
use crate::run::compiling::{self, WarningKind};
use crate::run::{self, calibration};
use sweeper_cache::Cache;
use sweeper_engine::compile::CompileError;
use sweeper_engine::compile::bound;
use sweeper_engine::compile::kernels::{Kernels, Origin, resources_in_words};
use sweeper_engine::device::platform::{device_of_arch, platform};
use sweeper_manifest::Manifest;
use sweeper_manifest::plan::Plan;
use sweeper_program::KernelSource;
use sweeper_program::Target as Instructions;

/// Arguments of `compile`.
#[derive(Args)]
pub struct CompileArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Compile for these GPUs, such as sm_80,sm_90, whatever this machine has; needs NVRTC and no
    /// GPU
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<String>,
}

/// Fills the kernel cache with the kernels that a manifest needs on this machine, or on the GPUs
/// that are named.
pub fn compile(args: &CompileArgs, screen: &Screen) -> Exit {
    let manifest = match args.manifest.load(screen) {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    let (dir, _) = place::cache_dir(Some(&manifest));
    let stop = signals::listen(screen);
    let toolchain = place::toolchain_until(Some(&dir), stop);
    // Starting a driver takes as long as reading a compiler.
    let elsewhere = args.arch.first().map(|arch| device_of_arch(arch));
    let _ahead = toolchain.look_ahead(match &elsewhere {
        Some(Ok(device)) => device.kind,
        _ => run::likely_kind(&manifest),
    });
    let targets = match targets(args, &manifest, screen) {
        Ok(targets) => targets,
        Err(exit) => return exit,
    };
    let Some(cache) = opened(&dir, &manifest, screen) else {
        return Exit::Files;
    };
    if let Some(Ok(device)) = &elsewhere
        && let Err(reason) = toolchain.compiler(platform(device.kind).language)
    {
        screen.error(reason);
        return Exit::Impossible;
    }
    bound::remember(&dir, manifest.cache.size_bytes);
    let (mut failed, mut not_stored) = (0, 0);
    let mut all = Vec::new();
    for target in targets {
        let device = target.device();
        let plan = Plan::new(&manifest, target.plan.clone());
        let kernels = Kernels {
            toolchain: &toolchain,
            cache: Some(&cache),
            device,
            limit: manifest.limits.compile_timeout,
            require_cached: false,
            stop,
        };
        let Some(counts) = compile_for(&plan, &kernels, screen) else {
            return Exit::Stopped;
        };
        failed += counts.failed;
        not_stored += counts.not_stored;
        if screen.json {
            all.push(counts.json(&target));
        } else {
            screen.line(&counts.line(&target, &dir));
        }
    }
    if screen.json {
        screen.json(&json!({ "cache": dir, "targets": all }));
    }
    match (failed, not_stored) {
        (0, 0) => Exit::Fine,
        (0, _) => Exit::Files,
        (_, _) => Exit::Failures,
    }
}

/// The cache of a manifest in `dir`; an error on the screen where it can't be opened.
fn opened(dir: &Path, manifest: &Manifest, screen: &Screen) -> Option<Cache> {
    let opened = Cache::open(compiling::config(dir, manifest));
    if let Ok(cache) = &opened {
        warn_of_upstreams(cache, screen);
    }
    opened
        .inspect_err(|error| screen.error(&error.to_string()))
        .ok()
}

/// Warns of faults of the caches that are only read.
fn warn_of_upstreams(cache: &Cache, screen: &Screen) {
    for warning in cache.take_warnings() {
        screen.warning(&warning.to_string());
    }
}

/// The targets to compile for: the device of the manifest, or GPUs that need not be here.
fn targets(args: &CompileArgs, manifest: &Manifest, screen: &Screen) -> Result<Vec<Target>, Exit> {
    if args.arch.is_empty() {
        return Ok(vec![Target::of_manifest(manifest, screen)?]);
    }
    let archs = args.arch.iter();
    archs.map(|arch| Target::of_arch(arch, screen)).collect()
}

/// How many kernels were wanted, compiled now, refused, and not taken by the cache.
struct Counts {
    all: usize,
    built: usize,
    failed: usize,
    not_stored: usize,
    /// Those that another cache had.
    fetched: u64,
}

impl Counts {
    /// Kernels that were in a cache before.
    fn held(&self) -> usize {
        self.all - self.built - self.failed
    }

    fn line(&self, target: &Target, dir: &Path) -> String {
        let arch = match &target.plan.target {
            Instructions::Cuda { arch } => format!(" for {arch}"),
            Instructions::Cpu => String::new(),
        };
        let not_stored = match self.not_stored {
            0 => String::new(),
            count => format!(", {count} not stored"),
        };
        let fetched = match self.fetched {
            0 => String::new(),
            count => format!(" ({count} in an upstream)"),
        };
        format!(
            "{} kernels{arch}: {} compiled, {} in the cache before{fetched}, {} failed{not_stored}; {}",
            self.all,
            self.built,
            self.held(),
            self.failed,
            dir.display()
        )
    }

    fn json(&self, target: &Target) -> Json {
        json!({
            "device": target.plan.kind,
            "arch": target.device().details.get("arch"),
            "kernels": self.all,
            "compiled": self.built,
            "cached": self.held(),
            "fetched": self.fetched,
            "failed": self.failed,
            "not_stored": self.not_stored,
        })
    }
}

/// Compiles the kernels that a plan needs; nothing if a signal stopped it.
fn compile_for(plan: &Plan<'_>, kernels: &Kernels<'_>, screen: &Screen) -> Option<Counts> {
    let device = kernels.device;
    // Probes of the device's ceilings belong to every run on it.
    let threads = plan.manifest().device.threads;
    let probes = match device.kind.facts().computes {
        true => calibration::sources(device, &plan.device.target, threads),
        false => Vec::new(),
    };
    let sources = KernelSource::distinct(plan.kernels.iter().chain(&probes));
    if let Some(warning) = compiling::expect(kernels, &sources) {
        screen.warning(&warning);
    }
    let fetched = || kernels.cache.map_or(0, |cache| cache.session().fetched);
    let fetched_before = fetched();
    let threads = place::compile_threads(plan.manifest());
    let results = kernels.get_all(&sources, threads, &|position, result| {
        let name = sources[position].title();
        match result {
            Ok(built) if built.origin == Origin::Built => {
                let resources = resources_in_words(&built.resources);
                let resources = resources.map_or(String::new(), |words| format!(", {words}"));
                let ms = built.compile_ns as f64 / 1e6;
                screen.note(&format!("compiled {name} in {ms:.0} ms{resources}"));
            }
            Ok(_) | Err(CompileError::Stopped) => {}
            Err(error) => screen.error(&format!("{name}: {error}")),
        }
    });
    if let Some(cache) = kernels.cache {
        warn_of_upstreams(cache, screen);
    }
    let is_stopped = |result: &Result<_, _>| matches!(result, Err(CompileError::Stopped));
    if results.iter().any(is_stopped) {
        screen.note("stopped; run again to go on");
        return None;
    }
    let mut not_stored: Vec<(WarningKind, String, usize)> = Vec::new();
    let warnings = results.iter().filter_map(compiling::warning);
    for (kind, text) in warnings.filter(|(kind, _)| *kind != WarningKind::Foreign) {
        match not_stored.iter_mut().find(|(held, ..)| *held == kind) {
            // The last of a kind has the largest numbers.
            Some((_, held, count)) => (*held, *count) = (text, *count + 1),
            None => not_stored.push((kind, text, 1)),
        }
    }
    for (_, text, count) in &not_stored {
        screen.error(&format!("{count} compiled and not stored: {text}"));
    }
    Some(Counts {
        all: results.len(),
        built: compiling::count_built(&results),
        failed: results.iter().filter(|result| result.is_err()).count(),
        not_stored: not_stored.iter().map(|(.., count)| count).sum(),
        fetched: fetched() - fetched_before,
    })
}
