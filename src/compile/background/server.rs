//! The process that compiles.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sweeper_cache::Cache;
use sweeper_program::{KernelSource, Language};

use super::{CompileFailure, Opening, Question, Reply};
use crate::compile::CompileError;
use crate::compile::kernels::{Kernels, Origin};
use crate::compile::toolchain::Toolchain;
use crate::device::Artifact;
use crate::frames::{receive, send};
use crate::hardware::DeviceKind;

/// What compiling a kernel takes where nothing is known, in nanoseconds.
const TYPICAL_NS: f64 = 200e6;

/// Answers questions until the stream ends, or until it is stopped.
///
/// # Errors
/// Those of the streams.
pub fn serve(
    mut questions: impl Read,
    mut replies: impl Write,
    stop: &AtomicBool,
) -> io::Result<()> {
    let Some(opening) = receive::<Opening>(&mut questions)? else {
        return Ok(());
    };
    let cache = opening.cache.as_ref();
    let cache = cache.and_then(|place| Cache::open(place.config()).ok());
    let folder = opening.cache.as_ref().map(|place| place.dir.as_path());
    let cc = std::env::var_os("CC").map(Into::into);
    let toolchain = Toolchain::here(cc, folder.map(Path::as_ref));
    let kernels = Kernels {
        toolchain: &toolchain,
        cache: cache.as_ref().filter(|_| !opening.compiles_all),
        device: &opening.device,
        limit: opening.limit,
        require_cached: false,
        stop,
    };
    let mut prices = Prices::of(cache.as_ref(), &kernels, &opening.alike);
    let ready = Reply::Ready {
        compiler: toolchain.identity(opening.device.kind),
    };
    send(&mut replies, &ready)?;
    warm_up(&kernels, &opening);
    while let Some(question) = receive::<Question>(&mut questions)? {
        let reply = match question {
            Question::Look(sources) => {
                let missing = sources.iter().filter(|source| !kernels.is_cached(source));
                let missing = missing.count();
                let rounds = missing.div_ceil(threads(opening.device.kind));
                Reply::Looked {
                    missing,
                    price_ns: rounds as f64 * prices.typical_ns(),
                }
            }
            Question::Compile(sources) => Reply::Compiled(compile(
                &kernels,
                &sources,
                opening.device.kind,
                &mut prices,
            )),
        };
        if stop.load(Ordering::Relaxed) {
            // Nobody hears it.
            return Ok(());
        }
        send(&mut replies, &reply)?;
    }
    Ok(())
}

/// Compiles a kernel for nothing: the first one makes NVRTC read its own files.
fn warm_up(kernels: &Kernels<'_>, opening: &Opening) {
    let first = opening
        .alike
        .first()
        .filter(|source| source.language == Language::Cuda);
    if let Some(source) = first {
        let without_cache = Kernels {
            cache: None,
            ..*kernels
        };
        // A kernel that can't be compiled is said when it is needed.
        let _ = without_cache.get(source);
    }
}

/// Threads that compile. On a CPU the loop wants the processors.
fn threads(kind: DeviceKind) -> usize {
    match kind {
        DeviceKind::Cpu | DeviceKind::Null => 1,
        DeviceKind::Cuda => thread::available_parallelism().map_or(1, |count| count.get() / 2),
    }
    .max(1)
}

fn compile(
    kernels: &Kernels<'_>,
    sources: &[KernelSource],
    kind: DeviceKind,
    prices: &mut Prices,
) -> Result<Vec<Artifact>, CompileFailure> {
    let sources: Vec<&KernelSource> = sources.iter().collect();
    let results = kernels.get_all(&sources, threads(kind), &|_, _| {});
    let mut artifacts = Vec::with_capacity(results.len());
    for result in results {
        let built = result.map_err(|error| CompileFailure {
            is_final: matches!(error, CompileError::Rejected { .. }),
            reason: error.to_string(),
        })?;
        if built.origin == Origin::Built {
            prices.add(built.compile_ns);
        }
        artifacts.push(built.artifact);
    }
    Ok(artifacts)
}

/// What compiling kernels took.
#[derive(Debug, Default)]
struct Prices {
    count: u32,
    sum_ns: f64,
}

impl Prices {
    /// Of kernels that the cache has.
    fn of(cache: Option<&Cache>, kernels: &Kernels<'_>, alike: &[KernelSource]) -> Self {
        let mut prices = Prices::default();
        for source in alike {
            let entry = cache.and_then(|cache| cache.peek(&kernels.key(source)));
            if let Some(entry) = entry {
                prices.add(entry.metadata().compile_ns);
            }
        }
        prices
    }

    fn add(&mut self, compile_ns: u64) {
        self.count += 1;
        self.sum_ns += compile_ns as f64;
    }

    fn typical_ns(&self) -> f64 {
        match self.count {
            0 => TYPICAL_NS,
            count => self.sum_ns / f64::from(count),
        }
    }
}
