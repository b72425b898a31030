//! `sweeper worker`: the process that measures. Started by `run`, never by hand.

use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGXCPU};

use super::exit::Exit;
use crate::execute::supervisor::WorkerCommand;
use crate::execute::worker::serve;

/// Serves until the main process goes away.
pub fn worker() -> Exit {
    // A scheduler signals every process of a job: the main one decides how to go on.
    for signal in [SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGXCPU] {
        // If it can't be ignored, it ends this process: one row says so.
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let parent_gone = Some(rustix::process::Signal::KILL);
    let _ = rustix::process::set_parent_process_death_signal(parent_gone);
    match serve(io::stdin(), io::stdout().lock()) {
        Ok(()) => Exit::Fine,
        Err(_) => Exit::Impossible,
    }
}

/// How this program starts its workers.
///
/// # Errors
/// If the program's own file can't be found.
pub fn command() -> io::Result<WorkerCommand> {
    Ok(WorkerCommand {
        program: std::env::current_exe()?,
        args: vec!["worker".to_owned()],
    })
}
