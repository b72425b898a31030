//! Axes that walk together, and the choice of the zips that a case has.

use crate::grammar::axis::{WireAxis, WireCases, WireTie};
use crate::grammar::section::{Context, Spanned};
use crate::grammar::wire::WireCase;
use crate::text::diagnostics::Code;
use sweeper_model::toml_text;

/// The longest list of values that a line of help spells out.
const MAX_SPELT: usize = 16;

/// A plain axis as a tie of one column.
pub(crate) fn tie_of(axis: &WireAxis) -> WireTie {
    WireTie {
        cases: WireCases::default(),
        columns: vec![axis.name.clone()],
        rows: axis
            .values
            .iter()
            .map(|value| vec![value.clone()])
            .collect(),
        when: axis.when.clone(),
        otherwise: axis.otherwise.clone().map(|value| vec![value]),
        at: axis.at,
    }
}

impl WireTie {
    /// The index of the column called `name`.
    pub(crate) fn column(&self, name: &str) -> Option<usize> {
        let mut columns = self.columns.iter();
        columns.position(|column| column.value == name)
    }

    /// The values of a column as TOML, where they are few.
    fn values(&self, column: usize) -> String {
        if self.rows.len() > MAX_SPELT {
            return "[...]".to_owned();
        }
        let rows = self.rows.iter();
        let values: Vec<String> = rows
            .map(|row| toml_text::value(&row[column].value))
            .collect();
        format!("[{}]", values.join(", "))
    }
}

/// Whether a shared zip holds in a case, whose own plain axes are `own`.
///
/// A zip of the case with all axes of the shared zip replaces it. A case that gives only some of
/// these axes, or does not tie them, is reported: the other axes would be left alone.
pub(crate) fn stands(
    cx: &mut Context<'_>,
    shared: &WireTie,
    wire: &WireCase,
    own: &[&WireAxis],
) -> bool {
    let zips = &wire.scope.ties;
    let is_tied_again =
        |column: &Spanned<String>| zips.iter().any(|zip| zip.column(&column.value).is_some());
    if shared.columns.iter().all(is_tied_again) {
        return false;
    }
    let plain: Vec<WireTie> = own.iter().map(|axis| tie_of(axis)).collect();
    let own: Vec<&WireTie> = plain.iter().chain(zips).collect();
    let mut names = own.iter().flat_map(|own| &own.columns);
    let Some(taken) = names.find(|name| shared.column(&name.value).is_some()) else {
        return true;
    };
    let length = own
        .iter()
        .find(|own| own.column(&taken.value).is_some())
        .map_or(0, |own| own.rows.len());
    let axes = shared.columns.iter().map(|name| {
        // The case's own values, and the shared values that fit them.
        let mut all = own.iter().copied().chain([shared]);
        let held = all.find_map(|held| Some((held, held.column(&name.value)?)));
        let held = held.filter(|(held, _)| held.rows.len() == length);
        let values = held.map_or("[...]".to_owned(), |(held, column)| held.values(column));
        format!("{} = {values}", name.value)
    });
    let axes: Vec<String> = axes.collect();
    let before = cx.name_of(shared.at);
    let message = format!("`{}` is tied to others by a shared zip", taken.value);
    cx.report(Code::AxisTwice, taken.at, message)
        .label(format!("tied at {before}"))
        .help(format!(
            "write a zip of this case, which takes its place: `[[case.{}.zip]]` with \
             `axes = {{ {} }}`",
            wire.name.value,
            axes.join(", ")
        ));
    let names = shared.columns.iter().map(|name| name.value.clone());
    cx.broken.extend(names);
    false
}
