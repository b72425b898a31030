//! What a case makes of the zips and tables that all cases share: axes of its own take the place of tied ones.
//!
//! Axes that stay tied walk together, so an axis that a case overrides alone must have as many values as those
//! that it is tied to; a case that overrides all of them says a new length.

use super::axis::WireAxis;
use super::diagnostics::Code;
use super::section::{Context, Spanned};
use super::wire::{WireCase, WireTie};

/// The tie as this case has it: none where a zip or table of the case takes its place, or where what the case
/// says does not fit, which is reported.
pub(super) fn retied(
    cx: &mut Context<'_>,
    tie: &WireTie,
    wire: &WireCase,
    own: &[&WireAxis],
) -> Option<WireTie> {
    let is_tied_again = |column: &Spanned<String>| {
        let mut columns = wire.scope.ties.iter().flat_map(|own| &own.columns);
        columns.any(|own| own.value == column.value)
    };
    let again = tie.columns.iter().filter(|column| is_tied_again(column));
    match again.count() {
        0 => overridden(cx, tie, own),
        count if count == tie.columns.len() => None,
        _ => {
            left_behind(cx, tie, wire);
            None
        }
    }
}

/// A zip of the case takes some axes away from a shared one, whose others are left without partners.
fn left_behind(cx: &mut Context<'_>, tie: &WireTie, wire: &WireCase) {
    let is_tied = |column: &Spanned<String>| {
        let mut shared = tie.columns.iter();
        shared.any(|shared| shared.value == column.value)
    };
    let own: Vec<_> = wire
        .scope
        .ties
        .iter()
        .flat_map(|own| &own.columns)
        .collect();
    let Some(taken) = own.iter().find(|column| is_tied(column)) else {
        return;
    };
    let left = tie.columns.iter();
    let left = left.filter(|column| own.iter().all(|own| own.value != column.value));
    let left = names(left);
    let before = cx.name_of(tie.at);
    let message = format!(
        "`{}` was tied to {left}, which this case does not tie",
        taken.value
    );
    cx.report(Code::AxisTwice, taken.at, message)
        .label(format!("tied first at {before}"))
        .help(format!("give {left} in a zip of this case too"));
    cx.broken
        .extend(tie.columns.iter().map(|column| column.value.clone()));
}

/// The tie with the case's values in the columns that it overrides.
fn overridden(cx: &mut Context<'_>, tie: &WireTie, own: &[&WireAxis]) -> Option<WireTie> {
    let columns: Vec<Option<&WireAxis>> = tie
        .columns
        .iter()
        .map(|column| {
            own.iter()
                .copied()
                .find(|axis| axis.name.value == column.value)
        })
        .collect();
    let Some(first) = columns.iter().flatten().next() else {
        return Some(tie.clone());
    };
    let is_replaced = columns.iter().all(Option::is_some);
    let (length, of) = if is_replaced {
        (first.values.len(), format!("`{}`", first.name.value))
    } else {
        let kept = tie.columns.iter().zip(&columns);
        let kept = kept.filter(|(_, axis)| axis.is_none());
        (tie.rows.len(), names(kept.map(|(column, _)| column)))
    };
    let mut fits = true;
    for axis in columns.iter().flatten() {
        fits &= fitting(cx, axis, tie, length, &of);
    }
    if !fits {
        let broken = tie.columns.iter().map(|column| column.value.clone());
        cx.broken.extend(broken);
        return None;
    }
    let rows = (0..length).map(|row| {
        let cells = columns.iter().enumerate();
        cells
            .map(|(column, axis)| match axis {
                Some(axis) => axis.values[row].clone(),
                None => tie.rows[row][column].clone(),
            })
            .collect()
    });
    let names = tie.columns.iter().zip(&columns);
    let names = names.map(|(column, axis)| axis.map_or(column, |axis| &axis.name));
    Some(WireTie {
        columns: names.cloned().collect(),
        rows: rows.collect(),
        when: tie.when.clone(),
        otherwise: tie.otherwise.clone(),
        at: first.at,
    })
}

/// Whether an axis of a case can walk together with those `of` a tie, which have `length` values.
fn fitting(cx: &mut Context<'_>, axis: &WireAxis, tie: &WireTie, length: usize, of: &str) -> bool {
    if let Some(when) = &axis.when {
        let message = "a tied axis has no condition of its own";
        let before = cx.name_of(tie.at);
        cx.report(Code::Conflict, when.at, message)
            .label(format!("tied at {before}"))
            .help("tie the axes in a zip of this case, with `when` beside `axes`");
        return false;
    }
    let found = axis.values.len();
    if found == length {
        return true;
    }
    let (name, before) = (&axis.name.value, cx.name_of(tie.at));
    let message = format!(
        "tied axes have different lengths: `{name}` {found}, {of} {length} (tied at {before})"
    );
    let all = names(tie.columns.iter());
    cx.report(Code::UnequalZip, axis.at, message)
        .label(format!("{} not {length}", counted(found)))
        .help(format!(
            "give `{name}` {length} values, or give all of {all} in this case, as many values each"
        ));
    false
}

fn counted(values: usize) -> String {
    match values {
        1 => "1 value,".to_owned(),
        more => format!("{more} values,"),
    }
}

/// Names as a text shows them.
fn names<'a>(columns: impl Iterator<Item = &'a Spanned<String>>) -> String {
    let names: Vec<String> = columns
        .map(|column| format!("`{}`", column.value))
        .collect();
    names.join(", ")
}
