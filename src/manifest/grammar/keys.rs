//! Keys of tables as data: the JSON Schema, the reference and the keys that are paths follow from
//! an entry.

use serde_json::{Map, Value, json};

use super::json::{described, expression, list, named, object, one_of, scalar, string, whole};

/// A key that a table may have.
#[derive(Clone, Copy)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) takes: Takes,
    /// Its meaning in one line.
    pub(crate) about: &'static str,
    pub(crate) is_needed: bool,
}

/// The values of a key.
#[derive(Clone, Copy)]
pub(crate) enum Takes {
    Text,
    /// A text that is printed so that it holds wherever it is read.
    Path,
    Flag,
    Number,
    /// A text, a number or a boolean.
    Scalar,
    Expression,
    Axis,
    /// An integer from this one.
    Whole(u64),
    Word(&'static [&'static str]),
    /// Values in a list, of which a single one may stand alone.
    List(&'static Takes),
    /// Values in a list.
    Array(&'static Takes),
    /// A table with keys that people name.
    Named(&'static Takes),
    Table(&'static [Key]),
    Either(&'static [Takes]),
    /// Whatever a schema says.
    Schema(fn() -> Value),
}

/// Tables of keys: `NAME { "key": what it takes, "its meaning"; ... }`, with `(needed)` after a key
/// that must be there.
macro_rules! keys {
    ($($(#[$doc:meta])* $table:ident {
        $($name:literal $(($needed:ident))?: $takes:expr, $about:literal;)*
    })*) => {
        $($(#[$doc])*
        pub(crate) const $table: &[$crate::grammar::keys::Key] = {
            use $crate::grammar::keys::{Key, Takes::*};
            &[$(Key {
                name: $name,
                takes: $takes,
                about: $about,
                is_needed: {
                    const MARKS: &[&str] = &[$(stringify!($needed))?];
                    !MARKS.is_empty()
                },
            },)*]
        };)*
    };
}
pub(crate) use keys;

impl Takes {
    /// The JSON Schema of the values.
    pub(crate) fn schema(&self) -> Value {
        match self {
            Takes::Text | Takes::Path => string(),
            Takes::Flag => json!({ "type": "boolean" }),
            Takes::Number => json!({ "type": "number" }),
            Takes::Scalar => scalar(),
            Takes::Expression => expression(),
            Takes::Axis => json!({ "$ref": "#/$defs/axis" }),
            Takes::Whole(least) => whole(*least),
            Takes::Word(words) => one_of(words),
            Takes::List(item) => list(item.schema()),
            Takes::Array(item) => json!({ "type": "array", "items": item.schema() }),
            Takes::Named(value) => named(value.schema()),
            Takes::Table(keys) => table(keys),
            Takes::Either(all) => {
                json!({ "anyOf": all.iter().map(Takes::schema).collect::<Vec<_>>() })
            }
            Takes::Schema(schema) => schema(),
        }
    }

    /// Calls `visit` with the tables among the values, and their paths below `path`.
    pub(crate) fn tables(&self, path: &str, visit: &mut impl FnMut(&str, &'static [Key])) {
        match self {
            Takes::Table(keys) => visit(path, keys),
            Takes::Named(inner) => inner.tables(&format!("{path}.Y"), visit),
            Takes::List(inner) | Takes::Array(inner) => inner.tables(path, visit),
            Takes::Either(all) => all.iter().for_each(|each| each.tables(path, visit)),
            _ => {}
        }
    }

    /// Whether its texts are paths.
    pub(crate) fn is_path(&self) -> bool {
        match self {
            Takes::Path => true,
            Takes::List(inner) | Takes::Named(inner) => inner.is_path(),
            _ => false,
        }
    }
}

/// The JSON Schema of a table with these keys.
pub(crate) fn table(keys: &[Key]) -> Value {
    let needed = keys.iter().filter(|key| key.is_needed);
    let needed: Vec<&str> = needed.map(|key| key.name).collect();
    let schema = |key: &Key| {
        (
            key.name.to_owned(),
            described(key.takes.schema(), key.about),
        )
    };
    let properties: Map<String, Value> = keys.iter().map(schema).collect();
    object(Value::Object(properties), &needed)
}

/// Whether the texts of a key are paths, if it is one of these.
pub(crate) fn is_path(tables: &[&[Key]], name: &str) -> bool {
    let mut keys = tables.iter().copied().flatten();
    keys.any(|key| key.name == name && key.takes.is_path())
}
