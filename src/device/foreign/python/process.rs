//! An interpreter of Python in a process of its own, which answers requests one after another.

use std::io::{self, BufReader, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::{Value, json};

use crate::device::memory;
use crate::device::process::die_with_parent;
use crate::row::outcome::Status;

/// What the interpreter executes; the modules come in the first frame.
const BOOTSTRAP: &str = include_str!("child/bootstrap.py");

/// The modules, by name.
const MODULES: [(&str, &str); 14] = [
    ("main", include_str!("child/main.py")),
    ("frames", include_str!("child/frames.py")),
    ("faults", include_str!("child/faults.py")),
    ("tensors", include_str!("child/tensors.py")),
    ("sources", include_str!("child/sources.py")),
    ("arrays", include_str!("child/arrays.py")),
    ("program", include_str!("child/program.py")),
    ("autograd", include_str!("child/autograd.py")),
    ("audit", include_str!("child/audit.py")),
    ("host_clock", include_str!("child/host_clock.py")),
    ("driver", include_str!("child/driver.py")),
    ("gate", include_str!("child/gate.py")),
    ("flush", include_str!("child/flush.py")),
    ("cuda", include_str!("child/cuda.py")),
];

/// A longer frame is a sign of a broken pipe.
const MAX_FRAME_BYTES: u32 = 1 << 28;

/// The most of a process's last words that is kept, in bytes.
const LAST_WORDS_BYTES: usize = 4096;

/// How long a process that closed its stream has to end.
const LEAVING_LIMIT: Duration = Duration::from_secs(2);

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    /// What becomes of the point.
    pub(super) status: Status,
    /// Why.
    pub(super) reason: String,
    /// The process is gone.
    pub(super) is_lost: bool,
}

/// A process; it is killed, with all that it started, when this is dropped.
pub(super) struct Child {
    process: Process,
    requests: ChildStdin,
    answers: Receiver<io::Result<Value>>,
    last_words: Arc<Mutex<Vec<u8>>>,
    /// How often the system had ended processes of the control group for their memory before it.
    kills_before: u64,
}

impl Child {
    /// Starts an interpreter with these variables beside those of this process.
    ///
    /// # Errors
    /// It is not there, or can't be started.
    pub(super) fn start(exe: &str, variables: &[(String, String)]) -> Result<Self, Failure> {
        let mut command = Command::new(exe);
        command
            .args(["-u", "-c", BOOTSTRAP])
            .envs(variables.iter().cloned())
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        die_with_parent(&mut command);
        Self::launched(command).map_err(|error| Failure {
            status: Status::Unavailable,
            reason: format!("the interpreter `{exe}` can't be started: {error}"),
            is_lost: true,
        })
    }

