//! The few words of JSON Schema that ours uses.

use serde_json::{Value, json};

use sweeper_model::word::Word;

pub(crate) fn string() -> Value {
    json!({ "type": "string" })
}

/// An integer from `minimum`.
pub(crate) fn whole(minimum: u64) -> Value {
    json!({ "type": "integer", "minimum": minimum })
}

/// A number over zero.
pub(crate) fn positive() -> Value {
    json!({ "type": "number", "exclusiveMinimum": 0 })
}

pub(crate) fn scalar() -> Value {
    json!({ "$ref": "#/$defs/scalar" })
}

pub(crate) fn expression() -> Value {
    json!({ "$ref": "#/$defs/expression" })
}

pub(crate) fn words<W: Word>() -> Value {
    let words: Vec<&str> = W::WORDS.iter().map(|(word, _)| *word).collect();
    one_of(&words)
}

pub(crate) fn one_of(words: &[&str]) -> Value {
    json!({ "enum": words })
}

/// The schema of a word, or of `other`.
pub(crate) fn word_or(word: &str, other: Value) -> Value {
    json!({ "anyOf": [{ "const": word }, other] })
}

/// A list of items; a single one is a list of one.
pub(crate) fn list(item: Value) -> Value {
    json!({ "anyOf": [item.clone(), { "type": "array", "items": item }] })
}

pub(crate) fn object(properties: Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    })
}

/// A table with keys that people name.
pub(crate) fn named(value: Value) -> Value {
    json!({ "type": "object", "additionalProperties": value })
}

pub(crate) fn described(mut schema: Value, description: &str) -> Value {
    if let Some(object) = schema.as_object_mut() {
        object.insert("description".to_owned(), description.into());
    }
    schema
}
