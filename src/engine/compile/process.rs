//! Runs a compiler as a process: for a limited time, with bounded output, and never beyond the end
//! of this process.

use std::io::{self, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::{Bounds, CompileError};
use crate::device::process::{die_with_parent, kill_group, signal_name};

/// The most that is kept of one stream of a process, in bytes. The rest is read and dropped.
const KEPT_BYTES: usize = 1 << 20;

/// How long a compiler may take to identify itself.
const ANSWER_LIMIT: Duration = Duration::from_secs(30);

/// How long to wait for the end of a stream once its process has ended: a child process may keep
/// the stream open.
const STREAM_WAIT: Duration = Duration::from_millis(500);

/// How long to wait for a program that is open for writing.
const BUSY: Duration = Duration::from_secs(1);

/// Parts of complaints that are not about the source: the system ran out of something, or killed a
/// part of the compiler.
const TROUBLE: [&str; 8] = [
    "No space left on device",
    "Disk quota exceeded",
    "Cannot allocate memory",
    "virtual memory exhausted",
    "out of memory",
    "Too many open files",
    "Resource temporarily unavailable",
    "signal terminated program",
];

/// Runs a command to its end.
///
/// # Errors
/// [`CompileError::Rejected`] with its complaints if it failed, a time-out, a stop, or the trouble
/// that kept it from running.
pub fn run(mut command: Command, bounds: &Bounds<'_>) -> Result<(), CompileError> {
    // Messages are told apart by their English text.
    command.env("LC_ALL", "C").stdout(Stdio::null());
    let ended = end_of(command, bounds)?;
    let log = String::from_utf8_lossy(&ended.stderr);
    match ended.status {
        None if bounds.is_stopped() => Err(CompileError::Stopped),
        None => Err(CompileError::Timeout {
            limit: bounds.limit,
        }),
        Some(status) if status.success() => Ok(()),
        Some(status) => Err(match status.signal() {
            Some(signal) => {
                let end = ended_by(signal, &ended.stderr);
                CompileError::Surroundings(format!("the compiler {end}"))
            }
            None => match log.lines().find(|line| is_trouble(line)) {
                Some(line) => CompileError::Surroundings(format!("the compiler: {}", line.trim())),
                None => CompileError::rejected(&log),
            },
        }),
    }
}

fn is_trouble(line: &str) -> bool {
    TROUBLE.iter().any(|part| line.contains(part))
}

/// The text that a command writes to standard output.
///
/// # Errors
/// Why it did not run or did not end, or the first line of its complaints.
pub fn output(mut command: Command, stop: &AtomicBool) -> Result<Vec<u8>, String> {
    command.stdout(Stdio::piped());
    let bounds = Bounds {
        limit: ANSWER_LIMIT,
        stop,
    };
    let ended = end_of(command, &bounds).map_err(|error| error.to_string())?;
    match ended.status {
        None if bounds.is_stopped() => Err("stopped before it answered".to_owned()),
        None => Err(format!("no answer within {ANSWER_LIMIT:?}")),
        Some(status) if status.success() => Ok(ended.stdout),
        Some(status) => Err(match (status.signal(), first_line(&ended.stderr)) {
            (Some(signal), _) => format!("it {}", ended_by(signal, &ended.stderr)),
            (None, said) if said.is_empty() => format!("it ended with {status}"),
            (None, said) => said,
        }),
    }
}

/// What became of a process that a signal ended, with the first line of its complaints.
fn ended_by(signal: i32, stderr: &[u8]) -> String {
    let end = format!("was ended by signal {signal}{}", signal_name(signal));
    match first_line(stderr) {
        said if said.is_empty() => end,
        said => format!("{end}: {said}"),
    }
}

/// The first line of some output, without white space around it.
pub fn first_line(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.lines().next().unwrap_or_default().trim().to_owned()
}

/// How a process ended, and the beginning of its output.
struct Ended {
    /// None if the process had to be killed.
    status: Option<ExitStatus>,
    stdout: Vec<u8>,
    stderr: Vec<u8>,
}

/// Starts a program. One that was just written may be open for writing for another moment, in a
/// child of this process that has not begun its own program yet.
fn spawn(command: &mut Command) -> io::Result<Child> {
    let patience = Instant::now() + BUSY;
    loop {
        match command.spawn() {
            Err(busy)
                if busy.kind() == io::ErrorKind::ExecutableFileBusy
                    && Instant::now() < patience =>
            {
                thread::sleep(Duration::from_millis(1));
            }
            started => return started,
        }
    }
}

fn end_of(mut command: Command, bounds: &Bounds<'_>) -> Result<Ended, CompileError> {
    command
        .process_group(0)
        .stdin(Stdio::null())
        .stderr(Stdio::piped());
    die_with_parent(&mut command);
    let mut child = spawn(&mut command).map_err(surroundings)?;
    let stdout = child.stdout.take().map(Stream::read).transpose();
    let stderr = child.stderr.take().map(Stream::read).transpose();
    let (Ok(stdout), Ok(stderr)) = (stdout, stderr) else {
        // Without both streams its output can't be read.
        kill_group(child.id());
        child.wait().map_err(surroundings)?;
        let reason = "no thread to read what a compiler says: too many processes?";
        return Err(CompileError::Surroundings(reason.to_owned()));
    };
    let status = wait(&mut child, bounds).map_err(surroundings)?;
    let text = |stream: Option<Stream>| stream.map(Stream::text).unwrap_or_default();
    Ok(Ended {
        status,
        stdout: text(stdout),
        stderr: text(stderr),
    })
}

/// A stream that a thread reads to its end.
struct Stream {
    kept: Arc<Mutex<Vec<u8>>>,
    reader: JoinHandle<()>,
}

impl Stream {
    fn read(mut stream: impl Read + Send + 'static) -> io::Result<Self> {
        let kept = Arc::new(Mutex::new(Vec::new()));
        let held = Arc::clone(&kept);
        let reader = std::thread::Builder::new().spawn(move || {
            let mut piece = [0; 8192];
            while let Ok(length @ 1..) = stream.read(&mut piece) {
                let mut held = held.lock().unwrap_or_else(PoisonError::into_inner);
                let room = KEPT_BYTES - held.len();
                held.extend_from_slice(&piece[..length.min(room)]);
            }
        })?;
        Ok(Stream { kept, reader })
    }

    /// The bytes read, once the stream has ended or its process has been gone for a while.
    fn text(self) -> Vec<u8> {
        let start = Instant::now();
        while !self.reader.is_finished() && start.elapsed() < STREAM_WAIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *kept)
    }
}

