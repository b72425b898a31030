//! Text of kernels from their description: one [`Nest`], two targets.

use crate::nest::{Bounds, Extents, Launch, Nest};
use crate::program::{Geometry, Kernel, KernelId, KernelSource, Step};
use crate::workload::Target;

/// A kernel for one target, and how it is launched.
#[derive(Clone, Debug)]
pub struct Generated {
    source: KernelSource,
}

impl Generated {
    /// Validates the nest and decides how it runs on the target.
    ///
    /// # Errors
    /// A sentence that says what can't be generated, and why.
    pub fn new(nest: &Nest, bounds: Bounds, target: &Target) -> Result<Generated, String> {
        nest.validate()?;
        Err(format!("no kernels for {target:?} and {bounds:?} yet"))
    }

    /// The generated text and the headers that it includes.
    pub fn kernel(&self) -> Kernel {
        Kernel::Compiled(self.source.clone())
    }

    /// The number of parts in which a launch leaves last reductions; 1 where they are whole.
    pub fn parts(&self, extents: &Extents) -> usize {
        extents.rows.len().min(1)
    }

    /// A launch of the kernel, whose position among its program's kernels is `kernel`.
    pub fn launch(&self, kernel: KernelId, launch: &Launch) -> Step {
        let _ = launch;
        Step::Launch {
            kernel,
            geometry: Geometry::blocks(1),
            args: vec![],
        }
    }
}
