//! The process that compiles.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sweeper_cache::Cache;
use sweeper_program::KernelSource;

use super::prices::Prices;
use super::{CompileFailure, Opening, Question, Reply};
use crate::compile::CompileError;
use crate::compile::kernels::{Built, Kernels, Origin};
use crate::compile::toolchain::Toolchain;
use crate::device::Artifact;
use sweeper_model::frames::{receive, send};
use sweeper_model::hardware::DeviceKind;

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
    let cached = Kernels {
        toolchain: &toolchain,
        cache: cache.as_ref(),
        device: &opening.device,
        limit: opening.limit,
        require_cached: false,
        stop,
    };
    let kernels = Compilers {
        anew: Kernels {
            cache: cached.cache.filter(|_| !opening.compiles_all),
            ..cached
        },
        cached,
        running: &opening.alike,
    };
    let mut prices = Prices::of(&kernels.cached, &opening.alike);
    let mut unread = cache.as_ref().filter(|_| !opening.compiles_all);
    let ready = Reply::Ready {
        compiler: toolchain.identity(opening.device.kind),
    };
    send(&mut replies, &ready)?;
    warm_up(&kernels.cached, &opening);
    while let Some(question) = receive::<Question>(&mut questions)? {
        let reply = match question {
            Question::Look(sources) => {
                let is_missing = |source: &&KernelSource| !kernels.of(source).is_cached(source);
                let missing: Vec<&KernelSource> = sources.iter().filter(is_missing).collect();
                if !missing.is_empty() {
                    unread
                        .take()
                        .into_iter()
                        .for_each(|cache| prices.read(cache));
                }
                Reply::Looked {
                    missing: missing.len(),
                    price_ns: prices.of_all(&missing, threads(opening.device.kind)),
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

/// How kernels are compiled.
struct Compilers<'a> {
    /// Those that the loop runs already: the cache has them.
    cached: Kernels<'a>,
    /// All others; without a cache, where all are to be compiled.
    anew: Kernels<'a>,
    running: &'a [KernelSource],
}

impl<'a> Compilers<'a> {
    fn is_running(&self, source: &KernelSource) -> bool {
        self.running.iter().any(|own| own.same_source(source))
    }

    fn of(&self, source: &KernelSource) -> &Kernels<'a> {
        match self.is_running(source) {
            true => &self.cached,
            false => &self.anew,
        }
    }

    /// Kernels in the order of their sources.
    fn get_all(
        &self,
        sources: &[KernelSource],
        threads: usize,
    ) -> Vec<Result<Built, CompileError>> {
        let is_running = |source: &&KernelSource| self.is_running(source);
        let (running, others): (Vec<_>, Vec<_>) = sources.iter().partition(is_running);
        let mut running = self
            .cached
            .get_all(&running, threads, &|_, _| {})
            .into_iter();
        let mut others = self.anew.get_all(&others, threads, &|_, _| {}).into_iter();
        let next = |source| match is_running(&source) {
            true => running.next(),
            false => others.next(),
        };
        sources.iter().filter_map(next).collect()
    }
}

/// Compiles a kernel for nothing: the first one makes NVRTC read its own files.
fn warm_up(kernels: &Kernels<'_>, opening: &Opening) {
    let first = opening
        .alike
        .first()
        .filter(|_| opening.device.kind.facts().is_gpu);
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
    if !kind.facts().is_gpu {
        return 1;
    }
    let processors = thread::available_parallelism();
    processors.map_or(1, |count| (count.get() / 2).max(1))
}

fn compile(
    kernels: &Compilers<'_>,
    sources: &[KernelSource],
    kind: DeviceKind,
    prices: &mut Prices,
) -> Result<Vec<Artifact>, CompileFailure> {
    let results = kernels.get_all(sources, threads(kind));
    let mut artifacts = Vec::with_capacity(results.len());
    for (source, result) in sources.iter().zip(results) {
        let built = result.map_err(|error| CompileFailure {
            is_final: matches!(error, CompileError::Rejected { .. }),
            reason: error.to_string(),
        })?;
        if built.origin == Origin::Built {
            prices.add(source, built.compile_ns);
        }
        artifacts.push(built.artifact);
    }
    Ok(artifacts)
}
