//! Kernels in C: a vector of columns at a time, rows one after the other.

mod kernel;
mod nontemporal;
mod vectors;

use crate::nest::{Bounds, CrossBlock, Extents, Nest, Operand, Stride, ValueId};
use sweeper_program::headers::{CPU_H, ELEMENTARY_H, FUNCTIONS_H, NONTEMPORAL_H, VECTOR_H};
use sweeper_program::tensor::Dtype;
use sweeper_program::{Geometry, SourceFile};

use super::launch::Split;
use super::stages::{Residency, Stages};

pub(super) use kernel::{sub_kernel, text};

/// Headers of generated kernels.
pub(super) static HEADERS: [SourceFile; 5] =
    [CPU_H, FUNCTIONS_H, ELEMENTARY_H, NONTEMPORAL_H, VECTOR_H];

/// Cells that a block should have at least: some tens of microseconds of work.
const BLOCK_CELLS: u64 = 1 << 16;

/// Most columns of a block whose reductions over rows lie on the stack.
const STACK_COLUMNS: u64 = 1024;

/// Partials of reductions over rows, at most.
const MOST_PARTS: u64 = 256;

/// Most floats of a row that are kept on the stack, all values together.
const STACK_FLOATS: u64 = 16 << 10;

/// The place in which a value is kept between passes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Home {
    /// In an array on the stack of so many floats.
    Stack(u64),
    /// In the row of an operand that is written in a later pass, by position of the store.
    Output(usize),
}

/// The distribution of work by a kernel in C.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Schedule {
    residency: Residency,
    homes: Vec<(ValueId, Home)>,
    cross_block: CrossBlock,
    reduces_columns: bool,
    over_rows: bool,
    over_all: bool,
    /// Floats of the array that accumulates column sums, where they are not accumulated in the
    /// memory of partials.
    sums: Option<u64>,
}

impl Schedule {
    /// Decides for a valid nest.
    ///
    /// # Errors
    /// A sentence where reductions over rows have no place, or where memory is bf16.
    pub(super) fn new(nest: &Nest, bounds: Bounds) -> Result<Schedule, String> {
        let is_bf16 = |operand: &Operand| operand.dtype == Dtype::Bf16;
        if let Some(at) = nest.operands.iter().position(is_bf16) {
            return Err(format!("operand {at} is bf16, which C kernels don't have"));
        }
        let keeping = Stages::new(nest, Residency::Results)?;
        let homes = homes(nest, &keeping, bounds);
        let residency = match homes {
            Some(_) => Residency::Results,
            None => Residency::Nothing,
        };
        let over_rows = keeping.over_rows(nest).len() as u64;
        let reduces_columns = keeping.reduces_columns();
        let over_all = !keeping.over_all(nest).is_empty();
        let sums = if over_rows == 0 || nest.cross_block == CrossBlock::Partials {
            None
        } else if !reduces_columns && !over_all {
            Some(STACK_COLUMNS)
        } else {
            let most = bounds.columns.map(|most| most.next_multiple_of(16));
            let most = most.filter(|most| most * over_rows <= STACK_FLOATS);
            Some(most.ok_or("sums over rows of so many columns need partials")?)
        };
        Ok(Schedule {
            residency,
            homes: homes.unwrap_or_default(),
            cross_block: nest.cross_block,
            reduces_columns,
            over_rows: over_rows > 0,
            over_all,
            sums,
        })
    }

    /// The rows and columns of a block.
    pub(super) fn split(&self, extents: &Extents) -> Split {
        let (rows, columns) = (extents.row_count().max(1), extents.columns.max(1));
        let has_last = self.over_rows || self.over_all;
        if has_last && self.cross_block == CrossBlock::OneBlock {
            let whole = self.reduces_columns || self.over_all;
            return Split {
                block_rows: rows,
                block_columns: if whole {
                    columns
                } else {
                    STACK_COLUMNS.min(columns)
                },
            };
        }
        let whole = self.reduces_columns || (self.over_rows && self.over_all);
        let block_columns = if whole {
            columns
        } else {
            columns.min(BLOCK_CELLS)
        };
        let block_rows = BLOCK_CELLS.div_ceil(block_columns).min(rows);
        let block_rows = if self.over_rows {
            block_rows.max(rows.div_ceil(MOST_PARTS))
        } else {
            block_rows
        };
        Split {
            block_rows,
            block_columns,
        }
    }
}

/// The geometry of a launch of so many blocks.
pub(super) fn geometry(blocks: u64) -> Geometry {
    Geometry::blocks(u32::try_from(blocks).unwrap_or(u32::MAX))
}

/// Places for all that passes keep, if there are any for all.
fn homes(nest: &Nest, stages: &Stages, bounds: Bounds) -> Option<Vec<(ValueId, Home)>> {
    let kept = stages.passes.iter().flat_map(|pass| &pass.resident);
    let kept: Vec<ValueId> = kept.copied().collect();
    let on_stack = bounds.columns.map(|most| most.next_multiple_of(16));
    let on_stack = on_stack.filter(|most| most * kept.len() as u64 <= STACK_FLOATS);
    if let Some(most) = on_stack {
        return Some(kept.into_iter().map(|id| (id, Home::Stack(most))).collect());
    }
    let mut homes: Vec<(ValueId, Home)> = Vec::new();
    for id in kept {
        let is_free = |store: &usize| !homes.iter().any(|(_, home)| *home == Home::Output(*store));
        let store = (0..nest.stores.len()).find(|store| {
            is_free(store) && is_row_memory(nest, *store) && is_late(stages, *store, id)
        });
        homes.push((id, Home::Output(store?)));
    }
    Some(homes)
}

/// Whether a store's operand has contiguous memory for each row.
fn is_row_memory(nest: &Nest, store: usize) -> bool {
    let operand = &nest.operands[nest.stores[store].operand.0];
    is_contiguous(nest, store) && operand.rows.iter().all(|step| *step != Stride::Broadcast)
}

/// Whether a store alone writes its operand, whose columns are contiguous.
fn is_contiguous(nest: &Nest, store: usize) -> bool {
    let operand = &nest.operands[nest.stores[store].operand.0];
    let others = nest.stores.iter().enumerate();
    let is_only = others
        .filter(|(_, other)| other.operand == nest.stores[store].operand)
        .count()
        == 1;
    is_only && operand.dtype == Dtype::F32 && operand.columns == Stride::Unit
}

/// Whether a store is done no earlier than the last pass that fetches a value.
fn is_late(stages: &Stages, store: usize, id: ValueId) -> bool {
    let stored = stages
        .passes
        .iter()
        .position(|pass| pass.stores.contains(&store));
    let fetched = stages
        .passes
        .iter()
        .rposition(|pass| pass.reused.contains(&id));
    matches!((stored, fetched), (Some(stored), Some(fetched)) if stored >= fetched)
}
