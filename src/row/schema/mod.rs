//! The columns of `records.csv`: one [`Column`] for each, in the order of the file.
//!
//! All that writes, reads, shows or documents columns follows from this table: `records.csv`, the typed
//! exports, the reader of reports, their page, and `docs/records.md`. A new column is a field of the row
//! and an entry here.

mod check;
mod docs;
mod field;
mod identity;
mod memory;
mod program;
mod times;

use std::borrow::Cow;

use sweeper_kernels::Value;
use sweeper_kernels::program::Role;

use super::entry::{Entry, Times};
use super::lines::TableError;
use super::outcome::Measurement;

pub use self::docs::markdown;
pub(crate) use self::field::Field;

/// Version of the format of `records.csv`; its column `schema` in every line. It grows when a column
/// goes or changes its meaning, not when one is added.
pub const SCHEMA: u32 = 1;

/// Before the name of a parameter, axis or derived value that is called like a column of every file.
const AXIS_PREFIX: &str = "axis_";

/// The type of a column's fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Words.
    Text,
    /// A SHA-256 in 64 hex digits.
    Digest,
    /// Whole numbers of 64 bits.
    Int,
    /// Numbers of 64 bits.
    Float,
    /// `true` or `false`.
    Bool,
}

impl Kind {
    /// The word of documents.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Text | Kind::Digest => "text",
            Kind::Int => "integer",
            Kind::Float => "number",
            Kind::Bool => "boolean",
        }
    }
}

/// The subject of a column; the column chooser of a report's page groups by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// What tells points apart.
    Axis,
    /// What became of a point.
    Result,
    /// Statistics of its samples.
    Statistic,
    /// Bytes.
    Memory,
    /// What its program does, and how it was checked.
    Program,
    /// Digests, and the time of day.
    Identity,
}

impl Group {
    /// The word in the page's data.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Axis => "axis",
            Group::Result => "result",
            Group::Statistic => "statistic",
            Group::Memory => "memory",
            Group::Program => "program",
            Group::Identity => "identity",
        }
    }
}

/// Takes a column's value from a `T`; none where the field is empty.
type Get<T> = fn(&T) -> Option<Value>;

/// Puts a field into a `T`, which stays as it is where the field is empty.
type Set<T> = fn(&mut T, &mut Field<'_>) -> Result<(), TableError>;

/// Where the values of a column are.
#[derive(Clone, Copy, Debug)]
enum Access {
    /// Follows from other columns, or is read before all of them.
    Written(Get<Entry>),
    /// In the row itself.
    Entry(Get<Entry>, Set<Entry>),
    /// In the statistics of rows that have some.
    Times(Get<Times>, Set<Times>),
    /// In the measurement of rows that have one.
    Measurement(Get<Measurement>, Set<Measurement>),
    /// The bytes of the program's buffers of a role.
    Memory(Role),
}

/// A column that every `records.csv` has.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its name.
    pub name: &'static str,
    /// The type of its fields.
    pub kind: Kind,
    /// The unit; empty for words and counts.
    pub unit: &'static str,
    /// Its meaning, as the rest of a sentence, with names between backquotes.
    pub meaning: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// Its place on the page; none if the page does without it.
    pub group: Option<Group>,
    access: Access,
}

impl Column {
    /// The value of a row; none where its field is empty.
    pub fn get(&self, entry: &Entry) -> Option<Value> {
        match self.access {
            Access::Written(get) | Access::Entry(get, _) => get(entry),
            Access::Times(get, _) => get(entry.times.as_ref()?),
            Access::Measurement(get, _) => get(entry.measurement.as_ref()?),
            Access::Memory(role) => entry.memory.by_role.get(&role).and_then(|&held| int(held)),
        }
    }

    /// The text of a row's field.
    pub fn text(&self, entry: &Entry) -> String {
        match self.get(entry) {
            None => String::new(),
            Some(Value::Float(number)) => number.to_string(),
            Some(value) => value.to_string(),
        }
    }

    /// Reads a field into a row. Statistics and measurements are read of rows that have some already.
    ///
    /// # Errors
    /// If the field is not what it should be.
    pub(crate) fn read(&self, entry: &mut Entry, field: &mut Field<'_>) -> Result<(), TableError> {
        match self.access {
            Access::Written(_) => Ok(()),
            Access::Entry(_, set) => set(entry, field),
            Access::Times(_, set) => entry.times.as_mut().map_or(Ok(()), |held| set(held, field)),
            Access::Measurement(_, set) => match &mut entry.measurement {
                Some(held) => set(held, field),
                None => Ok(()),
            },
            Access::Memory(role) => {
                if let Some(bytes) = field.count()? {
                    entry.memory.by_role.insert(role, bytes);
                }
                Ok(())
            }
        }
    }
}

/// The columns before those of parameters, axes and derived values.
pub const BEFORE_NAMED: &[Column] = identity::IDENTITY;

/// The columns after those of parameters, axes and derived values.
const AFTER_NAMED: [&[Column]; 10] = [
    identity::CONDITIONS,
    identity::OUTCOME,
    times::STATISTICS,
    times::STARTING,
    program::WORK,
    memory::PEAKS,
    program::COMPILING,
    check::CHECK,
    memory::BY_ROLE,
    identity::ORIGIN,
];

/// The columns after those of parameters, axes and derived values, in the order of the file.
pub fn after_named() -> impl Iterator<Item = &'static Column> {
    AFTER_NAMED.into_iter().flatten()
}

/// All columns, in the order of the file; parameters, axes and derived values stand among them, under
/// their own names.
pub fn columns() -> impl Iterator<Item = &'static Column> {
    BEFORE_NAMED.iter().chain(after_named())
}

/// True for the columns that every `records.csv` has; the others are parameters, axes and derived
/// values.
fn is_fixed(name: &str) -> bool {
    columns().any(|column| column.name == name)
}

/// The column of a parameter, axis or derived value: its name, after `axis_` where a column that every
/// `records.csv` has is called like that (`n` of a product, and the number of samples).
pub fn axis_column(name: &str) -> Cow<'_, str> {
    match is_fixed(name) {
        true => Cow::Owned(format!("{AXIS_PREFIX}{name}")),
        false => Cow::Borrowed(name),
    }
}

/// The parameter, axis or derived value that a column holds; none for columns that every file has.
pub fn axis_of_column(column: &str) -> Option<&str> {
    match column.strip_prefix(AXIS_PREFIX) {
        Some(name) if is_fixed(name) => Some(name),
        _ => (!is_fixed(column)).then_some(column),
    }
}

fn int(number: impl TryInto<i64>) -> Option<Value> {
    number.try_into().ok().map(Value::Int)
}

fn float(number: f64) -> Option<Value> {
    Some(Value::Float(number))
}

fn word(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| Value::from(text))
}

/// Puts what was read, if anything was.
fn put<V, T: From<V>>(
    place: &mut T,
    read: Result<Option<V>, TableError>,
) -> Result<(), TableError> {
    if let Some(value) = read? {
        *place = value.into();
    }
    Ok(())
}

/// Of columns that another one's function reads too.
fn with_another<T>(_: &mut T, _: &mut Field<'_>) -> Result<(), TableError> {
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

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
