//! Text of kernels from their description: one [`Nest`], two targets.
//!
//! `stages` orders a nest's values for both targets. `c` and `cuda` write them as loops over a
//! block's rows and columns, and choose the size of blocks from the extents of a launch alone, so
//! that sums are equal on every device and for any number of threads. `launch` puts arguments in
//! order, and `slices` cuts launches of more elements than a kernel counts. `horizontal` makes one
//! kernel of independent nests, `single_pass` one kernel of a reduction and the nest that combines
//! its partials.
//!
//! Accuracy of sums. Terms are accumulated in f32: of a row, 64 accumulators on a CPU, one or more
//! a thread on a GPU; over rows, one accumulator a column and block. Accumulators of a row or of
//! everything are added pairwise or in f64. With `n` terms in an accumulator the error is at most
//! `n eps` times the sum of the terms' absolute values, about `sqrt(n) eps` for terms with
//! independent roundings. On a GPU, exponentials `e^(x - max x)` that are only summed are less
//! exact: see `exp_in_sum` in functions.cuh.

mod text;
mod stages;
mod exponentials;
mod names;
mod launch;
mod horizontal;
mod single_pass;
mod slices;
mod scalar;
mod c;
mod cuda;

use std::borrow::Cow;

use sha2::{Digest, Sha256};

use crate::nest::{Alignment, Bounds, CrossBlock, Extents, Launch, Nest, Over, Value};
use sweeper_program::workload::Target;
use sweeper_program::{Arg, Index, Kernel, KernelId, KernelSource, Language, SourceFile, Step};

use launch::{Parameter, Split};

/// A kernel for one target, and how it is launched.
#[derive(Clone, Debug)]
pub struct Generated {
    sub_kernels: Vec<SubKernel>,
    source: KernelSource,
}

/// A nest of a kernel: the only nest, or one of several.
#[derive(Clone, Debug)]
struct SubKernel {
    nest: Nest,
    parameters: Vec<Parameter>,
    schedule: Schedule,
    /// Operands that are memory of the kernel and no arguments: the partials of a single-pass
    /// reduction.
    internal: Vec<usize>,
    /// The finalizer block of the other sub-kernel's launch runs it, and combines the partials of
    /// that sub-kernel.
    is_finalizer: bool,
}

/// Partials that the first nest of a single-pass reduction hands to the second: memory of the
/// kernel, no argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Partials {
    /// Position of the operand that the first nest stores.
    pub stored: usize,
    /// Position of the operand that the second nest loads.
    pub loaded: usize,
}

/// The way in which a kernel computes a nest.
#[derive(Clone, Debug, PartialEq)]
enum Schedule {
    C(c::Schedule),
    Cuda(cuda::Schedule),
}

impl Generated {
    /// Validates the nest and decides how it runs on the target.
    ///
    /// # Errors
    /// A sentence that names the part that can't be generated, and the reason.
    pub fn new(nest: &Nest, bounds: Bounds, target: &Target) -> Result<Generated, String> {
        let sub_kernel = SubKernel::new(nest, bounds, target)?;
        let (parameters, nest) = (&sub_kernel.parameters, &sub_kernel.nest);
        let text = match &sub_kernel.schedule {
            Schedule::C(schedule) => c::text(nest, schedule, parameters)?,
            Schedule::Cuda(schedule) => cuda::text(nest, schedule, parameters)?,
        };
        Ok(Generated {
            source: source(&words(std::slice::from_ref(&sub_kernel)), &text, target),
            sub_kernels: vec![sub_kernel],
        })
    }

    /// Horizontal fusion: one kernel of several independent nests, each block of which works on one
    /// of them. Equal nests share text.
    ///
    /// # Errors
    /// As [`Generated::new`], or where [`may_fuse_horizontally`] is false for a nest.
    pub fn horizontal(nests: &[(&Nest, Bounds)], target: &Target) -> Result<Generated, String> {
        if let [(nest, bounds)] = nests {
            return Generated::new(nest, *bounds, target);
        }
        let misfit = nests.iter().find(|(nest, _)| !may_fuse_horizontally(nest));
        if let Some((nest, _)) = misfit {
            return Err(format!("{} can not be fused horizontally", nest.name));
        }
        let mut sub_kernels = Vec::with_capacity(nests.len());
        for (nest, bounds) in nests {
            sub_kernels.push(SubKernel::new(nest, *bounds, target)?);
        }
        horizontal::equalize_threads(&mut sub_kernels)?;
        let name = format!("horizontal_{}_{}", sub_kernels.len(), words(&sub_kernels));
        let text = horizontal::text(&sub_kernels, target)?;
        Ok(Generated {
            source: source(&name, &text, target),
            sub_kernels,
        })
    }

