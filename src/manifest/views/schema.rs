//! The format as a JSON Schema (draft 2020-12), for editors.
//!
//! It describes the syntax of a manifest; `Manifest::resolve` alone judges the meaning.

use serde_json::{Map, Value, json};
use sweeper_program::Phase;
use sweeper_program::workload::{ParameterKind, WorkloadInfo};

use crate::grammar::json::{
    described, expression, list, named, object, one_of, scalar, string, whole,
};
use crate::setting::{Setting, sections};
use crate::user::read;

/// The JSON Schema of manifests for these workloads.
pub fn schema(registry: &[&'static WorkloadInfo]) -> Value {
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "sweeper manifest",
        "type": "object",
        "required": ["schema"],
        "additionalProperties": false,
        "properties": top(),
        "$defs": definitions(registry),
    })
}

fn top() -> Value {
    let mut top = json!({
        "case": {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": { "$ref": "#/$defs/case" },
        },
        "workload": described(named(read::schema::workload()), "problems of the manifest"),
        "backend": described(named(read::schema::backend()), "kernels of the manifest"),
        "python": read::schema::python(),
    });
    for (name, settings) in sections() {
        let described = settings.iter().map(|setting| {
            let schema = described(setting.kind.schema(), setting.about);
            (setting.key().to_owned(), schema)
        });
        let properties: Map<String, Value> = described.collect();
        if name.is_empty() {
            top = merged([top, Value::Object(properties)]);
            continue;
        }
        let needed = settings.iter().filter(|setting| setting.is_needed);
        let needed: Vec<&str> = needed.map(Setting::key).collect();
        top[name] = object(Value::Object(properties), &needed);
    }
    let cases = "cases that it is for, by name or workload; all by default";
    merged([
        top,
        scope(&json!({ "cases": described(list(string()), cases) })),
    ])
}

/// The keys that a case has or that cases share; `more` is added to each shared rule.
fn scope(more: &Value) -> Value {
    let rule = |properties: Value, required: &[&str]| {
        list(object(merged([properties, more.clone()]), required))
    };
    let values = named(scalar());
    json!({
        "grid": described(axes(), "axes, multiplied"),
        "derive": described(named(expression()), "named expressions"),
        "zip": rule(
            json!({ "axes": axes(), "when": expression(), "else": values.clone() }),
            &["axes"],
        ),
        "exclude": rule(
            json!({ "when": expression(), "reason": described(string(), "why, for people") }),
            &["when"],
        ),
        "include": rule(
            json!({ "point": values, "backends": list(string()), "phases": list(string()) }),
            &["point"],
        ),
    })
}

fn definitions(registry: &[&'static WorkloadInfo]) -> Value {
    let mut definitions = json!({
        "scalar": { "type": ["string", "number", "boolean"] },
        "expression": { "type": ["string", "number", "boolean"] },
        "axis": { "anyOf": [{ "$ref": "#/$defs/scalar" }, list(scalar()), form()] },
        "case": case(registry),
    });
    for (name, schema) in read::schema::definitions() {
        definitions[name] = schema;
    }
    definitions
}

/// One of these words, which editors suggest, or one that the manifest declares.
fn known_or_declared(words: &[&str]) -> Value {
    json!({ "anyOf": [one_of(words), string()] })
}

/// An axis as a table: one form, its options, and perhaps a condition.
fn form() -> Value {
    let ends =
        json!({ "type": "array", "items": { "type": "number" }, "minItems": 2, "maxItems": 2 });
    object(
        json!({
            "values": { "anyOf": [scalar(), list(scalar())] },
            "pow2": ends,
            "range": ends, "step": { "type": "number" },
            "linspace": ends, "logspace": ends, "num": whole(2),
            "csv": string(), "col": string(),
            "when": expression(),
            "else": scalar(),
        }),
        &[],
    )
}

fn case(registry: &[&'static WorkloadInfo]) -> Value {
    let names: Vec<&str> = registry.iter().map(|info| info.name).collect();
    let backends = registry.iter().flat_map(|info| info.backends);
    let backends = backends.flat_map(|each| std::iter::once(&each.name).chain(each.aliases));
    let phases: Vec<&str> = Phase::EVERY.iter().map(|phase| phase.name()).collect();
    let dtypes = registry
        .iter()
        .flat_map(|info| info.dtypes.iter().map(|dtype| dtype.name()));
    let mut parameters = Map::new();
    for parameter in registry.iter().flat_map(|info| info.parameters) {
        let about = match parameter.kind {
            ParameterKind::Choice(words) => {
                let words: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
                format!("{} ({})", parameter.about, words.join(", "))
            }
            _ => parameter.about.to_owned(),
        };
        parameters.insert(parameter.name.to_owned(), described(axis(), &about));
    }
    let own = json!({
        "workload": known_or_declared(&names),
        "backends": list(known_or_declared(&unique(backends.copied()))),
        "phases": list(one_of(&phases)),
        "dtype": one_of(&unique(dtypes)),
        "inputs": described(string(), "file of tensors, relative to the manifest"),
        "needs": described(list(string()), "cases that must have finished first"),
    });
    // `workload` may come from the manifest that is extended.
    object(
        merged([Value::Object(parameters), own, scope(&json!({}))]),
        &[],
    )
}

fn unique<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut words: Vec<&str> = words.collect();
    words.sort_unstable();
    words.dedup();
    words
}

fn axes() -> Value {
    named(axis())
}

fn axis() -> Value {
    json!({ "$ref": "#/$defs/axis" })
}

fn merged<const N: usize>(objects: [Value; N]) -> Value {
    let mut all = Map::new();
    for object in objects {
        if let Value::Object(object) = object {
            all.extend(object);
        }
    }
    Value::Object(all)
}
