//! `sweeper run` and `sweeper compile`.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM, SIGUSR1};

use super::exit::Exit;
use super::progress::Shown;
use super::screen::Screen;
use super::settings::ManifestArgs;
use super::{place, plan, worker};
use crate::compile::kernels::{Kernels, Origin, Toolchain};
use crate::execute::outcome::Status;
use crate::manifest::Manifest;
use crate::plan::Plan;
use crate::run::{self, Ended, Request, compiling};

/// Arguments of `run`.
#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Measure all again, in a folder `attempt-N` beside
    #[arg(long)]
    fresh: bool,
    /// Show the plan and measure nothing
    #[arg(long)]
    dry_run: bool,
    /// Compile when a block needs it, not all ahead (never inside a timed region)
    #[arg(long)]
    skip_precompile: bool,
    /// Fail if anything would have to be compiled
    #[arg(long)]
    require_cached: bool,
    /// Use no kernel cache
    #[arg(long)]
    no_cache: bool,
    /// Write inputs, outputs and gradients of every point as safetensors below this folder
    #[arg(long, value_name = "DIR")]
    save_tensors: Option<PathBuf>,
}

/// Runs a manifest.
pub fn run(args: &RunArgs, screen: &Screen) -> Exit {
    let manifest = match args.manifest.load(screen) {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    if args.dry_run {
        return plan::show(&manifest, screen);
    }
    let request = match request(args, &manifest, screen) {
        Ok(request) => request,
        Err(exit) => return exit,
    };
    execute(&manifest, &request, screen).map_or_else(|exit| exit, |ended| exit_of(&ended, &request))
}

fn request(args: &RunArgs, manifest: &Manifest, screen: &Screen) -> Result<Request, Exit> {
    let worker = worker::command().map_err(|error| {
        screen.error(&format!("this program's own file: {error}"));
        Exit::Files
    })?;
    let (dir, why) = place::cache_dir(Some(manifest));
    let cache_dir = (!args.no_cache).then_some(dir);
    if let (Some(dir), true) = (&cache_dir, screen.verbose) {
        screen.note(&format!("kernel cache: {} ({why})", dir.display()));
    }
    Ok(Request {
        worker,
        resolved: manifest.resolved_toml(),
        command: std::env::args().collect(),
        fresh: args.fresh,
        require_cached: args.require_cached,
        skip_precompile: args.skip_precompile,
        save_tensors: args.save_tensors.as_deref().map(absolute),
        cache_dir,
        compile_threads: place::compile_threads(manifest),
    })
}

fn absolute(path: &std::path::Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}

/// Runs a manifest and shows how it goes; signals stop it.
///
/// # Errors
/// The exit code, after the reason was shown.
pub fn execute(manifest: &Manifest, request: &Request, screen: &Screen) -> Result<Ended, Exit> {
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM, SIGUSR1] {
        // A second signal while the first is worked on ends the program at once.
        let ended = signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)));
        if let Err(error) = ended {
            screen.warning(&format!(
                "signal {signal} will end the run at once: {error}"
            ));
        }
    }
    let shown = Shown::new(screen);
    let result = run::run(manifest, request, &stop, &shown);
    shown.finish();
    match result {
        Ok(ended) => {
            shown.summary(&ended);
            Ok(ended)
        }
        Err(error) => {
            screen.error(&error.to_string());
            Err(Exit::from(&error))
        }
    }
}

fn exit_of(ended: &Ended, request: &Request) -> Exit {
    let failed = |status: &Status| !status.is_fine();
    match () {
        () if ended.stopped => Exit::Stopped,
        () if !ended.statuses.keys().any(failed) => Exit::Fine,
        () if request.require_cached && ended.statuses.contains_key(&Status::Unavailable) => {
            Exit::Impossible
        }
        () => Exit::Failures,
    }
}

/// Arguments of `compile`.
#[derive(Args)]
pub struct CompileArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
}

/// Fills the kernel cache with what a manifest needs on this machine.
pub fn compile(args: &CompileArgs, screen: &Screen) -> Exit {
    let manifest = match args.manifest.load(screen) {
        Ok(manifest) => manifest,
        Err(exit) => return exit,
    };
    let device = match run::device_request(&manifest) {
        Ok(device) => device,
        Err(error) => {
            screen.error(&error.to_string());
            return Exit::from(&error);
        }
    };
    let plan = Plan::new(&manifest, run::plan_device(&device));
    let (dir, _) = place::cache_dir(Some(&manifest));
    let config = sweeper_cache::CacheConfig::new(&dir, manifest.cache.size_bytes);
    let cache = match sweeper_cache::Cache::open(config) {
        Ok(cache) => cache,
        Err(error) => {
            screen.error(&error.to_string());
            return Exit::Files;
        }
    };
    let toolchain = Toolchain::find(std::env::var_os("CC").map(PathBuf::from));
    let kernels = Kernels {
        toolchain: &toolchain,
        cache: Some(&cache),
        device: &run::local_device(&device),
        limit: manifest.limits.compile_timeout,
        require_cached: false,
    };
    let sources: Vec<_> = plan.kernels.iter().collect();
    let results = kernels.get_all(
        &sources,
        place::compile_threads(&manifest),
        &|position, result| {
            let name = compiling::name(sources[position]);
            match result {
                Ok(built) if built.origin == Origin::Built => {
                    screen.note(&format!(
                        "compiled {name} in {:.0} ms",
                        built.compile_ns as f64 / 1e6
                    ));
                }
                Ok(_) => {}
                Err(error) => screen.error(&format!("{name}: {error}")),
            }
        },
    );
    let built = compiling::count_built(&results);
    let failed = results.iter().filter(|result| result.is_err()).count();
    screen.line(&format!(
        "{} kernels: {built} compiled, {} in the cache before, {failed} failed; {}",
        results.len(),
        results.len() - built - failed,
        dir.display()
    ));
    if failed > 0 {
        Exit::Failures
    } else {
        Exit::Fine
    }
}
