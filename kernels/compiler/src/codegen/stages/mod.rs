//! The pass over the columns in which each value of a nest is computed.
//!
//! A value that depends on a reduction over columns needs all columns of its row first: it belongs
//! to a later pass. A later pass that needs a value of an earlier one finds it in registers, where
//! the target has enough of them, or computes it again. Values of rows are computed once, between
//! passes. Both emitters read this.

mod build;

use crate::nest::{Nest, Over, Value, ValueId, Varies};
use sweeper_program::tensor::Dtype;

/// The values that stay in registers from one pass to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Residency {
    /// None: later passes load and compute again.
    Nothing,
    /// Results of functions that take longer than loading them back.
    Results,
    /// Results, and loads of each row, which are made as early as possible.
    ResultsAndLoads,
}

/// One pass over the columns of a row.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// Values that vary over columns, in the order in which they are computed.
    pub values: Vec<ValueId>,
    /// Values that an earlier pass left in registers.
    pub reused: Vec<ValueId>,
    /// Values that stay in registers for later passes.
    pub resident: Vec<ValueId>,
    /// Reductions over columns whose elements this pass has.
    pub reductions: Vec<ValueId>,
    /// Reductions over rows and over all whose elements this pass has.
    pub cross_block: Vec<ValueId>,
    /// Stores, by position in [`Nest::stores`].
    pub stores: Vec<usize>,
}

/// Work for a row before a pass, or after all of them.
#[derive(Debug, Default)]
pub(super) struct Between {
    /// Values that vary over rows alone, in order.
    pub values: Vec<ValueId>,
    /// Cross-block reductions of values that vary over rows alone.
    pub cross_block: Vec<ValueId>,
    /// Stores.
    pub stores: Vec<usize>,
}

/// Work after all rows, when reductions over them are complete.
#[derive(Debug, Default)]
pub(super) struct AfterRows {
    /// Reductions over rows and over all.
    pub reductions: Vec<ValueId>,
    /// Values that are one number.
    pub uniform: Vec<ValueId>,
    /// Values that vary over columns.
    pub columns: Vec<ValueId>,
    /// Stores.
    pub stores: Vec<usize>,
}

/// The order of a nest's work.
#[derive(Debug)]
pub(super) struct Stages {
    /// Types of all values.
    pub dtypes: Vec<Dtype>,
    /// The loops over which each value varies.
    pub varies: Vec<Varies>,
    /// Values that are one number, computed once.
    pub uniform: Vec<ValueId>,
    /// Passes over columns.
    pub passes: Vec<Pass>,
    /// Before each pass, and after the last one.
    pub between: Vec<Between>,
    /// After all rows.
    pub after_rows: AfterRows,
}

impl Stages {
    /// Orders the work of a valid nest.
    ///
    /// # Errors
    /// A sentence about a value that no kernel can compute.
    pub(super) fn new(nest: &Nest, residency: Residency) -> Result<Stages, String> {
        build::stages(nest, residency)
    }

    /// Reductions over rows that passes accumulate for each column.
    pub(super) fn over_rows(&self, nest: &Nest) -> Vec<ValueId> {
        self.last_where(nest, Over::Rows)
    }

    /// Reductions over everything.
    pub(super) fn over_all(&self, nest: &Nest) -> Vec<ValueId> {
        self.last_where(nest, Over::All)
    }

    fn last_where(&self, nest: &Nest, wanted: Over) -> Vec<ValueId> {
        let is = |id: &ValueId| matches!(nest.values[id.0], Value::Reduce { over, .. } if over == wanted);
        self.after_rows
            .reductions
            .iter()
            .copied()
            .filter(is)
            .collect()
    }

    /// Whether the value is materialised once per row (scalar or register array) instead of
    /// recomputed at each use.
    pub(super) fn has_one_a_row(&self, nest: &Nest, id: ValueId) -> bool {
        let is_looked_up = |index: ValueId| self.varies[index.0].columns;
        let is_array = match nest.values[id.0] {
            Value::Load { index, .. } => {
                self.is_of_row(nest, id) && !index.is_some_and(is_looked_up)
            }
            _ => false,
        };
        let of_pass = |pass: &Pass| {
            let is_held = pass.resident.contains(&id) || pass.reductions.contains(&id);
            is_held || (is_array && pass.values.contains(&id))
        };
        let mut between = self.between.iter();
        between.any(|between| between.values.contains(&id)) || self.passes.iter().any(of_pass)
    }

    /// Whether a load is made for each row: its element differs from row to row, or its index is a
    /// value of the row.
    pub(super) fn is_of_row(&self, nest: &Nest, load: ValueId) -> bool {
        let has_index = matches!(nest.values[load.0], Value::Load { index: Some(_), .. });
        has_index || self.varies[load.0].rows
    }

    /// Whether any value is reduced over columns.
    pub(super) fn reduces_columns(&self) -> bool {
        self.passes.iter().any(|pass| !pass.reductions.is_empty())
    }
}

/// Whether computing the value again takes longer than loading it.
pub(super) fn is_expensive(value: &Value) -> bool {
    matches!(value, Value::Unary(unary, _) if unary.entry().is_expensive)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::graph::op::{Binary, Reduction, Unary};
    use crate::nest::{CrossBlock, Operand, OperandId, Store, Stride};

    /// `e^(x - max) / sum` of each row.
    pub(in super::super) fn softmax() -> Nest {
        let operand = |is_written| Operand {
            dtype: Dtype::F32,
            rows: vec![Stride::Dynamic],
            columns: Stride::Unit,
            is_written,
            swaps_pairs: false,
        };
        let reduce = |reduction, of| Value::Reduce {
            reduction,
            over: Over::Columns,
            of: ValueId(of),
        };
        let values = vec![
            Value::Load {
                operand: OperandId(0),
                index: None,
            },
            reduce(Reduction::Max, 0),
            Value::Binary(Binary::Sub, ValueId(0), ValueId(1)),
            Value::Unary(Unary::Exp, ValueId(2)),
            reduce(Reduction::Sum, 3),
            Value::Binary(Binary::Div, ValueId(3), ValueId(4)),
        ];
        Nest {
            name: String::new(),
            row_dims: 1,
            operands: vec![operand(false), operand(true)],
            values,
            stores: vec![Store {
                operand: OperandId(1),
                value: ValueId(5),
            }],
            cross_block: CrossBlock::Partials,
        }
    }

    #[test]
    fn exponentials_are_computed_once_where_they_can_be_kept() {
        let passes = |keep| {
            let stages = Stages::new(&softmax(), keep).unwrap();
            let computed = stages.passes.iter().map(|pass| {
                let ids = pass.values.iter().map(|id| id.0);
                ids.collect::<Vec<_>>()
            });
            computed.collect::<Vec<_>>()
        };
        assert_eq!(
            passes(Residency::Nothing),
            [vec![0], vec![0, 2, 3], vec![0, 2, 3, 5]]
        );
        assert_eq!(
            passes(Residency::Results),
            [vec![0], vec![0, 2, 3], vec![5]]
        );
        assert_eq!(
            passes(Residency::ResultsAndLoads),
            [vec![0], vec![2, 3], vec![5]]
        );
    }

    #[test]
    fn what_no_store_needs_is_not_computed() {
        let mut nest = softmax();
        nest.stores[0].value = ValueId(2);
        let stages = Stages::new(&nest, Residency::Results).unwrap();
        assert_eq!(stages.passes.len(), 2);
        assert!(stages.passes[1].reductions.is_empty());
    }
}
