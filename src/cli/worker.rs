//! `sweeper worker`: the process that measures. Started by `run`, never by hand.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use clap::Args;
use rustix::process::{Signal, set_parent_process_death_signal};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGXCPU};
use signal_hook::iterator::Signals;
use signal_hook::low_level;

use super::exit::Exit;
use super::place;
use sweeper_engine::compile::background;
use sweeper_engine::compile::nvrtc::apart;
use sweeper_engine::device::foreign::command::launcher;
use sweeper_engine::device::foreign::referee::process;
use sweeper_engine::execute::supervisor::WorkerCommand;
use sweeper_engine::execute::worker::serve;
use sweeper_model::scratch;

/// Serves until the main process goes away.
pub fn worker() -> Exit {
    outlive_signals();
    // Visible processors may be more than those of the job.
    let processors = place::processors().0;
    served(streams().and_then(|(requests, events)| serve(requests, events, processors)))
}

/// Starts programs until the worker goes away.
pub fn launcher() -> Exit {
    outlive_signals();
    served(streams().and_then(|(requests, answers)| launcher::serve(requests, answers)))
}

/// Arguments of a process for what nobody trusts.
#[derive(Args)]
pub struct CandidateArgs {
    /// Compile what lies in the current folder
    #[arg(long)]
    compile: bool,
}

/// Calls kernels that nobody trusts until the referee goes away, or compiles one.
pub fn candidate(args: &CandidateArgs) -> Exit {
    if args.compile {
        return served(apart::serve());
    }
    served(streams().and_then(|(requests, answers)| process::serve(requests, answers)))
}

/// How much a process that compiles gives way to loops on the same processors.
const NICENESS: i32 = 10;

/// Compiles kernels until the worker goes away.
pub fn compiler() -> Exit {
    outlive_signals();
    // If it can't give way, it takes its share.
    let _ = rustix::process::nice(NICENESS);
    let stop = Arc::new(AtomicBool::new(false));
    end_when_told(&stop);
    served(streams().and_then(|(questions, replies)| background::serve(questions, replies, &stop)))
}

/// How long a process that compiles may take to end: a C compiler is ended and its folder removed
/// within milliseconds, but NVRTC can't be stopped.
const END_WITHIN: Duration = Duration::from_millis(300);

/// Sets `stop` when the worker says so or ends, and ends this process soon after.
fn end_when_told(stop: &Arc<AtomicBool>) {
    let Ok(mut signals) = Signals::new([SIGUSR2]) else {
        // The signal ends this process at once then.
        return;
    };
    let stop = Arc::clone(stop);
    let watch = move || {
        if signals.forever().next().is_some() {
            stop.store(true, Ordering::Relaxed);
            thread::sleep(END_WITHIN);
            scratch::remove_own();
            low_level::exit(Exit::Impossible.code().into());
        }
    };
    if thread::Builder::new().spawn(watch).is_ok() {
        // Otherwise the worker's end kills this process, and leaves its folder to the next one.
        let _ = set_parent_process_death_signal(Some(Signal::USR2));
    }
}

/// A scheduler signals every process of a job: the main one decides how to go on. It takes this one
/// with it when it ends.
fn outlive_signals() {
    for signal in [SIGINT, SIGTERM, SIGUSR1, SIGHUP, SIGXCPU] {
        // If it can't be ignored, it ends this process: one row says so.
        let _ = signal_hook::flag::register(signal, Arc::new(AtomicBool::new(false)));
    }
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
}

fn served(served: io::Result<()>) -> Exit {
    match served {
        Ok(()) => Exit::Fine,
        Err(_) => Exit::Impossible,
    }
}

/// The streams to the main process, by descriptors of their own. Kernels of the user that print or
/// read get the null device and standard error instead, and can't disturb them.
fn streams() -> io::Result<(File, File)> {
    let requests = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), FIRST_OWN)?;
    let events = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdout(), FIRST_OWN)?;
    rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
    rustix::stdio::dup2_stdout(rustix::stdio::stderr())?;
    Ok((File::from(requests), File::from(events)))
}

/// The first descriptor that is none of the standard streams.
const FIRST_OWN: i32 = 3;

/// How this program starts its workers.
///
/// # Errors
/// If the program's own file can't be found.
pub fn command() -> io::Result<WorkerCommand> {
    Ok(WorkerCommand {
        program: std::env::current_exe()?,
        args: vec!["worker".to_owned()],
        idle: None,
    })
}
