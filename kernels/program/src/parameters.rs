//! Parameters of a workload: named values, as a manifest gives them.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// One value of an axis or a parameter.
///
/// In formats that people read it is the bare value; in others its kind is kept beside it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// True or false.
    Bool(bool),
    /// A whole number.
    Int(i64),
    /// A real number; never NaN.
    Float(f64),
    /// A word, such as the name of a semiring.
    Text(Arc<str>),
}

impl Value {
    /// The kind of the value in the words of error messages.
    pub fn kind(&self) -> &'static str {
        match self {
            Value::Bool(_) => "boolean",
            Value::Int(_) => "integer",
            Value::Float(_) => "float",
            Value::Text(_) => "string",
        }
    }

    /// The whole number, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        match self {
            Value::Int(value) => Some(*value),
            _ => None,
        }
    }

    /// The word, if it is one.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Value::Text(value) => Some(value),
            _ => None,
        }
    }
}

#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Bare {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Arc<str>),
}

#[derive(Serialize, Deserialize)]
enum Tagged {
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(Arc<str>),
}

macro_rules! forms {
    ($($form:ident),*) => {$(
        impl From<&Value> for $form {
            fn from(value: &Value) -> Self {
                match value {
                    Value::Bool(value) => $form::Bool(*value),
                    Value::Int(value) => $form::Int(*value),
                    Value::Float(value) => $form::Float(*value),
                    Value::Text(value) => $form::Text(Arc::clone(value)),
                }
            }
        }

        impl From<$form> for Value {
            fn from(form: $form) -> Self {
                match form {
                    $form::Bool(value) => Value::Bool(value),
                    $form::Int(value) => Value::Int(value),
                    $form::Float(value) => Value::Float(value),
                    $form::Text(value) => Value::Text(value),
                }
            }
        }
    )*};
}
forms!(Bare, Tagged);

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            Bare::from(self).serialize(serializer)
        } else {
            Tagged::from(self).serialize(serializer)
        }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            Bare::deserialize(deserializer).map(Value::from)
        } else {
            Tagged::deserialize(deserializer).map(Value::from)
        }
    }
}

impl From<i64> for Value {
    fn from(value: i64) -> Self {
        Value::Int(value)
    }
}

impl From<&str> for Value {
    fn from(value: &str) -> Self {
        Value::Text(value.into())
    }
}

/// Integers and words print bare; floats always show that they are floats (`1.0`, `1e-5`).
impl fmt::Display for Value {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Value::Bool(value) => write!(out, "{value}"),
            Value::Int(value) => write!(out, "{value}"),
            Value::Float(value) => write!(out, "{value:?}"),
            Value::Text(value) => out.write_str(value),
        }
    }
}

/// A set of named values, kept sorted by name so that no order of insertion can reach an identity.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Parameters {
    entries: Vec<(Arc<str>, Value)>,
}

impl Parameters {
    /// No parameters.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets `name`, replacing an earlier value.
    pub fn set(&mut self, name: impl Into<Arc<str>>, value: impl Into<Value>) {
        let name = name.into();
        match self.entries.binary_search_by(|(held, _)| held.cmp(&name)) {
            Ok(index) => self.entries[index].1 = value.into(),
            Err(index) => self.entries.insert(index, (name, value.into())),
        }
    }

    /// The value of `name`, if it was set.
    pub fn get(&self, name: &str) -> Option<&Value> {
        let index = self
            .entries
            .binary_search_by(|(held, _)| held.as_ref().cmp(name))
            .ok()?;
        Some(&self.entries[index].1)
    }

    /// All entries, by name in ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&Arc<str>, &Value)> {
        self.entries.iter().map(|(name, value)| (name, value))
    }
}

impl<N: Into<Arc<str>>, V: Into<Value>> FromIterator<(N, V)> for Parameters {
    fn from_iter<I: IntoIterator<Item = (N, V)>>(entries: I) -> Self {
        let mut parameters = Parameters::new();
        for (name, value) in entries {
            parameters.set(name, value);
        }
        parameters
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_insertion_does_not_matter() {
        let one: Parameters = [("T", 4), ("K", 2)].into_iter().collect();
        let other: Parameters = [("K", 2), ("T", 4)].into_iter().collect();
        assert_eq!(one, other);
        assert_eq!(one.get("T"), Some(&Value::Int(4)));
        assert_eq!(one.get("C"), None);
    }

    #[test]
    fn a_float_shows_that_it_is_one() {
        assert_eq!(Value::Float(1.0).to_string(), "1.0");
        assert_eq!(Value::Int(1).to_string(), "1");
    }
}
