//! The JSON Schema and the starter manifest.

use std::collections::BTreeSet;

use serde_json::Value;
use sweeper::manifest::{Manifest, Overrides, STARTER, Sources, registry, schema};

use crate::support::{REGISTRY, errors, toml_files};

/// Checks a value against the few words of JSON Schema that ours uses.
fn violations(root: &Value, schema: &Value, value: &Value, path: &str) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap();
        return violations(root, target, value, path);
    }
    if let Some(any) = schema.get("anyOf").and_then(Value::as_array) {
        let fits = |each: &Value| violations(root, each, value, path).is_empty();
        if !any.iter().any(fits) {
            found.push(format!("{path}: {value} fits none of {any:?}"));
        }
    }
    if schema.get("const").is_some_and(|wanted| wanted != value) {
        found.push(format!("{path}: {value} is not {}", schema["const"]));
    }
    if let Some(words) = schema.get("enum").and_then(Value::as_array)
        && !words.contains(value)
    {
        found.push(format!("{path}: {value} is not one of {words:?}"));
    }
    if !has_type(schema, value) {
        found.push(format!("{path}: {value} is not a {}", schema["type"]));
    }
    if schema.get("minimum").and_then(Value::as_f64) > value.as_f64().or(Some(f64::MAX)) {
        found.push(format!("{path}: {value} is too small"));
    }
    for item in value.as_array().into_iter().flatten() {
        if let Some(items) = schema.get("items") {
            found.extend(violations(root, items, item, path));
        }
    }
    for (key, held) in value.as_object().into_iter().flatten() {
        let path = format!("{path}/{key}");
        match (
            schema.pointer(&format!("/properties/{key}")),
            &schema["additionalProperties"],
        ) {
            (Some(property), _) => found.extend(violations(root, property, held, &path)),
            (None, Value::Bool(false)) => found.push(format!("{path}: no such key")),
            (None, Value::Null) => {}
            (None, other) => found.extend(violations(root, other, held, &path)),
        }
    }
    let required = schema.get("required").and_then(Value::as_array);
    for key in required.into_iter().flatten().filter_map(Value::as_str) {
        if value.get(key).is_none() {
            found.push(format!("{path}: {key} is missing"));
        }
    }
    found
}

fn has_type(schema: &Value, value: &Value) -> bool {
    let kinds: Vec<&str> = match schema.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => vec![],
    };
    let is = |kind: &&str| match *kind {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64(),
        _ => value.is_number(),
    };
    kinds.is_empty() || kinds.iter().any(is)
}

fn check(text: &str, registry: &[&'static sweeper_program::workload::WorkloadInfo]) -> Vec<String> {
    let value: Value = toml::from_str(text).unwrap();
    let schema = schema(registry);
    violations(&schema, &schema, &value, "")
}

#[test]
fn curated_manifests_fit_the_schema() {
    for path in toml_files("manifests") {
        let text = std::fs::read_to_string(&path).unwrap();
        let wrong = check(&text, &registry());
        assert!(wrong.is_empty(), "{}: {wrong:?}", path.display());
    }
}

#[test]
fn misspelt_keys_do_not_fit_the_schema() {
    for path in [
        "unknown_keys",
        "unknown_words",
        "wrong_types",
        "settings_out_of_bounds",
    ] {
        let text = std::fs::read_to_string(format!("tests/manifests/bad/{path}.toml")).unwrap();
        assert!(!check(&text, &REGISTRY).is_empty(), "{path}");
    }
}

/// The keys that the reader knows where `zzzz` stands, from its own help.
fn keys_in(text: &str) -> Vec<String> {
    let errors = errors(text);
    let (_, after) = errors.split_once("unknown key `zzzz`").unwrap();
    let (_, keys) = after.split_once("keys here: ").unwrap();
    let keys = keys.lines().next().unwrap().split(' ');
    keys.map(str::to_owned).collect()
}

/// The keys that the reader knows in a section.
fn keys_of(section: &str) -> Vec<String> {
    let text = format!(
        "schema = 1\n{}\n[grid]\nT = 1\nK = 1\nC = 1\n{}",
        if section.is_empty() { "zzzz = 1" } else { "" },
        match section {
            "" => "[case.crf]\nworkload = \"semicrf\"".to_owned(),
            "case" => "[case.crf]\nzzzz = 1\nworkload = \"semicrf\"".to_owned(),
            _ => format!("[case.crf]\nworkload = \"semicrf\"\n[{section}]\nzzzz = 1"),
        }
    );
    keys_in(&text)
}

#[test]
fn the_schema_has_the_keys_that_are_read() {
    let schema = schema(&REGISTRY[..1]);
    for (section, pointer) in [
        ("", "/properties"),
        ("plan", "/properties/plan/properties"),
        ("device", "/properties/device/properties"),
        ("cache", "/properties/cache/properties"),
        ("measure", "/properties/measure/properties"),
        ("limits", "/properties/limits/properties"),
        ("output", "/properties/output/properties"),
        ("report", "/properties/report/properties"),
        ("null", "/properties/null/properties"),
        ("case", "/$defs/case/properties"),
    ] {
        let properties = schema.pointer(pointer).unwrap().as_object().unwrap();
        let mut wanted: Vec<&String> = properties.keys().collect();
        wanted.sort();
        let read = keys_of(section);
        assert_eq!(wanted, read.iter().collect::<Vec<_>>(), "[{section}]");
    }
}

/// Which keys are read depends on the kind of a workload or backend; the schema has those of all.
#[test]
fn the_schema_has_the_keys_of_every_kind_of_workload_and_backend() {
    const WORKLOADS: &str = "[workload.w]\noutputs.y = { shape = [2] }\n\
                             check = { reference = \"none\" }\n[workload.program]";
    let schema = schema(&REGISTRY);
    for (table, kinds) in [
        (
            "workload",
            &["", "kernelbench = \"tests/manifests/kernelbench/rows.py\""][..],
        ),
        (
            "backend",
            &[
                "workload = \"w\"\nc = \"tests/manifests/declared/add.c\"",
                "workload = \"program\"\ncommand = [\"true\"]",
                "workload = \"w\"\npython = \"tests/manifests/kernelbench/rows.py\"",
                "workload = \"w\"\nkernelbench = \"model\"",
            ],
        ),
    ] {
        let mut read = BTreeSet::new();
        for kind in kinds {
            read.extend(keys_in(&format!(
                "schema = 1\n{WORKLOADS}\n[{table}.b]\nzzzz = 1\n{kind}"
            )));
        }
        // Before backends are read, each has the keys of the one that it is like.
        read.extend((table == "backend").then(|| "like".to_owned()));
        let pointer = format!("/properties/{table}/additionalProperties/properties");
        let properties = schema.pointer(&pointer).unwrap().as_object().unwrap();
        let wanted: BTreeSet<String> = properties.keys().cloned().collect();
        assert_eq!(wanted, read, "[{table}]");
    }
}

#[test]
fn the_starter_resolves_with_the_workloads_of_this_build() {
    let sources = Sources::from_text("starter.toml", STARTER);
    let manifest = Manifest::resolve(&sources, &Overrides::new(), &registry())
        .unwrap_or_else(|errors| panic!("{errors}"));
    assert!(manifest.warnings().is_empty(), "{}", manifest.warnings());
    assert_eq!(manifest.name, "starter");
    assert!(check(STARTER, &registry()).is_empty());
}
