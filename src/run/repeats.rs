//! One manifest that is run repeatedly without output, each time into a folder of its own.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use super::retry::Retry;
use super::reuse::Reuse;
use super::time::Allowed;
use super::{Ended, Event, Progress, Request, RunError, run};
use sweeper_engine::execute::supervisor::WorkerCommand;
use sweeper_manifest::{Diagnostics, Manifest, OverrideOrigin, Overrides, Sources, registry};
use sweeper_model::shard::Part;

/// A small sweep of programs of several kinds, for [`Repeats`].
pub const AA: &str = include_str!("aa.toml");

/// A manifest, and the settings of its runs.
pub struct Repeats {
    /// The manifest's files.
    pub sources: Sources,
    /// The command that starts a worker.
    pub worker: WorkerCommand,
    /// Folder of the kernel cache; none for no cache.
    pub cache_dir: Option<PathBuf>,
    /// Threads that compile.
    pub compile_threads: usize,
}

/// Hears of a run, and says nothing.
struct Silence;

impl Progress for Silence {
    fn event(&self, _event: &Event<'_>) {}
}

impl Repeats {
    /// The manifest, with its results below `folder`.
    ///
    /// # Errors
    /// All that is wrong with it.
    pub fn manifest(&self, folder: &Path) -> Result<Manifest, Diagnostics> {
        let mut overrides = Overrides::new();
        let origin = OverrideOrigin::Flag("--output-dir".to_owned());
        overrides.push("output.dir", folder.to_string_lossy(), origin);
        Manifest::resolve(&self.sources, &overrides, &registry())
    }

    /// Runs the manifest once.
    ///
    /// # Errors
    /// A [`RunError`].
    pub fn once(&self, manifest: &Manifest, stop: &'static AtomicBool) -> Result<Ended, RunError> {
        let request = Request {
            worker: self.worker.clone(),
            resolved: manifest.resolved_toml(),
            part: Part::Whole,
            allowed: Allowed::default(),
            reuse: Reuse::Nothing,
            command: std::env::args().collect(),
            fresh: false,
            retry: Retry::default(),
            require_cached: false,
            skip_precompile: false,
            save_tensors: None,
            cache_dir: self.cache_dir.clone(),
            compile_threads: self.compile_threads,
        };
        run(manifest, &request, stop, &Silence)
    }
}
