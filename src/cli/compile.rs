//! `sweeper compile`: the kernel cache, filled ahead, for this machine or another one.

use clap::Args;

use super::exit::Exit;
use super::place;
use super::screen::Screen;
use super::settings::ManifestArgs;
use crate::compile::kernels::{Kernels, Origin, resources_in_words};
use crate::compile::toolchain::Toolchain;
use crate::device::cuda::identity;
use crate::device::{DeviceIdentity, DeviceKind};
use crate::manifest::Manifest;
use crate::plan::{Plan, PlanDevice};
use crate::run::{self, calibration, compiling};
use sweeper_cache::Cache;
use sweeper_kernels::Target;
use sweeper_kernels::program::KernelSource;

/// Arguments of `compile`.
#[derive(Args)]
pub struct CompileArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Compile for these GPUs, such as sm_80,sm_90, whatever this machine has; needs NVRTC and no GPU
    #[arg(long, value_name = "ARCH", value_delimiter = ',')]
    arch: Vec<String>,
}

/// Fills the kernel cache with what a manifest needs on this machine, or on the GPUs that are named.
pub fn compile(args: &CompileArgs, screen: &Screen) -> Exit {
    let manifest = match args.manifest.load(screen) {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    let (dir, _) = place::cache_dir(Some(&manifest));
    let toolchain = place::toolchain(Some(&dir));
    // Starting a driver takes as long as reading a compiler.
    let _ahead = toolchain.look_ahead(match args.arch.is_empty() {
        true => run::likely_kind(&manifest),
        false => DeviceKind::Cuda,
    });
    let devices = match devices(args, &manifest, screen) {
        Ok(devices) => devices,
        Err(exit) => return exit,
    };
    let config = sweeper_cache::CacheConfig::new(&dir, manifest.cache.size_bytes);
    let cache = match Cache::open(config) {
        Ok(cache) => cache,
        Err(error) => {
            screen.error(&error.to_string());
            return Exit::Files;
        }
    };
    if !args.arch.is_empty()
        && let Err(reason) = toolchain.nvrtc()
    {
        screen.error(reason);
        return Exit::Impossible;
    }
    let mut failed = 0;
    for (device, plan_device) in devices {
        let plan = Plan::new(&manifest, plan_device);
        let counts = compile_for(&plan, &device, &cache, &toolchain, screen);
        failed += counts.failed;
        let target = match device.kind {
            DeviceKind::Cuda => format!(" for {}", device.details["arch"]),
            DeviceKind::Cpu | DeviceKind::Null => String::new(),
        };
        screen.line(&format!(
            "{} kernels{target}: {} compiled, {} in the cache before, {} failed; {}",
            counts.all,
            counts.built,
            counts.all - counts.built - counts.failed,
            counts.failed,
            dir.display()
        ));
    }
    if failed > 0 {
        Exit::Failures
    } else {
        Exit::Fine
    }
}

/// What to compile for: the device of the manifest, or GPUs that need not be here.
fn devices(
    args: &CompileArgs,
    manifest: &Manifest,
    screen: &Screen,
) -> Result<Vec<(DeviceIdentity, PlanDevice)>, Exit> {
    if args.arch.is_empty() {
        let request = run::device_request(manifest).map_err(|error| {
            screen.error(&error.to_string());
            Exit::from(&error)
        })?;
        return Ok(vec![(
            run::local_device(&request),
            run::plan_device(&request),
        )]);
    }
    let device = |arch: &String| {
        let device = identity::of_arch(arch).map_err(|reason| {
            screen.error(&reason);
            Exit::Usage
        })?;
        let arch = device.details["arch"].clone();
        let plan_device = PlanDevice {
            kind: DeviceKind::Cuda,
            target: Target::Cuda { arch },
        };
        Ok((device, plan_device))
    };
    args.arch.iter().map(device).collect()
}

/// How many kernels were wanted, compiled now, and refused.
struct Counts {
    all: usize,
    built: usize,
    failed: usize,
}

fn compile_for(
    plan: &Plan<'_>,
    device: &DeviceIdentity,
    cache: &Cache,
    toolchain: &Toolchain,
    screen: &Screen,
) -> Counts {
    let kernels = Kernels {
        toolchain,
        cache: Some(cache),
        device,
        limit: plan.manifest().limits.compile_timeout,
        require_cached: false,
        stop: &crate::compile::NEVER,
    };
    // What measures the device's ceilings belongs to every run on it.
    let threads = plan.manifest().device.threads;
    let probes = match device.kind {
        DeviceKind::Null => Vec::new(),
        _ => calibration::sources(device, &plan.device.target, threads),
    };
    let sources = KernelSource::distinct(plan.kernels.iter().chain(&probes));
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
            Ok(_) => {}
            Err(error) => screen.error(&format!("{name}: {error}")),
        }
    });
    Counts {
        all: results.len(),
        built: compiling::count_built(&results),
        failed: results.iter().filter(|result| result.is_err()).count(),
    }
}
