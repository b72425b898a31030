//! The tables that the page carries as they are: what rows alone do not tell.

use serde_json::{Value, json};

use super::super::table::{Table, render};

/// A table of a section, which is empty for those of all rows.
pub struct Shown {
    /// The words that its rows have in common: `workload = gelu`.
    pub section: String,
    /// The table.
    pub table: Table,
}

/// What the page's script makes a table of.
pub(super) fn describe(shown: &Shown) -> Value {
    let table = &shown.table;
    let mut lines = render::texts(table).into_iter();
    let header = lines.next().unwrap_or_default();
    let numeric = (0..header.len()).filter(|&column| render::is_number(table, column));
    json!({
        "name": table.name,
        "section": shown.section,
        "title": table.title.replace('`', ""),
        "header": header,
        "numeric": numeric.collect::<Vec<_>>(),
        "rows": lines.collect::<Vec<_>>(),
        "notes": table.notes.iter().map(|note| note.replace('`', "")).collect::<Vec<_>>(),
    })
}
