//! What compiling kernels will take, by what it took before.

use std::collections::BTreeMap;

use sweeper_cache::Cache;
use sweeper_program::KernelSource;

use crate::compile::kernels::Kernels;

/// What compiling a kernel of [`TYPICAL_BYTES`] takes where nothing is known, in nanoseconds.
const TYPICAL_NS: f64 = 200e6;

/// The text of such a kernel, without headers.
const TYPICAL_BYTES: usize = 4000;

/// Kernels of the cache whose times are read at most, those that were used last.
const MOST_READ: usize = 4096;

/// What headers and starting the compiler take, as if they were so much text of a kernel: NVRTC
/// took 50 ms for any kernel and 15 ms for each 1000 bytes of its own.
const FIXED_BYTES: usize = 3000;

/// What compiling kernels took: those of one source, which differ in the sizes of their tiles, and
/// others by the text that they have.
#[derive(Debug, Default)]
pub(super) struct Prices {
    by_source: BTreeMap<String, Times>,
    bytes: usize,
    sum_ns: f64,
}

/// Times of compiling kernels.
#[derive(Debug, Default)]
struct Times {
    count: usize,
    sum_ns: f64,
}

impl Prices {
    /// Of kernels that the cache has.
    pub(super) fn of(kernels: &Kernels<'_>, alike: &[KernelSource]) -> Self {
        let mut prices = Prices::default();
        for source in alike {
            let entry = kernels
                .cache
                .and_then(|cache| cache.peek(&kernels.key(source)));
            if let Some(entry) = entry {
                prices.add(source, entry.metadata().compile_ns);
            }
        }
        prices
    }

    /// Takes in what the cache's kernels took, by their sources: there is no text of them.
    pub(super) fn read(&mut self, cache: &Cache) {
        // Without a list, prices are less exact.
        let entries = cache.ls().into_iter().flatten().take(MOST_READ);
        for summary in entries.filter_map(|entry| entry.summary) {
            if let Some(name) = summary.metadata.sources.first() {
                self.add_named(name, summary.metadata.compile_ns);
            }
        }
    }

    pub(super) fn add(&mut self, source: &KernelSource, compile_ns: u64) {
        self.bytes += bytes(source);
        self.sum_ns += compile_ns as f64;
        if let Some(name) = name(source) {
            self.add_named(name, compile_ns);
        }
    }

    fn add_named(&mut self, name: &str, compile_ns: u64) {
        let times = self.by_source.entry(name.to_owned()).or_default();
        times.count += 1;
        times.sum_ns += compile_ns as f64;
    }

    /// What compiling a kernel will take, in nanoseconds.
    fn of_one(&self, source: &KernelSource) -> f64 {
        if let Some(times) = name(source).and_then(|name| self.by_source.get(name)) {
            return times.sum_ns / times.count as f64;
        }
        let ns_per_byte = match self.bytes {
            0 => TYPICAL_NS / (FIXED_BYTES + TYPICAL_BYTES) as f64,
            known => self.sum_ns / known as f64,
        };
        ns_per_byte * bytes(source) as f64
    }

    /// The time until so many threads have compiled all, in nanoseconds: the longest one's, or that
    /// of an equal share.
    pub(super) fn of_all(&self, sources: &[&KernelSource], threads: usize) -> f64 {
        let each = sources.iter().map(|source| self.of_one(source));
        let longest = each.clone().fold(0.0, f64::max);
        longest.max(each.sum::<f64>() / threads as f64)
    }
}

/// The name of a kernel's own text.
fn name(source: &KernelSource) -> Option<&str> {
    source.files.first().map(|file| &*file.name)
}

/// The text of a kernel that compiling depends on: its own, beside headers.
fn bytes(source: &KernelSource) -> usize {
    FIXED_BYTES + source.files.first().map_or(0, |file| file.text.len())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use sweeper_cache::{Artifact, CacheConfig, KeyBuilder, Kind, Lookup, Metadata};
    use sweeper_program::{Language, SourceFile};

    use super::*;

    /// A source of so much text; each has a name of its own.
    fn source(bytes: usize) -> KernelSource {
        named(format!("k{bytes}.cu").leak(), bytes)
    }

    fn named(name: &'static str, bytes: usize) -> KernelSource {
        KernelSource {
            language: Language::Cuda,
            files: Cow::Owned(vec![SourceFile {
                text: " ".repeat(bytes).into(),
                ..SourceFile::embedded(name, "")
            }]),
            entry: "k".into(),
            defines: vec![],
            options: Vec::new(),
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

    /// Kernels with unrolled loops take longer than their text says.
    #[test]
    fn a_kernel_costs_what_others_of_its_source_took() {
        let folder = tempfile::tempdir().unwrap();
        let cache = Cache::open(CacheConfig::new(folder.path(), 1 << 24)).unwrap();
        for (columns, compile_ns) in [(64, 600_000_000), (128, 800_000_000)] {
            let key = KeyBuilder::new("test").field("columns", [columns]).finish();
            let Lookup::Miss(slot) = cache.lookup(&key) else {
                panic!("a kernel of {columns} columns is there already");
            };
            slot.publish(Artifact {
                kind: Kind::Cubin,
                payload: vec![columns; 100],
                metadata: Metadata {
                    sources: vec!["attention.cu".to_owned(), "tiles.h".to_owned()],
                    compile_ns,
                    ..Metadata::default()
                },
            });
        }
        let attention = named("attention.cu", TYPICAL_BYTES);
        let mut prices = Prices::default();
        assert!((prices.of_one(&attention) - TYPICAL_NS).abs() < 1.0);
        prices.read(&cache);
        assert!((prices.of_one(&attention) - 700e6).abs() < 1.0);
        prices.add(&attention, 1_000_000_000);
        assert!((prices.of_one(&attention) - 800e6).abs() < 1.0);
        let tiles = named("tiles.h", TYPICAL_BYTES);
        let by_text = 1e9;
        assert!((prices.of_one(&tiles) - by_text).abs() < 1.0);
    }
}