    /// A single-pass reduction: the blocks of the first nest store partials, and one block of the
    /// same launch, the finalizer, computes the second nest from them. The second nest loads the
    /// partials along its columns; launches ignore the memory of partials and the number of these
    /// columns.
    ///
    /// # Errors
    /// As [`Generated::new`], or where [`may_reduce_in_single_pass`] is false.
    pub fn single_pass(
        nests: [(&Nest, Bounds); 2],
        partials: &[Partials],
        target: &Target,
    ) -> Result<Generated, String> {
        let [(first, _), (last, _)] = nests;
        if !may_reduce_in_single_pass(first, last) {
            let (first, last) = (&first.name, &last.name);
            return Err(format!("{last} does not combine partials of {first}"));
        }
        let mut sub_kernels = Vec::with_capacity(2);
        for (nest, bounds) in nests {
            sub_kernels.push(SubKernel::new(nest, bounds, target)?);
        }
        single_pass::connect(&mut sub_kernels, partials)?;
        let name = format!("single_pass_{}", words(&sub_kernels));
        Ok(Generated {
            source: source(&name, &single_pass::text(&sub_kernels)?, target),
            sub_kernels,
        })
    }

    /// The generated text and the headers that it includes.
    pub fn kernel(&self) -> Kernel {
        Kernel::Compiled(self.source.clone())
    }

    /// The number of partials that a launch stores of each reduction; 1 where reductions are
    /// complete, as in kernels of several nests.
    pub fn partial_count(&self, extents: &Extents) -> usize {
        match &self.sub_kernels[..] {
            [sub_kernel] => sub_kernel.partial_count(extents),
            _ => 1,
        }
    }

    /// A launch of a kernel of one nest. `kernel` is its position among its program's kernels.
    ///
    /// # Errors
    /// As [`Generated::launch_all`].
    ///
    /// # Panics
    /// As [`Generated::launch_all`].
    pub fn launch(&self, kernel: KernelId, launch: &Launch) -> Result<Step, String> {
        self.launch_all(kernel, std::slice::from_ref(launch))
    }

    /// Launches of a kernel, with sizes and memory for each nest: one, or several over slices where
    /// a nest has more elements than one launch counts in 32 bits. `kernel` is its position among
    /// its program's kernels.
    ///
    /// # Errors
    /// As [`Generated::launch_all`].
    ///
    /// # Panics
    /// As [`Generated::launch_all`].
    pub fn launches(&self, kernel: KernelId, launches: &[Launch]) -> Result<Vec<Step>, String> {
        match (&self.sub_kernels[..], launches) {
            ([sub_kernel], [launch]) => {
                let slices = slices::slices(&sub_kernel.nest, launch, |launch| {
                    sub_kernel.fits_one_launch(launch)
                });
                let launches = slices.iter().map(|slice| self.launch(kernel, slice));
                launches.collect()
            }
            _ => Ok(vec![self.launch_all(kernel, launches)?]),
        }
    }

