//! Expressions of vectors: values that vary over columns, in C.

use crate::graph::op::{BinaryText, UnaryText};
use crate::nest::{Nest, Value, ValueId};
use sweeper_program::tensor::Dtype;

use super::super::stages::Stages;
use super::super::text;

/// Writes values that vary over columns, inside a function that has `row`, `c` and `count`.
pub(super) struct Vectors<'a> {
    pub(super) nest: &'a Nest,
    pub(super) stages: &'a Stages,
}

impl Vectors<'_> {
    fn varies(&self, id: ValueId) -> bool {
        self.stages.varies[id.0].columns
    }

    /// A value as it is: lanes, or one number.
    pub(super) fn name(&self, id: ValueId) -> String {
        match &self.nest.values[id.0] {
            Value::Constant(number) => text::literal(*number, "sweeper_float_of"),
            _ if self.varies(id) => text::name(self.nest, id),
            _ => format!("row->{}", text::name(self.nest, id)),
        }
    }

    /// A value as lanes.
    pub(super) fn lanes(&self, id: ValueId) -> String {
        let name = self.name(id);
        if self.varies(id) {
            return name;
        }
        match self.stages.dtypes[id.0] {
            Dtype::I64 => format!("l_all({name})"),
            _ => format!("v_all({name})"),
        }
    }

    /// The type of a value's lanes.
    pub(super) fn lane_type(&self, id: ValueId) -> &'static str {
        match self.stages.dtypes[id.0] {
            Dtype::I64 => "Long",
            _ => "vf",
        }
    }

    /// The lines that compute a value.
    pub(super) fn define(&self, id: ValueId) -> Vec<String> {
        let name = text::name(self.nest, id);
        let mask = self.mask(id);
        let expression = match &mask {
            Some(_) => format!("v_ones({name}_mask)"),
            None => self.expression(id),
        };
        let lines = mask.map(|mask| format!("const vi {name}_mask = {mask};"));
        let value = format!("const {} {name} = {expression};", self.lane_type(id));
        lines.into_iter().chain([value]).collect()
    }

    /// The mask that a comparison is.
    fn mask(&self, id: ValueId) -> Option<String> {
        let Value::Binary(binary, a, b) = &self.nest.values[id.0] else {
            return None;
        };
        let BinaryText::Operator(operator) = binary.entry().text else {
            return None;
        };
        if !binary.is_comparison() {
            return None;
        }
        if self.stages.dtypes[a.0] != Dtype::I64 {
            return Some(format!("{} {operator} {}", self.name(*a), self.name(*b)));
        }
        // Columns against one number: in lanes of 32 bits.
        let is_column = |id: &ValueId| matches!(self.nest.values[id.0], Value::Column);
        let lane = |id: &ValueId| format!("lane_of({}, row->first_column + c)", self.name(*id));
        if is_column(a) && !self.varies(*b) {
            return Some(format!("v_iota() {operator} {}", lane(b)));
        }
        if is_column(b) && !self.varies(*a) {
            return Some(format!("{} {operator} v_iota()", lane(a)));
        }
        let function = binary.name();
        Some(format!(
            "l_{function}({}, {})",
            self.lanes(*a),
            self.lanes(*b)
        ))
    }

    fn expression(&self, id: ValueId) -> String {
        match &self.nest.values[id.0] {
            Value::Load { .. } => self.load(id),
            Value::Column => "l_from(row->first_column + c)".to_owned(),
            Value::Unary(unary, x) => match unary.entry().text {
                UnaryText::Operator(operator) => format!("{operator}{}", self.name(*x)),
                UnaryText::Functions { c, .. } => format!("v_{c}({})", self.lanes(*x)),
            },
            Value::Binary(binary, a, b) => match binary.entry().text {
                BinaryText::Operator(operator) => {
                    format!("{} {operator} {}", self.name(*a), self.name(*b))
                }
                BinaryText::Function(function) => {
                    format!("v_{function}({}, {})", self.lanes(*a), self.lanes(*b))
                }
            },
            Value::Select(mask, a, b) => self.select(*mask, *a, *b),
            Value::Cast(Dtype::I64, x) if self.stages.dtypes[x.0] != Dtype::I64 => {
                format!("l_from_float({})", self.lanes(*x))
            }
            Value::Cast(Dtype::F32, x) if self.stages.dtypes[x.0] == Dtype::I64 => {
                format!("v_from_long({})", self.lanes(*x))
            }
            Value::Cast(_, x) => self.lanes(*x),
            // Constants, arguments and reductions over columns do not vary over columns; reductions
            // over rows are read from the place where they were added up.
            Value::Constant(_) | Value::Scalar(_) | Value::Row(_) => self.lanes(id),
            Value::Reduce { .. } => {
                format!("v_load_first(row->partials_{} + c, count)", id.0)
            }
        }
    }

    fn select(&self, mask: ValueId, a: ValueId, b: ValueId) -> String {
        let (a, b) = (self.lanes(a), self.lanes(b));
        let name = self.name(mask);
        if !self.varies(mask) {
            format!("{name} != 0.0f ? {a} : {b}")
        } else if self.mask(mask).is_some() {
            format!("v_select({name}_mask, {a}, {b})")
        } else {
            format!("v_select({name} != 0.0f, {a}, {b})")
        }
    }

    fn load(&self, id: ValueId) -> String {
        let Value::Load { operand, index } = &self.nest.values[id.0] else {
            return String::new();
        };
        let from = format!("row->at_{}", id.0);
        let steps = Steps::of(self.nest, operand.0);
        let is_long = self.stages.dtypes[id.0] == Dtype::I64;
        let kind = if is_long { 'l' } else { 'v' };
        match index {
            Some(index) if self.varies(*index) => {
                let name = text::operand(self.nest, operand.0);
                let (index, column) = (self.name(*index), steps.column());
                format!(
                    "{kind}_gather({from} + {}, {index}, row->{name}_index, {column}, count)",
                    steps.offset("c")
                )
            }
            _ if self.nest.operands[operand.0].swaps_pairs => {
                format!("v_swapped_pairs(v_load_first({from} + c, count))")
            }
            _ => match &steps {
                Steps::Contiguous => format!("{kind}_load_first({from} + c, count)"),
                steps => format!(
                    "{kind}_load_step({from} + {}, {}, count)",
                    steps.offset("c"),
                    steps.column()
                ),
            },
        }
    }
}

/// The distance between an operand's columns, in text.
pub(super) enum Steps {
    Contiguous,
    Apart(String),
}

impl Steps {
    pub(super) fn of(nest: &Nest, operand: usize) -> Steps {
        match nest.operands[operand].columns {
            crate::nest::Stride::Unit => Steps::Contiguous,
            crate::nest::Stride::Broadcast => Steps::Apart("0".to_owned()),
            crate::nest::Stride::Dynamic => {
                Steps::Apart(format!("row->{}_column", text::operand(nest, operand)))
            }
        }
    }

    pub(super) fn column(&self) -> &str {
        match self {
            Steps::Contiguous => "1",
            Steps::Apart(step) => step,
        }
    }

    /// The distance of column `c` from the first column.
    pub(super) fn offset(&self, c: &str) -> String {
        match self {
            Steps::Contiguous => c.to_owned(),
            Steps::Apart(step) => format!("{c} * {step}"),
        }
    }
}
