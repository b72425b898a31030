//! The space of configurations: tuned values, and the conditions that hold in it.

use std::fmt::Write;

use super::Space;
use crate::expression::{Expression, FaultKind, Kind, Known, Scope, Tree};
use crate::interchange::python::Object;
use crate::toml_text::{in_comment, key, string};

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
        let objection = match Tree::parse(&condition.expression) {
            Ok(tree) => objection(tree, tuned),
            Err(error) => Some(error.message),
        };
        let _ = match objection {
            None => writeln!(out, "    {},", string(&condition.expression)),
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

/// Why a condition over tuned values is none, if it is not.
fn objection(tree: Tree, tuned: &[(String, Vec<Object>)]) -> Option<String> {
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
