//! Arguments of a generated kernel, and how a launch's sizes become them.

use crate::nest::{CrossBlock, Extents, Launch, Memory, Nest, Over, Stride, Value};
use sweeper_program::{Arg, Index};

use super::text;

/// A launch on a GPU has fewer columns: they are counted in 32 bits, up to a step of all blocks
/// beyond the last one.
pub(super) const MAX_COLUMNS: u64 = (1 << 31) - (1 << 24);

/// The rows and columns of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Split {
    /// Rows of a block, consecutive ones.
    pub block_rows: u64,
    /// Columns of a block.
    pub block_columns: u64,
}

impl Split {
    /// Blocks that share the rows.
    pub(super) fn row_blocks(&self, extents: &Extents) -> u64 {
        extents.row_count().div_ceil(self.block_rows).max(1)
    }

    /// Blocks that share the columns.
    pub(super) fn column_blocks(&self, extents: &Extents) -> u64 {
        extents.columns.div_ceil(self.block_columns).max(1)
    }
}

/// One parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Parameter {
    Columns,
    Rows,
    /// Extent of a dimension of rows; the outermost extent is not needed and has no argument.
    RowExtent(usize),
    BlockRows,
    BlockColumns,
    ColumnBlocks,
    /// First element of an operand.
    Pointer(usize),
    /// Step of an operand along a dimension of rows.
    RowStep(usize, usize),
    ColumnStep(usize),
    IndexStep(usize),
    /// A number, by position in [`Launch::scalars`].
    Scalar(usize),
}

impl Parameter {
    /// Name of the parameter in generated text.
    pub(super) fn name(self, nest: &Nest) -> String {
        match self {
            Parameter::Columns => "columns".to_owned(),
            Parameter::Rows => "rows".to_owned(),
            Parameter::RowExtent(dim) => format!("rows_{dim}"),
            Parameter::BlockRows => "block_rows".to_owned(),
            Parameter::BlockColumns => "block_columns".to_owned(),
            Parameter::ColumnBlocks => "column_blocks".to_owned(),
            Parameter::Pointer(operand) => text::operand(nest, operand),
            Parameter::RowStep(operand, dim) => {
                format!("{}_row_{dim}", text::operand(nest, operand))
            }
            Parameter::ColumnStep(operand) => format!("{}_column", text::operand(nest, operand)),
            Parameter::IndexStep(operand) => format!("{}_index", text::operand(nest, operand)),
            Parameter::Scalar(at) => format!("number_{at}"),
        }
    }
}

/// Partials are stored to the operand: its own strides mean nothing then.
pub(super) fn is_partial(nest: &Nest, operand: usize) -> bool {
    let mut stores = nest.stores.iter();
    nest.cross_block == CrossBlock::Partials
        && stores.any(|store| store.operand.0 == operand && nest.is_cross_block(store.value))
}

/// All parameters of a nest's kernel, in order: sizes, operands with their steps, numbers.
pub(super) fn parameters(nest: &Nest) -> Vec<Parameter> {
    let mut all = vec![
        Parameter::Columns,
        Parameter::Rows,
        Parameter::BlockRows,
        Parameter::BlockColumns,
        Parameter::ColumnBlocks,
    ];
    all.extend((1..nest.row_dims).map(Parameter::RowExtent));
    for (at, operand) in nest.operands.iter().enumerate() {
        all.push(Parameter::Pointer(at));
        if is_partial(nest, at) {
            continue;
        }
        for (dim, step) in operand.rows.iter().enumerate() {
            if *step == Stride::Dynamic {
                all.push(Parameter::RowStep(at, dim));
            }
        }
        if operand.columns == Stride::Dynamic {
            all.push(Parameter::ColumnStep(at));
        }
        let is_indexed = nest.values.iter().any(
            |value| matches!(value, Value::Load { operand, index: Some(_) } if operand.0 == at),
        );
        if is_indexed {
            all.push(Parameter::IndexStep(at));
        }
    }
    all.extend((0..scalars(nest)).map(Parameter::Scalar));
    all
}

/// Number of scalars that a launch has.
fn scalars(nest: &Nest) -> usize {
    let positions = nest.values.iter().filter_map(|value| match value {
        Value::Scalar(at) => Some(at + 1),
        _ => None,
    });
    positions.max().unwrap_or(0)
}

/// The arguments for these parameters.
pub(super) fn arguments(
    parameters: &[Parameter],
    nest: &Nest,
    launch: &Launch,
    split: Split,
) -> Vec<Arg> {
    let whole = |value: u64| Arg::Int(Index::fixed(value as i64));
    let step = |value: i64| Arg::Int(Index::fixed(value));
    let memory = |operand: usize| &launch.operands[operand];
    let argument = |parameter: &Parameter| match *parameter {
        Parameter::Columns => whole(launch.extents.columns),
        Parameter::Rows => whole(launch.extents.row_count()),
        Parameter::RowExtent(dim) => whole(launch.extents.rows[dim]),
        Parameter::BlockRows => whole(split.block_rows),
        Parameter::BlockColumns => whole(split.block_columns),
        Parameter::ColumnBlocks => whole(split.column_blocks(&launch.extents)),
        Parameter::Pointer(operand) => match nest.operands[operand].is_written {
            true => Arg::Write(memory(operand).view.clone()),
            false => Arg::Read(memory(operand).view.clone()),
        },
        Parameter::RowStep(operand, dim) => step(memory(operand).rows[dim]),
        Parameter::ColumnStep(operand) => step(memory(operand).columns),
        Parameter::IndexStep(operand) => step(memory(operand).index_step),
        Parameter::Scalar(at) => Arg::Float(launch.scalars[at]),
    };
    parameters.iter().map(argument).collect()
}

