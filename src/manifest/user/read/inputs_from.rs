//! `inputs_from` of `[workload.X]`: a function in Python that makes the inputs.
//!
//! It is `"FILE.py:FUNCTION"`, or a table with `python` and `entry` as references have it, which
//! runs write with the digests of the files.

use std::path::PathBuf;

use super::python::{PythonSettings, entry_named, files, host_function, on_host};
use crate::grammar::section::{Context, Section};
use crate::text::diagnostics::Code;
use crate::text::tree::{Entry, Node};
use crate::text::variables;
use crate::user::declaration::ProblemDeclaration;
use crate::user::python::declaration::{PythonArgument, PythonDeclaration};

/// The key.
pub(crate) const INPUTS_FROM: &str = "inputs_from";

/// The argument beside the parameters.
const SEED: &str = "seed";

/// Its forms.
const FORMS: &str = "\"FILE.py:FUNCTION\", or { python = \"FILE.py\", entry = \"FUNCTION\" }";

/// The file and the function of the short form.
pub(crate) fn parts(text: &str) -> Option<(&str, &str)> {
    let (file, function) = text.rsplit_once(':')?;
    (!file.is_empty() && !function.is_empty()).then_some((file, function))
}

/// Reads the function; the parameters and inputs of `problem` are known.
pub(super) fn inputs_from(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    problem: &ProblemDeclaration,
    settings: &PythonSettings,
) -> Option<PythonDeclaration> {
    let inputs = section.table.get("inputs");
    let node = section.take(cx, INPUTS_FROM)?;
    let function = match (node.text(), node.table()) {
        (Some(text), _) => short(cx, node, text, settings),
        (None, Some(_)) => {
            let mut section = cx.section(node, INPUTS_FROM)?;
            let function = host_function(cx, &mut section, settings).map(|it| it.0);
            section.finish(cx);
            function
        }
        (None, None) => {
            cx.wrong_type(node, INPUTS_FROM, FORMS);
            None
        }
    };
    let Some(inputs) = inputs else {
        let message = format!(
            "`{INPUTS_FROM}` makes inputs, and `{}` has none",
            section.path
        );
        cx.report(Code::MissingKey, node.at, message)
            .help("`inputs.x = { dtype = \"f32\", shape = [\"n\"] }` declares one");
        return None;
    };
    refuse_fills(cx, inputs);
    let mut parameters = problem.parameters.iter().map(|held| &held.name);
    if parameters.any(|name| name == SEED) {
        let message = format!("a parameter is called `{SEED}`");
        cx.report(Code::Duplicate, node.at, message)
            .label("the function gets the seed of the manifest's problem under this name")
            .help("leave the parameter out: `seed = 7` of the manifest makes other inputs");
        return None;
    }
    let named = problem.parameters.iter().map(|held| {
        let value = PythonArgument::Expression(held.name.clone());
        (held.name.clone(), value)
    });
    Some(PythonDeclaration {
        kwargs: named.collect(),
        ..function?
    })
}

/// Reads the short form.
fn short(
    cx: &mut Context<'_>,
    node: &Node,
    text: &str,
    settings: &PythonSettings,
) -> Option<PythonDeclaration> {
    let Some((_, function)) = parts(text) else {
        let message = format!("`{INPUTS_FROM}` names no function");
        cx.report(Code::Name, node.at, message)
            .help(format!("write {FORMS}"));
        return None;
    };
    let main = main_file(cx, node)?;
    let found = files(cx, node, &main, &settings.folders);
    let entry = entry_named(cx, node, function.to_owned());
    Some(on_host(found?, entry?, settings))
}

/// The file that the key names in one form or the other.
pub(super) fn main_file(cx: &mut Context<'_>, node: &Node) -> Option<PathBuf> {
    let text = match node.table() {
        Some(table) => table.value("python")?.text()?,
        None => parts(node.text()?)?.0,
    };
    let expanded = variables::expand(text, &cx.sources.environment);
    match expanded {
        Ok(file) => Some(cx.in_folder(node.at, file.as_ref())),
        Err(unset) => {
            cx.report(Code::Variable, node.at, unset.message)
                .help("give a default: `${NAME:-default}`");
            None
        }
    }
}

/// Reports fills, which nothing would use.
fn refuse_fills(cx: &mut Context<'_>, inputs: &Entry) {
    let tensors = inputs.value.entries();
    for tensor in tensors {
        let fill = tensor.value.table().and_then(|table| table.get("fill"));
        if let Some(fill) = fill {
            let message = format!(
                "`{}` has a `fill`, and `{INPUTS_FROM}` makes it",
                tensor.key
            );
            cx.report(Code::Conflict, fill.key_at, message)
                .label("leave one of them out");
        }
    }
}
