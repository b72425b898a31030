//! Expressions of one number: in C for values of rows, in CUDA for all.

use crate::graph::op::{Binary, Reduction, Unary};
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
        let function = match (self, unary) {
            (_, Unary::Neg) => return format!("-{x}"),
            (Dialect::C, _) => return format!("s_{}({x})", c_name(unary)),
            (Dialect::Cuda, Unary::Abs) => "fabsf",
            (Dialect::Cuda, Unary::Exp) => "expf",
            (Dialect::Cuda, Unary::Ln) => "logf",
            (Dialect::Cuda, Unary::Sqrt) => "sqrt_fast",
            (Dialect::Cuda, Unary::Rsqrt) => "rsqrt_fast",
            (Dialect::Cuda, Unary::Reciprocal) => "f_reciprocal",
            (Dialect::Cuda, Unary::Tanh) => "tanhf",
            (Dialect::Cuda, Unary::Erf) => "erff",
            (Dialect::Cuda, Unary::Sigmoid) => "f_sigmoid",
            (Dialect::Cuda, Unary::Sin) => "sinf",
            (Dialect::Cuda, Unary::Cos) => "cosf",
        };
        format!("{function}({x})")
    }

    fn greatest(self) -> [&'static str; 2] {
        match self {
            Dialect::C => ["s_max", "s_min"],
            Dialect::Cuda => ["f_max", "f_min"],
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
            Reduction::Max => format!("{}({a}, {b})", self.greatest()[0]),
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

/// The name of a function in `functions.h`, but for its prefix.
pub(super) fn c_name(unary: Unary) -> &'static str {
    match unary {
        Unary::Exp => "e_to",
        other => other.name(),
    }
}

/// The operator of a comparison.
pub(super) fn comparison(binary: Binary) -> &'static str {
    match binary {
        Binary::Less => "<",
        Binary::LessEqual => "<=",
        _ => "==",
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
        Value::Binary(binary, a, b) => {
            let (a, b) = (name(*a), name(*b));
            match binary {
                Binary::Add => format!("{a} + {b}"),
                Binary::Sub => format!("{a} - {b}"),
                Binary::Mul => format!("{a} * {b}"),
                Binary::Div if dialect == Dialect::Cuda => format!("divide({a}, {b})"),
                Binary::Div => format!("{a} / {b}"),
                Binary::Max => format!("{}({a}, {b})", dialect.greatest()[0]),
                Binary::Min => format!("{}({a}, {b})", dialect.greatest()[1]),
                Binary::Equal | Binary::Less | Binary::LessEqual => {
                    format!("{a} {} {b} ? 1.0f : 0.0f", comparison(*binary))
                }
            }
        }
        Value::Select(mask, a, b) => {
            format!("{} != 0.0f ? {} : {}", name(*mask), name(*a), name(*b))
        }
        Value::Cast(Dtype::I64, x) => format!("({}){}", dialect.long(), name(*x)),
        Value::Cast(_, x) => format!("(float){}", name(*x)),
    }
}
