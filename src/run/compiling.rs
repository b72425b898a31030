//! The cache of a run, and words about its kernels.

use std::mem::{Discriminant, discriminant};

use sweeper_cache::{Cache, CacheConfig};

use super::{Event, Progress, Request};
use crate::compile::CompileError;
use crate::compile::bound;
use crate::compile::kernels::{Built, Origin};
use crate::hardware::DeviceKind;
use crate::manifest::Manifest;

/// The cache of a run on a device of this kind; none, with a warning, if the cache can't be opened.
pub(super) fn cache_of(
    kind: DeviceKind,
    manifest: &Manifest,
    request: &Request,
    progress: &dyn Progress,
) -> Option<Cache> {
    if kind == DeviceKind::Null {
        return None;
    }
    open_cache(manifest, request).unwrap_or_else(|warning| {
        progress.event(&Event::Warning(&warning));
        None
    })
}

/// Opens the cache that a request names.
///
/// # Errors
/// A warning: without the cache everything is compiled, which is slower and as right.
pub fn open_cache(manifest: &Manifest, request: &Request) -> Result<Option<Cache>, String> {
    let Some(dir) = &request.cache_dir else {
        return Ok(None);
    };
    let config = CacheConfig::new(dir, manifest.cache.size_bytes);
    match Cache::open(config) {
        Ok(cache) => {
            bound::remember(dir, manifest.cache.size_bytes);
            Ok(Some(cache))
        }
        Err(error) => Err(format!("no kernel cache: {error}")),
    }
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
    let kind = WarningKind::NotStored(discriminant(warning));
    Some((kind, warning.to_string()))
}
