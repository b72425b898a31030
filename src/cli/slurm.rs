//! Commands of Slurm. Their messages are shown unchanged.

use std::io;
use std::process::{Command, Stdio};

use super::screen::Screen;
use super::signals;
use crate::run::Ended;
use sweeper_results::record::hold;

/// Runs a command of Slurm. Yields its standard output.
///
/// # Errors
/// A sentence, with the command's own words.
pub(super) fn call(program: &str, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null());
    let output = command.output().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => format!(
            "there is no `{program}` here: Slurm's commands are on the login node of a cluster; `sweeper submit \
             --dry-run` prints the scripts, and `sweeper run --shard K/N` is what each of their tasks does"
        ),
        _ => format!("{program}: {error}"),
    })?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned());
    }
    let said = [output.stderr, output.stdout].concat();
    let said = String::from_utf8_lossy(&said);
    Err(format!(
        "{program} refused ({}): {}",
        output.status,
        said.trim()
    ))
}

/// Has Slurm start this job again, since its time was over.
pub(super) fn requeue(ended: &Ended, screen: &Screen) {
    // By its array and task: one task of an array has the array's own number, by which all of them
    // would be started again.
    let job = std::env::var_os("SLURM_JOB_ID").and_then(|_| hold::job());
    let Some(job) = job else {
        return screen.warning("--requeue: this is not a job of Slurm");
    };
    if signals::was_told_to_end() {
        return;
    }
    if ended.written == 0 {
        return screen.warning(
            "not queued again: a whole allocation brought nothing new; give it more time, or see what the points do \
             with --verbose",
        );
    }
    match call("scontrol", &["requeue", &job]) {
        Ok(_) => screen.note(&format!("job {job} is queued again")),
        Err(error) => screen.warning(&format!("not queued again: {error}")),
    }
}

/// The tasks of a job that are queued or running, such as `12_3`.
///
/// # Errors
/// A sentence.
pub(super) fn queued(job: &str) -> Result<Vec<String>, String> {
    match call("squeue", &["-h", "-r", "-o", "%i", "-j", job]) {
        Ok(said) => Ok(said.lines().map(|line| line.trim().to_owned()).collect()),
        // It ended long ago.
        Err(reason) if reason.contains("Invalid job id") => Ok(Vec::new()),
        Err(reason) => Err(reason),
    }
}
