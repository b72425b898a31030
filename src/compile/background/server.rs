//! The process that compiles.

use std::io::{self, Read, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use sweeper_cache::Cache;
use sweeper_program::{KernelSource, Language};

use super::{CompileFailure, Opening, Question, Reply};
use crate::compile::CompileError;
use crate::compile::kernels::{Built, Kernels, Origin};
use crate::compile::toolchain::Toolchain;
use crate::device::Artifact;
use crate::frames::{receive, send};
use crate::hardware::DeviceKind;

/// What compiling a kernel of [`TYPICAL_BYTES`] takes where nothing is known, in nanoseconds.
const TYPICAL_NS: f64 = 200e6;

/// The text of such a kernel, without headers.
const TYPICAL_BYTES: usize = 4000;

/// What headers and starting the compiler take, as if they were so much text of a kernel: NVRTC
/// took 50 ms for any kernel and 15 ms for each 1000 bytes of its own.
const FIXED_BYTES: usize = 3000;

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
    let mut prices = Prices::of(cache.as_ref(), &kernels.cached, &opening.alike);
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

/// What compiling kernels took, for the text that they have.
#[derive(Debug, Default)]
struct Prices {
    bytes: usize,
    sum_ns: f64,
}

impl Prices {
    /// Of kernels that the cache has.
    fn of(cache: Option<&Cache>, kernels: &Kernels<'_>, alike: &[KernelSource]) -> Self {
        let mut prices = Prices::default();
        for source in alike {
            let entry = cache.and_then(|cache| cache.peek(&kernels.key(source)));
            if let Some(entry) = entry {
                prices.add(source, entry.metadata().compile_ns);
            }
        }
        prices
    }

    fn add(&mut self, source: &KernelSource, compile_ns: u64) {
        self.bytes += bytes(source);
        self.sum_ns += compile_ns as f64;
    }

    /// What compiling a kernel will take, in nanoseconds.
    fn of_one(&self, source: &KernelSource) -> f64 {
        let ns_per_byte = match self.bytes {
            0 => TYPICAL_NS / (FIXED_BYTES + TYPICAL_BYTES) as f64,
            known => self.sum_ns / known as f64,
        };
        ns_per_byte * bytes(source) as f64
    }

    /// The time until so many threads have compiled all, in nanoseconds: the longest one's, or that
    /// of an equal share.
    fn of_all(&self, sources: &[&KernelSource], threads: usize) -> f64 {
        let each = sources.iter().map(|source| self.of_one(source));
        let longest = each.clone().fold(0.0, f64::max);
        longest.max(each.sum::<f64>() / threads as f64)
    }
}

/// The text of a kernel that compiling depends on: its own, beside headers.
fn bytes(source: &KernelSource) -> usize {
    FIXED_BYTES + source.files.first().map_or(0, |file| file.text.len())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use sweeper_program::SourceFile;

    use super::*;

    fn source(bytes: usize) -> KernelSource {
        KernelSource {
            language: Language::Cuda,
            files: Cow::Owned(vec![SourceFile {
                text: " ".repeat(bytes).into(),
                ..SourceFile::embedded("k.cu", "")
            }]),
            entry: "k".into(),
            defines: vec![],
            user: None,
        }
    }

    #[test]
    fn a_kernel_of_more_text_costs_more() {
        let mut prices = Prices::default();
        let typical = source(TYPICAL_BYTES);
        assert!((prices.of_one(&typical) - TYPICAL_NS).abs() < 1.0);
        prices.add(&source(1000), 40_000_000);
        prices.add(&source(3000), 60_000_000);
        // 10 ns a byte.
        let (short, long) = (source(2000), source(17_000));
        assert!((prices.of_one(&short) - 50e6).abs() < 1.0);
        assert!((prices.of_one(&long) - 200e6).abs() < 1.0);
        let price = |sources: &[&KernelSource], threads| prices.of_all(sources, threads);
        assert!(price(&[], 2).abs() < 1.0);
        assert!((price(&[&short, &long, &short], 1) - 300e6).abs() < 1.0);
        assert!(
            (price(&[&short, &long, &short], 8) - 200e6).abs() < 1.0,
            "the longest"
        );
        assert!((price(&[&long; 8], 4) - 400e6).abs() < 1.0, "two rounds");
    }
}
