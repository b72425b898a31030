//! CUDA kernels: row groups of threads that share a row, float4 vectors of columns a thread.
//!
//! A block has `row_groups` groups of `threads_per_row` threads. A thread holds `vectors` float4 of
//! a row in registers: the whole row where its length is bounded, so that each element is loaded
//! once. Longer rows are looped over in tiles, and each pass loads again.
//!
//! A kernel is written by one of five templates ([`Template`]), a file each. `choose` decides the
//! template, the tile and the hints, and holds all tuned constants; `demand` tells it a nest's
//! requirements; `grid` deals rows and columns to blocks.

mod block_reduce;
mod choose;
mod column_reduction;
mod deferred;
mod demand;
mod elements;
mod full_reduction;
mod grid;
mod kernel;
mod pointwise;
mod row;
mod row_and_column_reduction;
mod row_reduction;
mod sub_kernel;
mod vector;

use crate::nest::{Alignment, Bounds, CrossBlock, Nest, ValueId};
use sweeper_program::SourceFile;
use sweeper_program::headers::{BF16_H, CUDA_H, FUNCTIONS_CUH};

use super::stages::{Residency, Stages};

pub(super) use block_reduce::operator;
pub(super) use choose::{MAX_DEFERRED_PARTIALS, MIN_ROWS_FOR_SEVERAL_PER_WARP};
pub(super) use kernel::text;
pub(super) use sub_kernel::{Pointee, declarations, sub_kernel};
pub(super) use vector::alignment;

use choose::Hints;
use deferred::DeferredEpilogue;

/// Headers of generated kernels.
pub(super) static HEADERS: [SourceFile; 3] = [FUNCTIONS_CUH, BF16_H, CUDA_H];

/// The form of a kernel.
#[derive(Clone, Debug, PartialEq)]
enum Template {
    /// No reductions, long rows: a block computes a tile of a row.
    Pointwise {
        /// Every launch has one row.
        is_single_row: bool,
    },
    /// Reductions over columns alone, or short rows without any: a row group has one row, or a warp
    /// has several.
    RowReduction {
        /// Rows that a warp computes at once, for instruction-level parallelism; 1 for row groups
        /// of any size.
        rows_per_warp: u32,
    },
    /// Reductions over rows alone: a block has a tile of columns and a range of rows.
    ColumnReduction,
    /// Reductions over columns whose results are used by reductions over rows or over all, or both
    /// of these: row groups go over whole rows, grid-stride.
    RowAndColumnReduction(Prefetch),
    /// Reductions over all.
    FullReduction(FullReduction),
}

/// The distribution of work over the blocks of a full reduction.
#[derive(Clone, Debug, PartialEq)]
enum FullReduction {
    /// A row group has one row, which it also reduces; each block stores one partial.
    RowPerGroup {
        /// The epilogue of the rows, where warp 0 computes it for the whole block.
        deferred: Option<DeferredEpilogue>,
    },
    /// A block has a rectangle of rows and columns.
    Rectangle,
    /// Blocks go over the column tiles of a long row, grid-stride.
    ColumnTiles,
}

/// Loads that are made while the row before is computed.
#[derive(Clone, Debug, Default, PartialEq)]
struct Prefetch {
    /// Loads of the row's elements.
    pub elements: Vec<ValueId>,
    /// Loads of one number a row.
    pub scalars: Vec<ValueId>,
}

/// The threads of a block, and the columns that they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tile {
    /// Threads that share a row: a power of two, up to 1024.
    pub threads_per_row: u32,
    /// Row groups of a block: a power of two.
    pub row_groups: u32,
    /// float4 vectors of a row that a thread holds.
    pub vectors: u32,
    /// Rows may be longer than the tile: passes loop over tiles.
    pub is_looped: bool,
}

impl Tile {
    /// Threads of a block.
    pub(super) fn threads(&self) -> u32 {
        self.threads_per_row * self.row_groups
    }

    /// Columns that a row group holds at once.
    pub(super) fn columns(&self) -> u64 {
        u64::from(4 * self.threads_per_row * self.vectors)
    }

    /// Warps that share a row; 1 where a warp has one or several rows.
    fn warps_per_row(&self) -> u32 {
        self.threads_per_row.div_ceil(32)
    }

    /// The values that passes keep in registers for later ones.
    pub(super) fn residency(&self) -> Residency {
        if self.is_looped {
            Residency::Nothing
        } else {
            Residency::ResultsAndLoads
        }
    }
}

/// The way in which a CUDA kernel computes a nest.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Schedule {
    template: Template,
    pub tile: Tile,
    pub hints: Hints,
    /// Loads that all rows share, made once before the rows.
    pub hoisted: Vec<ValueId>,
    /// Anything is computed for each element; otherwise only numbers of rows are.
    pub has_elements: bool,
    cross_block: CrossBlock,
    /// Shared memory of a block, in floats.
    pub shared_floats: u32,
}

impl Schedule {
    /// Chooses for a valid nest and an architecture such as `sm_90a`.
    ///
    /// # Errors
    /// A sentence where a reduction over rows does not fit one block.
    pub(super) fn new(nest: &Nest, bounds: Bounds, arch: &str) -> Result<Schedule, String> {
        choose::schedule(nest, bounds, arch)
    }

