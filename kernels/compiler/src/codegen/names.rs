//! Names of a nest's values and operands in generated text, and their addresses: equal in both
//! languages, except for a few words.

use crate::graph::op::Reduction;
use crate::nest::{CrossBlock, Nest, Stride, Value, ValueId};
use sweeper_program::tensor::Dtype;

use super::launch::Parameter;
use super::scalar::{self, Dialect};
use super::stages::Stages;
use super::text;

/// Names of one nest's values in one language.
#[derive(Clone, Copy)]
pub(super) struct Names<'a> {
    pub(super) nest: &'a Nest,
    pub(super) stages: &'a Stages,
    pub(super) dialect: Dialect,
    /// Prefix of names of a row's numbers: `row.`, or nothing.
    pub(super) of_row: &'static str,
    /// Values of rows are arrays with an element for each row that a warp has at once; `i` is the
    /// row.
    pub(super) has_row_arrays: bool,
}

impl Names<'_> {
    /// The name of a value where it is defined.
    pub(super) fn defined(&self, id: ValueId) -> String {
        text::name(self.nest, id)
    }

    /// The name of a value, as expressions use it.
    pub(super) fn of(&self, id: ValueId) -> String {
        let has_one_a_row = self.has_row_arrays && self.stages.has_one_a_row(self.nest, id);
        self.of_rows(self.defined(id), has_one_a_row)
    }

    /// The name of the pointer to the elements of a load.
    pub(super) fn pointer(&self, load: ValueId) -> String {
        let is_of_row = self.stages.is_of_row(self.nest, load);
        self.of_rows(format!("at_{}", load.0), is_of_row)
    }

    /// The name of the pointer to the elements of a store, by position in [`Nest::stores`].
    pub(super) fn target(&self, store: usize) -> String {
        self.of_rows(format!("to_{store}"), true)
    }

    fn of_rows(&self, name: String, has_one_a_row: bool) -> String {
        match has_one_a_row && self.has_row_arrays {
            true => name + "[i]",
            false => name,
        }
    }

    /// The name of an operand's pointer.
    pub(super) fn operand(&self, at: usize) -> String {
        text::operand(self.nest, at)
    }

    /// The type of a value.
    pub(super) fn dtype(&self, id: ValueId) -> &'static str {
        text::element(self.stages.dtypes[id.0], self.dialect.long())
    }

    /// A value that is one number, or one a row.
    pub(super) fn scalar(&self, id: ValueId) -> String {
        match &self.nest.values[id.0] {
            Value::Constant(number) => text::literal(*number, self.dialect.bits()),
            _ => format!("{}{}", self.of_row, self.of(id)),
        }
    }

    /// The expression of a value that is one number, or one a row, and no reduction.
    pub(super) fn expression(&self, id: ValueId) -> String {
        match &self.nest.values[id.0] {
            Value::Row(dim) => format!("row_{dim}"),
            Value::Scalar(at) => Parameter::Scalar(*at).name(self.nest),
            Value::Load { operand, index } => {
                let index = self.index(operand.0, *index);
                let element = format!("*({}{index})", self.row_offset(operand.0));
                self.loaded(operand.0, element)
            }
            _ => scalar::expression(self.nest, self.dialect, id, |id| self.scalar(id)),
        }
    }

    /// The number that an element of an operand is.
    pub(super) fn loaded(&self, operand: usize, element: String) -> String {
        match self.nest.operands[operand].dtype {
            Dtype::Bf16 => format!("float_of_bf16({element})"),
            _ => element,
        }
    }

    /// The type of an operand's elements.
    pub(super) fn element(&self, operand: usize) -> &'static str {
        text::element(self.nest.operands[operand].dtype, self.dialect.long())
    }

    /// The reduction of a value and its operand; of others, a sum of the value itself.
    pub(super) fn reduction(&self, id: ValueId) -> (Reduction, ValueId) {
        match self.nest.values[id.0] {
            Value::Reduce { reduction, of, .. } => (reduction, of),
            _ => (Reduction::Sum, id),
        }
    }

    /// The initial value of a reduction.
    pub(super) fn identity(&self, id: ValueId) -> String {
        self.dialect.identity(self.reduction(id).0)
    }

    /// A store writes partials.
    pub(super) fn is_partial(&self, store: usize) -> bool {
        self.nest.cross_block == CrossBlock::Partials
            && self.nest.is_cross_block(self.nest.stores[store].value)
    }

    /// Whether a store writes an element for each column.
    pub(super) fn is_of_columns(&self, store: usize) -> bool {
        let store = &self.nest.stores[store];
        self.stages.varies[store.value.0].columns
            || self.nest.operands[store.operand.0].columns != Stride::Broadcast
    }

    /// Whether all rows share the elements of an operand.
    pub(super) fn is_row_invariant(&self, operand: usize) -> bool {
        let mut steps = self.nest.operands[operand].rows.iter();
        steps.all(|step| *step == Stride::Broadcast)
    }

    /// The operand that partials of a reduction are written to.
    pub(super) fn partials_of(&self, id: ValueId) -> String {
        let mut stores = self.nest.stores.iter();
        let store = stores.find(|store| store.value == id);
        store.map_or(String::new(), |store| self.operand(store.operand.0))
    }

    /// The offset of an operand's row, from the indices of rows.
    pub(super) fn row_offset(&self, operand: usize) -> String {
        let name = self.operand(operand);
        let steps = self.nest.operands[operand].rows.iter().enumerate();
        let terms = steps.filter_map(|(dim, step)| match step {
            Stride::Broadcast => None,
            Stride::Unit => Some(format!(" + row_{dim}")),
            Stride::Dynamic => Some(format!(" + row_{dim} * {name}_row_{dim}")),
        });
        let terms: String = terms.collect();
        name + &terms
    }

    /// The offset that an index which is one number adds to the start of an operand's row.
    pub(super) fn index(&self, operand: usize, index: Option<ValueId>) -> String {
        index.map_or(String::new(), |index| {
            let (value, name) = (self.scalar(index), self.operand(operand));
            format!(" + {value} * {name}_index")
        })
    }
}