    /// A launch of a kernel, with sizes and memory for each nest, or for the first ones: the others
    /// have no blocks. `kernel` is its position among its program's kernels.
    ///
    /// # Errors
    /// A sentence where sizes exceed the 32-bit counters of kernels and launches.
    ///
    /// # Panics
    /// If a launch has fewer operands or scalars than its nest.
    pub fn launch_all(&self, kernel: KernelId, launches: &[Launch]) -> Result<Step, String> {
        let mut args = Vec::new();
        let mut ends = Vec::new();
        let mut blocks: u64 = 0;
        for (sub_kernel, launch) in self.sub_kernels.iter().zip(launches) {
            let (own, arguments) = sub_kernel.launch(launch)?;
            args.extend(arguments);
            if sub_kernel.is_finalizer {
                // The finalizer has no blocks of its own.
                continue;
            }
            blocks = blocks.saturating_add(own);
            ends.push(Arg::Int(Index::fixed(blocks as i64)));
        }
        for unused in self.sub_kernels.iter().skip(launches.len()) {
            args.extend(unused.parameters.iter().map(|_| Arg::UNUSED));
            ends.push(Arg::Int(Index::fixed(blocks as i64)));
        }
        if blocks >= MAX_COUNT {
            return Err(format!("{blocks} blocks in one launch"));
        }
        ends.pop();
        args.splice(0..0, ends);
        if single_pass::has_finalizer_block(&self.sub_kernels) {
            blocks += 1;
        }
        let geometry = self
            .sub_kernels
            .iter()
            .map(|sub_kernel| match &sub_kernel.schedule {
                Schedule::C(_) => c::geometry(blocks),
                Schedule::Cuda(schedule) => schedule.geometry(blocks),
            });
        let geometry = geometry.max_by_key(|geometry| geometry.shared_bytes);
        Ok(Step::Launch {
            kernel,
            geometry: geometry.unwrap_or_else(|| c::geometry(0)),
            args,
        })
    }
}

/// A nest can be fused horizontally: it is elementwise, or reduces rows in one block. Such blocks
/// are short and need few registers, so that they do not slow down others.
pub fn may_fuse_horizontally(nest: &Nest) -> bool {
    let mut reductions = nest.values.iter().filter_map(|value| match value {
        Value::Reduce { over, .. } => Some(*over),
        _ => None,
    });
    reductions.all(|over| over == Over::Rows && nest.cross_block == CrossBlock::OneBlock)
}

/// Two nests can be a single-pass reduction: `first` stores nothing but partials of full
/// reductions, and `last` reduces its loads along columns in one block, for any number of columns.
pub fn may_reduce_in_single_pass(first: &Nest, last: &Nest) -> bool {
    let overs = |nest: &Nest| -> Vec<Over> {
        let values = nest.values.iter();
        let overs = values.filter_map(|value| match value {
            Value::Reduce { over, .. } => Some(*over),
            _ => None,
        });
        overs.collect()
    };
    let (stored, combined) = (overs(first), overs(last));
    first.cross_block == CrossBlock::Partials
        && stored.contains(&Over::All)
        && !stored.contains(&Over::Rows)
        && last.cross_block == CrossBlock::OneBlock
        && !combined.is_empty()
        && combined.iter().all(|over| *over == Over::All)
        && !last.values.contains(&Value::Column)
}

/// These bounds, with the properties of this launch that a GPU kernel may rely on. Kernels for CPUs
/// are equal for all launches.
pub fn known(nest: &Nest, bounds: Bounds, launch: &Launch, target: &Target) -> Bounds {
    let Target::Cuda { arch } = target else {
        return Bounds {
            columns: bounds.columns,
            ..Bounds::default()
        };
    };
    let columns = launch.extents.columns;
    let launch = launch::merged(nest, launch);
    let rows = launch.extents.row_count();
    let with = |partial_per_row_group, several_rows_per_warp| Bounds {
        is_single_row: rows == 1,
        keeps_rows: launch.extents.columns == columns,
        partial_per_row_group,
        several_rows_per_warp,
        ..bounds
    };
    // A nest without a schedule is refused where it is generated.
    let scheduled = |by_rows| cuda::Schedule::new(nest, with(by_rows, by_rows), arch).ok();
    let alignment = |schedule: &cuda::Schedule| cuda::alignment(schedule, nest, &launch);
    // Such kernels were measured with full tiles only.
    let fits = |schedule: &cuda::Schedule| {
        if schedule.has_partial_per_row_group() {
            schedule.fits_partials(rows) && alignment(schedule) == Alignment::FullTiles
        } else if schedule.rows_per_warp() > 1 {
            rows >= cuda::MIN_ROWS_FOR_SEVERAL_PER_WARP
                && schedule.is_multiple_of_block_rows(rows)
                && alignment(schedule) == Alignment::FullTiles
        } else {
            true
        }
    };
    let schedule = match scheduled(true) {
        Some(special) if !fits(&special) => scheduled(false),
        schedule => schedule,
    };
    let Some(schedule) = schedule else {
        return with(false, false);
    };
    Bounds {
        alignment: alignment(&schedule),
        ..with(
            schedule.has_partial_per_row_group(),
            schedule.rows_per_warp() > 1,
        )
    }
}