    /// This kernel with blocks of `threads` threads, a power of two and no fewer than it has.
    /// Looped rows keep their threads.
    ///
    /// # Errors
    /// As [`Stages::new`].
    pub(super) fn with_threads(mut self, nest: &Nest, threads: u32) -> Result<Schedule, String> {
        let columns = self.tile.columns();
        if matches!(self.template, Template::Pointwise { .. }) {
            self.tile.threads_per_row = threads;
        } else if !self.tile.is_looped {
            self.tile.row_groups = (threads / self.tile.threads_per_row).max(1);
        }
        if self.tile.columns() != columns {
            self.hints.alignment = self.hints.alignment.min(Alignment::Float4);
        }
        self.shared_floats = self.shared_floats_of(&self.stages(nest)?, nest);
        Ok(self)
    }

    /// This kernel as the finalizer block of `producer`: one row group with the producer's threads
    /// combines its partials.
    ///
    /// # Errors
    /// As [`Stages::new`].
    pub(super) fn into_finalizer(
        mut self,
        nest: &Nest,
        producer: &Schedule,
    ) -> Result<Schedule, String> {
        self.tile.threads_per_row = producer.tile.threads();
        self.tile.row_groups = 1;
        self.hints.overlap = producer.hints.overlap;
        self.hints.evict_first = false;
        self.hints.alignment = Alignment::Unknown;
        self.shared_floats = self.shared_floats_of(&self.stages(nest)?, nest);
        Ok(self)
    }

    /// The stages of a nest, as this kernel keeps values.
    ///
    /// # Errors
    /// As [`Stages::new`].
    pub(super) fn stages(&self, nest: &Nest) -> Result<Stages, String> {
        Stages::new(nest, self.tile.residency())
    }

    /// Rows that a warp computes at once.
    pub(super) fn rows_per_warp(&self) -> u32 {
        match self.template {
            Template::RowReduction { rows_per_warp } => rows_per_warp,
            _ => 1,
        }
    }

    /// Every launch has one row, and a block a tile of it.
    pub(super) fn is_single_row(&self) -> bool {
        self.template
            == Template::Pointwise {
                is_single_row: true,
            }
    }

    /// A row group holds a whole row.
    pub(super) fn holds_rows(&self) -> bool {
        matches!(self.template, Template::RowReduction { .. }) && !self.tile.is_looped
    }

    /// A full reduction with one row a row group.
    pub(super) fn has_partial_per_row_group(&self) -> bool {
        matches!(
            self.template,
            Template::FullReduction(FullReduction::RowPerGroup { .. })
        )
    }

    /// The deferred epilogue of rows.
    fn deferred(&self) -> Option<&DeferredEpilogue> {
        match &self.template {
            Template::FullReduction(FullReduction::RowPerGroup { deferred }) => deferred.as_ref(),
            _ => None,
        }
    }

    /// Reductions over rows or over all are completed across blocks.
    fn is_cross_block(&self) -> bool {
        matches!(
            self.template,
            Template::ColumnReduction
                | Template::RowAndColumnReduction(_)
                | Template::FullReduction(_)
        )
    }

    /// The first statement of a kernel whose launches may overlap the launch before them.
    pub(super) fn dependency_wait(&self) -> Option<&'static str> {
        self.hints.overlap.then_some("grid_dependency_wait();")
    }

    /// The declaration of the pointer to an operand. Memory that an overlapping launch may still
    /// write is not `__restrict__`: the compiler would be free to load it before the kernel waits.
    /// Neither is memory that is read and written.
    pub(super) fn pointee(&self, nest: &Nest, operand: usize) -> Pointee {
        let is_written = nest.operands[operand].is_written;
        if !self.hints.in_place && (is_written || !self.hints.overlap) {
            Pointee::Restricted
        } else {
            Pointee::Unrestricted
        }
    }

    /// The launch bounds after the number of threads.
    pub(super) fn min_blocks(&self) -> String {
        match self.hints.min_blocks_per_sm {
            1 => String::new(),
            blocks => format!(", {blocks}"),
        }
    }

    /// Reductions of one pass that warps exchange through shared memory, at most.
    pub(super) fn slots(stages: &Stages) -> u32 {
        let counts = stages.passes.iter().map(|pass| pass.reductions.len());
        counts.max().unwrap_or(0) as u32
    }

    fn shared_floats_of(&self, stages: &Stages, nest: &Nest) -> u32 {
        let tile = &self.tile;
        if let Some(deferred) = self.deferred() {
            return deferred.shared_floats(tile.row_groups, tile.warps_per_row());
        }
        let warps = tile.threads().div_ceil(32);
        // Two sets: a reduction may start while slow warps still read the results of the reduction
        // before it.
        let within_rows = match tile.threads_per_row > 32 {
            true => 2 * warps * Schedule::slots(stages),
            false => 0,
        };
        let full = stages.over_all(nest).len() as u32 * warps;
        let has_column_sums = !stages.over_rows(nest).is_empty();
        let row_groups = match has_column_sums && !tile.is_looped && tile.row_groups > 1 {
            true => tile.row_groups / 2 * tile.columns() as u32,
            false => 0,
        };
        within_rows.max(full).max(row_groups)
    }
}
