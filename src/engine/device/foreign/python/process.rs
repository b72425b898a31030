//! An interpreter of Python in a process of its own, which answers requests one after another.

use std::io::{self, BufReader, Read};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, TryRecvError};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::device::memory;
use crate::device::process::{
    LastWords, Signal, die_with_parent, is_of_others, kill_group, signal_group, signal_name,
};
use sweeper_model::frames;
use sweeper_model::row::outcome::Status;

/// The program of the interpreter; its modules come in the first frame.
const BOOTSTRAP: &str = include_str!("child/bootstrap.py");

/// The modules, by name.
const MODULES: [(&str, &str); 41] = [
    ("main", include_str!("child/main.py")),
    ("frames", include_str!("child/frames.py")),
    ("faults", include_str!("child/faults.py")),
    ("tensors", include_str!("child/tensors.py")),
    ("sources", include_str!("child/sources.py")),
    ("arrays", include_str!("child/arrays.py")),
    ("graph", include_str!("child/graph.py")),
    ("program", include_str!("child/program.py")),
    ("candidate", include_str!("child/candidate.py")),
    ("device_page", include_str!("child/device_page.py")),
    ("autograd", include_str!("child/autograd.py")),
    ("sums", include_str!("child/sums.py")),
    ("handover", include_str!("child/handover.py")),
    ("audit", include_str!("child/audit.py")),
    ("state", include_str!("child/state.py")),
    ("kernelbench", include_str!("child/kernelbench.py")),
    ("examine", include_str!("child/examine.py")),
    ("generate", include_str!("child/generate.py")),
    ("reference", include_str!("child/reference.py")),
    ("probes", include_str!("child/probes.py")),
    ("roundings", include_str!("child/roundings.py")),
    ("rounding", include_str!("child/rounding.py")),
    ("rounding_sums", include_str!("child/rounding_sums.py")),
    ("rounding_numpy", include_str!("child/rounding_numpy.py")),
    ("rounding_ufuncs", include_str!("child/rounding_ufuncs.py")),
    ("rounding_jax", include_str!("child/rounding_jax.py")),
    ("rounding_jaxprs", include_str!("child/rounding_jaxprs.py")),
    ("spread", include_str!("child/spread.py")),
    ("unlisted", include_str!("child/unlisted.py")),
    ("libraries", include_str!("child/libraries.py")),
    ("footprint", include_str!("child/footprint.py")),
    ("compiled", include_str!("child/compiled.py")),
    ("imports", include_str!("child/imports.py")),
    ("caches", include_str!("child/caches.py")),
    ("autotuned", include_str!("child/autotuned.py")),
    ("judge", include_str!("child/judge.py")),
    ("host_clock", include_str!("child/host_clock.py")),
    ("driver", include_str!("child/driver.py")),
    ("gate", include_str!("child/gate.py")),
    ("flush", include_str!("child/flush.py")),
    ("cuda", include_str!("child/cuda.py")),
];

/// How long a process that closed its stream has to end.
const LEAVING_LIMIT: Duration = Duration::from_secs(2);

/// The longest answer: tensors come through files.
const MOST_ANSWER_BYTES: u32 = 64 << 20;

/// How often it is looked whether a process that does not answer is still there.
const TICK: Duration = Duration::from_millis(100);

/// Why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::device::foreign) struct Failure {
    /// The point's status.
    pub(in crate::device::foreign) status: Status,
    /// Why.
    pub(in crate::device::foreign) reason: String,
    /// The process is gone.
    pub(in crate::device::foreign) is_lost: bool,
    /// Somebody else ended it.
    pub(in crate::device::foreign) is_from_outside: bool,
}

/// A process; it is killed, with all that it started, when this is dropped.
pub(in crate::device::foreign) struct Child {
    process: Process,
    requests: ChildStdin,
    answers: Receiver<io::Result<Value>>,
    last_words: LastWords,
    /// What it is, for people.
    what: &'static str,
    /// How often the system had ended processes of the control group for their memory before it.
    kills_before: u64,
    is_suspended: bool,
}

