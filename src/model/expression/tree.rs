//! The syntax tree of an expression, in which names are not resolved yet.

use std::fmt;

use super::{Operand, Span, SyntaxError, parser};

/// A parsed expression with the text it came from.
#[derive(Clone, Debug, PartialEq)]
pub struct Tree {
    pub(super) root: Node<String>,
}

/// A node and where it stands in the text. Names are strings first, and slots once they are
/// resolved.
#[derive(Clone, Debug)]
pub(super) struct Node<N> {
    pub(super) span: Span,
    pub(super) op: Op<N>,
}

/// Nodes are equal if their trees are, whatever their places in the text.
impl<N: PartialEq> PartialEq for Node<N> {
    fn eq(&self, other: &Self) -> bool {
        self.op == other.op
    }
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Op<N> {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
    Name(N),
    Not(Box<Node<N>>),
    Negate(Box<Node<N>>),
    Binary(Binary, Box<Node<N>>, Box<Node<N>>),
    In {
        item: Box<Node<N>>,
        list: Vec<Node<N>>,
        negated: bool,
    },
    Call(Function, Vec<Node<N>>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Binary {
    Or,
    And,
    Equal,
    Unequal,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    FloorDivide,
    Modulo,
    Power,
}

impl Binary {
    pub(super) fn symbol(self) -> &'static str {
        match self {
            Binary::Or => "or",
            Binary::And => "and",
            Binary::Equal => "==",
            Binary::Unequal => "!=",
            Binary::Less => "<",
            Binary::LessEqual => "<=",
            Binary::Greater => ">",
            Binary::GreaterEqual => ">=",
            Binary::Add => "+",
            Binary::Subtract => "-",
            Binary::Multiply => "*",
            Binary::Divide => "/",
            Binary::FloorDivide => "//",
            Binary::Modulo => "%",
            Binary::Power => "**",
        }
    }

    pub(super) fn is_comparison(self) -> bool {
        self.is_equality() || self.is_ordering()
    }

    pub(super) fn is_equality(self) -> bool {
        matches!(self, Binary::Equal | Binary::Unequal)
    }

    pub(super) fn is_ordering(self) -> bool {
        matches!(
            self,
            Binary::Less | Binary::LessEqual | Binary::Greater | Binary::GreaterEqual
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Function {
    Min,
    Max,
    CeilDiv,
    NextPow2,
    Abs,
    Floor,
    Int,
    Sqrt,
    Exp,
    Log,
    Sin,
    Cos,
    Tanh,
    Erf,
    Where,
}

impl Function {
    pub(super) const ALL: [Function; 15] = [
        Function::Min,
        Function::Max,
        Function::CeilDiv,
        Function::NextPow2,
        Function::Abs,
        Function::Floor,
        Function::Int,
        Function::Sqrt,
        Function::Exp,
        Function::Log,
        Function::Sin,
        Function::Cos,
        Function::Tanh,
        Function::Erf,
        Function::Where,
    ];

    pub(super) fn name(self) -> &'static str {
        match self {
            Function::Min => "min",
            Function::Max => "max",
            Function::CeilDiv => "ceil_div",
            Function::NextPow2 => "next_pow2",
            Function::Abs => "abs",
            Function::Floor => "floor",
            Function::Int => "int",
            Function::Sqrt => "sqrt",
            Function::Exp => "exp",
            Function::Log => "log",
            Function::Sin => "sin",
            Function::Cos => "cos",
            Function::Tanh => "tanh",
            Function::Erf => "erf",
            Function::Where => "where",
        }
    }

    /// The least and the greatest number of arguments.
    pub(super) fn arity(self) -> (usize, usize) {
        match self {
            Function::Min | Function::Max => (1, usize::MAX),
            Function::CeilDiv => (2, 2),
            Function::Where => (3, 3),
            _ => (1, 1),
        }
    }

    /// The value of a function of one real number; NaN for the others.
    pub(super) fn of_real(self, value: f64) -> f64 {
        match self {
            Function::Abs => value.abs(),
            Function::Floor => value.floor(),
            Function::Int => value.trunc(),
            Function::Sqrt => value.sqrt(),
            Function::Exp => value.exp(),
            Function::Log => value.ln(),
            Function::Sin => value.sin(),
            Function::Cos => value.cos(),
            Function::Tanh => value.tanh(),
            Function::Erf => libm::erf(value),
            _ => f64::NAN,
        }
    }
}

impl Tree {
    /// Parses `text`.
    ///
    /// # Errors
    /// The first place at which `text` is not an expression.
    pub fn parse(text: &str) -> Result<Self, SyntaxError> {
        let root = parser::parse(text)?;
        Ok(Tree { root })
    }

    /// Calls `visit` with each name in the tree and its place, in order of appearance.
    pub fn names<'a>(&'a self, visit: &mut impl FnMut(&'a str, &Span)) {
        self.root.names(visit);
    }
}

impl Node<String> {
    pub(super) fn names<'a>(&'a self, visit: &mut impl FnMut(&'a str, &Span)) {
        match &self.op {
            Op::Bool(_) | Op::Int(_) | Op::Float(_) | Op::Text(_) => {}
            Op::Name(name) => visit(name, &self.span),
            Op::Not(inner) | Op::Negate(inner) => inner.names(visit),
            Op::Binary(_, left, right) => {
                left.names(visit);
                right.names(visit);
            }
            Op::In { item, list, .. } => {
                item.names(visit);
                list.iter().for_each(|each| each.names(visit));
            }
            Op::Call(_, arguments) => arguments.iter().for_each(|each| each.names(visit)),
        }
    }
}

/// The canonical form: one spelling for all texts of one tree, with all brackets.
impl fmt::Display for Tree {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.root.fmt(out)
    }
}

impl fmt::Display for Node<String> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.op {
            Op::Bool(value) => write!(out, "{value}"),
            Op::Int(value) => write!(out, "{value}"),
            Op::Float(value) => write!(out, "{value:?}"),
            Op::Text(value) => quoted(out, value),
            Op::Name(name) => out.write_str(name),
            Op::Not(inner) => write!(out, "(not {inner})"),
            Op::Negate(inner) => write!(out, "(-{inner})"),
            Op::Binary(op, left, right) => write!(out, "({left} {} {right})", op.symbol()),
            Op::In {
                item,
                list,
                negated,
            } => {
                let word = if *negated { "not in" } else { "in" };
                write!(out, "({item} {word} [")?;
                comma_separated(out, list)?;
                out.write_str("])")
            }
            Op::Call(function, arguments) => {
                write!(out, "{}(", function.name())?;
                comma_separated(out, arguments)?;
                out.write_str(")")
            }
        }
    }
}

fn quoted(out: &mut fmt::Formatter<'_>, text: &str) -> fmt::Result {
    let mark = if text.contains('\'') { '"' } else { '\'' };
    write!(out, "{mark}{text}{mark}")
}

fn comma_separated(out: &mut fmt::Formatter<'_>, nodes: &[Node<String>]) -> fmt::Result {
    for (index, node) in nodes.iter().enumerate() {
        let separator = if index == 0 { "" } else { ", " };
        write!(out, "{separator}{node}")?;
    }
    Ok(())
}

impl fmt::Display for Operand<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Operand::Bool(value) => write!(out, "{value}"),
            Operand::Int(value) => write!(out, "{value}"),
            Operand::Float(value) => write!(out, "{value:?}"),
            Operand::Text(value) => out.write_str(value),
        }
    }
}
