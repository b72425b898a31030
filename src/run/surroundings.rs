//! The surroundings and the parts of a session.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::AtomicBool;

use sweeper_cache::Cache;
use sweeper_program::Target;

use super::calibration::Calibrator;
use super::keeper::Keeper;
use super::{Progress, Request};
use sweeper_engine::compile::kernels::Kernels;
use sweeper_engine::compile::toolchain::Toolchain;
use sweeper_manifest::Manifest;
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::identity::PointId;
use sweeper_results::record::journal::Journal;

/// The parts of a run that a session goes on with.
pub(super) struct Parts {
    pub(super) journal: Journal,
    pub(super) keeper: Keeper,
    /// Points with rows that are not measured.
    pub(super) finished: HashSet<PointId>,
    /// Points of other shards.
    pub(super) elsewhere: HashSet<PointId>,
    /// Numbers of earlier rows of points that are tried again.
    pub(super) tries: HashMap<PointId, u32>,
    /// True if this process writes the rows of points that the manifest leaves out.
    pub(super) has_skips: bool,
}

/// The surroundings of a session: manifest, request, devices, compilers and cache.
#[derive(Clone, Copy)]
pub(super) struct Surroundings<'a> {
    pub(super) manifest: &'a Manifest,
    pub(super) request: &'a Request,
    pub(super) stop: &'a AtomicBool,
    pub(super) progress: &'a dyn Progress,
    pub(super) devices: &'a [DeviceIdentity],
    pub(super) toolchain: &'a Toolchain,
    pub(super) cache: Option<&'a Cache>,
}

impl<'a> Surroundings<'a> {
    /// The probes of the devices' ceilings, for a target.
    pub(super) fn calibrator(&self, target: Target) -> Calibrator<'a> {
        Calibrator {
            kernels: Kernels {
                toolchain: self.toolchain,
                cache: self.cache,
                device: &self.devices[0],
                limit: self.manifest.limits.compile_timeout,
                require_cached: self.request.require_cached,
                stop: self.stop,
            },
            target,
            threads: self.manifest.device.threads,
            folder: self.request.cache_dir.as_deref(),
            again: false,
            compile_threads: self.request.compile_threads,
        }
    }
}
