//! Whether the kernels of a point are in the cache, or how the nearest entry differs.

use std::fmt;

use serde::Serialize;
use sweeper_cache::{Cache, CacheConfig, Difference};

use crate::cli::place;
use crate::cli::target::Target;
use crate::compile::kernels::Kernels;
use crate::plan::{Plan, Planned};

/// A kernel of a point.
#[derive(Serialize)]
pub(super) struct Kernel {
    title: String,
    key: String,
    is_cached: bool,
    /// Fields in which the nearest entry of the cache differs; none of an empty cache.
    differences: Option<Vec<String>>,
}

pub(super) fn of(plan: &Plan<'_>, point: &Planned, target: &Target) -> Vec<Kernel> {
    let manifest = plan.manifest();
    let (dir, _) = place::cache_dir(Some(manifest));
    let toolchain = place::toolchain(dir.exists().then_some(dir.as_path()));
    let config = CacheConfig::new(&dir, manifest.cache.size_bytes);
    let cache = dir.exists().then(|| Cache::open(config).ok()).flatten();
    let kernels = Kernels {
        toolchain: &toolchain,
        cache: cache.as_ref(),
        device: target.device(),
        limit: manifest.limits.compile_timeout,
        require_cached: true,
        stop: &crate::compile::NEVER,
    };
    let kernel = |&number: &u32| {
        let source = &plan.kernels[number as usize];
        let key = kernels.key(source);
        let is_cached = kernels.is_cached(source);
        let cache = cache.as_ref().filter(|_| !is_cached);
        let nearest = cache.and_then(|cache| cache.explain(&key).ok()?.nearest);
        Kernel {
            title: source.title(),
            key: key.to_string(),
            is_cached,
            differences: nearest.map(|nearest| nearest.differences.iter().map(words).collect()),
        }
    };
    point.kernels.iter().map(kernel).collect()
}

/// A difference as people say it.
fn words(difference: &Difference) -> String {
    match difference {
        Difference::Changed(field) => field.clone(),
        Difference::OnlyInKey(field) => format!("{field} (which it lacks)"),
        Difference::OnlyInEntry(field) => format!("{field} (which it has besides)"),
        Difference::Order => "the order of fields".to_owned(),
        Difference::Compiler => "the compiler".to_owned(),
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "kernel {} {}: ", self.title, self.key)?;
        match (&self.differences, self.is_cached) {
            (_, true) => out.write_str("in the cache"),
            (None, false) => out.write_str("to compile: the cache has nothing like it"),
            (Some(differences), false) => write!(
                out,
                "to compile: the nearest entry differs in {}",
                differences.join(", ")
            ),
        }
    }
}
