//! Whether the kernels of a point are in the cache, or how the nearest entry differs.

use std::cell::LazyCell;
use std::fmt;

use serde::Serialize;
use sweeper_cache::{Cache, Catalog, Difference};

use crate::cli::place;
use crate::cli::target::Target;
use crate::run::compiling;
use sweeper_engine::compile::kernels::Kernels;
use sweeper_manifest::plan::{Plan, Planned};

/// A kernel of a point.
#[derive(Serialize)]
pub struct Kernel {
    title: String,
    key: String,
    is_cached: bool,
    /// Fields in which the nearest entry of the cache differs; none of an empty cache.
    differences: Option<Vec<Difference>>,
}

/// The kernels of a point, and how they differ from the entries of the cache.
pub fn of(plan: &Plan<'_>, point: &Planned, target: &Target) -> Vec<Kernel> {
    let manifest = plan.manifest();
    let (dir, _) = place::cache_dir(Some(manifest));
    let toolchain = place::toolchain(dir.exists().then_some(dir.as_path()));
    let cache = Cache::open_to_read(compiling::config(&dir, manifest)).ok();
    let kernels = Kernels {
        toolchain: &toolchain,
        cache: cache.as_ref(),
        device: target.device(),
        limit: manifest.limits.compile_timeout,
        require_cached: true,
        stop: &sweeper_engine::compile::NEVER,
    };
    let catalog = LazyCell::new(|| cache.as_ref()?.catalog().ok());
    let kernel = |&number: &u32| {
        let source = &plan.kernels[number as usize];
        let is_cached = kernels.is_cached(source);
        let nearest = |catalog: &Catalog| kernels.explain(source, catalog).nearest;
        let nearest = match is_cached {
            true => None,
            false => catalog.as_ref().and_then(nearest),
        };
        Kernel {
            title: source.title(),
            key: kernels.key(source).to_string(),
            is_cached,
            differences: nearest.map(|nearest| nearest.differences),
        }
    };
    point.kernels.iter().map(kernel).collect()
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
                in_words(differences)
            ),
        }
    }
}

/// So many differences are named. An entry that has more of them is another kernel.
const MOST_NAMED: usize = 4;

/// Differences, the first of them if they are many.
pub fn words(differences: &[Difference]) -> Vec<String> {
    let named = differences.iter().take(MOST_NAMED);
    let mut words: Vec<String> = named.map(ToString::to_string).collect();
    if let Some(more) = differences
        .len()
        .checked_sub(MOST_NAMED)
        .filter(|&it| it > 0)
    {
        words.push(format!("and {more} more"));
    }
    words
}

/// Differences in a line.
pub fn in_words(differences: &[Difference]) -> String {
    words(differences).join("; ")
}
