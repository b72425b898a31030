//! The columns of `records.csv`: one [`Column`] for each, in the order of the file.
//!
//! All that writes, reads, shows or documents columns follows from this table: `records.csv`, the
//! typed exports, the reader of reports, their page, and `docs/records.md`. A new column is a field
//! of the row and an entry here.

mod check;
mod column;
mod docs;
mod field;
mod hot;
mod identity;
mod memory;
pub mod metric;
mod program;
mod times;

use std::borrow::Cow;

pub use self::column::{Column, Group, Kind};
pub use self::docs::markdown;
pub use self::field::Field;
pub use self::metric::MetricColumn;

/// Version of the format of `records.csv`; its column `schema` in every line. It grows when a
/// column goes or changes its meaning, not when one is added.
pub const SCHEMA: u32 = 1;

/// Before the name of a parameter, axis or derived value that is called like a column of every
/// file.
const AXIS_PREFIX: &str = "axis_";

/// The columns before those of parameters, axes and derived values.
pub const BEFORE_NAMED: &[Column] = identity::IDENTITY;

/// The columns after those of parameters, axes and derived values.
const AFTER_NAMED: [&[Column]; 11] = [
    identity::CONDITIONS,
    identity::OUTCOME,
    times::STATISTICS,
    times::STARTING,
    program::WORK,
    memory::PEAKS,
    program::COMPILING,
    hot::HOT,
    check::CHECK,
    memory::BY_ROLE,
    identity::ORIGIN,
];

/// The columns after those of parameters, axes and derived values, in the order of the file.
pub fn after_named() -> impl Iterator<Item = &'static Column> {
    AFTER_NAMED.into_iter().flatten()
}

/// All columns, in the order of the file; parameters, axes and derived values stand among them,
/// under their own names.
pub fn columns() -> impl Iterator<Item = &'static Column> {
    BEFORE_NAMED.iter().chain(after_named())
}

/// True for the columns that every `records.csv` has; the others are parameters, axes and derived
/// values.
fn is_fixed(name: &str) -> bool {
    columns().any(|column| column.name == name)
}

/// The column of a parameter, axis or derived value: its name, after `axis_` where a column that
/// every `records.csv` has is called like that (`n` of a product, and the number of samples).
pub fn axis_column(name: &str) -> Cow<'_, str> {
    match is_fixed(name) || name.starts_with(metric::PREFIX) {
        true => Cow::Owned(format!("{AXIS_PREFIX}{name}")),
        false => Cow::Borrowed(name),
    }
}

/// The parameter, axis or derived value that a column holds; none for columns that every file has.
pub fn axis_of_column(column: &str) -> Option<&str> {
    match column.strip_prefix(AXIS_PREFIX) {
        Some(name) if is_fixed(name) || name.starts_with(metric::PREFIX) => Some(name),
        _ => (!is_fixed(column) && !column.starts_with(metric::PREFIX)).then_some(column),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use sweeper_program::Role;

    use super::*;

    #[test]
    fn every_column_has_a_name_of_its_own_and_words() {
        let mut names = BTreeSet::new();
        for column in columns() {
            assert!(names.insert(column.name), "{}", column.name);
            assert!(
                !column.meaning.is_empty() && !column.source.is_empty(),
                "{}",
                column.name
            );
        }
        for role in Role::ALL {
            assert!(names.contains(format!("memory_{}_bytes", role.name()).as_str()));
        }
    }

    #[test]
    fn axes_that_are_called_like_columns_get_a_prefix() {
        assert_eq!(
            (axis_column("n"), axis_column("T")),
            ("axis_n".into(), "T".into())
        );
        assert_eq!(axis_of_column("axis_n"), Some("n"));
        assert_eq!(axis_of_column("axis_T"), Some("axis_T"));
        assert_eq!(axis_of_column("median_ns"), None);
    }
}
