//! The kernels of a run: those that its blocks need, compiled ahead or beside the measuring.

use std::collections::HashSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::Session;
use crate::run::Event;
use crate::run::compiling::{self, WarningKind};
use crate::run::schedule::Schedule;
use crate::run::workers::Ahead;
use sweeper_engine::compile::CompileError;
use sweeper_engine::compile::kernels::{Built, Kernels};
use sweeper_manifest::plan::PlannedBlock;

impl<'a> Session<'a> {
    /// Tells the cache which kernels will be asked for.
    pub(super) fn expect(&mut self, blocks: &[&PlannedBlock], schedule: &Schedule) {
        let wanted = self.kernels_of(blocks, schedule).into_iter();
        let sources: Vec<_> = wanted
            .map(|number| &self.plan.kernels[number as usize])
            .collect();
        if let Some(warning) = compiling::expect(&self.kernels(), &sources)
            && self.warned.insert(WarningKind::TooSmall)
        {
            self.progress.event(&Event::Warning(&warning));
        }
    }

    /// The kernels that blocks need, each kernel once, in the order in which the blocks need them.
    pub(super) fn kernels_of(&self, blocks: &[&PlannedBlock], schedule: &Schedule) -> Vec<u32> {
        let mut seen = HashSet::new();
        let order = schedule.order().into_iter();
        let kernels = order.flat_map(|block| {
            let block = blocks[block];
            self.plan.kernels_of(block, block.points.iter().copied())
        });
        kernels.filter(|&kernel| seen.insert(kernel)).collect()
    }

    pub(in crate::run) fn kernels(&self) -> Kernels<'a> {
        Kernels {
            toolchain: self.toolchain,
            cache: self.cache,
            device: &self.devices[0],
            limit: self.manifest.limits.compile_timeout,
            require_cached: self.request.require_cached,
            stop: self.stop,
        }
    }

    /// Gets the kernels of these numbers that were not asked for before.
    pub(in crate::run) fn compile(&mut self, mut wanted: Vec<u32>) {
        wanted.retain(|number| !self.built.contains_key(number));
        wanted.sort_unstable();
        wanted.dedup();
        if wanted.is_empty() || !self.plan.device.kind.facts().computes {
            return;
        }
        self.progress.event(&Event::Compiling {
            kernels: wanted.len(),
        });
        let sources: Vec<_> = wanted
            .iter()
            .map(|&number| &self.plan.kernels[number as usize])
            .collect();
        let progress = self.progress;
        let measuring = Duration::from_nanos(self.remaining.left_ns() as u64);
        let (began, ready) = (Instant::now(), AtomicUsize::new(0));
        let done = |position: usize, result: &Result<Built, CompileError>| {
            if matches!(result, Err(CompileError::Stopped)) {
                return;
            }
            let name = sources[position].title();
            let ready = 1 + ready.fetch_add(1, Ordering::Relaxed);
            let waiting = (sources.len() - ready) as f64 / ready as f64;
            progress.event(&Event::Compiled {
                name: &name,
                result: result.as_ref(),
                left: began.elapsed().mul_f64(waiting) + measuring,
            });
        };
        let kernels = self.kernels();
        let results = kernels.get_all(&sources, self.request.compile_threads, &done);
        for (number, result) in wanted.into_iter().zip(results) {
            self.keep(number, result);
        }
    }

    /// Records the result of building a kernel.
    pub(super) fn keep(&mut self, number: u32, result: Result<Built, CompileError>) {
        // Without an outcome: the run is stopping.
        if matches!(result, Err(CompileError::Stopped)) {
            return;
        }
        self.compiled += compiling::count_built(std::slice::from_ref(&result));
        if let Some((kind, warning)) = compiling::warning(&result)
            && self.warned.insert(kind)
        {
            self.progress.event(&Event::Warning(&warning));
        }
        if let Some(cache) = self.cache {
            compiling::warn_of_upstreams(cache, self.progress);
        }
        self.built.insert(number, result);
    }

    /// Kernels to compile while others are measured.
    pub(super) fn ahead(&self, blocks: &[&PlannedBlock], schedule: &Schedule) -> Ahead<'a> {
        let plan = self.plan;
        let mut wanted = Vec::new();
        if self.compiles_beside() {
            let numbers = self.kernels_of(blocks, schedule).into_iter();
            wanted = numbers
                .filter(|number| !self.built.contains_key(number))
                .map(|number| (number, &plan.kernels[number as usize]))
                .collect();
        }
        Ahead::new(self.kernels(), wanted)
    }

    /// Threads that compile: each worker keeps a processor, for the host's part of measuring.
    pub(super) fn compilers(&self, ahead: &Ahead<'_>, workers: usize) -> usize {
        let kernels = ahead.wanted.len();
        if kernels > 0 {
            self.progress.event(&Event::Compiling { kernels });
        }
        let threads = self.request.compile_threads.saturating_sub(workers).max(1);
        threads.min(kernels)
    }
}
