//! The tables of settings in `manifests/README.md`, and of all other keys in `docs/keys.md`.

use std::fmt::Write;

use serde_json::Value;

use super::print;
use crate::grammar::keys::Key;
use crate::grammar::wire::{CASE, SHARED};
use crate::model::manifest::Manifest;
use crate::model::settings::Canonical;
use crate::setting::{Data, SETTINGS, Setting};
use crate::user::read::keys;

/// Every setting with its default, as a Markdown table.
pub fn reference() -> String {
    let mut table = "| key | takes | default | meaning |\n|---|---|---|---|\n".to_owned();
    // The test device is there if its section is.
    let mut defaults = Manifest::with_defaults("the file's name".to_owned());
    defaults.null_mut();
    let mut published = defaults.clone();
    published.plan.canonical = Canonical::PUBLISHED;
    for setting in SETTINGS {
        // Writing to a string can't fail.
        let _ = writeln!(
            table,
            "| `{}` | {} | {} | {} |",
            setting.path,
            takes(&setting.kind.schema()),
            default(setting, [&defaults, &published]),
            meaning(setting),
        );
    }
    table
}

/// Every key of `[case.X]`, `[workload.X]`, `[backend.X]` and `[python]`, as a Markdown table.
pub fn key_reference() -> String {
    let mut table = "| key | takes | meaning |\n|---|---|---|\n".to_owned();
    add(&mut table, "case.X.", &[CASE, SHARED].concat());
    add(&mut table, "workload.X.", keys::WORKLOAD);
    add(&mut table, "backend.X.", &keys::BACKENDS.concat());
    add(&mut table, "python.", keys::PYTHON);
    table
}

/// Adds the keys that people write, each with those of the tables that it takes.
fn add(table: &mut String, path: &str, keys: &[Key]) {
    for key in keys.iter().filter(|key| key.name != "digests") {
        let path = format!("{path}{}", key.name);
        let takes = takes(&key.takes.schema());
        // Writing to a string can't fail.
        let _ = writeln!(table, "| `{path}` | {takes} | {} |", key.about);
        key.takes.tables(&path, &mut |path, keys| {
            add(table, &format!("{path}."), keys);
        });
    }
}

/// The value of the first of some manifests that has one.
fn default(setting: &Setting, of: [&Manifest; 2]) -> String {
    if setting.is_needed {
        return "needed".to_owned();
    }
    match of.iter().find_map(|manifest| setting.kind.get(manifest)) {
        Some(Data::Named(_)) | None => String::new(),
        Some(_) if setting.path == "name" => of[0].name.clone(),
        Some(data) => format!("`{}`", print::value_of(&data)),
    }
}

fn meaning(setting: &Setting) -> String {
    let Some(flag) = &setting.flag else {
        return setting.about.to_owned();
    };
    let name = flag.names[0];
    match flag.preset {
        Some((value, _)) => format!("{} (`{name}`: `{value}`)", setting.about),
        None => format!("{} (`{name}`)", setting.about),
    }
}

/// The values that a schema allows, in words.
fn takes(schema: &Value) -> String {
    if let Some(constant) = schema.get("const") {
        return format!("`{constant}`");
    }
    if let Some(words) = schema["enum"].as_array() {
        let words: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
        return words.join(", ");
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let is_list = |each: &&Value| each["type"] == "array" && each["items"] == any[0];
        if any.iter().any(|each| is_list(&each)) {
            return format!("{}, or a list", takes(&any[0]));
        }
        let mut any: Vec<String> = any.iter().map(takes).collect();
        any.dedup();
        return any.join(" or ");
    }
    if let Some((_, name)) = schema["$ref"].as_str().and_then(|it| it.rsplit_once('/')) {
        return if name == "scalar" { "value" } else { name }.to_owned();
    }
    let bound = |name: &str| schema.get(name).map(|bound| bound.to_string());
    match schema["type"].as_str() {
        Some("boolean") => "true or false".to_owned(),
        Some("object") => "table".to_owned(),
        Some("array") if schema["items"]["type"] == "object" => "list of tables".to_owned(),
        Some("array") if schema["items"].is_object() => {
            format!("list: {}", takes(&schema["items"]))
        }
        Some("array") => "list".to_owned(),
        Some(kind @ ("integer" | "number")) => {
            let bounds = [
                bound("minimum").map(|least| format!("from {least}")),
                bound("exclusiveMinimum").map(|least| format!("over {least}")),
                bound("maximum").map(|most| format!("to {most}")),
                bound("exclusiveMaximum").map(|most| format!("below {most}")),
            ];
            let words = [Some(kind.to_owned())].into_iter().chain(bounds).flatten();
            words.collect::<Vec<_>>().join(" ")
        }
        None if schema["type"].is_array() => "value".to_owned(),
        _ => "string".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::grammar::json as schema;

    #[test]
    fn schemas_are_said_in_words() {
        for (schema, expected) in [
            (schema::whole(1), "integer from 1"),
            (schema::positive(), "number over 0"),
            (schema::list(schema::string()), "string, or a list"),
            (schema::one_of(&["a", "b"]), "`\"a\"`, `\"b\"`"),
            (
                schema::word_or("all", schema::list(schema::one_of(&["a"]))),
                "`\"all\"` or `\"a\"`, or a list",
            ),
            (
                json!({ "type": "integer", "minimum": 0, "maximum": 9 }),
                "integer from 0 to 9",
            ),
            (schema::expression(), "expression"),
        ] {
            assert_eq!(takes(&schema), expected);
        }
    }
}
