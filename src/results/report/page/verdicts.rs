//! The tables that the page shows unchanged: results that its script can't make from rows alone.

use serde_json::{Value, json};

use super::super::table::{Table, render};

/// A table of a section; the section is empty for a table of all rows.
pub struct Shown {
    /// The words that its rows share: `workload = gelu`.
    pub section: String,
    /// The table.
    pub table: Table,
}

/// The JSON from which the page's script makes a table.
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
