//! The forms in which an axis can be written without listing its values.

use std::path::PathBuf;

use serde_json::json;
use sweeper_program::Value;

use super::keys::{Takes, keys};
use super::section::{Context, Section, Spanned};
use crate::text::diagnostics::Code;
use crate::text::suggest;
use crate::text::tree::{Node, Raw};

/// No axis has more values than this.
pub(crate) const MAX_VALUES: usize = 1_000_000;

/// The keys of forms; an axis has one of them.
pub(crate) const FORMS: &[&str] = &["values", "pow2", "range", "linspace", "logspace", "csv"];

/// The keys that belong to a form.
pub(crate) const OPTIONS: &[&str] = &["step", "num", "col"];

keys! {
    /// An axis as a table: one form, its options, and perhaps a condition.
    FORM {
        "values": Either(&[Scalar, List(&Scalar)]), "values as listed";
        "pow2": ENDS, "the powers of two between two ends";
        "range": ENDS, "values in steps, without the last end";
        "step": Number, "the step of `range`; 1 where it is not said";
        "linspace": ENDS, "evenly spaced floats with both ends";
        "logspace": ENDS, "floats that are evenly spaced in the logarithm";
        "num": Whole(2), "how many floats";
        "csv": Path, "a file of values";
        "col": Text, "a column of it";
        "when": Expression, "the condition under which the axis exists";
        "else": Scalar, "its value where it does not";
    }
}

const ENDS: Takes = Takes::Schema(
    || json!({ "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2 }),
);

/// A number that was written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Number {
    Int(i64),
    Float(f64),
}

impl Number {
    fn float(self) -> f64 {
        match self {
            Number::Int(value) => value as f64,
            Number::Float(value) => value,
        }
    }
}

/// Reads a form that is made of two ends.
pub(crate) fn numbers(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    form: &'static str,
    node: &Node,
) -> Option<Vec<Spanned<Value>>> {
    let (first, last) = ends(cx, node, form)?;
    let made = match form {
        "pow2" => pow2(first, last),
        "range" => {
            let step = section.take(cx, "step");
            let step = step.map_or(Some(Number::Int(1)), |node| number(cx, node, "step"))?;
            steps(first, last, step)
        }
        _ => {
            let num = section.need(cx, "num")?;
            let num = cx.integer(num, "num", 2, MAX_VALUES as i64)?;
            spaced(first.float(), last.float(), num, form == "logspace")
        }
    };
    match made {
        Ok(values) => {
            let at = node.at;
            Some(
                values
                    .into_iter()
                    .map(|value| Spanned { value, at })
                    .collect(),
            )
        }
        Err(label) => {
            let message = format!("`{form}` gives no axis");
            cx.report(Code::AxisForm, node.at, message).label(label);
            None
        }
    }
}

fn number(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<Number> {
    match node.raw {
        Raw::Int(value) => Some(Number::Int(value)),
        Raw::Float(value) => Some(Number::Float(value)),
        _ => {
            cx.wrong_type(node, key, "a number");
            None
        }
    }
}

fn ends(cx: &mut Context<'_>, node: &Node, form: &str) -> Option<(Number, Number)> {
    match &node.raw {
        Raw::Array(items) if items.len() == 2 => {
            Some((number(cx, &items[0], form)?, number(cx, &items[1], form)?))
        }
        _ => {
            cx.wrong_type(node, form, "two ends, `[FIRST, LAST]`");
            None
        }
    }
}

/// Values of an axis, or the error in its form.
type Made = Result<Vec<Value>, String>;

fn too_many<T>() -> Result<T, String> {
    Err(format!("over {MAX_VALUES} values"))
}

/// Powers of two with both ends.
fn pow2(first: Number, last: Number) -> Made {
    let (Number::Int(first), Number::Int(last)) = (first, last) else {
        return Err("the ends must be integers".to_owned());
    };
    let is_power = |value: i64| value > 0 && value & (value - 1) == 0;
    if !is_power(first) || !is_power(last) {
        let wrong = if is_power(first) { last } else { first };
        return Err(format!("{wrong} is not a power of two"));
    }
    if first > last {
        return Err("the first end must not be more than the last".to_owned());
    }
    let powers = std::iter::successors(Some(first), |power| power.checked_mul(2));
    Ok(powers
        .take_while(|power| *power <= last)
        .map(Value::Int)
        .collect())
}

/// From the first end in steps, without the last end.
fn steps(first: Number, last: Number, step: Number) -> Made {
    let (from, to, by) = (first.float(), last.float(), step.float());
    if by == 0.0 || (to - from) * by < 0.0 {
        return Err(format!("steps of {by} never get from {from} to {to}"));
    }
    let count = ((to - from) / by - 1e-9).ceil();
    if count > MAX_VALUES as f64 {
        return too_many();
    }
    let count = count.max(0.0) as i64;
    if let (Number::Int(first), Number::Int(step)) = (first, step) {
        let value = |index: i64| step.checked_mul(index).and_then(|by| first.checked_add(by));
        let values: Option<Vec<_>> = (0..count)
            .map(|index| value(index).map(Value::Int))
            .collect();
        return values.ok_or_else(|| "the values don't fit 64 bits".to_owned());
    }
    Ok((0..count)
        .map(|index| Value::Float(from + by * index as f64))
        .collect())
}

/// `num` values with both ends, evenly spaced in the values or in their logarithms.
fn spaced(first: f64, last: f64, num: i64, logarithmic: bool) -> Made {
    if logarithmic && (first <= 0.0 || last <= 0.0) {
        return Err("the ends are values, not exponents, and must be over 0".to_owned());
    }
    let value = |index: i64| {
        let part = index as f64 / (num - 1) as f64;
        match index {
            0 => first,
            _ if index == num - 1 => last,
            _ if logarithmic => 10f64.powf(first.log10() + (last.log10() - first.log10()) * part),
            _ => first + (last - first) * part,
        }
    };
    Ok((0..num).map(|index| Value::Float(value(index))).collect())
}

/// A column of a CSV file.
pub(crate) fn csv(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    node: &Node,
) -> Option<Vec<Spanned<Value>>> {
    let col = section.need(cx, "col");
    let path = cx.path(node, "csv")?;
    let col_node = col?;
    let col = cx.text(col_node, "col")?;
    let full: PathBuf = cx.in_folder(node.at, &path);
    let sources = cx.sources;
    let table = match sources.tables.get(&full) {
        Some(Ok(table)) => table,
        other => {
            let why = match other {
                Some(Err(why)) => why.as_str(),
                _ => "it was not read",
            };
            let message = format!("can't use the table `{}`: {why}", full.display());
            cx.report(Code::Csv, node.at, message)
                .help("paths are relative to the manifest");
            return None;
        }
    };
    let Some(column) = table.header.iter().position(|name| *name == col) else {
        let known: Vec<&str> = table.header.iter().map(String::as_str).collect();
        let message = format!("`{}` has no column `{col}`", full.display());
        cx.report(Code::Csv, col_node.at, message)
            .help(suggest::among(&col, "columns", &known));
        return None;
    };
    let at = node.at;
    let values = table.rows.iter().map(|row| Spanned {
        value: cell(&row[column]),
        at,
    });
    Some(values.collect())
}

/// A cell as the narrowest kind that spells it: integer, float, boolean, string.
fn cell(text: &str) -> Value {
    if let Ok(value) = text.parse::<i64>() {
        return Value::Int(value);
    }
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() => Value::Float(value),
        _ if text == "true" => Value::Bool(true),
        _ if text == "false" => Value::Bool(false),
        _ => Value::from(text),
    }
}
