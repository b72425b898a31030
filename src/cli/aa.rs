//! `sweeper doctor --aa`: one program compared with itself, to know how far comparisons on this
//! machine can be trusted.

use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

use clap::Args;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::json;

use super::exit::Exit;
use super::screen::Screen;
use super::{compare, place, signals, worker};
use crate::run::repeats::{AA, Repeats};
use crate::run::rows::now_unix_s;
use sweeper_manifest::Sources;
use sweeper_manifest::render::{Colour, render};
use sweeper_model::quantity;
use sweeper_results::compare::aa::{Assessment, Trials, assess};
use sweeper_results::compare::spread::SpreadFile;
use sweeper_results::report::source::{self, Source};

/// Arguments of `doctor --aa`.
#[derive(Args)]
pub struct AaArgs {
    /// Compare a program with itself many times: how often does that find a difference, and how
    /// small a one could it find? `compare` remembers how much runs differ here
    #[arg(long)]
    pub aa: bool,
    /// How many runs to make; more of them over a longer time know the machine better
    #[arg(long, requires = "aa", value_name = "COUNT", default_value_t = 200,
          value_parser = clap::value_parser!(u32).range(24..=100_000))]
    runs: u32,
    /// The sweep to run, instead of a small one of several kinds of programs
    #[arg(long, requires = "aa", value_name = "FILE")]
    manifest: Option<PathBuf>,
    /// The slowdown that should be found
    #[arg(long, requires = "aa", value_name = "PERCENT", default_value = "3%",
          value_parser = compare::share)]
    inject: f64,
    /// The least difference that counts
    #[arg(long, requires = "aa", value_name = "PERCENT", default_value = "1%",
          value_parser = compare::share)]
    margin: f64,
}

/// Runs a sweep again and again, and shows the results of comparing its runs.
pub fn aa(args: &AaArgs, screen: &Screen) -> Exit {
    let (runs, seconds) = match measure(args, screen) {
        Ok(measured) => measured,
        Err(exit) => return exit,
    };
    let assessment = match assess(&runs, args.margin, args.inject) {
        Ok(assessment) => assessment,
        Err(message) => {
            screen.error(&format!("{message}{}", first_failure(&runs)));
            return Exit::Failures;
        }
    };
    let remembered = remember(&runs, seconds, &assessment);
    if screen.json {
        screen.json(&json!({
            "seconds": seconds,
            "assessment": assessment,
            "remembered": remembered.as_ref().ok(),
        }));
        return Exit::Fine;
    }
    show(&assessment, seconds, screen);
    match remembered {
        Ok(Some(path)) => screen.line(&format!(
            "`sweeper compare` counts on that for this device: {}",
            path.display()
        )),
        Ok(None) => {}
        Err(message) => screen.warning(&format!("this is not remembered: {message}")),
    }
    Exit::Fine
}

