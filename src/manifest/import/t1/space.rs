//! The space of configurations: tuned values, and the conditions that hold in it.

use std::fmt::Write;

use super::file::Space;
use crate::import::python::Object;
use sweeper_model::expression::{Expression, FaultKind, Kind, Known, Scope, Tree};
use sweeper_model::toml_text::{in_comment, key, string};

/// `tune`, `require` and `defines`.
pub(super) fn space(out: &mut String, space: &Space, tuned: &[(String, Vec<Object>)]) {
    let values = |values: &[Object]| {
        let values = values.iter().map(|value| match value {
            Object::Int(value) => value.to_string(),
            Object::Float(value) => format!("{value:?}"),
            Object::Bool(value) => i64::from(*value).to_string(),
            Object::Text(text) => string(text),
            Object::List(_) => "0".to_owned(),
        });
        values.collect::<Vec<_>>().join(", ")
    };
    out.push_str("defines  = { kernel_tuner = 1");
    for (name, _) in tuned {
        let _ = write!(out, ", {} = {}", key(name), string(name));
    }
    out.push_str(" }\nrequire  = [\n");
    for condition in &space.conditions {
        let text = &condition.expression;
        let by_truth = with_truth_values(text, tuned);
        let _ = match objection(text, tuned) {
            None => writeln!(out, "    {},", string(text)),
            Some(_) if objection(&by_truth, tuned).is_none() => {
                writeln!(out, "    {},", string(&by_truth))
            }
            Some(why) => {
                let left_out = in_comment(&format!("{why}: {}", condition.expression));
                writeln!(out, "    # ? left out, {left_out}")
            }
        };
    }
    out.push_str("]\n");
    for (name, list) in tuned {
        // The first configuration is the default one.
        let _ = writeln!(out, "tune.{} = [{}]", key(name), values(list));
    }
}

/// A condition with names of true and false compared with 1, which macros of kernels have.
fn with_truth_values(text: &str, tuned: &[(String, Vec<Object>)]) -> String {
    let is_truth = |word: &str| {
        let mut named = tuned.iter().filter(|(name, _)| name == word);
        named.any(|(_, values)| values.iter().all(|value| matches!(value, Object::Bool(_))))
    };
    let is_in_word = |c: char| c == '_' || c.is_alphanumeric();
    let mut found = String::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let end = match is_in_word(first) {
            true => rest.find(|c| !is_in_word(c)).unwrap_or(rest.len()),
            false => first.len_utf8(),
        };
        let (word, behind) = rest.split_at(end);
        match is_truth(word) {
            true => {
                let _ = write!(found, "({word} == 1)");
            }
            false => found.push_str(word),
        }
        rest = behind;
    }
    found
}

/// Why a condition over tuned values is none, if it is not.
fn objection(text: &str, tuned: &[(String, Vec<Object>)]) -> Option<String> {
    let tree = match Tree::parse(text) {
        Ok(tree) => tree,
        Err(error) => return Some(error.message),
    };
    let kind = |values: &[Object]| match values.first() {
        Some(Object::Float(_)) => Kind::Float,
        Some(Object::Text(_)) => Kind::Text,
        // Macros of kernels are 1 and 0.
        _ => Kind::Int,
    };
    let names = tuned.iter();
    let names = names.map(|(name, values)| Known {
        name: name.as_str().into(),
        kind: kind(values),
        words: None,
    });
    let scope = Scope {
        names: names.collect(),
    };
    match Expression::compile("", &tree, &scope) {
        Ok(found) if found.kind() == Kind::Bool => None,
        Ok(_) => Some("it is neither true nor false".to_owned()),
        Err(faults) => Some(match faults.into_iter().next().map(|fault| fault.kind) {
            Some(FaultKind::Mismatch(why)) => why,
            Some(FaultKind::UnknownName(name)) => format!("there is no `{name}`"),
            _ => "its kinds do not go together".to_owned(),
        }),
    }
}