/// Bytes of the arguments that a nest adds to a kernel of several.
pub fn sub_kernel_bytes(nest: &Nest) -> usize {
    // Its own, and the number of the block at which it ends.
    8 * (launch::parameters(nest).len() + 1)
}

impl SubKernel {
    fn new(nest: &Nest, bounds: Bounds, target: &Target) -> Result<SubKernel, String> {
        nest.validate()?;
        if nest.stores.is_empty() {
            return Err("a nest that stores nothing".to_owned());
        }
        Ok(SubKernel {
            parameters: launch::parameters(nest),
            schedule: match target {
                Target::Cpu => Schedule::C(c::Schedule::new(nest, bounds)?),
                Target::Cuda { arch } => Schedule::Cuda(cuda::Schedule::new(nest, bounds, arch)?),
            },
            nest: nest.clone(),
            internal: vec![],
            is_finalizer: false,
        })
    }

    /// Parameters that a launch gives.
    fn given(&self) -> Vec<Parameter> {
        let is_given = |parameter: &Parameter| match parameter {
            Parameter::Pointer(operand) => !self.internal.contains(operand),
            _ => true,
        };
        let all = self.parameters.iter().copied();
        all.filter(is_given).collect()
    }

    /// Both have equal texts: they differ in the nests' names at most.
    fn has_text_of(&self, other: &SubKernel) -> bool {
        let nameless = |sub_kernel: &SubKernel| Nest {
            name: String::new(),
            ..sub_kernel.nest.clone()
        };
        self.schedule == other.schedule
            && self.internal == other.internal
            && nameless(self) == nameless(other)
    }

    fn split(&self, extents: &Extents) -> Split {
        match &self.schedule {
            Schedule::C(schedule) => schedule.split(extents),
            Schedule::Cuda(schedule) => schedule.split(extents),
        }
    }

    /// The number of partials that a launch stores of each reduction.
    fn partial_count(&self, extents: &Extents) -> usize {
        let mut stores = self.nest.stores.iter();
        let has_partials = stores.any(|store| self.nest.is_cross_block(store.value));
        match self.nest.cross_block {
            CrossBlock::Partials if has_partials => {
                let split = self.split(extents);
                let column_blocks = match self.reduces_rows() {
                    true => 1,
                    false => split.column_blocks(extents),
                };
                (split.row_blocks(extents) * column_blocks) as usize
            }
            _ => 1,
        }
    }

    /// There are reductions over rows: a partial has all columns then, and each block of columns
    /// its place in it.
    fn reduces_rows(&self) -> bool {
        let over_rows = |value: &Value| {
            matches!(
                value,
                Value::Reduce {
                    over: Over::Rows,
                    ..
                }
            )
        };
        self.nest.values.iter().any(over_rows)
    }

    /// The blocks of a launch, and its arguments.
    fn launch(&self, launch: &Launch) -> Result<(u64, Vec<Arg>), String> {
        let mut launch = launch::merged(&self.nest, launch);
        if let (Schedule::Cuda(schedule), true) = (&self.schedule, self.is_finalizer) {
            // One combined partial a thread.
            launch.extents.columns = schedule.tile.threads().into();
        }
        let (rows, columns) = (launch.extents.row_count(), launch.extents.columns);
        let split = self.split(&launch.extents);
        let blocks = blocks(split, &launch.extents);
        if blocks >= MAX_COUNT || !self.can_count(rows, columns) {
            return Err(format!("{rows} x {columns} elements in one launch"));
        }
        if let Schedule::Cuda(schedule) = &self.schedule {
            self.check_launch(schedule, &launch, blocks)?;
        }
        let args = launch::arguments(&self.given(), &self.nest, &launch, split);
        Ok((blocks, args))
    }

    /// Whether a launch has no more blocks, rows and columns than are counted.
    fn fits_one_launch(&self, launch: &Launch) -> bool {
        let extents = launch::merged(&self.nest, launch).extents;
        blocks(self.split(&extents), &extents) < MAX_COUNT
            && self.can_count(extents.row_count(), extents.columns)
    }

