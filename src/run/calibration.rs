//! What devices can do: measured once a device, and remembered beside the kernel cache.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sweeper_kernels::Target;
use sweeper_kernels::program::KernelSource;

use crate::compile::digests::keep;
use crate::compile::kernels::Kernels;
use crate::device::ceilings::{Ceilings, probes_of};
use crate::device::{Artifact, DeviceIdentity, DeviceKind};
use crate::execute::supervisor::Supervisor;

/// Version of the probes: a new one makes them be measured again.
const VERSION: u32 = 1;

/// What is remembered.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Remembered {
    version: u32,
    device: DeviceIdentity,
    threads: u32,
    ceilings: Ceilings,
}

/// The ceilings of devices of one kind.
pub struct Calibrator<'a> {
    /// Compiles the probes' kernels.
    pub kernels: Kernels<'a>,
    /// What the probes are made for.
    pub target: Target,
    /// CPU threads of a measured program.
    pub threads: u32,
    /// Where ceilings are remembered.
    pub folder: Option<&'a Path>,
    /// Measure again what is remembered.
    pub again: bool,
    /// Threads that compile.
    pub compile_threads: usize,
}

impl Calibrator<'_> {
    /// What a worker's device can do: remembered, or measured now.
    ///
    /// # Errors
    /// Why it is not known.
    pub fn ceilings(&self, supervisor: &mut Supervisor) -> Result<Ceilings, String> {
        let device = supervisor.identity().clone();
        if device.kind == DeviceKind::Null {
            return Ok(Ceilings::scripted());
        }
        let path = self.path(&device);
        if let Some(held) = path.as_deref().filter(|_| !self.again).and_then(read)
            && held.version == VERSION
            && held.device == device
            && held.threads == self.threads
        {
            return Ok(held.ceilings);
        }
        let kernels = self.artifacts(&device);
        // A CPU has at least the copy that is built in.
        if device.kind == DeviceKind::Cuda && kernels.iter().all(Option::is_none) {
            return Err("none of the kernels that would measure it could be had".to_owned());
        }
        let is_whole = kernels.iter().all(Option::is_some);
        let ceilings = supervisor.calibrate(kernels)?;
        let remembered = Remembered {
            version: VERSION,
            device,
            threads: self.threads,
            ceilings,
        };
        // What was measured with a part of the kernels is measured again when the others are there.
        if let Some(path) = path.filter(|_| is_whole) {
            // It is measured again next time then.
            let _ = write(&path, &remembered);
        }
        Ok(remembered.ceilings)
    }

    fn path(&self, device: &DeviceIdentity) -> Option<PathBuf> {
        let text = serde_json::to_string(&(device, self.threads)).ok()?;
        let digest = hex::encode(Sha256::digest(text));
        Some(self.folder?.join(format!("ceilings-{digest:.16}.json")))
    }

    /// The probes' kernels in their order, those that can be had.
    fn artifacts(&self, device: &DeviceIdentity) -> Vec<Option<Artifact>> {
        let sources = sources(device, &self.target, self.threads);
        let wanted = KernelSource::distinct(&sources);
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

fn read(path: &Path) -> Option<Remembered> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

fn write(path: &Path, remembered: &Remembered) -> io::Result<()> {
    keep(path, &serde_json::to_vec_pretty(remembered)?)
}
