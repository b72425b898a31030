//! The process of kernels in C that nobody trusts: its side of the referee's protocol.
//!
//! Nothing that it says, or measures, counts: what follows makes honest kernels fast, and stops
//! nobody.

use std::fs::{self, File};
use std::{hint, io, thread};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::Deserialize;
use serde_json::{Value, json};

use super::kernels::Task;
use super::page::{Description, NO_MORE, Page, Word};
use crate::device::Artifact;
use crate::device::cpu::library::{Entry, Libraries};
use sweeper_model::frames;
use sweeper_model::row::outcome::Status;

/// The longest request.
const MOST_REQUEST_BYTES: u32 = 64 << 20;

/// The process, once it has its memory.
struct Process {
    page: Page,
    yields: bool,
    libraries: Libraries,
    /// Each function that a call makes, and the number of its first argument.
    calls: Vec<(Entry, usize)>,
    /// The arguments.
    cells: Vec<u64>,
}

/// What the referee asks for.
#[derive(Deserialize)]
#[serde(tag = "do", rename_all = "snake_case")]
enum Request {
    /// Maps the memory that both share.
    Open {
        shared: Description,
        memory_bytes: u64,
    },
    /// Says where the tensors lie.
    Share,
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
        let request = serde_json::from_slice(&body).map_err(|error| error.to_string());
        let answered = request.and_then(|request| answer(&mut process, request));
        let answer = match answered {
            Ok(answer) => json!({ "ok": answer }),
            Err(reason) => json!({ "error": { "status": Status::Error, "reason": reason } }),
        };
        frames::send_body(&mut answers, &serde_json::to_vec(&answer)?)?;
    }
    Ok(())
}

fn answer(process: &mut Option<Process>, request: Request) -> Result<Value, String> {
    let Some(held) = process else {
        let Request::Open {
            shared,
            memory_bytes,
        } = request
        else {
            return Err("the process has no memory yet".to_owned());
        };
        limit_memory(memory_bytes);
        *process = Some(Process {
            page: Page::described(&shared).map_err(|error| error.to_string())?,
            yields: shared.yields,
            libraries: Libraries::default(),
            calls: Vec::new(),
            cells: Vec::new(),
        });
        return Ok(json!({}));
    };
    match request {
        Request::Open { .. } => return Err("the process has its memory".to_owned()),
        Request::Share => return Ok(json!({ "address": held.page.tensors() })),
        Request::Enter(task) => held.take(task, |_| Ok(Entry::EMPTY))?,
        Request::Prepare(task) => {
            let objects = read_all(&task)?;
            let mut loaded = std::mem::take(&mut held.libraries);
            held.take(task, |call| {
                let entry = loaded.entry(&objects[call.object], &call.entry);
                entry.map_err(|error| error.to_string())
            })?;
            held.libraries = loaded;
            held.run();
        }
        Request::Calls { first } => held.turns(first),
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
fn limit_memory(bytes: u64) {
    let limit = Rlimit {
        current: Some(bytes),
        maximum: Some(bytes),
    };
    // Where it has less already, that stands.
    let _ = setrlimit(Resource::As, limit);
}

impl Process {
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
        for (number, (address, bytes)) in task.results.iter().enumerate() {
            self.page.tell(number, *address, *bytes);
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
