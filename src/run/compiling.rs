//! The cache of a run, and words about its kernels.

use std::mem::{Discriminant, discriminant};
use std::path::Path;

use sweeper_cache::{Cache, CacheConfig};
use sweeper_program::KernelSource;

use super::{Event, Progress, Request};
use sweeper_engine::compile::CompileError;
use sweeper_engine::compile::bound;
use sweeper_engine::compile::kernels::{Built, Kernels, Origin};
use sweeper_manifest::Manifest;
use sweeper_model::hardware::DeviceKind;
use sweeper_model::quantity;

/// The cache of a run on a device of this kind; none, with a warning, if the cache can't be opened.
pub(super) fn cache_of(
    kind: DeviceKind,
    manifest: &Manifest,
    request: &Request,
    progress: &dyn Progress,
) -> Option<Cache> {
    if !kind.facts().computes {
        return None;
    }
    let opened = open_cache(manifest, request).unwrap_or_else(|warning| {
        progress.event(&Event::Warning(&warning));
        None
    });
    opened.inspect(|cache| warn_of_upstreams(cache, progress))
}

/// Warns of faults of the caches that are only read.
pub(super) fn warn_of_upstreams(cache: &Cache, progress: &dyn Progress) {
    for warning in cache.take_warnings() {
        progress.event(&Event::Warning(&warning.to_string()));
    }
}

/// Opens the cache that a request names.
///
/// # Errors
/// A warning: without the cache everything is compiled, which is slower and as right.
pub fn open_cache(manifest: &Manifest, request: &Request) -> Result<Option<Cache>, String> {
    let Some(dir) = &request.cache_dir else {
        return Ok(None);
    };
    match Cache::open(config(dir, manifest)) {
        Ok(cache) => {
            bound::remember(dir, manifest.cache.size_bytes);
            Ok(Some(cache))
        }
        Err(error) => Err(format!("no kernel cache: {error}")),
    }
}

/// A cache in `dir` as a manifest wants it.
pub fn config(dir: &Path, manifest: &Manifest) -> CacheConfig {
    CacheConfig {
        upstream: manifest.cache.upstream.clone(),
        ..CacheConfig::new(dir, manifest.cache.size_bytes)
    }
}

/// A kernel's size on disk, in bytes, for as long as no better guess is there.
const TYPICAL_BYTES: u64 = 20 << 10;

/// Tells the cache which kernels a sweep needs. A warning if they won't fit.
pub fn expect(kernels: &Kernels<'_>, sources: &[&KernelSource]) -> Option<String> {
    let keys: Vec<_> = sources.iter().map(|source| kernels.key(source)).collect();
    let set = kernels.cache?.expect(&keys);
    let needed = set.estimated_bytes(TYPICAL_BYTES);
    (needed > set.capacity_bytes).then(|| {
        format!(
            "the sweep's kernels ({}) take about {} and the kernel cache may hold {} \
             (cache.size_gb): those that do not fit are compiled in each run",
            sources.len(),
            quantity::bytes(needed),
            quantity::bytes(set.capacity_bytes)
        )
    })
}

/// Number of kernels that were compiled now.
pub fn count_built(results: &[Result<Built, CompileError>]) -> usize {
    let is_built = |result: &&Result<Built, CompileError>| matches!(result, Ok(built) if built.origin == Origin::Built);
    results.iter().filter(is_built).count()
}

/// The kind of a warning. One of each kind is shown: they differ in numbers at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WarningKind {
    /// The cache holds another compiler's artifact.
    Foreign,
    /// The cache is too small for the sweep.
    TooSmall,
    /// The cache did not take a kernel.
    NotStored(Discriminant<sweeper_cache::Warning>),
}

/// The warning about a kernel: the cache did not take it, or holds another compiler's.
pub fn warning(result: &Result<Built, CompileError>) -> Option<(WarningKind, String)> {
    let built = result.as_ref().ok()?;
    if built.is_foreign {
        let text = format!(
            "kernels in the cache were made by {}, which is not this machine's compiler; \
             --require-cached takes them all the same",
            built.compiler
        );
        return Some((WarningKind::Foreign, text));
    }
    let warning = built.warning.as_ref()?;
    let kind = match warning {
        sweeper_cache::Warning::OverCapacity { .. } => WarningKind::TooSmall,
        other => WarningKind::NotStored(discriminant(other)),
    };
    Some((kind, warning.to_string()))
}
