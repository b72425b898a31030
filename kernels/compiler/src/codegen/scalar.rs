//! Expressions of one number: in C for values of rows, in CUDA for all.

use crate::graph::op::{Binary, BinaryText, Reduction, Unary, UnaryText};
use crate::nest::{Nest, Value, ValueId};
use sweeper_program::tensor::Dtype;

use super::exponentials::Exponentials;
use super::text::literal;

/// The language of an expression.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    C,
    Cuda,
}

impl Dialect {
    fn unary(self, unary: Unary, x: &str) -> String {
        match (unary.entry().text, self) {
            (UnaryText::Operator(operator), _) => format!("{operator}{x}"),
            (UnaryText::Functions { c, .. }, Dialect::C) => format!("s_{c}({x})"),
            (UnaryText::Functions { cuda, .. }, Dialect::Cuda) => format!("{cuda}({x})"),
        }
    }

    fn binary(self, binary: Binary, a: &str, b: &str) -> String {
        match binary.entry().text {
            BinaryText::Operator(_) if binary == Binary::Div && self == Dialect::Cuda => {
                format!("divide({a}, {b})")
            }
            BinaryText::Operator(operator) if binary.is_comparison() => {
                format!("{a} {operator} {b} ? 1.0f : 0.0f")
            }
            BinaryText::Operator(operator) => format!("{a} {operator} {b}"),
            BinaryText::Function(function) => format!("{}{function}({a}, {b})", self.prefix()),
        }
    }

    /// What names of functions of real numbers begin with.
    fn prefix(self) -> &'static str {
        match self {
            Dialect::C => "s_",
            Dialect::Cuda => "f_",
        }
    }

    /// The name of a function from bits to float.
    pub(super) fn bits(self) -> &'static str {
        match self {
            Dialect::C => "sweeper_float_of",
            Dialect::Cuda => "__int_as_float",
        }
    }

    /// The type of whole numbers.
    pub(super) fn long(self) -> &'static str {
        match self {
            Dialect::C => "int64_t",
            Dialect::Cuda => "int64",
        }
    }

    /// `a` and `b` reduced to one.
    pub(super) fn reduced(self, reduction: Reduction, a: &str, b: &str) -> String {
        match reduction {
            Reduction::Sum => format!("{a} + {b}"),
            Reduction::Max => self.binary(Binary::Max, a, b),
        }
    }

    /// The identity of a reduction.
    pub(super) fn identity(self, reduction: Reduction) -> String {
        match (reduction, self) {
            (Reduction::Sum, _) => "0.0f".to_owned(),
            (Reduction::Max, Dialect::C) => "-__builtin_inff()".to_owned(),
            (Reduction::Max, Dialect::Cuda) => "Max::identity()".to_owned(),
        }
    }
}

/// The expression of a value from the names of its operands. Loads, reductions and arguments of the
/// launch have no expression: the caller names them.
pub(super) fn expression(
    nest: &Nest,
    dialect: Dialect,
    id: ValueId,
    name: impl Fn(ValueId) -> String,
) -> String {
    match &nest.values[id.0] {
        Value::Load { .. } | Value::Reduce { .. } | Value::Scalar(_) => name(id),
        Value::Column | Value::Row(_) => name(id),
        Value::Constant(number) => literal(*number, dialect.bits()),
        Value::Unary(_, x) if dialect == Dialect::Cuda && Exponentials::of(nest, id).is_some() => {
            format!("exp_in_sum({})", name(*x))
        }
        Value::Unary(unary, x) => dialect.unary(*unary, &name(*x)),
        Value::Binary(binary, a, b) => dialect.binary(*binary, &name(*a), &name(*b)),
        Value::Select(mask, a, b) => {
            format!("{} != 0.0f ? {} : {}", name(*mask), name(*a), name(*b))
        }
        Value::Cast(Dtype::I64, x) => format!("({}){}", dialect.long(), name(*x)),
        Value::Cast(_, x) => format!("(float){}", name(*x)),
    }
}
