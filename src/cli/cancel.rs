//! `sweeper cancel`: the jobs of a run.

use std::collections::BTreeSet;
use std::path::Path;

use clap::Args;

use super::exit::Exit;
use super::screen::Screen;
use super::{runs, slurm};
use sweeper_results::record::find;
use sweeper_results::record::recorded::Recorded;
use sweeper_results::record::submission::{Submission, jobs_of};

/// Arguments of `cancel`.
#[derive(Args)]
pub struct CancelArgs {
    /// First digits of the run's id, its folder, or the folder that `submit` named
    run: String,
    #[command(flatten)]
    place: runs::Place,
}

/// Cancels all jobs of a run that are queued or running.
pub fn cancel(args: &CancelArgs, screen: &Screen) -> Exit {
    let known = match jobs(args) {
        Ok(known) => known,
        Err(message) => {
            screen.error(&message);
            return Exit::Files;
        }
    };
    let mut jobs: Vec<&str> = Vec::new();
    for job in &known {
        match slurm::queued(job) {
            Ok(tasks) if tasks.is_empty() => {}
            Ok(_) => jobs.push(job),
            Err(reason) => {
                screen.error(&reason);
                return Exit::Impossible;
            }
        }
    }
    if jobs.is_empty() {
        screen.line("no job of it is queued or running");
        return Exit::Fine;
    }
    match slurm::call("scancel", &jobs) {
        Ok(_) => {
            screen.line(&format!("cancelled: {}", jobs.join(", ")));
            Exit::Fine
        }
        Err(reason) => {
            screen.error(&reason);
            Exit::Impossible
        }
    }
}

/// Numbers of the jobs, of arrays as a whole.
fn jobs(args: &CancelArgs) -> Result<BTreeSet<String>, String> {
    if let Some(submission) = Submission::read(Path::new(&args.run)) {
        return Ok(submission.jobs().map(str::to_owned).collect());
    }
    let run: Recorded = find::find(&args.run, &args.place.output_dir)?;
    let array = |job: &String| {
        job.split_once('_')
            .map_or(job.as_str(), |(array, _)| array)
            .to_owned()
    };
    let mut known: BTreeSet<String> = jobs_of(&run).iter().map(array).collect();
    let results = run.results_folder().unwrap_or(Path::new("."));
    for (_, submission) in Submission::all(results) {
        if submission.has_measured(&run) {
            known.extend(submission.jobs().map(str::to_owned));
        }
    }
    Ok(known)
}