    /// A kernel on a GPU counts columns, up to a tile beyond the last, and rows of several
    /// dimensions in 32 bits.
    fn can_count(&self, rows: u64, columns: u64) -> bool {
        matches!(self.schedule, Schedule::C(_))
            || (columns < launch::MAX_COLUMNS && (self.nest.row_dims == 1 || rows < MAX_COUNT))
    }

    /// Checks that the launch has the properties that the kernel relies on.
    ///
    /// # Errors
    /// A sentence about the property that it lacks.
    fn check_launch(
        &self,
        schedule: &cuda::Schedule,
        launch: &Launch,
        blocks: u64,
    ) -> Result<(), String> {
        let rows = launch.extents.row_count();
        let alignment = schedule.hints.alignment;
        if alignment > Alignment::Unknown
            && cuda::alignment(schedule, &self.nest, launch) < alignment
        {
            return Err(format!(
                "a kernel for rows of alignment {alignment:?}, which these do not have"
            ));
        }
        if schedule.is_single_row() && rows != 1 {
            return Err(format!("a kernel for one row, where there are {rows}"));
        }
        if schedule.holds_rows() && launch.extents.columns > schedule.tile.columns() {
            let (columns, most) = (launch.extents.columns, schedule.tile.columns());
            return Err(format!(
                "a kernel for rows of {most} columns, where there are {columns}"
            ));
        }
        if schedule.has_partial_per_row_group() && !schedule.fits_partials(rows) {
            return Err(format!("a kernel for few rows, where there are {rows}"));
        }
        if schedule.rows_per_warp() > 1 && !schedule.is_multiple_of_block_rows(rows) {
            let at_once = schedule.rows_per_warp();
            return Err(format!(
                "a kernel for {at_once} rows at a time, where there are {rows}"
            ));
        }
        let stores_internally = !self.internal.is_empty() && !self.is_finalizer;
        if stores_internally && blocks > cuda::MAX_DEFERRED_PARTIALS {
            return Err(format!("a single-pass reduction of {blocks} partials"));
        }
        Ok(())
    }
}

fn blocks(split: Split, extents: &Extents) -> u64 {
    split
        .row_blocks(extents)
        .saturating_mul(split.column_blocks(extents))
}

/// Whether a launch that a nest shares with others can count its elements.
pub fn may_share_launch(extents: &Extents) -> bool {
    extents.row_count().saturating_mul(extents.columns) < launch::MAX_COLUMNS
}

/// Blocks of a launch, and all that kernels count in 32 bits, are fewer.
const MAX_COUNT: u64 = 1 << 31;

/// Stands for the name of a kernel's function in generated text.
const ENTRY: &str = "@ENTRY";

/// A kernel's text and the headers that it includes. Its function is called `name`, and after that
/// by a digest of the text.
fn source(name: &str, text: &str, target: &Target) -> KernelSource {
    let entry = format!("{name}_{}", digest(text));
    let text = text.replace(ENTRY, &entry);
    let (language, extension, headers): (_, _, &[SourceFile]) = match target {
        Target::Cpu => (Language::C, "c", &c::HEADERS),
        Target::Cuda { .. } => (Language::Cuda, "cu", &cuda::HEADERS),
    };
    let main = SourceFile {
        name: Cow::Owned(format!("{entry}.{extension}")),
        text: Cow::Owned(text),
    };
    let files = std::iter::once(main).chain(headers.iter().cloned());
    KernelSource {
        language,
        files: Cow::Owned(files.collect()),
        entry: Cow::Owned(entry),
        defines: vec![],
        options: Vec::new(),
        user: None,
    }
}

/// Words that a kernel's function is named after.
fn words(sub_kernels: &[SubKernel]) -> String {
    let mut words: Vec<&str> = Vec::new();
    for word in sub_kernels.iter().flat_map(|it| text::words(&it.nest)) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words.truncate(3);
    words.join("_")
}

/// A digest that tells kernels with equal words apart.
fn digest(text: &str) -> String {
    let digest = Sha256::digest(text);
    let bytes = digest.iter().take(4);
    bytes.map(|byte| format!("{byte:02x}")).collect()
}