    fn launched(mut command: Command) -> io::Result<Self> {
        let kills_before = memory::group_kills();
        let mut process = command.spawn()?;
        let missing = || io::Error::other("a pipe is missing");
        let requests = process.stdin.take().ok_or_else(missing)?;
        let stdout = process.stdout.take().ok_or_else(missing)?;
        let stderr = process.stderr.take().ok_or_else(missing)?;
        let (sender, answers) = mpsc::sync_channel(1);
        thread::Builder::new().spawn(move || {
            let mut stdout = BufReader::new(stdout);
            while let Some(answer) = receive(&mut stdout).transpose() {
                let is_last = answer.is_err();
                if sender.send(answer).is_err() || is_last {
                    return;
                }
            }
        })?;
        let last_words = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&last_words);
        thread::Builder::new().spawn(move || keep_last(stderr, &kept))?;
        let mut child = Child {
            process,
            requests,
            answers,
            last_words,
            kills_before,
        };
        let modules: serde_json::Map<String, Value> = MODULES
            .iter()
            .map(|(name, text)| ((*name).to_owned(), json!(text)))
            .collect();
        child.send(&Value::Object(modules))?;
        Ok(child)
    }

    fn send(&mut self, frame: &Value) -> io::Result<()> {
        let body = serde_json::to_vec(frame)?;
        let length = u32::try_from(body.len()).map_err(io::Error::other)?;
        let mut bytes = length.to_le_bytes().to_vec();
        bytes.extend(body);
        self.requests.write_all(&bytes)
    }

    /// Asks for something, and waits for the answer.
    ///
    /// # Errors
    /// The failure that was answered; the process's death; silence for longer than `limit`.
    pub(super) fn ask(&mut self, request: &Value, limit: Duration) -> Result<Value, Failure> {
        if self.send(request).is_err() {
            return Err(self.obituary());
        }
        let mut answer = match self.answers.recv_timeout(limit) {
            Ok(Ok(answer)) => answer,
            Err(RecvTimeoutError::Timeout) => {
                self.kill();
                return Err(Failure {
                    status: Status::Timeout,
                    reason: format!("no answer within {limit:?}"),
                    is_lost: true,
                });
            }
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Err(self.obituary()),
        };
        match answer.get_mut("ok") {
            Some(held) => Ok(held.take()),
            None => Err(failure(&answer["error"])),
        }
    }

    fn kill(&mut self) {
        if let Some(group) = Pid::from_raw(self.process.id() as i32) {
            // One that has ended already can't be killed, which is as well.
            let _ = kill_process_group(group, Signal::KILL);
        }
    }

    /// What the process died of.
    fn obituary(&mut self) -> Failure {
        let step = Duration::from_millis(2);
        for _ in 0..LEAVING_LIMIT.as_millis() / step.as_millis() {
            if let Ok(Some(_)) = self.process.try_wait() {
                break;
            }
            thread::sleep(step);
        }
        self.kill();
        let status = self.process.wait().ok();
        let words = self.last_words.lock().map(|words| words.clone());
        let words = String::from_utf8_lossy(&words.unwrap_or_default()).into_owned();
        let last = words.lines().rev().find(|line| !line.trim().is_empty());
        let said = last.map_or_else(String::new, |line| format!(": {}", line.trim()));
        let (code, signal) = match status {
            Some(status) => (status.code(), status.signal()),
            None => (None, None),
        };
        let (status, reason) = match (signal, code) {
            (Some(9), _) if memory::group_kills() > self.kills_before => {
                (Status::Oom, "the system ended it for its memory".to_owned())
            }
            (Some(signal), _) => {
                let name = signal_name(signal);
                (
                    Status::Crashed,
                    format!("it was ended by signal {signal}{name}"),
                )
            }
            (None, code) => {
                let code = code.unwrap_or(0);
                (
                    Status::Error,
                    format!("it ended the interpreter with code {code}"),
                )
            }
        };
        Failure {
            status,
            reason: format!("{reason}{said}"),
            is_lost: true,
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        let _ = self.process.wait();
    }
}

/// An error that was answered. After one that stays the process ends by itself.
fn failure(error: &Value) -> Failure {
    let status = serde_json::from_value(error["status"].clone()).unwrap_or(Status::Error);
    Failure {
        status,
        reason: error["reason"].as_str().unwrap_or("it failed").to_owned(),
        is_lost: status == Status::Crashed,
    }
}

/// The next frame; none at the end of the stream.
fn receive(stream: &mut impl Read) -> io::Result<Option<Value>> {
    let mut length = [0; 4];
    match stream.read_exact(&mut length) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        read => read?,
    }
    let length = u32::from_le_bytes(length);
    if length > MAX_FRAME_BYTES {
        return Err(io::Error::other(format!("a frame of {length} bytes")));
    }
    let mut body = vec![0; length as usize];
    stream.read_exact(&mut body)?;
    Ok(Some(serde_json::from_slice(&body)?))
}

/// Reads a stream to its end and keeps its last bytes.
fn keep_last(mut stream: impl Read, words: &Mutex<Vec<u8>>) {
    let mut piece = [0; 1024];
    while let Ok(length @ 1..) = stream.read(&mut piece) {
        let Ok(mut words) = words.lock() else {
            return;
        };
        words.extend_from_slice(&piece[..length]);
        let surplus = words.len().saturating_sub(LAST_WORDS_BYTES);
        words.drain(..surplus);
    }
}

fn signal_name(signal: i32) -> &'static str {
    match signal {
        4 => " (illegal instruction)",
        6 => " (abort)",
        7 => " (bus error)",
        8 => " (arithmetic)",
        9 => " (killed)",
        11 => " (segmentation fault)",
        _ => "",
    }
}
