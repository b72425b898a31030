//! A small process that starts programs and says how long they took.
//!
//! Until a program replaces the process that it is started from, the system counts that process's
//! memory as the program's. So a small one starts them, and not the worker: without huge pages,
//! its heap is. It ends with the worker, and programs end with it.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Instant;

use serde::{Deserialize, Serialize};
use wait4::Wait4;

use crate::device::memory;
use crate::device::process::{die_with_parent, kill_group, with_huge_pages};
use crate::device::sandbox::Sandbox;
use sweeper_model::frames::{receive, send};

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it runs.
    pub directory: String,
    /// Variables of its environment, beside those of this process.
    pub environment: Vec<(String, String)>,
    /// The file that it reads as standard input; none for an empty one.
    pub stdin: Option<String>,
    /// The file that it writes standard output to; none where nobody reads it.
    pub stdout: Option<PathBuf>,
    /// The file that it writes standard error to.
    pub stderr: PathBuf,
    /// Whether it may have transparent huge pages, as processes have where this one runs.
    pub has_huge_pages: bool,
    /// Where it is shut in, if nobody trusts it.
    pub enclosure: Option<Enclosure>,
}

/// What a program sees that nobody trusts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Enclosure {
    /// The folder that it writes into.
    pub scratch: PathBuf,
    /// Files that it reads beside those of the system.
    pub reads: Vec<PathBuf>,
    /// Folders that stay hidden.
    pub hidden: Vec<PathBuf>,
}

/// A program that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ended {
    /// From its start to its end, in nanoseconds.
    pub wall_ns: u64,
    /// Of processors in the program and in those that it waited for, in nanoseconds.
    pub user_ns: u64,
    /// Of processors in the system for them, in nanoseconds.
    pub system_ns: u64,
    /// The most memory that one of them had resident, in bytes.
    pub peak_bytes: u64,
    /// Its exit status; none where a signal ended it.
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
}

/// Why a program did not start, in a sentence.
type Refusal = String;

/// Starts the programs that are asked for, until the stream ends.
///
/// # Errors
/// Those of the streams.
pub fn serve(mut requests: impl Read, mut answers: impl Write) -> io::Result<()> {
    while let Some(start) = receive::<Start>(&mut requests)? {
        let ended: Result<Ended, Refusal> = run(&start);
        send(&mut answers, &ended)?;
    }
    Ok(())
}

fn run(start: &Start) -> Result<Ended, Refusal> {
    let [program, arguments @ ..] = start.command.as_slice() else {
        return Err("there is no program".to_owned());
    };
    let open =
        |path: &PathBuf| File::create(path).map_err(|error| format!("{}: {error}", path.display()));
    let stdin = match &start.stdin {
        Some(path) => {
            let file = File::open(path).map_err(|error| format!("`stdin`: `{path}`: {error}"));
            Stdio::from(file?)
        }
        None => Stdio::null(),
    };
    let stdout = start.stdout.as_ref().map(open).transpose()?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .current_dir(&start.directory)
        .envs(start.environment.iter().map(|(name, value)| (name, value)))
        .stdin(stdin)
        .stdout(stdout.map_or_else(Stdio::null, Stdio::from))
        .stderr(Stdio::from(open(&start.stderr)?));
    command.process_group(0);
    with_huge_pages(&mut command, start.has_huge_pages);
    die_with_parent(&mut command);
    if let Some(enclosure) = &start.enclosure {
        let sandbox = Sandbox::new(&enclosure.scratch)
            .reading(enclosure.reads.iter().cloned())
            .hiding(enclosure.hidden.iter().cloned())
            .with_memory(memory::available_bytes() / 10 * 9);
        let enclosed = sandbox.enclose(&mut command);
        enclosed.map_err(|error| error.to_string())?;
    }
    let begin = Instant::now();
    let child = command
        .spawn()
        .map_err(|error| format!("`{program}`: {error}"))?;
    let process = child.id();
    let ended = child
        .wait4()
        .map_err(|error| format!("`{program}`: {error}"))?;
    let wall = begin.elapsed();
    // A process that the program left running would disturb the next run.
    kill_group(process);
    Ok(Ended {
        wall_ns: wall.as_nanos() as u64,
        user_ns: ended.rusage.utime.as_nanos() as u64,
        system_ns: ended.rusage.stime.as_nanos() as u64,
        peak_bytes: ended.rusage.maxrss,
        status: ended.status.code(),
        signal: ended.status.signal(),
    })
}

/// A launcher at work.
pub struct Launcher {
    child: Child,
    requests: ChildStdin,
    answers: ChildStdout,
}

impl Launcher {
    /// Starts one: this program, with the verb `launcher`.
    ///
    /// # Errors
    /// Those of the system.
    pub fn start() -> io::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .arg("launcher")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        with_huge_pages(&mut command, false);
        die_with_parent(&mut command);
        let mut child = command.spawn()?;
        let (Some(requests), Some(answers)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(io::Error::other("a launcher without streams"));
        };
        Ok(Launcher {
            child,
            requests,
            answers,
        })
    }

    /// Runs a program to its end.
    ///
    /// # Errors
    /// Of the streams: the launcher is gone. Inside: the program did not start.
    pub fn run(&mut self, start: &Start) -> io::Result<Result<Ended, String>> {
        send(&mut self.requests, start)?;
        let answer = receive(&mut self.answers)?;
        answer.ok_or_else(|| io::Error::other("the launcher of programs is gone"))
    }
}

impl Drop for Launcher {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
