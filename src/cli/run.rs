//! `sweeper run`.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use clap::Args;

use super::exit::Exit;
use super::progress::Shown;
use super::screen::Screen;
use super::settings::ManifestArgs;
use super::target::Target;
use super::{place, plan, report, signals, slurm, worker};
use crate::run::retry::{Job, Retry};
use crate::run::reuse::Reuse;
use crate::run::time::{self, Allowed};
use crate::run::{self, Ended, Request};
use sweeper_manifest::Manifest;
use sweeper_model::row::outcome::Status;
use sweeper_model::shard::{Part, Shard};
use sweeper_results::guides::BENCHMARK_RESULTS;

/// Arguments of `run`.
#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    manifest: ManifestArgs,
    /// Measure all again, in a folder `attempt-N`; goes on with the last one if that was stopped
    /// early
    #[arg(long)]
    fresh: bool,
    /// Try points again that have no result: statuses such as `oom,timeout`, or `failed` for all of
    /// them; or those whose medians are known less well than was asked for: `wide`. Points that met
    /// trouble of the moment (a full disk, a killed process) are tried again without it
    #[arg(long, value_name = "STATUS", value_delimiter = ',')]
    retry: Vec<String>,
    /// Measure one share of the points alone, such as the third of 16; the others' rows are in the
    /// same folder, and all of them are one run
    #[arg(long, value_name = "K/N", conflicts_with = "fresh")]
    shard: Option<Shard>,
    /// Measure for this long, such as 30m: the most telling points first, the rest is declared
    /// unmeasured. The next run measures it
    #[arg(long, value_name = "TIME", value_parser = time::parse)]
    max_time: Option<Duration>,
    /// Take results of earlier runs in the folder of results, of equal points that the same program
    /// measured in the same way on the same device; rows say so
    #[arg(long)]
    reuse: bool,
    /// When the job's time is over, have Slurm start the job again, unless nothing new was measured
    #[arg(long)]
    requeue: bool,
    /// Refuse a manifest of another hash: it was changed since it was submitted
    #[arg(long, hide = true)]
    if_manifest: Option<String>,
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
    let hash = manifest.hash().0;
    if let Some(wanted) = args
        .if_manifest
        .as_ref()
        .filter(|digits| !hash.has_prefix(digits))
    {
        screen.error(&format!(
            "the manifest is {hash} now and was {wanted} when it was submitted: submit it again, or change it back"
        ));
        return Exit::Manifest;
    }
    if args.dry_run {
        return match Target::of_manifest(&manifest, screen) {
            Ok(target) => plan::show(&manifest, &target, screen),
            Err(exit) => exit,
        };
    }
    let request = match request(args, &manifest, screen) {
        Ok(request) => request,
        Err(exit) => return exit,
    };
    let ended = match execute(&manifest, &request, screen) {
        Ok(ended) => ended,
        Err(exit) => return exit,
    };
    let is_wanted = manifest.output.exports.contains(&BENCHMARK_RESULTS);
    if is_wanted && !ended.stopped && !screen.json && !screen.quiet {
        report::show_operations(&ended.folder, &manifest, screen);
    }
    if args.requeue && ended.stopped {
        slurm::requeue(&ended, screen);
    }
    exit_of(&ended, &request)
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
    let retry = Retry::parse(&args.retry).map_err(|reason| {
        screen.error(&format!("--retry: {reason}"));
        Exit::Usage
    })?;
    Ok(Request {
        worker,
        retry: retry.by(Job::here()),
        resolved: manifest.resolved_toml(),
        command: std::env::args().collect(),
        fresh: args.fresh,
        part: args.shard.map_or(Part::Whole, Part::Shard),
        allowed: Allowed::here(Instant::now(), args.max_time),
        reuse: match (args.reuse, args.fresh) {
            (true, _) => Reuse::All,
            (false, true) => Reuse::Nothing,
            (false, false) => Reuse::Unedited,
        },
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
    let stop = signals::listen(screen);
    let shown = Shown::new(screen);
    let result = run::run(manifest, request, stop, &shown);
    shown.finish();
    match result {
        Ok(ended) => {
            let answer = report::answer_of(&ended, manifest);
            shown.summary(&ended, answer.as_ref());
            Ok(ended)
        }
        Err(error) => {
            screen.error(&error.to_string());
            Err(Exit::from(&error))
        }
    }
}

fn exit_of(ended: &Ended, request: &Request) -> Exit {
    let failures = &ended.tally.failures;
    let has = |status| ended.tally.statuses.contains_key(&status);
    match () {
        () if ended.stopped => Exit::Stopped,
        // Of tuned backends no configuration can be launched.
        () if has(Status::LaunchError) && !has(Status::Ok) => Exit::Failures,
        // What others measure, another shard may.
        () if failures.is_empty() && has(Status::Unavailable) && !has(Status::Ok) => {
            match request.part {
                Part::Whole => Exit::Impossible,
                Part::Shard(_) => Exit::Fine,
            }
        }
        () if failures.is_empty() => Exit::Fine,
        () if request.require_cached && failures.contains_key(&Status::Unavailable) => {
            Exit::Impossible
        }
        () => Exit::Failures,
    }
}
