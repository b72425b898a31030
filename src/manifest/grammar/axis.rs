//! Axes as the manifest writes them: a value, a list, one of the forms, a zip.

use sweeper_program::Value;

use super::expression::{WireText, check_name, expression};
use super::forms;
use super::section::{Context, Section, Spanned};
use crate::text::diagnostics::Code;
use crate::text::texts::At;
use crate::text::tree::{Entry, Node, Raw};
use sweeper_model::word::article;

/// An axis, its values written out.
#[derive(Clone, Debug)]
pub(crate) struct WireAxis {
    pub(crate) name: Spanned<String>,
    pub(crate) values: Vec<Spanned<Value>>,
    pub(crate) when: Option<WireText>,
    pub(crate) otherwise: Option<Spanned<Value>>,
    pub(crate) at: At,
}

/// Axes that walk together: a zip.
#[derive(Clone, Debug)]
pub(crate) struct WireTie {
    pub(crate) cases: WireCases,
    pub(crate) columns: Vec<Spanned<String>>,
    pub(crate) rows: Vec<Vec<Spanned<sweeper_program::Value>>>,
    pub(crate) when: Option<WireText>,
    pub(crate) otherwise: Option<Vec<Spanned<sweeper_program::Value>>>,
    pub(crate) at: At,
}

/// The cases that a shared setting applies to, by name or workload; all cases where none are named.
#[derive(Clone, Debug, Default)]
pub(crate) struct WireCases(pub(crate) Option<Vec<Spanned<String>>>);

/// Reads an axis.
pub(crate) fn axis(cx: &mut Context<'_>, entry: &Entry) -> Option<WireAxis> {
    let axis = read(cx, entry);
    if axis.is_none() {
        cx.broken.insert(entry.key.clone());
    }
    axis
}

fn read(cx: &mut Context<'_>, entry: &Entry) -> Option<WireAxis> {
    if !check_name(cx, entry) {
        return None;
    }
    let node = &entry.value;
    let mut axis = WireAxis {
        name: Spanned::key(entry),
        values: Vec::new(),
        when: None,
        otherwise: None,
        at: node.at,
    };
    let Some(table) = node.table() else {
        axis.values = values(cx, node, &entry.key)?;
        return checked(cx, axis);
    };
    let mut section = Section::new(table, node.at, &entry.key);
    axis.when = section.read(cx, "when", expression);
    axis.otherwise = section.read(cx, "else", scalar);
    let found = form(cx, &mut section, &entry.key);
    section.finish(cx);
    axis.values = found?;
    checked(cx, axis)
}

/// Reads the one form that a table of an axis has.
fn form(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    name: &str,
) -> Option<Vec<Spanned<Value>>> {
    let mut given = Vec::new();
    for key in forms::FORMS.iter().copied() {
        if let Some(node) = section.take(cx, key) {
            given.push((key, node));
        }
    }
    let (form, node) = match *given {
        [one] => one,
        [] => {
            let message = format!("the axis `{name}` has no values");
            cx.report(Code::AxisForm, section.at, message)
                .label("no form of an axis")
                .help(format!(
                    "write a list, or a table with one of: {}",
                    forms::FORMS.join(" ")
                ));
            take_options(cx, section);
            return None;
        }
        [(first, _), (second, node), ..] => {
            let message = format!("the axis `{name}` has two forms");
            cx.report(Code::AxisForm, node.at, message)
                .label(format!("`{second}` besides `{first}`"))
                .help("an axis has one form; another axis or a zip can have the other");
            take_options(cx, section);
            return None;
        }
    };
    match form {
        "values" => values(cx, node, name),
        "csv" => forms::csv(cx, section, node),
        _ => forms::numbers(cx, section, form, node),
    }
}

/// Takes the options of all forms, so that only an option of no form is unknown.
fn take_options(cx: &mut Context<'_>, section: &mut Section<'_>) {
    for key in forms::OPTIONS.iter().copied() {
        section.take(cx, key);
    }
}

/// A list of values or a single one.
fn values(cx: &mut Context<'_>, node: &Node, name: &str) -> Option<Vec<Spanned<Value>>> {
    let items = node.items();
    let found: Vec<_> = items
        .iter()
        .filter_map(|item| scalar(cx, item, name))
        .collect();
    (found.len() == items.len()).then_some(found)
}

/// A single value.
pub(crate) fn scalar(cx: &mut Context<'_>, node: &Node, name: &str) -> Option<Spanned<Value>> {
    let value = match &node.raw {
        Raw::Bool(value) => Value::Bool(*value),
        Raw::Int(value) => Value::Int(*value),
        Raw::Float(value) => Value::Float(*value),
        Raw::Text(value) => Value::from(value.as_str()),
        Raw::Date | Raw::Array(_) | Raw::Table(_) => {
            cx.wrong_type(node, name, "numbers, strings and booleans");
            return None;
        }
    };
    Some(Spanned { value, at: node.at })
}

