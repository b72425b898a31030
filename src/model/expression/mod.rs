//! The expression language of conditions and derived values.
//!
//! Integers, floats, strings and booleans; `+ - * / // % **` (`/` always gives a float, `//` and
//! `%` round towards minus infinity), comparisons, `and or not in`, and functions: `min`, `max`,
//! `ceil_div`, `next_pow2`, `abs`, `floor`, `int`, `sqrt`, `exp`, `log`, `sin`, `cos`, `tanh`,
//! `erf` and `where(condition, then, else)`, or `then if condition else other`. Expressions are
//! typed before they run, do no I/O and allocate nothing.
//!
//! `text -> lexer -> parser -> [Tree] -> check (names become slots) -> [Expression] -> evaluate`

mod lexer;
mod parser;
mod tree;
mod check;
mod evaluate;
mod elementwise;

use std::ops::Range;

use sweeper_program::Value;

pub use check::{Expression, Fault, FaultKind, Known, Scope};
pub use elementwise::{Column, Format, Precision};
pub use evaluate::{Arithmetic, EvalError};
pub use tree::Tree;

/// The type of an expression or a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// True or false.
    Bool,
    /// A whole number of 64 bits.
    Int,
    /// A real number, never NaN or infinite.
    Float,
    /// A word.
    Text,
}

impl Kind {
    /// The kind of a value.
    pub fn of(value: &Value) -> Self {
        match value {
            Value::Bool(_) => Kind::Bool,
            Value::Int(_) => Kind::Int,
            Value::Float(_) => Kind::Float,
            Value::Text(_) => Kind::Text,
        }
    }

    /// The word of error messages.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Bool => "boolean",
            Kind::Int => "integer",
            Kind::Float => "float",
            Kind::Text => "string",
        }
    }

    /// Name of the kind with an article: `an integer`.
    pub fn noun(self) -> String {
        crate::word::article(self.name())
    }

    fn is_number(self) -> bool {
        matches!(self, Kind::Int | Kind::Float)
    }
}

/// A borrowed value, with which expressions compute.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Operand<'a> {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A real number.
    Float(f64),
    /// A word.
    Text(&'a str),
}

impl<'a> From<&'a Value> for Operand<'a> {
    fn from(value: &'a Value) -> Self {
        match value {
            Value::Bool(value) => Operand::Bool(*value),
            Value::Int(value) => Operand::Int(*value),
            Value::Float(value) => Operand::Float(*value),
            Value::Text(value) => Operand::Text(value),
        }
    }
}

impl From<Operand<'_>> for Value {
    fn from(operand: Operand<'_>) -> Self {
        match operand {
            Operand::Bool(value) => Value::Bool(value),
            Operand::Int(value) => Value::Int(value),
            Operand::Float(value) => Value::Float(value),
            Operand::Text(value) => Value::from(value),
        }
    }
}

/// Byte positions in the text of an expression.
pub type Span = Range<usize>;

/// Text that is not an expression.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyntaxError {
    /// Place in the text.
    pub span: Span,
    /// The error, in a few words that stand beside the caret.
    pub message: String,
    /// How to fix it.
    pub help: Option<String>,
}

impl SyntaxError {
    fn new(span: Span, message: impl Into<String>) -> Self {
        SyntaxError {
            span,
            message: message.into(),
            help: None,
        }
    }

    fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

#[cfg(test)]
mod tests;
