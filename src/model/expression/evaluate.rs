//! Running a checked expression on the values of one point.
//!
//! Architecture invariant: evaluation allocates nothing.

use super::check::Expression;
use super::tree::{Binary, Function, Node, Op};
use super::{Operand, Span};

/// Why an expression has no value for some point.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{problem}")]
pub struct EvalError {
    /// Place in the text.
    pub span: Span,
    /// The problem.
    pub problem: Arithmetic,
}

/// A problem in arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Arithmetic {
    /// A divisor is zero.
    #[error("division by zero")]
    DivisionByZero,
    /// An integer does not fit 64 bits, or a float is infinite.
    #[error("the result is too large")]
    Overflow,
    /// An integer to a negative power.
    #[error("an integer to a negative power is not an integer")]
    NegativePower,
    /// A negative number to a broken power.
    #[error("this power is not a real number")]
    NotReal,
}

type Outcome<'a> = Result<Operand<'a>, EvalError>;

impl Expression {
    /// The value, with `slots` holding one value for each name of the scope.
    ///
    /// # Errors
    /// Overflow and division by zero, with the place in the text.
    pub fn evaluate<'a>(&'a self, slots: &[Operand<'a>]) -> Outcome<'a> {
        evaluate(&self.root, slots)
    }

    /// The value of a condition.
    ///
    /// # Errors
    /// As [`Expression::evaluate`].
    pub fn holds(&self, slots: &[Operand<'_>]) -> Result<bool, EvalError> {
        condition(&self.root, slots)
    }
}

fn evaluate<'a>(node: &'a Node<usize>, slots: &[Operand<'a>]) -> Outcome<'a> {
    Ok(match &node.op {
        Op::Bool(value) => Operand::Bool(*value),
        Op::Int(value) => Operand::Int(*value),
        Op::Float(value) => Operand::Float(*value),
        Op::Text(value) => Operand::Text(value),
        Op::Name(slot) => slots[*slot],
        Op::Not(inner) => Operand::Bool(!condition(inner, slots)?),
        Op::Negate(inner) => match evaluate(inner, slots)? {
            Operand::Int(value) => whole(value.checked_neg(), node)?,
            other => real(-float(other), node)?,
        },
        Op::Binary(op, left, right) => binary(*op, left, right, slots, node)?,
        Op::In {
            item,
            list,
            negated,
        } => {
            let item = evaluate(item, slots)?;
            let mut found = false;
            for member in list {
                found |= equal(item, evaluate(member, slots)?);
            }
            Operand::Bool(found != *negated)
        }
        Op::Call(function, arguments) => call(*function, arguments, slots, node)?,
    })
}

fn condition(node: &Node<usize>, slots: &[Operand<'_>]) -> Result<bool, EvalError> {
    Ok(evaluate(node, slots)? == Operand::Bool(true))
}

fn binary<'a>(
    op: Binary,
    left: &'a Node<usize>,
    right: &'a Node<usize>,
    slots: &[Operand<'a>],
    node: &Node<usize>,
) -> Outcome<'a> {
    match op {
        Binary::And if !condition(left, slots)? => return Ok(Operand::Bool(false)),
        Binary::Or if condition(left, slots)? => return Ok(Operand::Bool(true)),
        Binary::And | Binary::Or => return Ok(Operand::Bool(condition(right, slots)?)),
        _ => {}
    }
    let (a, b) = (evaluate(left, slots)?, evaluate(right, slots)?);
    if op.is_comparison() {
        return Ok(Operand::Bool(compare(op, a, b)));
    }
    match (a, b) {
        (Operand::Int(a), Operand::Int(b)) if op != Binary::Divide => integers(op, a, b, node),
        _ => floats(op, float(a), float(b), node),
    }
}

fn compare(op: Binary, a: Operand<'_>, b: Operand<'_>) -> bool {
    match op {
        Binary::Equal => return equal(a, b),
        Binary::Unequal => return !equal(a, b),
        _ => {}
    }
    let order = match (a, b) {
        (Operand::Int(a), Operand::Int(b)) => Some(a.cmp(&b)),
        _ => float(a).partial_cmp(&float(b)),
    };
    match op {
        Binary::Less => order.is_some_and(|order| order.is_lt()),
        Binary::LessEqual => order.is_some_and(|order| order.is_le()),
        Binary::Greater => order.is_some_and(|order| order.is_gt()),
        _ => order.is_some_and(|order| order.is_ge()),
    }
}

fn equal(a: Operand<'_>, b: Operand<'_>) -> bool {
    match (a, b) {
        (Operand::Int(a), Operand::Float(b)) | (Operand::Float(b), Operand::Int(a)) => {
            a as f64 == b
        }
        _ => a == b,
    }
}

fn integers<'a>(op: Binary, a: i64, b: i64, node: &Node<usize>) -> Outcome<'a> {
    if b == 0 && matches!(op, Binary::FloorDivide | Binary::Modulo) {
        return fail(node, Arithmetic::DivisionByZero);
    }
    let value = match op {
        Binary::Add => a.checked_add(b),
        Binary::Subtract => a.checked_sub(b),
        Binary::Multiply => a.checked_mul(b),
        Binary::FloorDivide => floor_div(a, b),
        Binary::Modulo if b == -1 => Some(0),
        Binary::Modulo => floor_div(a, b).map(|quotient| a - quotient * b),
        _ if b < 0 => return fail(node, Arithmetic::NegativePower),
        _ if matches!(a, 0 | 1) => Some(if b == 0 { 1 } else { a }),
        _ if a == -1 => Some(if b % 2 == 0 { 1 } else { -1 }),
        _ => u32::try_from(b).ok().and_then(|b| a.checked_pow(b)),
    };
    whole(value, node)
}

/// The quotient rounded towards minus infinity; `None` if it does not fit.
fn floor_div(a: i64, b: i64) -> Option<i64> {
    let quotient = a.checked_div(b)?;
    let inexact = quotient * b != a;
    Some(quotient - i64::from(inexact && (a < 0) != (b < 0)))
}

fn floats<'a>(op: Binary, a: f64, b: f64, node: &Node<usize>) -> Outcome<'a> {
    if b == 0.0 && matches!(op, Binary::Divide | Binary::FloorDivide | Binary::Modulo) {
        return fail(node, Arithmetic::DivisionByZero);
    }
    let value = match op {
        Binary::Add => a + b,
        Binary::Subtract => a - b,
        Binary::Multiply => a * b,
        Binary::Divide => a / b,
        Binary::FloorDivide => (a / b).floor(),
        Binary::Modulo => a - b * (a / b).floor(),
        _ if a == 0.0 && b < 0.0 => return fail(node, Arithmetic::DivisionByZero),
        _ => a.powf(b),
    };
    if value.is_nan() {
        return fail(node, Arithmetic::NotReal);
    }
    real(value, node)
}

fn call<'a>(
    function: Function,
    arguments: &'a [Node<usize>],
    slots: &[Operand<'a>],
    node: &Node<usize>,
) -> Outcome<'a> {
    if function == Function::Where {
        let chosen = if condition(&arguments[0], slots)? {
            1
        } else {
            2
        };
        return evaluate(&arguments[chosen], slots);
    }
    let first = evaluate(&arguments[0], slots)?;
    match function {
        Function::Abs if matches!(first, Operand::Int(_)) => match first {
            Operand::Int(value) => whole(value.checked_abs(), node),
            _ => fail(node, Arithmetic::NotReal),
        },
        Function::Int => match first {
            Operand::Int(value) => Ok(Operand::Int(value)),
            first => whole(truncated(float(first)), node),
        },
        Function::Abs
        | Function::Floor
        | Function::Sqrt
        | Function::Exp
        | Function::Log
        | Function::Sin
        | Function::Cos
        | Function::Tanh
        | Function::Erf
        | Function::Where => {
            let value = function.of_real(float(first));
            if value.is_nan() {
                return fail(node, Arithmetic::NotReal);
            }
            real(value, node)
        }
        Function::NextPow2 => whole(next_pow2(first), node),
        Function::CeilDiv => match (first, evaluate(&arguments[1], slots)?) {
            (_, Operand::Int(0)) => fail(node, Arithmetic::DivisionByZero),
            (Operand::Int(a), Operand::Int(b)) => {
                let floor = a.checked_neg().and_then(|a| floor_div(a, b));
                whole(floor.and_then(i64::checked_neg), node)
            }
            _ => fail(node, Arithmetic::Overflow),
        },
        Function::Min | Function::Max => extreme(function, first, &arguments[1..], slots),
    }
}

/// The least or the greatest of several numbers.
fn extreme<'a>(
    function: Function,
    first: Operand<'a>,
    others: &'a [Node<usize>],
    slots: &[Operand<'a>],
) -> Outcome<'a> {
    let wanted = match function {
        Function::Min => Binary::Less,
        _ => Binary::Greater,
    };
    let (mut best, mut mixed) = (first, matches!(first, Operand::Float(_)));
    for argument in others {
        let next = evaluate(argument, slots)?;
        mixed |= matches!(next, Operand::Float(_));
        if compare(wanted, next, best) {
            best = next;
        }
    }
    // With one float among the arguments, even an integer becomes a float.
    Ok(match mixed {
        true => Operand::Float(float(best)),
        false => best,
    })
}

/// A number without what it has behind the point, if 64 bits hold it.
fn truncated(value: f64) -> Option<i64> {
    let bound = 2f64.powi(63);
    (-bound..bound)
        .contains(&value)
        .then_some(value.trunc() as i64)
}

/// The least power of two that is at least `value`; 1 for everything below.
fn next_pow2(value: Operand<'_>) -> Option<i64> {
    let Operand::Int(value) = value else {
        return None;
    };
    let value = u64::try_from(value.max(1)).ok()?;
    i64::try_from(value.checked_next_power_of_two()?).ok()
}

fn float(operand: Operand<'_>) -> f64 {
    match operand {
        Operand::Int(value) => value as f64,
        Operand::Float(value) => value,
        Operand::Bool(_) | Operand::Text(_) => f64::NAN,
    }
}

fn whole<'a>(value: Option<i64>, node: &Node<usize>) -> Outcome<'a> {
    match value {
        Some(value) => Ok(Operand::Int(value)),
        None => fail(node, Arithmetic::Overflow),
    }
}

fn real<'a>(value: f64, node: &Node<usize>) -> Outcome<'a> {
    if value.is_finite() {
        return Ok(Operand::Float(value));
    }
    fail(node, Arithmetic::Overflow)
}

fn fail<'a>(node: &Node<usize>, problem: Arithmetic) -> Outcome<'a> {
    let span = node.span.clone();
    Err(EvalError { span, problem })
}
