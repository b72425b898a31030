//! NVRTC in a sandbox: a source that nobody trusts may name any file, as in `#include`, may expand
//! without end, and may crash the compiler.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs, thread};

use serde::{Deserialize, Serialize};

use super::{Order, STACK_BYTES, understood};
use crate::compile::process::run;
use crate::compile::{Bounds, CompileError};
use crate::device::cuda::compiler::{Compilation, Compiler, Refusal};
use crate::device::memory;
use crate::device::sandbox::Sandbox;
use sweeper_model::scratch::{self, Scratch};

/// The arguments by which this program compiles what lies in its folder: [`serve`].
const ARGUMENTS: [&str; 2] = ["candidate", "--compile"];

/// Files of the folder.
const ORDER: &str = "order.json";
const ANSWER: &str = "answer.json";
const CUBIN: &str = "kernel.cubin";

/// The longest answer, and the longest cubin, in bytes.
const MOST_BYTES: u64 = 256 << 20;

/// What a process is asked for.
#[derive(Serialize, Deserialize)]
struct Request {
    library: PathBuf,
    order: Order,
}

/// What becomes of a request, beside the cubin.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Answer {
    Compiled {
        symbols: std::collections::BTreeMap<String, String>,
        log: String,
    },
    Rejected {
        log: String,
    },
    Failed {
        reason: String,
    },
}

/// Compiles a kernel by the NVRTC of this path.
///
/// # Errors
/// NVRTC's complaints, a time-out, a stop, no sandbox, or the trouble that kept it from running.
pub(super) fn compile(
    library: &Path,
    order: &Order,
    bounds: &Bounds<'_>,
) -> Result<Compilation, CompileError> {
    let trouble = |error: &dyn std::fmt::Display| {
        CompileError::Surroundings(format!("compiling in a sandbox: {error}"))
    };
    let folder = Scratch::new().map_err(|error| trouble(&error))?;
    let request = serde_json::json!({ "library": library, "order": order });
    let program = env::current_exe().map_err(|error| trouble(&error))?;
    fs::write(folder.path().join(ORDER), request.to_string()).map_err(|error| trouble(&error))?;
    let mut command = Command::new(&program);
    command.args(ARGUMENTS).current_dir(folder.path());
    let beside = library.canonicalize().ok();
    let beside = beside.iter().map(PathBuf::as_path).chain([library]);
    let beside = beside.filter_map(|path| Some(path.parent()?.to_owned()));
    let private = env::current_dir().into_iter().chain(env::home_dir());
    Sandbox::new(folder.path())
        .reading(beside.chain([program]))
        .hiding(private)
        .with_memory(memory::available_bytes() / 2)
        .enclose(&mut command)
        .map_err(|error| CompileError::Unavailable(error.to_string()))?;
    run(command, bounds)?;
    let read = |name: &str| {
        let path = folder.path().join(name);
        scratch::read(&path, MOST_BYTES).map_err(|reason| trouble(&format!("`{name}` {reason}")))
    };
    let answer = serde_json::from_slice(&read(ANSWER)?).map_err(|error| trouble(&error))?;
    understood(match answer {
        Answer::Compiled { symbols, log } => Ok(Compilation {
            cubin: read(CUBIN)?,
            symbols,
            log,
        }),
        Answer::Rejected { log } => Err(Refusal::Source { log }),
        Answer::Failed { reason } => Err(Refusal::Compiler(reason)),
    })
}

/// Compiles what lies in the current folder, in the sandbox.
///
/// # Errors
/// The system's.
pub fn serve() -> io::Result<()> {
    let request: Request = serde_json::from_slice(&fs::read(ORDER)?)?;
    let compile = move || -> Result<Compilation, Refusal> {
        let (compiler, _) = Compiler::load(&request.library).map_err(Refusal::Compiler)?;
        request.order.fill(&compiler)
    };
    let thread = thread::Builder::new()
        .stack_size(STACK_BYTES)
        .spawn(compile)?;
    let answer = thread.join().map_err(|_| io::Error::other("a panic"))?;
    let answer = match answer {
        Ok(compilation) => {
            fs::write(CUBIN, compilation.cubin)?;
            Answer::Compiled {
                symbols: compilation.symbols,
                log: compilation.log,
            }
        }
        Err(Refusal::Source { log }) => Answer::Rejected { log },
        Err(Refusal::Compiler(reason)) => Answer::Failed { reason },
    };
    fs::write(ANSWER, serde_json::to_vec(&answer)?)
}
