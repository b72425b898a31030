//! The names that expressions of declarations use, and evaluating them.

use std::sync::Arc;

use sweeper_program::workload::{ParameterInfo, ParameterKind};
use sweeper_program::{Parameters, Target, Value};

use sweeper_model::expression::{Expression, Kind, Known, Operand, Scope, Tree};

/// The limits of a device that expressions of backends may use, in the order of their slots.
pub(super) const LIMITS: [&str; 2] = ["device.max_threads", "device.max_shared"];

/// The greatest number of threads of a block, on every CUDA device.
const MAX_THREADS: i64 = 1024;

/// The parameters of a problem.
pub(crate) fn problem_scope(parameters: &[ParameterInfo]) -> Scope {
    let known = |parameter: &ParameterInfo| match parameter.kind {
        ParameterKind::Int { .. } => number(parameter.name, Kind::Int),
        ParameterKind::Float { .. } => number(parameter.name, Kind::Float),
        ParameterKind::Bool => number(parameter.name, Kind::Bool),
        ParameterKind::Choice(words) => Known {
            name: parameter.name.into(),
            kind: Kind::Text,
            words: Some(words.to_vec()),
        },
    };
    Scope {
        names: parameters.iter().map(known).collect(),
    }
}

/// The parameters of a problem, and `i`, the flat index of an element.
pub(crate) fn fill_scope(parameters: &[ParameterInfo]) -> Scope {
    let mut scope = problem_scope(parameters);
    scope.names.push(number("i", Kind::Int));
    scope
}

/// A name whose values are numbers or truth values.
pub(super) fn number(name: &str, kind: Kind) -> Known {
    Known {
        name: Arc::from(name),
        kind,
        words: None,
    }
}

/// A text that was checked when the manifest was read.
///
/// # Errors
/// A sentence: the text is from another version of the program.
pub(super) fn compile(text: &str, scope: &Scope) -> Result<Expression, String> {
    let tree = Tree::parse(text).map_err(|error| format!("`{text}`: {}", error.message))?;
    Expression::compile(text, &tree, scope).map_err(|faults| format!("`{text}`: {faults:?}"))
}

/// [`compile`] of several.
///
/// # Errors
/// As [`compile`].
pub(super) fn compile_all(texts: &[String], scope: &Scope) -> Result<Vec<Expression>, String> {
    texts.iter().map(|text| compile(text, scope)).collect()
}

/// The values of a problem's parameters, in their order.
pub(super) fn values(infos: &[ParameterInfo], parameters: &Parameters) -> Vec<Value> {
    let value = |info: &ParameterInfo| parameters.get(info.name).cloned();
    infos.iter().filter_map(value).collect()
}

/// Operands of values.
pub(super) fn operands(values: &[Value]) -> Vec<Operand<'_>> {
    values.iter().map(Operand::from).collect()
}

/// The values of [`LIMITS`] on a target. A CPU has none, which are zeros.
pub(super) fn limits(target: &Target) -> [i64; LIMITS.len()] {
    match target {
        Target::Cpu => [0; LIMITS.len()],
        Target::Cuda { arch } => [MAX_THREADS, max_shared_bytes(arch)],
    }
}

/// The most shared memory that a block of an architecture can ask for, in bytes (CUDA C++
/// Programming Guide, technical specifications per compute capability).
fn max_shared_bytes(arch: &str) -> i64 {
    let kibibytes = match sweeper_program::workload::generation(arch) {
        70 | 72 => 96,
        75 => 64,
        80 | 87 => 163,
        86 | 89 | 120 | 121 => 99,
        90 | 100 | 101 | 103 => 227,
        _ => 48,
    };
    kibibytes * 1024
}

/// A whole number that is not negative.
///
/// # Errors
/// A sentence with the text and the value.
pub(super) fn size(expression: &Expression, slots: &[Operand<'_>]) -> Result<u64, String> {
    let shown = expression.text();
    match expression.evaluate(slots) {
        Ok(Operand::Int(value)) => {
            u64::try_from(value).map_err(|_| format!("`{shown}` is {value}, and can't be negative"))
        }
        Ok(other) => Err(format!("`{shown}` is {other}, a whole number is needed")),
        Err(error) => Err(format!("`{shown}`: {error}")),
    }
}

/// A real number.
///
/// # Errors
/// As [`size`].
pub(super) fn real(expression: &Expression, slots: &[Operand<'_>]) -> Result<f64, String> {
    let shown = expression.text();
    match expression.evaluate(slots) {
        Ok(Operand::Int(value)) => Ok(value as f64),
        Ok(Operand::Float(value)) => Ok(value),
        Ok(other) => Err(format!("`{shown}` is {other}, a number is needed")),
        Err(error) => Err(format!("`{shown}`: {error}")),
    }
}

/// The numbers of values, as elementwise expressions take them; words are NaN.
pub(super) fn reals(values: &[Value]) -> Vec<f64> {
    let real = |value: &Value| match value {
        Value::Bool(value) => f64::from(u8::from(*value)),
        Value::Int(value) => *value as f64,
        Value::Float(value) => *value,
        Value::Text(_) => f64::NAN,
    };
    values.iter().map(real).collect()
}
