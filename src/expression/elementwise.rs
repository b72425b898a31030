//! Evaluation over real numbers, as elements of tensors are computed: infinities and NaN are
//! values, and each operation can be rounded.

use super::check::Expression;
use super::tree::{Binary, Function, Node, Op};

/// The precision of an elementwise evaluation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Precision {
    /// IEEE 754 binary64.
    F64,
    /// Each result rounded to binary32, as arithmetic in f32 gives it.
    F32,
}

impl Precision {
    fn round(self, value: f64) -> f64 {
        match self {
            Precision::F64 => value,
            Precision::F32 => f64::from(value as f32),
        }
    }
}

impl Expression {
    /// The value over real numbers, with `slots` holding one number for each name of the scope.
    /// True is 1, false is 0; words are NaN.
    pub fn elementwise(&self, slots: &[f64], precision: Precision) -> f64 {
        value(&self.root, slots, precision)
    }

    /// How many operations an evaluation takes.
    pub fn operations(&self) -> usize {
        count(&self.root)
    }
}

fn value(node: &Node<usize>, slots: &[f64], precision: Precision) -> f64 {
    let of = |node| value(node, slots, precision);
    let result = match &node.op {
        Op::Bool(value) => f64::from(u8::from(*value)),
        Op::Int(value) => *value as f64,
        Op::Float(value) => *value,
        Op::Text(_) => f64::NAN,
        Op::Name(slot) => return slots[*slot],
        Op::Not(inner) => truth(of(inner) == 0.0),
        Op::Negate(inner) => -of(inner),
        Op::Binary(op, left, right) => binary(*op, of(left), of(right)),
        Op::In {
            item,
            list,
            negated,
        } => {
            let item = of(item);
            truth(list.iter().any(|member| of(member) == item) != *negated)
        }
        Op::Call(function, arguments) => match function {
            Function::Where => of(&arguments[if of(&arguments[0]) == 0.0 { 2 } else { 1 }]),
            Function::Min => arguments.iter().map(of).fold(f64::INFINITY, f64::min),
            Function::Max => arguments.iter().map(of).fold(f64::NEG_INFINITY, f64::max),
            Function::CeilDiv => (of(&arguments[0]) / of(&arguments[1])).ceil(),
            Function::NextPow2 => of(&arguments[0]).max(1.0).log2().ceil().exp2(),
            function => function.of_real(of(&arguments[0])),
        },
    };
    precision.round(result)
}

fn binary(op: Binary, a: f64, b: f64) -> f64 {
    match op {
        Binary::Or => truth(a != 0.0 || b != 0.0),
        Binary::And => truth(a != 0.0 && b != 0.0),
        Binary::Equal => truth(a == b),
        Binary::Unequal => truth(a != b),
        Binary::Less => truth(a < b),
        Binary::LessEqual => truth(a <= b),
        Binary::Greater => truth(a > b),
        Binary::GreaterEqual => truth(a >= b),
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        Binary::FloorDivide => (a / b).floor(),
        Binary::Modulo => a - b * (a / b).floor(),
        Binary::Power => a.powf(b),
    }
}

fn truth(holds: bool) -> f64 {
    f64::from(u8::from(holds))
}

fn count(node: &Node<usize>) -> usize {
    match &node.op {
        Op::Bool(_) | Op::Int(_) | Op::Float(_) | Op::Text(_) | Op::Name(_) => 0,
        Op::Not(inner) | Op::Negate(inner) => 1 + count(inner),
        Op::Binary(_, left, right) => 1 + count(left) + count(right),
        Op::In { item, list, .. } => 1 + count(item) + list.iter().map(count).sum::<usize>(),
        Op::Call(_, arguments) => 1 + arguments.iter().map(count).sum::<usize>(),
    }
}
