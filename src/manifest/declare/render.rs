//! Declared tables as TOML again, with paths that hold wherever the text is read.

use crate::manifest::print;
use crate::manifest::section::Context;
use crate::manifest::tree::{Entry, Node, Raw};
use sweeper_program::Value;

/// A table of a declaration, as it is printed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::manifest) struct DeclaredTable {
    /// Its header without brackets, such as `backend.add`.
    pub(in crate::manifest) path: String,
    /// Keys with their values as TOML.
    pub(in crate::manifest) keys: Vec<(String, String)>,
}

/// Keys whose texts are paths.
const PATHS: [&str; 3] = ["cuda", "c", "include"];

/// The table of an entry below `kind`.
pub(super) fn table(cx: &Context<'_>, kind: &str, entry: &Entry) -> DeclaredTable {
    let keys = entry.value.table().map_or(&[][..], |table| &table.entries);
    let keys = keys.iter().map(|entry| {
        let is_path = PATHS.contains(&entry.key.as_str());
        (entry.key.clone(), value(cx, &entry.value, is_path))
    });
    DeclaredTable {
        path: format!("{kind}.{}", entry.key),
        keys: keys.collect(),
    }
}

fn value(cx: &Context<'_>, node: &Node, is_path: bool) -> String {
    match &node.raw {
        Raw::Bool(value) => value.to_string(),
        Raw::Int(value) => value.to_string(),
        Raw::Float(value) => print::value(&Value::Float(*value)),
        Raw::Text(text) if is_path => {
            let path = cx.in_folder(node.at, text.as_ref());
            let path = std::path::absolute(&path).unwrap_or(path);
            print::value(&Value::from(&*path.to_string_lossy()))
        }
        Raw::Text(text) => print::value(&Value::from(text.as_str())),
        Raw::Date => cx.texts.slice(node.at).to_owned(),
        Raw::Array(items) => {
            let items = items.iter().map(|item| value(cx, item, is_path));
            print::list(items)
        }
        Raw::Table(table) => {
            let entries = table.entries.iter().map(|entry| {
                format!("{} = {}", print::bare(&entry.key), value(cx, &entry.value, false))
            });
            print::inline(entries)
        }
    }
}