fn surroundings(error: io::Error) -> CompileError {
    CompileError::Surroundings(error.to_string())
}

/// The status of a child, or `None` if its group had to be killed. Polls at growing intervals: a
/// compile takes tens of milliseconds at least.
fn wait(child: &mut Child, bounds: &Bounds<'_>) -> io::Result<Option<ExitStatus>> {
    let start = Instant::now();
    let mut pause = Duration::from_micros(200);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= bounds.limit || bounds.is_stopped() {
            kill_group(child.id());
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(pause);
        pause = (pause * 2).min(Duration::from_millis(5));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use crate::compile::NEVER;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    fn run_for(script: &str, limit: Duration) -> Result<(), CompileError> {
        let stop = &NEVER;
        run(shell(script), &Bounds { limit, stop })
    }

    /// As where another thread of this process has just forked a child, which holds it open still.
    #[test]
    fn a_program_that_is_open_for_writing_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let script = folder.path().join("program");
        std::fs::write(&script, "#!/bin/sh\n").unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&script, mode).unwrap();
        let open = std::fs::File::options().append(true).open(&script).unwrap();
        thread::scope(|scope| {
            scope.spawn(|| {
                thread::sleep(Duration::from_millis(100));
                drop(open);
            });
            let bounds = Bounds {
                limit: Duration::from_secs(60),
                stop: &NEVER,
            };
            assert_eq!(run(Command::new(&script), &bounds), Ok(()));
        });
    }

    #[test]
    fn trouble_of_the_moment_is_no_refusal_of_the_source() {
        let long = Duration::from_secs(60);
        let text = "echo 'cc1: fatal error: x.s: No space left on device' >&2; exit 1";
        let full = run_for(text, long);
        assert!(
            matches!(full, Err(CompileError::Surroundings(_))),
            "{full:?}"
        );
        let text = "echo 'cc: fatal error: Killed signal terminated program cc1' >&2; exit 1";
        let killed = run_for(text, long);
        assert!(
            matches!(killed, Err(CompileError::Surroundings(_))),
            "{killed:?}"
        );
        let refused = run_for("printf 'x.c:1: \\033[31mbad\\n' >&2; exit 1", long);
        let log = "x.c:1: [31mbad\n".to_owned();
        assert_eq!(refused, Err(CompileError::Rejected { log }));
    }

    #[test]
    fn complaints_are_bounded_and_an_open_stream_is_not_waited_for() {
        let long = Duration::from_secs(60);
        let loud = run_for("yes complaint | head -c 5000000 >&2; exit 1", long);
        match loud {
            Err(CompileError::Rejected { log }) => {
                assert!(
                    log.len() < 5000 && log.contains("bytes more"),
                    "{}",
                    log.len()
                );
            }
            other => panic!("{other:?}"),
        }
        let start = Instant::now();
        run_for("sleep 30 2>&2 & exit 0", long).unwrap();
        assert!(start.elapsed() < Duration::from_secs(20));
    }

    #[test]
    fn a_stop_ends_a_compiler() {
        let stop = AtomicBool::new(false);
        let limit = Duration::from_secs(60);
        let stopped = std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                stop.store(true, Ordering::Relaxed);
            });
            run(shell("sleep 30"), &Bounds { limit, stop: &stop })
        });
        assert_eq!(stopped, Err(CompileError::Stopped));
    }

    #[test]
    fn a_stop_ends_a_question() {
        let stop = AtomicBool::new(true);
        assert!(output(shell("sleep 30"), &stop).is_err());
        assert_eq!(output(shell("echo words"), &NEVER).unwrap(), b"words\n");
    }

    #[test]
    fn an_end_without_an_answer_is_told() {
        for (script, told) in [
            (
                "kill -9 $$",
                "it was ended by signal 9 (killed, perhaps for its memory)",
            ),
            (
                "echo limit >&2; kill -31 $$",
                "it was ended by signal 31: limit",
            ),
            ("exit 3", "it ended with exit status: 3"),
            ("echo no such target >&2; exit 1", "no such target"),
        ] {
            assert_eq!(output(shell(script), &NEVER), Err(told.to_owned()));
        }
        let run = run_for("kill -11 $$", Duration::from_secs(60));
        let told = "the compiler was ended by signal 11 (segmentation fault)".to_owned();
        assert_eq!(run, Err(CompileError::Surroundings(told)));
    }
}
