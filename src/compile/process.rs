//! Runs a compiler as a process: with a time limit, and its complaints kept.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use super::CompileError;

/// Runs a command to its end.
///
/// # Errors
/// [`CompileError::Rejected`] with what it wrote to standard error if it failed, a time-out, or
/// whatever kept it from running.
pub fn run(mut command: Command, limit: Duration) -> Result<(), CompileError> {
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(surroundings)?;
    let reader = child.stderr.take().map(|mut stderr| {
        std::thread::spawn(move || {
            let mut log = Vec::new();
            // What was read before an error is all there is to say.
            let _ = stderr.read_to_end(&mut log);
            String::from_utf8_lossy(&log).into_owned()
        })
    });
    let status = wait(&mut child, limit).map_err(surroundings)?;
    let log = reader
        .and_then(|reader| reader.join().ok())
        .unwrap_or_default();
    match status {
        None => Err(CompileError::Timeout { limit }),
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(match status.signal() {
            Some(signal) => CompileError::Surroundings(format!(
                "the compiler was ended by signal {signal}: {log}"
            )),
            None => CompileError::Rejected { log },
        }),
    }
}

/// What a command writes to standard output.
///
/// # Errors
/// Why it did not run, or the first line of its complaints.
pub fn output(program: &Path, args: &[&str]) -> Result<Vec<u8>, String> {
    let output = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(output.stdout)
    } else {
        Err(first_line(&output.stderr))
    }
}

/// The first line of some output, without white space around it.
pub fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().next().unwrap_or_default().trim().to_owned()
}

fn surroundings(error: io::Error) -> CompileError {
    CompileError::Surroundings(error.to_string())
}

/// The status of a child, or `None` if its group had to be killed. Polls at growing intervals: a
/// compile takes tens of milliseconds at least.
fn wait(child: &mut Child, limit: Duration) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            if let Some(group) = rustix::process::Pid::from_raw(child.id() as i32) {
                // It may have ended just now; then there is nothing to kill.
                let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
            }
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}
