//! `sweeper status`: how far the processes are that measure a run.

use std::path::Path;
use std::thread;
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::exit::Exit;
use super::screen::Screen;
use super::{runs, slurm};
use sweeper_results::record::find;
use sweeper_results::record::progress::{PartProgress, Progress, Standing};
use sweeper_results::record::recorded::Recorded;
use sweeper_results::record::submission::Submission;

/// Parts that are listed without being asked.
const MOST_LISTED: usize = 40;

/// How often `--watch` looks.
const EVERY: Duration = Duration::from_secs(2);

/// Arguments of `status`.
#[derive(Args)]
pub struct StatusArgs {
    /// First digits of the run's id, its folder, or the folder that `submit` named
    run: String,
    #[command(flatten)]
    place: runs::Place,
    /// Look again and again, until no process is at work
    #[arg(long)]
    watch: bool,
}

/// Shows how far a run is.
pub fn status(args: &StatusArgs, screen: &Screen) -> Exit {
    let run = match begun(args, screen) {
        Ok(run) => run,
        Err(message) => {
            screen.error(&message);
            return Exit::Files;
        }
    };
    loop {
        let progress = match Progress::read(&run.path, || run.planned_points()) {
            Ok(progress) => progress,
            Err(error) => {
                screen.error(&format!("{}: {error}", run.path.display()));
                return Exit::Files;
            }
        };
        if screen.json {
            screen.line(&as_json(&run, &progress).to_string());
        } else {
            if args.watch && screen.colour {
                // To the top of an empty terminal.
                screen.out("\x1b[2J\x1b[H");
            }
            show(&run, &progress, screen);
        }
        let counts = progress.counts();
        let is_going = [Standing::AtWork, Standing::Silent]
            .iter()
            .any(|standing| counts.contains_key(standing));
        if !args.watch || !is_going {
            return Exit::Fine;
        }
        thread::sleep(EVERY);
    }
}

/// The run. Who watches a submission waits for its jobs to begin one, while any is queued.
fn begun(args: &StatusArgs, screen: &Screen) -> Result<Recorded, String> {
    let mut has_said = false;
    loop {
        let found = find::find(&args.run, &args.place.output_dir);
        let waiting = Submission::read(Path::new(&args.run)).filter(|_| args.watch);
        let (Some(submission), Err(message)) = (waiting, &found) else {
            return found;
        };
        // Where Slurm can't be asked, people end the waiting.
        let is_over = |job: &str| slurm::queued(job).is_ok_and(|tasks| tasks.is_empty());
        if submission.jobs().all(is_over) {
            return found;
        }
        if !has_said {
            screen.note(&format!("{message}; waiting"));
            has_said = true;
        }
        thread::sleep(EVERY);
    }
}

fn as_json(run: &Recorded, progress: &Progress) -> serde_json::Value {
    let counts = progress.counts();
    let counts: serde_json::Map<String, serde_json::Value> = counts
        .iter()
        .map(|(standing, count)| (standing.words().to_owned(), json!(count)))
        .collect();
    json!({
        "run": run.environment.identity.run, "name": run.environment.name, "folder": run.path,
        "counts": counts, "progress": progress,
    })
}

fn show(run: &Recorded, progress: &Progress, screen: &Screen) {
    screen.line(&format!(
        "run {}  {}  {}",
        run.environment.identity.run,
        run.environment.name,
        run.path.display()
    ));
    let points = progress
        .points
        .map_or("?".to_owned(), |points| points.to_string());
    let mut said = vec![format!("{}/{points} points", progress.done)];
    if progress.per_s > 0.0 {
        said.push(format!("{} a second", rate(progress.per_s)));
    }
    said.extend(
        progress
            .left_s
            .map(|left| format!("about {} left", time(left))),
    );
    screen.line(&said.join(", "));
    let is_shared = progress.parts.iter().any(|part| part.shard.is_some());
    if is_shared {
        let counts = progress.counts();
        let counts: Vec<String> = Standing::ALL
            .iter()
            .filter_map(|standing| Some(format!("{} {}", counts.get(standing)?, standing.words())))
            .collect();
        screen.line(&format!(
            "{} shards: {}",
            progress.parts.len(),
            counts.join(", ")
        ));
    }
    list(progress, screen);
    let said = progress.parts.iter().filter_map(|part| part.said_s_ago);
    let clock = said.fold(0.0, f64::min);
    if clock < -5.0 {
        screen.note(&format!(
            "clocks disagree: a state was written {} in the future of this machine",
            time(-clock)
        ));
    }
}

/// Lists the parts, of many those of which there is something to say.
fn list(progress: &Progress, screen: &Screen) {
    let is_dull = |part: &&PartProgress| {
        matches!(part.standing, Standing::Done | Standing::NotBegun) && part.failures == 0
    };
    let is_long = progress.parts.len() > MOST_LISTED && !screen.verbose;
    let listed = progress
        .parts
        .iter()
        .filter(|part| !is_long || !is_dull(part));
    let listed: Vec<&PartProgress> = listed.collect();
    let shown = if is_long { MOST_LISTED } else { listed.len() };
    listed
        .iter()
        .take(shown)
        .for_each(|part| screen.line(&line(part)));
    let more = progress.parts.len() - listed.len().min(shown);
    if more > 0 {
        screen.note(&format!("and {more} more, which --verbose lists"));
    }
}

fn line(part: &PartProgress) -> String {
    let name = part
        .shard
        .map_or("all".to_owned(), |shard| shard.to_string());
    let points = part
        .points
        .map_or("?".to_owned(), |points| points.to_string());
    let rate = part.per_s.map(|per_s| format!("{}/s", rate(per_s)));
    let left = part.left_s.map(|left| format!("{} left", time(left)));
    let host = part.host.as_deref().unwrap_or_default();
    let job = part.job.as_ref().map(|job| format!("job {job}"));
    let said = match part.standing {
        Standing::Silent => part.said_s_ago.map(|ago| format!("for {}", time(ago))),
        _ => None,
    };
    let failures = part.failures;
    let failed = part.last_failure.as_ref().map(|last| {
        format!(
            "\n          {failures} without a result, the last: {}: {}: {}",
            last.label, last.status, last.reason
        )
    });
    let words = [rate, left, said, job].into_iter().flatten();
    format!(
        "{name:>9}  {:9}  {:>13}  {host:12}  {}{}",
        part.standing.words(),
        format!("{}/{points}", part.done),
        words.collect::<Vec<_>>().join("  "),
        failed.unwrap_or_default()
    )
    .trim_end()
    .to_owned()
}

fn rate(per_s: f64) -> String {
    match per_s {
        per_s if per_s >= 10.0 => format!("{per_s:.0}"),
        per_s => format!("{per_s:.2}"),
    }
}

fn time(seconds: f64) -> String {
    match seconds {
        seconds if seconds < 120.0 => format!("{seconds:.0} s"),
        seconds if seconds < 7200.0 => format!("{:.0} min", seconds / 60.0),
        seconds => format!("{:.1} h", seconds / 3600.0),
    }
}