/// The runs in the order made, and the seconds that they took.
fn measure(args: &AaArgs, screen: &Screen) -> Result<(Vec<Source>, f64), Exit> {
    let fail = |message: String, exit: Exit| {
        screen.error(&message);
        exit
    };
    let worker = worker::command()
        .map_err(|error| fail(format!("this program's own file: {error}"), Exit::Files))?;
    let colour = match screen.colour {
        true => Colour::Always,
        false => Colour::Never,
    };
    let refuse = |wrong| fail(render(&wrong, colour), Exit::Manifest);
    let sources = match &args.manifest {
        Some(path) => Sources::read(path).map_err(refuse)?,
        None => Sources::from_text("aa.toml", AA),
    };
    let repeats = Repeats {
        sources,
        worker,
        cache_dir: Some(place::cache_dir(None).0),
        compile_threads: place::processors().0,
    };
    let folder = tempfile::tempdir()
        .map_err(|error| fail(format!("no folder for the runs: {error}"), Exit::Files))?;
    let stop = signals::listen(screen);
    let bar = bar(args.runs, screen);
    let start = Instant::now();
    let mut runs = Vec::with_capacity(args.runs as usize);
    // The first run finds caches cold and kernels not compiled: it does not count.
    for number in 0..=args.runs {
        let manifest = repeats
            .manifest(&folder.path().join(number.to_string()))
            .map_err(refuse)?;
        let ended = repeats.once(&manifest, stop).map_err(|error| {
            let exit = Exit::from(&error);
            fail(error.to_string(), exit)
        })?;
        if stop.load(Ordering::Relaxed) {
            return Err(fail(
                "stopped; nothing is remembered".to_owned(),
                Exit::Stopped,
            ));
        }
        if number > 0 {
            let path = ended.folder.to_string_lossy();
            let source = source::open(&path, folder.path());
            runs.push(source.map_err(|error| fail(error.to_string(), Exit::Files))?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    Ok((runs, start.elapsed().as_secs_f64()))
}

fn bar(runs: u32, screen: &Screen) -> ProgressBar {
    if !screen.interactive || screen.quiet || screen.json {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(u64::from(runs));
    match ProgressStyle::with_template("{bar:16} {pos}/{len} runs  {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Why a row of the runs failed, where one did.
fn first_failure(runs: &[Source]) -> String {
    let mut entries = runs.iter().flat_map(|run| &run.entries);
    let failed = entries.find(|entry| !entry.is_ok());
    failed.map_or_else(String::new, |entry| {
        let reason = entry.reason.as_deref().unwrap_or_default();
        format!("; a row is {}: {reason}", entry.status)
    })
}

/// Keeps the spread for `compare`; none for a device that is not a machine.
fn remember(
    runs: &[Source],
    seconds: f64,
    assessment: &Assessment,
) -> Result<Option<PathBuf>, String> {
    let first = runs.first();
    let environment = first.and_then(|run| run.environment.as_ref());
    let devices = environment.map_or(&[][..], |held| &held.identity.devices[..]);
    let [device] = devices else {
        return Err(format!("the runs are of {} devices", devices.len()));
    };
    if !device.kind.facts().computes {
        return Ok(None);
    }
    let threads = first.and_then(|run| run.entries.iter().find_map(|entry| entry.threads));
    let now_s = now_unix_s(device.kind);
    let remembered = SpreadFile::new(
        device.clone(),
        threads.unwrap_or(1),
        assessment.runs,
        [now_s - seconds, now_s],
        assessment.spread.clone(),
    );
    let folder = place::cache_dir(None).0;
    let written = remembered.write(&folder);
    written
        .map(Some)
        .map_err(|error| format!("{}: {error}", folder.display()))
}

fn show(assessment: &Assessment, seconds: f64, screen: &Screen) {
    let Assessment {
        points,
        runs,
        spread,
        trials,
    } = assessment;
    screen.line(&format!("{runs} runs of {points} points in {seconds:.0} s"));
    for level in spread.levels() {
        let size = quantity::percent(level.reach());
        screen.line(&match level.runs {
            1 => format!("two runs differ by up to {size} (19 of 20 times)"),
            runs => format!("{runs} runs and {runs} later ones by up to {size}"),
        });
    }
    let injected = trials.first().map_or(0.0, |trials| trials.injected);
    screen.line("");
    screen.line(&format!(
        "{:18} {:>11} {:>15} {:>20} {:>11} {:>13}",
        "",
        "comparisons",
        "false positives",
        "any of all points",
        "resolution",
        format!("{} found", quantity::percent(injected))
    ));
    trials.iter().for_each(|trials| screen.line(&line(trials)));
    screen.line("");
    screen.line(&advice(trials, injected));
}

fn line(trials: &Trials) -> String {
    let resolution = trials
        .resolution
        .map_or("none".to_owned(), quantity::percent);
    let families = format!(
        "{} of {} ({})",
        trials.false_families,
        trials.families,
        quantity::percent(trials.false_family_rate())
    );
    format!(
        "{:18} {:>11} {:>15} {families:>20} {resolution:>11} {:>13}",
        trials.made.to_string(),
        trials.comparisons,
        quantity::percent(trials.false_rate()),
        quantity::percent(trials.found)
    )
}

/// Advice on how to find the slowdown that was asked about.
fn advice(trials: &[Trials], injected: f64) -> String {
    const WANTED: f64 = 0.9;
    let size = quantity::percent(injected);
    // The fewest runs that do: kinds are listed with pairs last, in rising numbers.
    let enough = trials.iter().find(|trials| trials.found >= WANTED);
    match enough {
        Some(trials) => format!(
            "a slowdown of {size} at one point is found here with {}",
            trials.made
        ),
        None => format!("a slowdown of {size} needs more pairs of runs here, or a quieter machine"),
    }
}