/// Merges neighbouring dimensions of a launch where all operands step through the outer one as a
/// continuation of the inner one: a dense tensor is one row. The text does not change: a merged
/// dimension has extent 1.
pub(super) fn merged(nest: &Nest, launch: &Launch) -> Launch {
    let mut launch = launch.clone();
    let counts_rows = nest.values.iter().any(|value| {
        let varies = nest.varies();
        matches!(value, Value::Reduce { over: Over::Columns | Over::Rows, .. })
            || matches!(value, Value::Reduce { of, .. } if !varies[of.0].columns || nest.cross_block == CrossBlock::Partials)
    });
    let uses = |dim: usize| {
        nest.values.iter().any(|value| match value {
            Value::Row(row) => *row == dim || *row == dim + 1,
            Value::Column => dim + 1 == nest.row_dims,
            _ => false,
        })
    };
    for dim in 0..nest.row_dims {
        let is_last = dim + 1 == nest.row_dims;
        if uses(dim) || (is_last && counts_rows) {
            continue;
        }
        merge(nest, &mut launch, dim);
    }
    launch
}

/// Makes dimension `dim` of the rows part of the next one, or of the columns, if that is possible.
fn merge(nest: &Nest, launch: &mut Launch, dim: usize) {
    let is_last = dim + 1 == nest.row_dims;
    let outer = launch.extents.rows[dim];
    let inner = match is_last {
        true => launch.extents.columns,
        false => launch.extents.rows[dim + 1],
    };
    if outer == 1 || (is_last && outer.saturating_mul(inner) >= MAX_COLUMNS) {
        return;
    }
    let step_of = |memory: &Memory| match is_last {
        true => memory.columns,
        false => memory.rows[dim + 1],
    };
    let mut steps = Vec::with_capacity(nest.operands.len());
    for (operand, memory) in nest.operands.iter().zip(&launch.operands) {
        let structure = match is_last {
            true => operand.columns,
            false => operand.rows[dim + 1],
        };
        let step = if inner == 1 {
            memory.rows[dim]
        } else if memory.rows[dim] == step_of(memory) * inner as i64 {
            step_of(memory)
        } else {
            return;
        };
        let fits = match structure {
            Stride::Broadcast => step == 0,
            Stride::Unit => step == 1,
            Stride::Dynamic => true,
        };
        if !fits {
            return;
        }
        steps.push(step);
    }
    for (memory, step) in launch.operands.iter_mut().zip(steps) {
        match is_last {
            true => memory.columns = step,
            false => memory.rows[dim + 1] = step,
        }
    }
    launch.extents.rows[dim] = 1;
    match is_last {
        true => launch.extents.columns = outer * inner,
        false => launch.extents.rows[dim + 1] = outer * inner,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nest::{Operand, OperandId, Store, ValueId};
    use sweeper_program::tensor::Dtype;
    use sweeper_program::{BufferId, View};

    /// A copy from steps to a dense tensor of 4 x 6 x 8.
    fn launch(rows: [i64; 2]) -> (Nest, Launch) {
        let operand = |is_written| Operand {
            dtype: Dtype::F32,
            rows: vec![Stride::Dynamic; 2],
            columns: Stride::Unit,
            is_written,
            swaps_pairs: false,
        };
        let nest = Nest {
            name: String::new(),
            row_dims: 2,
            operands: vec![operand(false), operand(true)],
            values: vec![Value::Load {
                operand: OperandId(0),
                index: None,
            }],
            stores: vec![Store {
                operand: OperandId(1),
                value: ValueId(0),
            }],
            cross_block: CrossBlock::Partials,
        };
        let memory = |rows: [i64; 2]| Memory {
            view: View::new(BufferId(0), Index::fixed(0), 0),
            rows: rows.to_vec(),
            columns: 1,
            index_step: 0,
        };
        let launch = Launch {
            extents: Extents {
                rows: vec![4, 6],
                columns: 8,
            },
            operands: vec![memory(rows), memory([48, 8])],
            scalars: vec![],
        };
        (nest, launch)
    }

    fn merged_extents(rows: [i64; 2]) -> (Vec<u64>, u64) {
        let (nest, launch) = launch(rows);
        let merged = merged(&nest, &launch).extents;
        (merged.rows, merged.columns)
    }

    #[test]
    fn dense_tensors_are_one_row() {
        assert_eq!(merged_extents([48, 8]), (vec![1, 1], 192));
        // Padded rows, planes that overlap, and both.
        assert_eq!(merged_extents([60, 10]), (vec![1, 24], 8));
        assert_eq!(merged_extents([8, 8]), (vec![4, 1], 48));
        assert_eq!(merged_extents([7, 9]), (vec![4, 6], 8));
    }

    #[test]
    fn rows_that_are_counted_stay_rows() {
        let (mut nest, launch) = launch([48, 8]);
        nest.values.push(Value::Row(1));
        assert_eq!(merged(&nest, &launch).extents.rows, [4, 6]);
    }
}
