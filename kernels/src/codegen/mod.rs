//! Text of kernels from their description: one [`Nest`], two targets.
//!
//! `stages` says in which order a nest's values are computed, for both targets. `c` and `cuda` write it
//! down as loops over what a block has of rows and columns, and say how large blocks are: by the extents
//! of a launch alone, so that sums come out the same whatever the device and however many threads it
//! has. `launch` puts arguments in order.
//!
//! How exact sums are. A sum's terms go to partial sums in f32: of a row on a CPU 64 of them, on a GPU
//! one or more a thread; over rows one a column and block. Partial sums of a row or of everything are
//! added pairwise or in f64. With `n` terms in a partial sum the error is at most `n eps` times the sum
//! of the terms' absolute values, about `sqrt(n) eps` for terms whose roundings are independent.

mod text;
mod stages;
mod names;
mod launch;
mod scalar;
mod c;
mod cuda;

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::nest::{Bounds, Extents, Launch, Nest, Parts};
use crate::program::{Kernel, KernelId, KernelSource, Language, SourceFile, Step};
use crate::workload::Target;

use launch::{Parameter, Split};

/// A kernel for one target, and how it is launched.
#[derive(Clone, Debug)]
pub struct Generated {
    nest: Nest,
    source: KernelSource,
    parameters: Vec<Parameter>,
    schedule: Schedule,
}

/// How a kernel shares out its work.
#[derive(Clone, Debug)]
enum Schedule {
    C(c::Schedule),
    Cuda(cuda::Schedule),
}

impl Generated {
    /// Validates the nest and decides how it runs on the target.
    ///
    /// # Errors
    /// A sentence that says what can't be generated, and why.
    pub fn new(nest: &Nest, bounds: Bounds, target: &Target) -> Result<Generated, String> {
        nest.validate()?;
        if nest.stores.is_empty() {
            return Err("a nest that stores nothing".to_owned());
        }
        let parameters = launch::parameters(nest);
        let schedule = match target {
            Target::Cpu => Schedule::C(c::Schedule::new(nest, bounds)?),
            Target::Cuda { arch } => Schedule::Cuda(cuda::Schedule::new(nest, bounds, arch)?),
        };
        let entry = entry(nest, &schedule);
        let text = match &schedule {
            Schedule::C(schedule) => c::text(nest, schedule, &parameters, &entry)?,
            Schedule::Cuda(schedule) => cuda::text(nest, schedule, &parameters, &entry)?,
        };
        let (language, extension, headers): (_, _, &[SourceFile]) = match target {
            Target::Cpu => (Language::C, "c", &c::HEADERS),
            Target::Cuda { .. } => (Language::Cuda, "cu", &cuda::HEADERS),
        };
        let main = SourceFile {
            name: Cow::Owned(format!("{entry}.{extension}")),
            text: Cow::Owned(text),
        };
        let files = std::iter::once(main).chain(headers.iter().cloned());
        let source = KernelSource {
            language,
            files: Cow::Owned(files.collect()),
            entry: Cow::Owned(entry),
            defines: vec![],
        };
        Ok(Generated {
            nest: nest.clone(),
            source,
            parameters,
            schedule,
        })
    }

    /// The generated text and the headers that it includes.
    pub fn kernel(&self) -> Kernel {
        Kernel::Compiled(self.source.clone())
    }

    /// The number of parts in which a launch leaves last reductions; 1 where they are whole.
    pub fn parts(&self, extents: &Extents) -> usize {
        let has_last = self
            .nest
            .stores
            .iter()
            .any(|store| self.nest.is_last(store.value));
        match self.nest.parts {
            Parts::Many if has_last => {
                let split = self.split(extents);
                let pieces = if self.parts_have_columns() {
                    1
                } else {
                    split.pieces(extents)
                };
                (split.row_blocks(extents) * pieces) as usize
            }
            _ => 1,
        }
    }

    /// Whether there are reductions over rows: each piece of columns then has its place in a part.
    fn parts_have_columns(&self) -> bool {
        match &self.schedule {
            Schedule::C(schedule) => schedule.has_over_rows(),
            Schedule::Cuda(schedule) => schedule.has_over_rows(),
        }
    }

    fn split(&self, extents: &Extents) -> Split {
        match &self.schedule {
            Schedule::C(schedule) => schedule.split(extents),
            Schedule::Cuda(schedule) => schedule.split(extents),
        }
    }

    /// A launch of the kernel, whose position among its program's kernels is `kernel`.
    ///
    /// # Errors
    /// A sentence where sizes are beyond what kernels and launches count in 32 bits.
    ///
    /// # Panics
    /// If the launch has fewer operands or numbers than the nest.
    pub fn launch(&self, kernel: KernelId, launch: &Launch) -> Result<Step, String> {
        let launch = launch::merged(&self.nest, launch);
        let (rows, columns) = (launch.extents.row_count(), launch.extents.columns);
        let split = self.split(&launch.extents);
        let blocks = split
            .row_blocks(&launch.extents)
            .saturating_mul(split.pieces(&launch.extents));
        let is_gpu = matches!(self.schedule, Schedule::Cuda(_));
        // A kernel on a GPU counts columns, and rows of several dimensions, in 32 bits.
        let is_counted = !is_gpu || (columns < MOST && (self.nest.row_dims == 1 || rows < MOST));
        if !is_counted || blocks >= MOST {
            return Err(format!("{rows} x {columns} elements in one launch"));
        }
        let geometry = match &self.schedule {
            Schedule::C(_) => c::geometry(blocks),
            Schedule::Cuda(schedule) => schedule.geometry(blocks),
        };
        Ok(Step::Launch {
            kernel,
            geometry,
            args: launch::arguments(&self.parameters, &self.nest, &launch, split),
        })
    }
}

/// Blocks of a launch, and what kernels count in 32 bits, are fewer.
const MOST: u64 = 1 << 31;

/// The name of a nest's function: some of its words, and what tells it from others with the same.
fn entry(nest: &Nest, schedule: &Schedule) -> String {
    let nameless = Nest {
        name: String::new(),
        ..nest.clone()
    };
    let digest = Sha256::digest(format!("{nameless:?} {schedule:?}"));
    let digest: String = digest
        .iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let words: Vec<&str> = text::words(nest).into_iter().take(3).collect();
    format!("{}_{digest}", words.join("_"))
}
