//! The table of `docs/records.md`.

use super::{AFTER_NAMED, BEFORE_NAMED, Column};

/// The line of the columns that differ from run to run.
const NAMED: &str = "| *parameters, axes, derived values* | as they are | | \
         each under its own name, after `axis_` where another column is called like that (`axis_n`); parameters first, \
         by name | manifest |";

/// The columns as a table in Markdown.
pub fn markdown() -> String {
    let mut lines = vec![
        "| column | kind | unit | meaning | source |".to_owned(),
        "|---|---|---|---|---|".to_owned(),
    ];
    lines.extend(BEFORE_NAMED.iter().map(line));
    lines.push(NAMED.to_owned());
    lines.extend(AFTER_NAMED.into_iter().flatten().map(line));
    lines.push(String::new());
    lines.join("\n")
}

fn line(column: &Column) -> String {
    format!(
        "| `{}` | {} | {} | {} | {} |",
        column.name,
        column.kind.name(),
        column.unit,
        column.meaning,
        column.source
    )
}
