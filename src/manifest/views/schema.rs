//! The format as a JSON Schema (draft 2020-12), for editors.
//!
//! It describes the syntax of a manifest; `Manifest::resolve` alone judges the meaning.

use serde_json::{Map, Value, json};
use sweeper_program::Phase;
use sweeper_program::workload::{ParameterKind, WorkloadInfo};

use crate::grammar::forms::FORM;
use crate::grammar::json::{described, list, named, object, one_of, scalar, string};
use crate::grammar::keys::{Takes, table};
use crate::grammar::wire::{CASE, CASES, EXCLUDE, INCLUDE, SHARED, ZIP};
use crate::setting::{Setting, sections};
use crate::user::read::keys;

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
        "workload": described(named(keys::workload()), "problems of the manifest"),
        "backend": described(named(keys::backend()), "kernels of the manifest"),
        "python": table(keys::PYTHON),
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
    let mut shared = table(SHARED)["properties"].take();
    for (key, rule) in [("zip", ZIP), ("exclude", EXCLUDE), ("include", INCLUDE)] {
        narrow(&mut shared, key, list(table(&[rule, CASES].concat())));
    }
    merged([top, shared])
}

/// Gives a key another schema.
fn narrow(properties: &mut Value, key: &str, schema: Value) {
    let about = properties[key]["description"].take();
    properties[key] = schema;
    properties[key]["description"] = about;
}

fn definitions(registry: &[&'static WorkloadInfo]) -> Value {
    json!({
        "scalar": { "type": ["string", "number", "boolean"] },
        "expression": { "type": ["string", "number", "boolean"] },
        "axis": { "anyOf": [{ "$ref": "#/$defs/scalar" }, list(scalar()), table(FORM)] },
        "case": case(registry),
        "fill": keys::fill(),
    })
}

/// One of these words, which editors suggest, or one that the manifest declares.
fn known_or_declared(words: &[&str]) -> Value {
    json!({ "anyOf": [one_of(words), string()] })
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
        parameters.insert(
            parameter.name.to_owned(),
            described(Takes::Axis.schema(), &about),
        );
    }
    let mut own = table(&[CASE, SHARED].concat())["properties"].take();
    narrow(&mut own, "workload", known_or_declared(&names));
    let backends = unique(backends.copied());
    narrow(&mut own, "backends", list(known_or_declared(&backends)));
    narrow(&mut own, "phases", list(one_of(&phases)));
    narrow(&mut own, "dtype", one_of(&unique(dtypes)));
    // `workload` may come from the manifest that is extended.
    object(merged([Value::Object(parameters), own]), &[])
}

fn unique<'a>(words: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut words: Vec<&str> = words.collect();
    words.sort_unstable();
    words.dedup();
    words
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
