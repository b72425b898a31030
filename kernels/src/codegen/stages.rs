//! In which pass over the columns each value of a nest is computed.
//!
//! A value that depends on a reduction over columns needs all columns of its row first: it belongs to a
//! later pass. What a later pass needs of an earlier one is kept, where the target has room for it, or
//! computed again. Values of rows are computed once, between passes. Both emitters read this.

mod build;

use crate::graph::op::Unary;
use crate::nest::{Nest, Over, Value, ValueId, Varies};
use crate::tensor::Dtype;

/// What is kept from one pass to a later one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Nothing: later passes load and compute again.
    Nothing,
    /// Results of functions that take longer than loading them back.
    Functions,
    /// Those, and what is loaded of each row, which is loaded as early as it can be.
    FunctionsAndLoads,
}

/// One pass over the columns of a row.
#[derive(Debug, Default)]
pub(super) struct Pass {
    /// Values that vary over columns, in the order in which they are computed.
    pub values: Vec<ValueId>,
    /// Values that an earlier pass kept.
    pub fetched: Vec<ValueId>,
    /// Values that later passes fetch.
    pub kept: Vec<ValueId>,
    /// Reductions over columns whose elements this pass has.
    pub reductions: Vec<ValueId>,
    /// Reductions over rows and over all whose elements this pass has.
    pub last: Vec<ValueId>,
    /// What is written, by position in [`Nest::stores`].
    pub stores: Vec<usize>,
}

/// What is done for a row before a pass, or after all of them.
#[derive(Debug, Default)]
pub(super) struct Between {
    /// Values that vary over rows alone, in order.
    pub values: Vec<ValueId>,
    /// Reductions over all of such values.
    pub last: Vec<ValueId>,
    /// What is written.
    pub stores: Vec<usize>,
}

/// What is done when all rows are: reductions over them are known then.
#[derive(Debug, Default)]
pub(super) struct Finish {
    /// Reductions over rows and over all.
    pub reductions: Vec<ValueId>,
    /// Values that are one number.
    pub uniform: Vec<ValueId>,
    /// Values that vary over columns.
    pub columns: Vec<ValueId>,
    /// What is written.
    pub stores: Vec<usize>,
}

/// The order of a nest's work.
#[derive(Debug)]
pub(super) struct Stages {
    /// Types of all values.
    pub dtypes: Vec<Dtype>,
    /// Over what all values vary.
    pub varies: Vec<Varies>,
    /// Values that are one number, computed once.
    pub uniform: Vec<ValueId>,
    /// Passes over columns.
    pub passes: Vec<Pass>,
    /// Before each pass, and after the last one.
    pub between: Vec<Between>,
    /// After all rows.
    pub finish: Finish,
}

impl Stages {
    /// Orders the work of a valid nest.
    ///
    /// # Errors
    /// A sentence about a value that no kernel can compute.
    pub(super) fn new(nest: &Nest, keep: Keep) -> Result<Stages, String> {
        build::stages(nest, keep)
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
        self.finish.reductions.iter().copied().filter(is).collect()
    }

    /// Whether a row defines the value for all that follows in it: a number, or what its lanes have of its columns. What all
    /// rows share is defined before them, and other values where they are used.
    pub(super) fn has_one_a_row(&self, nest: &Nest, id: ValueId) -> bool {
        let is_looked_up = |index: ValueId| self.varies[index.0].columns;
        let is_array = match nest.values[id.0] {
            Value::Load { index, .. } => {
                self.is_of_row(nest, id) && !index.is_some_and(is_looked_up)
            }
            _ => false,
        };
        let of_pass = |pass: &Pass| {
            let is_held = pass.kept.contains(&id) || pass.reductions.contains(&id);
            is_held || (is_array && pass.values.contains(&id))
        };
        let mut between = self.between.iter();
        between.any(|between| between.values.contains(&id)) || self.passes.iter().any(of_pass)
    }

    /// Whether a load is made for each row: what is loaded is another for each, or where it lies is known then.
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
    match value {
        Value::Unary(unary, _) => matches!(
            unary,
            Unary::Exp
                | Unary::Ln
                | Unary::Tanh
                | Unary::Erf
                | Unary::Sigmoid
                | Unary::Sin
                | Unary::Cos
        ),
        _ => false,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::graph::op::{Binary, Reduction};
    use crate::nest::{Operand, OperandId, Parts, Step, Store};

    /// `e^(x - max) / sum` of each row.
    pub(in super::super) fn softmax() -> Nest {
        let operand = |is_written| Operand {
            dtype: Dtype::F32,
            rows: vec![Step::Given],
            columns: Step::One,
            is_written,
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
            parts: Parts::Many,
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
            passes(Keep::Nothing),
            [vec![0], vec![0, 2, 3], vec![0, 2, 3, 5]]
        );
        assert_eq!(passes(Keep::Functions), [vec![0], vec![0, 2, 3], vec![5]]);
        assert_eq!(
            passes(Keep::FunctionsAndLoads),
            [vec![0], vec![2, 3], vec![5]]
        );
    }

    #[test]
    fn what_no_store_needs_is_not_computed() {
        let mut nest = softmax();
        nest.stores[0].value = ValueId(2);
        let stages = Stages::new(&nest, Keep::Functions).unwrap();
        assert_eq!(stages.passes.len(), 2);
        assert!(stages.passes[1].reductions.is_empty());
    }
}