impl Child {
    /// Starts an interpreter with these variables beside those of this process.
    ///
    /// # Errors
    /// It is not there, or can't be started.
    pub(super) fn start(exe: &str, variables: &[(String, String)]) -> Result<Self, Failure> {
        let mut command = Command::new(exe);
        command.envs(variables.iter().cloned());
        Self::start_command(command)
    }

    /// Starts an interpreter by a command that has no arguments yet.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub(in crate::device::foreign) fn start_command(mut command: Command) -> Result<Self, Failure> {
        command.args(["-u", "-c", BOOTSTRAP]);
        let mut child = Self::start_program(command, "interpreter")?;
        let modules: serde_json::Map<String, Value> = MODULES
            .iter()
            .map(|(name, text)| ((*name).to_owned(), json!(text)))
            .collect();
        match child.send(&Value::Object(modules)) {
            Ok(()) => Ok(child),
            // It died before it had read them.
            Err(_) => Err(child.obituary()),
        }
    }

    /// Starts a program that answers requests from its start; `what` it is, for people.
    ///
    /// # Errors
    /// It is not there, or can't be started.
    pub(in crate::device::foreign) fn start_program(
        mut command: Command,
        what: &'static str,
    ) -> Result<Self, Failure> {
        let exe = command.get_program().to_string_lossy().into_owned();
        command
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        die_with_parent(&mut command);
        Self::launched(command, what).map_err(|error| Failure {
            status: Status::Unavailable,
            reason: format!("the {what} `{exe}` can't be started: {error}"),
            is_lost: true,
            is_from_outside: false,
        })
    }

    fn launched(mut command: Command, what: &'static str) -> io::Result<Self> {
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
        let last_words = LastWords::of(stderr)?;
        Ok(Child {
            process,
            requests,
            answers,
            last_words,
            what,
            kills_before,
            is_suspended: false,
        })
    }

    fn send(&mut self, frame: &Value) -> io::Result<()> {
        frames::send_body(&mut self.requests, &serde_json::to_vec(frame)?)
    }

    /// Asks for something, and waits for the answer.
    ///
    /// # Errors
    /// The failure that was answered; the process's death; silence for longer than `limit`.
    pub(in crate::device::foreign) fn ask(
        &mut self,
        request: &Value,
        limit: Duration,
    ) -> Result<Value, Failure> {
        if self.send(request).is_err() {
            return Err(self.obituary());
        }
        let mut answer = match self.answer_within(limit) {
            Ok(Ok(answer)) => answer,
            Err(RecvTimeoutError::Timeout) => {
                self.kill();
                return Err(Failure {
                    status: Status::Timeout,
                    reason: format!("no answer within {limit:?}"),
                    is_lost: true,
                    is_from_outside: false,
                });
            }
            Ok(Err(_)) | Err(RecvTimeoutError::Disconnected) => return Err(self.obituary()),
        };
        match answer.get_mut("ok") {
            Some(held) => Ok(held.take()),
            None => Err(failure(&answer["error"])),
        }
    }

    /// The next answer. The stream of a process that died does not end as long as a process has it
    /// that a function has forked.
    fn answer_within(&mut self, limit: Duration) -> Result<io::Result<Value>, RecvTimeoutError> {
        let start = Instant::now();
        let mut has_left = false;
        loop {
            let rest = limit.saturating_sub(start.elapsed());
            match self.answers.recv_timeout(rest.min(TICK)) {
                Err(RecvTimeoutError::Timeout) if has_left => {
                    return Err(RecvTimeoutError::Disconnected);
                }
                Err(RecvTimeoutError::Timeout) if rest > TICK => {
                    // What it wrote before is heard of within one more wait.
                    has_left = matches!(self.process.try_wait(), Ok(Some(_)));
                }
                answer => return answer,
            }
        }
    }

    /// Sends a request whose answer is taken by [`answer_by_now`](Self::answer_by_now).
    ///
    /// # Errors
    /// The process's death.
    pub(in crate::device::foreign) fn request(&mut self, request: &Value) -> Result<(), Failure> {
        self.send(request).map_err(|_| self.obituary())
    }

    /// The answer to a request, if it is there by now.
    ///
    /// # Errors
    /// As [`ask`](Self::ask).
    pub(in crate::device::foreign) fn answer_by_now(&mut self) -> Result<Option<Value>, Failure> {
        match self.answers.try_recv() {
            Ok(Ok(mut answer)) => match answer.get_mut("ok") {
                Some(held) => Ok(Some(held.take())),
                None => Err(failure(&answer["error"])),
            },
            Ok(Err(_)) | Err(TryRecvError::Disconnected) => Err(self.obituary()),
            Err(TryRecvError::Empty) if matches!(self.process.try_wait(), Ok(Some(_))) => {
                Err(self.obituary())
            }
            Err(TryRecvError::Empty) => Ok(None),
        }
    }

    /// The number of the process, which leads a group.
    pub(in crate::device::foreign) fn id(&self) -> u32 {
        self.process.id()
    }

    /// Stops it with all of its group, until it is resumed.
    pub(in crate::device::foreign) fn suspend(&mut self) {
        if !self.is_suspended {
            signal_group(self.process.id(), Signal::STOP);
            self.is_suspended = true;
        }
    }

    /// Lets it go on.
    pub(in crate::device::foreign) fn resume(&mut self) {
        if self.is_suspended {
            signal_group(self.process.id(), Signal::CONT);
            self.is_suspended = false;
        }
    }

    fn kill(&mut self) {
        kill_group(self.process.id());
    }

    /// Ends the process, with all that it started: later requests are told of that.
    pub(in crate::device::foreign) fn end(&mut self) {
        self.kill();
    }

    /// The failure of a process that died.
    fn obituary(&mut self) -> Failure {
        let step = Duration::from_millis(2);
        let mut has_left = false;
        for _ in 0..LEAVING_LIMIT.as_millis() / step.as_millis() {
            has_left = matches!(self.process.try_wait(), Ok(Some(_)));
            if has_left {
                break;
            }
            thread::sleep(step);
        }
        self.kill();
        let status = self.process.wait().ok();
        let words = self.last_words.text();
        let last = words.lines().rev().find(|line| !line.trim().is_empty());
        let said = last.map_or_else(String::new, |line| format!(": {}", line.trim()));
        let (code, signal) = match status {
            Some(status) => (status.code(), status.signal()),
            None => (None, None),
        };
        let mut is_from_outside = false;
        let (status, reason) = match (signal, code) {
            (Some(9), _) if memory::group_kills() > self.kills_before => {
                (Status::Oom, "the system ended it for its memory".to_owned())
            }
            (Some(signal), _) => {
                is_from_outside = has_left && is_of_others(signal);
                let who = match is_from_outside {
                    true => format!("the {}", self.what),
                    false => "it".to_owned(),
                };
                let name = signal_name(signal);
                (
                    Status::Crashed,
                    format!("{who} was ended by signal {signal}{name}"),
                )
            }
            (None, code) => {
                let code = code.unwrap_or(0);
                (
                    Status::Error,
                    format!("it ended the {} with code {code}", self.what),
                )
            }
        };
        Failure {
            status,
            reason: format!("{reason}{said}"),
            is_lost: true,
            is_from_outside,
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
        is_lost: error["ends"].as_bool().unwrap_or(false),
        is_from_outside: false,
    }
}

/// The next frame; none at the end of the stream.
fn receive(stream: &mut impl Read) -> io::Result<Option<Value>> {
    let body = frames::receive_body(stream, MOST_ANSWER_BYTES)?;
    let answer = body.map(|body| serde_json::from_slice(&body));
    Ok(answer.transpose()?)
}
