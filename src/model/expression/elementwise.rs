//! Evaluation over real numbers, as elements of tensors are computed: infinities and NaN are
//! values, and each operation can be rounded.

use std::borrow::Cow;

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
    /// A result whose operation rounds with this deviation, in roundings of the result. Its
    /// direction follows from its bits.
    #[inline(always)]
    fn moved(self, value: f64, deviation: f64) -> f64 {
        let Precision::Rounded { format, probe } = self else {
            return value;
        };
        if deviation == 0.0 {
            return value;
        }
        let unit = DEVIATION / UNIT_ROUNDOFF * format.unit * deviation;
        let size = unit * value.abs().max(format.least);
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

/// One number for each element of a piece of a tensor, or one for all of them.
#[derive(Clone, Debug)]
pub enum Column<'a> {
    /// All elements have it.
    One(f64),
    /// One after another.
    Each(Cow<'a, [f64]>),
}

impl Column<'_> {
    /// The number of an element.
    fn at(&self, element: usize) -> f64 {
        match self {
            Column::One(value) => *value,
            Column::Each(values) => values[element],
        }
    }

    fn borrowed(&self) -> Column<'_> {
        match self {
            Column::One(value) => Column::One(*value),
            Column::Each(values) => Column::Each(Cow::Borrowed(values)),
        }
    }
}

/// What a function gives for the numbers that `columns` have for each element.
#[inline(always)]
fn combined<'a>(columns: &[Column<'_>], function: impl Fn(&[f64]) -> f64) -> Column<'a> {
    let values = match columns {
        [Column::Each(a)] => a.iter().map(|&a| function(&[a])).collect(),
        [Column::Each(a), Column::One(b)] => a.iter().map(|&a| function(&[a, *b])).collect(),
        [Column::One(a), Column::Each(b)] => b.iter().map(|&b| function(&[*a, b])).collect(),
        [Column::Each(a), Column::Each(b)] => {
            let pairs = a.iter().zip(b.iter());
            pairs.map(|(&a, &b)| function(&[a, b])).collect()
        }
        _ => {
            let len = columns.iter().find_map(|column| match column {
                Column::One(_) => None,
                Column::Each(values) => Some(values.len()),
            });
            let operands = |element| columns.iter().map(move |column| column.at(element));
            let Some(len) = len else {
                return Column::One(function(&operands(0).collect::<Vec<_>>()));
            };
            let mut held = vec![0.0; columns.len()];
            let mut value = |element| {
                held.iter_mut()
                    .zip(operands(element))
                    .for_each(|(to, from)| *to = from);
                function(&held)
            };
            (0..len).map(&mut value).collect()
        }
    };
    Column::Each(values)
}

/// The variance of a function's result, in squares of a rounding.
fn variance(function: Function, operand: f64) -> f64 {
    match function {
        Function::Sqrt => 1.0,
        Function::Exp => rounding::of_exponential(operand),
        Function::Log | Function::Sin | Function::Cos => FUNCTION,
        // Near 0 they are differences.
        Function::Tanh | Function::Erf => 4.0 * FUNCTION,
        _ => 0.0,
    }
}

/// The deviation of an operation of two numbers, in roundings.
fn deviation(op: Binary) -> f64 {
    match op {
        Binary::Add | Binary::Subtract | Binary::Multiply | Binary::Divide => 1.0,
        Binary::Power => (2.0 * FUNCTION).sqrt(),
        _ => 0.0,
    }
}

impl Expression {
    /// Evaluates a piece of a tensor over real numbers, with `slots` holding a column for each name
    /// of the scope. True is 1, false is 0; words are NaN.
    pub fn elementwise(&self, slots: &[Column<'_>], precision: Precision, elements: &mut [f64]) {
        let values = column(&self.root, slots, precision);
        let elements = elements.iter_mut().enumerate();
        elements.for_each(|(at, element)| *element = values.at(at));
    }

    /// How many operations an evaluation takes.
    pub fn operations(&self) -> usize {
        count(&self.root)
    }
}

fn column<'a>(node: &Node<usize>, slots: &'a [Column<'_>], precision: Precision) -> Column<'a> {
    let of = |node: &Node<usize>| column(node, slots, precision);
    let all = |nodes: &[Node<usize>]| nodes.iter().map(of).collect::<Vec<_>>();
    match &node.op {
        Op::Bool(value) => Column::One(f64::from(u8::from(*value))),
        Op::Int(value) => Column::One(*value as f64),
        Op::Float(value) => Column::One(precision.constant(*value)),
        Op::Text(_) => Column::One(f64::NAN),
        Op::Name(slot) => slots[*slot].borrowed(),
        Op::Not(inner) => combined(&[of(inner)], |held| truth(held[0] == 0.0)),
        Op::Negate(inner) => combined(&[of(inner)], |held| -held[0]),
        Op::Binary(op, left, right) => {
            let (op, deviation) = (*op, deviation(*op));
            let value = |held: &[f64]| precision.moved(binary(op, held[0], held[1]), deviation);
            combined(&[of(left), of(right)], value)
        }
        Op::In {
            item,
            list,
            negated,
        } => {
            let mut columns = all(list);
            columns.push(of(item));
            combined(&columns, |held| match held.split_last() {
                Some((item, members)) => truth(members.contains(item) != *negated),
                None => f64::NAN,
            })
        }
        Op::Call(function, arguments) => {
            let columns = all(arguments);
            match function {
                Function::Where => {
                    combined(&columns, |held| held[if held[0] == 0.0 { 2 } else { 1 }])
                }
                Function::Min => combined(&columns, |held| {
                    held.iter().copied().fold(f64::INFINITY, f64::min)
                }),
                Function::Max => combined(&columns, |held| {
                    held.iter().copied().fold(f64::NEG_INFINITY, f64::max)
                }),
                Function::CeilDiv => combined(&columns, |held| (held[0] / held[1]).ceil()),
                Function::NextPow2 => {
                    combined(&columns, |held| held[0].max(1.0).log2().ceil().exp2())
                }
                function => combined(&columns, |held| {
                    let deviation = variance(*function, held[0]).sqrt();
                    precision.moved(function.of_real(held[0]), deviation)
                }),
            }
        }
    }
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
