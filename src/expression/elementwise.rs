//! Evaluation over real numbers, as elements of tensors are computed: infinities and NaN are
//! values, and each operation can be rounded.

use super::check::Expression;
use super::tree::{Binary, Function, Node, Op};
use sweeper_program::Dtype;
use sweeper_program::rounding::{self, DEVIATION, FUNCTION, UNIT_ROUNDOFF, mixed};

/// The precision of an elementwise evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Precision {
    /// IEEE 754 binary64.
    F64,
    /// Each result moved by the size of its operation's rounding ([`rounding`]), up or down.
    Rounded {
        /// The format of the results.
        format: Format,
        /// Seed of the directions.
        probe: u64,
    },
}

/// A floating-point format, as rounding needs it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Format {
    /// The unit roundoff.
    pub unit: f64,
    /// The least normal number: what is less is rounded as this one.
    pub least: f64,
}

impl Format {
    /// The format of elements of a real type.
    pub fn of_elements(dtype: Dtype) -> Self {
        Format {
            unit: dtype.unit_roundoff(),
            least: match dtype {
                Dtype::F64 => f64::MIN_POSITIVE,
                Dtype::F16 => f64::exp2(-14.0),
                _ => f32::MIN_POSITIVE.into(),
            },
        }
    }
}

impl Precision {
    /// A result whose operation rounds with this variance, in squares of a rounding's deviation and
    /// of the result. Its direction follows from its bits.
    fn moved(self, value: f64, variance: f64) -> f64 {
        let Precision::Rounded { format, probe } = self else {
            return value;
        };
        let deviation = DEVIATION / UNIT_ROUNDOFF * format.unit * variance.sqrt();
        let size = deviation * value.abs().max(format.least);
        match mixed(value.to_bits() ^ mixed(probe)) >> 63 {
            0 => value + size,
            _ => value - size,
        }
    }

    /// A value that is stored in another format.
    pub fn stored(self, value: f64, format: Format) -> f64 {
        match self {
            Precision::F64 => value,
            Precision::Rounded { probe, .. } => {
                let probe = !probe;
                Precision::Rounded { format, probe }.moved(value, 1.0)
            }
        }
    }

    /// A constant, which a program has in f32.
    fn constant(self, value: f64) -> f64 {
        match self {
            Precision::Rounded { format, probe } if format.unit >= UNIT_ROUNDOFF => {
                let error = f64::from(value as f32) - value;
                if probe % 2 == 0 {
                    value + error
                } else {
                    value - error
                }
            }
            _ => value,
        }
    }
}

/// The variance of an operation on `operand` that gives `result`.
fn variance(node: &Op<usize>, operand: f64) -> f64 {
    match node {
        Op::Binary(op, ..) => match op {
            Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide => 1.0,
            Binary::Power => 2.0 * FUNCTION,
            _ => 0.0,
        },
        Op::Call(function, _) => match function {
            Function::Sqrt => 1.0,
            Function::Exp => rounding::of_exponential(operand),
            Function::Log | Function::Sin | Function::Cos => FUNCTION,
            // Near 0 they are differences.
            Function::Tanh | Function::Erf => 4.0 * FUNCTION,
            _ => 0.0,
        },
        _ => 0.0,
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
        Op::Float(value) => precision.constant(*value),
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
            function => {
                let operand = of(&arguments[0]);
                let result = function.of_real(operand);
                return precision.moved(result, variance(&node.op, operand));
            }
        },
    };
    precision.moved(result, variance(&node.op, 0.0))
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
