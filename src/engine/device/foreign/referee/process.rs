//! The process of kernels that nobody trusts: its side of the referee's protocol.
//!
//! Nothing that it says, or measures, counts: what follows makes honest kernels fast, and stops
//! nobody.

use std::fs::{self, File};
use std::{hint, io, thread};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::Deserialize;
use serde_json::{Value, json};

use super::kernels::Task;
use super::kernels_on_gpu::GpuCalls;
use super::page::{Description, NO_MORE, Page, Word};
use crate::device::Artifact;
use crate::device::cpu::library::{Entry, Libraries};
use sweeper_model::frames;
use sweeper_model::row::outcome::Status;

/// The longest request.
const MOST_REQUEST_BYTES: u32 = 64 << 20;

/// The process, once it has its memory.
enum Process {
    Host(HostCalls),
    Gpu(GpuCalls),
}

/// Calls of kernels in C.
struct HostCalls {
    page: Page,
    yields: bool,
    libraries: Libraries,
    /// Each function that a call makes, and the number of its first argument.
    calls: Vec<(Entry, usize)>,
    /// The arguments.
    cells: Vec<u64>,
}

/// Why a request has no answer.
pub(super) struct Complaint {
    pub(super) status: Status,
    pub(super) reason: String,
    /// Nothing can be asked for any more.
    pub(super) ends: bool,
}

impl From<String> for Complaint {
    fn from(reason: String) -> Self {
        Complaint {
            status: Status::Error,
            reason,
            ends: false,
        }
    }
}

/// What the referee asks for.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Request {
    /// Maps the memory that both share.
    Open {
        shared: Description,
        memory_bytes: u64,
        device: String,
    },
    /// Says where the tensors lie; on a GPU they are opened by a handle.
    Share { handle: Option<String> },
    /// Gets functions ready that do nothing: none of the candidate's text has run yet.
    Enter(Task),
    /// Loads the candidate's functions, and calls them.
    Prepare(Task),
    /// Turns between gate and bell, from a number on.
    Calls { first: u64 },
}

/// Answers requests until there are no more.
///
/// # Errors
/// Those of the streams.
pub fn serve(mut requests: File, mut answers: File) -> io::Result<()> {
    let mut process = None;
    while let Some(body) = frames::receive_body(&mut requests, MOST_REQUEST_BYTES)? {
        let request = serde_json::from_slice(&body).map_err(|error| error.to_string().into());
        let answered = request.and_then(|request| answer(&mut process, request));
        let mut ends = false;
        let answer = match answered {
            Ok(answer) => json!({ "ok": answer }),
            Err(Complaint {
                status,
                reason,
                ends: is_last,
            }) => {
                ends = is_last;
                json!({ "error": { "status": status, "reason": reason, "ends": ends } })
            }
        };
        frames::send_body(&mut answers, &serde_json::to_vec(&answer)?)?;
        if ends {
            break;
        }
    }
    Ok(())
}

fn answer(process: &mut Option<Process>, request: Request) -> Result<Value, Complaint> {
    let Some(held) = process else {
        let Request::Open {
            shared,
            memory_bytes,
            device,
        } = request
        else {
            return Err("the process has no memory yet".to_owned().into());
        };
        let page = Page::described(&shared).map_err(|error| error.to_string())?;
        *process = Some(match &*device {
            "cuda" => {
                // A driver reserves addresses for far more than there is.
                limit(Resource::Data, memory_bytes);
                Process::Gpu(GpuCalls::new(page)?)
            }
            _ => {
                limit(Resource::As, memory_bytes);
                Process::Host(HostCalls::new(page, shared.yields))
            }
        });
        return Ok(json!({}));
    };
    match (held, request) {
        (_, Request::Open { .. }) => return Err("the process has its memory".to_owned().into()),
        (Process::Host(held), Request::Share { .. }) => {
            return Ok(json!({ "address": held.page.tensors() }));
        }
        (Process::Gpu(held), Request::Share { handle }) => {
            let address = held.open(&handle.unwrap_or_default())?;
            return Ok(json!({ "address": address }));
        }
        (Process::Host(held), Request::Enter(task)) => held.take(task, |_| Ok(Entry::EMPTY))?,
        (Process::Gpu(held), Request::Enter(task)) => held.enter(&task),
        (Process::Host(held), Request::Prepare(task)) => {
            let objects = read_all(&task)?;
            let mut loaded = std::mem::take(&mut held.libraries);
            held.take(task, |call| {
                let entry = loaded.entry(&objects[call.object], &call.entry);
                entry.map_err(|error| error.to_string())
            })?;
            held.libraries = loaded;
            held.run();
        }
        (Process::Gpu(held), Request::Prepare(task)) => {
            let objects = read_all(&task)?;
            held.prepare(task, &objects)?;
        }
        (Process::Host(held), Request::Calls { first }) => held.turns(first),
        (Process::Gpu(held), Request::Calls { first }) => held.turns(first)?,
    }
    Ok(json!({}))
}

/// The shared objects of a task.
fn read_all(task: &Task) -> Result<Vec<Artifact>, String> {
    let objects = task.objects.iter();
    let read = objects.map(|(key, path)| {
        let bytes = fs::read(path).map_err(|error| error.to_string())?;
        Ok(Artifact {
            key: key.clone(),
            bytes: bytes.into(),
            symbols: Default::default(),
        })
    });
    read.collect()
}

/// Keeps this process from taking more memory, for good.
fn limit(resource: Resource, bytes: u64) {
    let limit = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    // Where it has less already, that stands.
    let _ = setrlimit(resource, limit);
}

impl HostCalls {
    fn new(page: Page, yields: bool) -> Self {
        HostCalls {
            page,
            yields,
            libraries: Libraries::default(),
            calls: Vec::new(),
            cells: Vec::new(),
        }
    }

    /// Takes a task, with the function of each call.
    fn take(
        &mut self,
        task: Task,
        mut entry: impl FnMut(&super::kernels::Call) -> Result<Entry, String>,
    ) -> Result<(), String> {
        let calls = task.calls.iter();
        let calls = calls.map(|call| Ok((entry(call)?, call.first_cell)));
        self.calls = calls.collect::<Result<_, String>>()?;
        self.cells = task.cells;
        for (number, place) in task.results.iter().enumerate() {
            self.page.tell(number, *place, false);
        }
        Ok(())
    }

    /// Calls all functions.
    fn run(&self) {
        for &(entry, first) in &self.calls {
            entry.call(&self.cells[first..], 0);
        }
    }

    /// Turns between gate and bell, until there are no more.
    fn turns(&self, first: u64) {
        let page = &self.page;
        for number in first.. {
            self.wait_until(
                || matches!(page.load(Word::Announced), it if it == number || it == NO_MORE),
            );
            if page.load(Word::Announced) == NO_MORE {
                return;
            }
            page.store(Word::Ready, number);
            self.wait_until(|| page.load(Word::Written) == number);
            page.store(Word::Awake, number);
            self.wait_until(|| page.load(Word::Opened) == number);
            self.run();
            page.store(Word::Rung, number);
        }
    }

    fn wait_until(&self, is_there: impl Fn() -> bool) {
        while !is_there() {
            match self.yields {
                true => thread::yield_now(),
                false => hint::spin_loop(),
            }
        }
    }
}
