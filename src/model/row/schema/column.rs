//! A column: its name, kind, unit and meaning, and where its values are.

use sweeper_program::{Role, Value};

use super::Field;
use crate::row::entry::{Entry, Times};
use crate::row::lines::TableError;
use crate::row::measured::Measured;

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
    /// Values that tell points apart.
    Axis,
    /// The result of a point.
    Result,
    /// Statistics of its samples.
    Statistic,
    /// Bytes.
    Memory,
    /// The work of its program, and how it was checked.
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
    Measurement(Get<Measured>, Set<Measured>),
    /// The bytes of the program's buffers of a role.
    Memory(Role),
}

/// A column that every `records.csv` has.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Name of the column.
    pub name: &'static str,
    /// The type of its fields.
    pub kind: Kind,
    /// The unit; empty for words and counts.
    pub unit: &'static str,
    /// Meaning of the column, as the rest of a sentence, with names between backquotes.
    pub meaning: &'static str,
    /// Where it comes from.
    pub source: &'static str,
    /// The column's place on the page; none if the page does without it.
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

    /// The text of a row's field. Whole reals have a point: readers that guess types from the first
    /// rows would take the column for one of whole numbers.
    pub fn text(&self, entry: &Entry) -> String {
        let value = self.get(entry);
        value.map(|value| value.to_string()).unwrap_or_default()
    }

    /// Reads a field into a row. Statistics and measurements are read of rows that have some
    /// already.
    ///
    /// # Errors
    /// If the field is not a value of the column.
    pub fn read(&self, entry: &mut Entry, field: &mut Field<'_>) -> Result<(), TableError> {
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

/// A column without its access.
#[derive(Clone, Copy)]
pub(super) struct Described {
    name: &'static str,
    kind: Kind,
    unit: &'static str,
    meaning: &'static str,
    source: &'static str,
    group: Option<Group>,
}

macro_rules! described {
    ($function:ident, $kind:ident, $what:literal) => {
        #[doc = concat!("A column of ", $what, ": its name, meaning and source.")]
        pub(super) const fn $function(
            name: &'static str,
            meaning: &'static str,
            source: &'static str,
        ) -> Described {
            Described {
                name,
                kind: Kind::$kind,
                unit: "",
                meaning,
                source,
                group: None,
            }
        }
    };
}

described!(text, Text, "words");
described!(digest, Digest, "digests");
described!(count, Int, "whole numbers");
described!(number, Float, "numbers");

impl Described {
    /// With a unit.
    pub(super) const fn unit(self, unit: &'static str) -> Self {
        Described { unit, ..self }
    }

    /// On the page, in this group.
    pub(super) const fn group(self, group: Group) -> Self {
        Described {
            group: Some(group),
            ..self
        }
    }

    /// A value that follows from other columns, or is read before all of them.
    pub(super) const fn written(self, get: Get<Entry>) -> Column {
        self.column(Access::Written(get))
    }

    /// A value of the row itself.
    pub(super) const fn of_entry(self, get: Get<Entry>, set: Set<Entry>) -> Column {
        self.column(Access::Entry(get, set))
    }

    /// A value of the statistics.
    pub(super) const fn of_times(self, get: Get<Times>, set: Set<Times>) -> Column {
        self.column(Access::Times(get, set))
    }

    /// A value of the measurement.
    pub(super) const fn of_measurement(self, get: Get<Measured>, set: Set<Measured>) -> Column {
        self.column(Access::Measurement(get, set))
    }

    /// The bytes of the program's buffers of a role.
    pub(super) const fn of_role(self, role: Role) -> Column {
        self.column(Access::Memory(role))
    }

    const fn column(self, access: Access) -> Column {
        Column {
            name: self.name,
            kind: self.kind,
            unit: self.unit,
            meaning: self.meaning,
            source: self.source,
            group: self.group,
            access,
        }
    }
}

pub(super) fn int(number: impl TryInto<i64>) -> Option<Value> {
    number.try_into().ok().map(Value::Int)
}

pub(super) fn float(number: f64) -> Option<Value> {
    Some(Value::Float(number))
}

pub(super) fn word(text: &str) -> Option<Value> {
    (!text.is_empty()).then(|| Value::from(text))
}

/// Stores a value that was read, if there was one.
pub(super) fn put<V, T: From<V>>(
    place: &mut T,
    read: Result<Option<V>, TableError>,
) -> Result<(), TableError> {
    if let Some(value) = read? {
        *place = value.into();
    }
    Ok(())
}

/// Reads nothing: the field is read together with that of another column.
pub(super) fn with_another<T>(_: &mut T, _: &mut Field<'_>) -> Result<(), TableError> {
    Ok(())
}