/// Checks that there are values, all of one kind. Repetitions stay: a case may tie the axis.
fn checked(cx: &mut Context<'_>, mut axis: WireAxis) -> Option<WireAxis> {
    let name = axis.name.value.clone();
    if axis.values.is_empty() {
        let message = format!("the axis `{name}` has no values");
        cx.report(Code::EmptyAxis, axis.at, message)
            .label("needs at least one");
        return None;
    }
    let mut column: Vec<&mut Spanned<Value>> = axis.values.iter_mut().collect();
    unify(cx, &name, &mut column)?;
    Some(axis)
}

/// Makes the values of one column one kind: integers among floats become floats.
fn unify(cx: &mut Context<'_>, name: &str, column: &mut [&mut Spanned<Value>]) -> Option<()> {
    let is_number = |value: &Value| matches!(value, Value::Int(_) | Value::Float(_));
    let any_float = column
        .iter()
        .any(|held| matches!(held.value, Value::Float(_)));
    let Some(first) = column.first().map(|held| held.value.clone()) else {
        return Some(());
    };
    for held in column {
        if let (Value::Int(value), true) = (&held.value, any_float) {
            held.value = Value::Float(*value as f64);
        }
        let same = held.value.kind() == first.kind();
        let both_numbers = is_number(&held.value) && is_number(&first);
        if !same && !both_numbers {
            let message = format!("the values of `{name}` are of several kinds");
            let label = format!(
                "{} after {}",
                article(held.value.kind()),
                article(first.kind()),
            );
            cx.report(Code::MixedKinds, held.at, message).label(label);
            return None;
        }
    }
    Some(())
}

/// Reads `[[zip]]`: axes that walk together.
pub(crate) fn zip(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    cases: WireCases,
) -> Option<WireTie> {
    let when = section.read(cx, "when", expression);
    let otherwise = section.take(cx, "else");
    let node = section.need(cx, "axes")?;
    let inner = cx.section(node, "axes")?;
    let names = inner.table.entries.iter().map(|entry| entry.key.clone());
    let tie = zipped(cx, node, &inner, when, otherwise);
    if tie.is_none() {
        cx.broken.extend(names);
    }
    tie.map(|tie| WireTie { cases, ..tie })
}

fn zipped(
    cx: &mut Context<'_>,
    node: &Node,
    inner: &Section<'_>,
    when: Option<WireText>,
    otherwise: Option<&Node>,
) -> Option<WireTie> {
    let entries = &inner.table.entries;
    let axes: Vec<_> = entries.iter().filter_map(|entry| tied(cx, entry)).collect();
    if axes.len() < entries.len() {
        return None;
    }
    let Some(first) = axes.first() else {
        cx.report(Code::EmptyAxis, node.at, "a zip without axes")
            .label("needs at least one");
        return None;
    };
    let length = first.values.len();
    for axis in &axes {
        if axis.values.len() != length {
            let message = format!(
                "tied axes have different lengths: `{}` {length}, `{}` {}",
                first.name.value,
                axis.name.value,
                axis.values.len(),
            );
            cx.report(Code::UnequalZip, axis.at, message)
                .label(format!("{} values, not {length}", axis.values.len()))
                .help("axes of a zip walk together, first with first; `[grid]` multiplies");
            return None;
        }
    }
    let rows = (0..length)
        .map(|row| axes.iter().map(|axis| axis.values[row].clone()).collect())
        .collect();
    let columns: Vec<_> = axes.into_iter().map(|axis| axis.name).collect();
    let otherwise = match otherwise {
        Some(node) => Some(tied_otherwise(cx, node, &columns)?),
        None => None,
    };
    Some(WireTie {
        cases: WireCases::default(),
        columns,
        rows,
        when,
        otherwise,
        at: node.at,
    })
}

/// An axis of a zip: it can have any form and repeated values, but no condition of its own.
fn tied(cx: &mut Context<'_>, entry: &Entry) -> Option<WireAxis> {
    if let Raw::Array(_) = entry.value.raw {
        if !check_name(cx, entry) {
            return None;
        }
        let mut found = values(cx, &entry.value, &entry.key)?;
        let mut column: Vec<&mut Spanned<Value>> = found.iter_mut().collect();
        unify(cx, &entry.key, &mut column)?;
        return Some(WireAxis {
            name: Spanned::key(entry),
            values: found,
            when: None,
            otherwise: None,
            at: entry.value.at,
        });
    }
    let axis = axis(cx, entry)?;
    if let Some(when) = &axis.when {
        let message = "an axis of a zip has no condition of its own";
        cx.report(Code::Conflict, when.at, message)
            .help("write `when` beside `axes`: it holds for all of them");
    }
    Some(axis)
}

fn tied_otherwise(
    cx: &mut Context<'_>,
    node: &Node,
    columns: &[Spanned<String>],
) -> Option<Vec<Spanned<Value>>> {
    let section = cx.section(node, "else")?;
    let mut found = Vec::new();
    for column in columns {
        let Some(entry) = section.table.get(&column.value) else {
            let message = format!("`else` has no value for `{}`", column.value);
            cx.report(Code::MissingKey, node.at, message);
            return None;
        };
        found.push(scalar(cx, &entry.value, &entry.key)?);
    }
    Some(found)
}
