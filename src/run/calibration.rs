//! The ceilings of devices: measured once for each device, and remembered beside the kernel cache
//! ([`super::ceilings_file`]).

use std::path::Path;

use sweeper_program::{KernelSource, Target};

use super::ceilings_file::CeilingsFile;
use super::rows::now_unix_s;
use sweeper_engine::compile::kernels::Kernels;
use sweeper_engine::device::Artifact;
use sweeper_engine::device::ceilings::probes_of;
use sweeper_engine::execute::supervisor::Supervisor;
use sweeper_model::hardware::DeviceIdentity;
use sweeper_model::hardware::ceilings::Ceilings;

/// The ceilings of devices of one kind.
pub struct Calibrator<'a> {
    /// Compiles the probes' kernels.
    pub kernels: Kernels<'a>,
    /// The target of the probes.
    pub target: Target,
    /// CPU threads of a measured program.
    pub threads: u32,
    /// Folder where ceilings are remembered.
    pub folder: Option<&'a Path>,
    /// Measure ceilings again although there are some.
    pub again: bool,
    /// Threads that compile.
    pub compile_threads: usize,
}

impl Calibrator<'_> {
    /// The ceilings of a worker's device: from their file, or measured now.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn ceilings(&self, supervisor: &mut Supervisor) -> Result<Ceilings, String> {
        let device = supervisor.identity().clone();
        if !device.kind.facts().computes {
            return Ok(Ceilings::scripted());
        }
        let folder = self.folder.filter(|_| !self.again);
        if let Some(held) = folder.and_then(|it| CeilingsFile::of(it, &device, self.threads)) {
            return Ok(held.ceilings());
        }
        let sources = sources(&device, &self.target, self.threads);
        let kernels = self.artifacts(&sources);
        // A CPU has at least the copy that is built in.
        if device.kind.facts().is_gpu && kernels.iter().all(Option::is_none) {
            return Err("none of the kernels that would measure it could be had".to_owned());
        }
        let is_whole = kernels.iter().all(Option::is_some);
        let ceilings = supervisor.calibrate(kernels).inspect_err(|_| {
            // One of the kernels may have crashed the worker: all are compiled again next time.
            for source in &sources {
                self.kernels.set_aside(source);
            }
        })?;
        let now_s = now_unix_s(device.kind);
        let remembered = CeilingsFile::probed(device, self.threads, ceilings, now_s);
        // Ceilings that lack kernels are not remembered: they are measured again with all.
        if let Some(folder) = self.folder.filter(|_| is_whole) {
            // It is measured again next time then.
            let _ = remembered.keep(folder);
        }
        Ok(remembered.ceilings())
    }

    /// The probes' kernels in their order; none for a kernel that can't be had.
    fn artifacts(&self, sources: &[KernelSource]) -> Vec<Option<Artifact>> {
        let wanted = KernelSource::distinct(sources);
        let built = self
            .kernels
            .get_all(&wanted, self.compile_threads, &|_, _| {});
        let artifact = |source: &KernelSource| {
            let position = wanted.iter().position(|held| held.same_source(source))?;
            let built = built[position].as_ref().ok()?;
            Some(built.artifact.clone())
        };
        sources.iter().map(artifact).collect()
    }
}

/// The sources of each of a device's probes, in their order; some are of several.
pub fn sources(device: &DeviceIdentity, target: &Target, threads: u32) -> Vec<KernelSource> {
    let probes = probes_of(device, target, threads);
    let sources = probes.iter().flat_map(|probe| probe.program.sources());
    sources.cloned().collect()
}
