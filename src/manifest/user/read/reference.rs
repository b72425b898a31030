//! `check.reference` of `[workload.X]`: where the right answer comes from.

use std::collections::BTreeMap;

use sweeper_program::Dtype;
use sweeper_program::workload::{ParameterInfo, Workload as _};

use super::kernelbench;
use super::names::{NUMBER, Names, expression, template_of};
use super::python::{PythonSettings, host_function};
use super::python_arguments::Reader;
use super::source::DIGESTS;
use crate::files::expected::FileReference;
use crate::grammar::section::{Context, Section};
use crate::text::diagnostics::Code;
use crate::text::suggest;
use crate::text::tree::{Entry, Node};
use crate::user::check::{PeerDeclaration, Reference};
use crate::user::declaration::{
    BackendDeclaration, Declaration, Implementation, ProblemDeclaration,
};
use crate::user::python::declaration::{PythonArgument, PythonDeclaration};
use crate::user::{Declared, problem_scope, reference_scope};
use sweeper_model::expression::Scope;
use sweeper_model::tuning::family_of;

/// The forms of a reference.
const FORMS: &str =
    "{ expr = ... }, { python = ... }, { backend = ... }, { file = ... }, \"model\" or \"none\"";

/// The keys that tell them apart.
const FORM_KEYS: [&str; 4] = ["expr", "python", "backend", "file"];

/// Names of configurations that are shown where one has to be chosen.
const SHOWN: usize = 4;

/// Reads a reference; what is wrong is reported. A backend that it names is looked for when all are
/// read.
pub(super) fn reference(
    cx: &mut Context<'_>,
    node: &Node,
    problem: &ProblemDeclaration,
    infos: &[ParameterInfo],
    settings: &PythonSettings,
) -> Option<Reference> {
    if node.text() == Some("none") {
        return Some(Reference::None);
    }
    if node.text() == Some(kernelbench::MODEL) {
        return kernelbench::reference(cx, node, problem);
    }
    if node.table().is_none() {
        cx.wrong_type(node, "reference", FORMS);
        return None;
    }
    let mut section = cx.section(node, "reference")?;
    let has = |key| node.table().is_some_and(|table| table.get(key).is_some());
    if FORM_KEYS.iter().filter(|key| has(key)).count() != 1 {
        cx.report(Code::Declaration, node.at, "a reference has one form")
            .help(format!("write one of: {FORMS}"));
        return None;
    }
    let scope = problem_scope(infos);
    let found = if has("python") {
        let names = Names::of_problem(problem);
        let function = python(cx, &mut section, &names, &scope, settings);
        function.map(|function| Reference::Python(Box::new(function)))
    } else if has("backend") {
        let name = section.read(cx, "backend", Context::text);
        let dtype = section.take(cx, "dtype");
        let word = dtype.map(|node| (node, cx.text(node, "dtype")));
        if let Some((node, Some(word))) = &word
            && word != Dtype::F64.name()
        {
            cx.unknown_word(node.at, "dtype", word, [Dtype::F64.name()]);
        }
        let peer = |name| PeerDeclaration {
            name,
            sha256: String::new(),
            is_in_f64: dtype.is_some(),
        };
        name.map(|name| Reference::Backend(peer(name)))
    } else if has("file") {
        file(cx, &mut section, problem, &scope).map(Reference::File)
    } else {
        let expr = section.need(cx, "expr");
        expr.and_then(|node| elementwise(cx, node, problem, infos))
    };
    section.finish(cx);
    found
}

/// Reads elementwise expressions.
fn elementwise(
    cx: &mut Context<'_>,
    expr: &Node,
    problem: &ProblemDeclaration,
    infos: &[ParameterInfo],
) -> Option<Reference> {
    if problem.outputs.is_empty() {
        return None;
    }
    let inputs = problem.inputs.iter().map(|input| &*input.tensor.name);
    let scope = reference_scope(infos, inputs);
    let outputs: Vec<&str> = problem.outputs.iter().map(|it| &*it.tensor.name).collect();
    let mut found = BTreeMap::new();
    match (expr.table(), outputs.as_slice()) {
        (None, [output]) => {
            let text = expression(cx, expr, "expr", &scope, NUMBER)?;
            found.insert((*output).to_owned(), text.text().to_string());
        }
        (None, _) => cx.wrong_type(expr, "expr", "a table with an expression for each output"),
        (Some(table), _) => {
            for entry in &table.entries {
                if !outputs.contains(&entry.key.as_str()) {
                    cx.unknown_word(entry.key_at, "expr", &entry.key, outputs.iter().copied());
                } else if let Some(text) = expression(cx, &entry.value, &entry.key, &scope, NUMBER)
                {
                    found.insert(entry.key.clone(), text.text().to_string());
                }
            }
            for output in &outputs {
                if table.get(output).is_none() {
                    let message = format!("the output `{output}` has no reference");
                    cx.report(Code::MissingKey, expr.at, message)
                        .label(format!("`{output} = \"...\"` is needed"));
                }
            }
        }
    }
    Some(Reference::Expr(found))
}

/// Reads a function over arrays that gets the inputs and returns the outputs, in their order where
/// `args` and `returns` do not say another.
fn python(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    names: &Names,
    scope: &Scope,
    settings: &PythonSettings,
) -> Option<PythonDeclaration> {
    let function = host_function(cx, section, settings);
    let arrays = section
        .take(cx, "arrays")
        .map(|node| cx.word(node, "arrays"));
    let input = |name: &String| PythonArgument::Tensor {
        name: name.clone(),
        shape: None,
    };
    let args = match section.take(cx, "args") {
        Some(node) => Reader { names, scope }.list(cx, node, "args"),
        None => Some(names.inputs.iter().map(input).collect()),
    };
    let mut returns = names.outputs.clone();
    if let Some(node) = section.take(cx, "returns") {
        let said = Reader { names, scope }.list(cx, node, "returns")?;
        returns = said
            .iter()
            .flat_map(|held| names.outputs.iter().filter(|name| held.is_of(name)))
            .cloned()
            .collect();
        let mut missing = names.outputs.iter().filter(|name| !returns.contains(name));
        if said.len() != returns.len() || missing.next().is_some() {
            let message = "`returns` of a reference has each output once";
            cx.report(Code::Declaration, node.at, message)
                .help(format!("outputs: {}", names.outputs.join(" ")));
            return None;
        }
    }
    let (args, (function, library)) = (args?, function?);
    if let Some(output) = names
        .outputs
        .iter()
        .find(|name| args.iter().any(|arg| arg.is_of(name)))
    {
        let message = format!("a reference returns `{output}`, and does not get it");
        cx.report(Code::Declaration, section.at, message);
        return None;
    }
    Some(PythonDeclaration {
        args,
        returns,
        arrays: arrays.unwrap_or(Some(library))?,
        ..function
    })
}

/// Reads files with the right outputs. Where the name has no parameters, it is compared with the
/// outputs as far as these are known here.
fn file(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    problem: &ProblemDeclaration,
    scope: &Scope,
) -> Option<FileReference> {
    let node = section.take(cx, "file")?;
    let path = cx.path(node, "file")?;
    template_of(cx, node, "file", &path.to_string_lossy(), scope)?;
    let path = cx.in_folder(node.at, &path);
    let mut found = match cx.sources.expected(&path) {
        Some(Ok(found)) => found.clone(),
        Some(Err(reason)) => {
            let message = format!("can't use the file of right outputs: {reason}");
            cx.report(Code::InputFile, node.at, message)
                .help("paths are relative to the manifest");
            return None;
        }
        None => {
            let message = format!("the file `{}` was not read", path.display());
            cx.report(Code::InputFile, node.at, message);
            return None;
        }
    };
    if let Some(node) = section.take(cx, DIGESTS) {
        verify(cx, node, &mut found)?;
    }
    // Of several files, each problem compares its own.
    if let [only] = found.files.as_slice()
        && only.name == found.name
    {
        for output in problem.outputs.iter().map(|output| &output.tensor) {
            let shape = constant_shape(&output.shape);
            // The type of a case is real, as all real ones are.
            let dtype = output.dtype.unwrap_or(Dtype::F64);
            if let Some(reason) = only.objection(&output.name, dtype, shape.as_deref()) {
                cx.report(Code::InputFile, node.at, reason)
                    .help("a file has a tensor of each output's name, type and shape");
                return None;
            }
        }
    }
    Some(found)
}

/// A shape in which no parameter occurs.
fn constant_shape(shape: &[String]) -> Option<Vec<usize>> {
    let extents = shape.iter().map(|extent| extent.trim().parse().ok());
    extents.collect()
}

/// Compares files with the digests that a run's manifest has, and leaves out those that it has not.
fn verify(cx: &mut Context<'_>, node: &Node, found: &mut FileReference) -> Option<()> {
    let digests = cx.section(node, DIGESTS)?.table;
    found.files.retain(|file| digests.get(&file.name).is_some());
    for entry in &digests.entries {
        let file = found.files.iter().find(|file| file.name == entry.key);
        if file.is_none_or(|file| entry.value.text() != Some(&file.sha256)) {
            let message = format!("`{}` is not what it was for this run", entry.key);
            let label = match file {
                Some(file) => format!("its digest is {:.12} now", file.sha256),
                None => format!("it is not in {} now", found.folder),
            };
            cx.report(Code::InputFile, entry.value.at, message)
                .label(label);
            return None;
        }
    }
    Some(())
}

/// Finds the backends that references name, now that all are read, and notes what they are.
pub(super) fn find_peers(
    cx: &mut Context<'_>,
    workloads: &[&Entry],
    backends: &[&Entry],
    declarations: &mut [Declaration],
) {
    for declaration in declarations {
        let entry = workloads
            .iter()
            .find(|entry| entry.key == declaration.workload);
        let Some(node) = entry.and_then(|entry| peer_node(entry)) else {
            continue;
        };
        let Some(Reference::Backend(peer)) = declaration
            .problem
            .as_mut()
            .map(|problem| &mut problem.reference)
        else {
            continue;
        };
        let name = peer.name.clone();
        let mut known = declaration.backends.iter();
        match known.find(|backend| backend.name == family_of(&name)) {
            Some(backend) => {
                peer.sha256 = backend.implementation_digest().hex();
                if let Some(reason) = peer.is_in_f64.then(|| not_in_f64(backend)).flatten() {
                    let message = format!("`{name}` can't compute in f64");
                    cx.report(Code::Conflict, node.at, message).label(reason);
                }
                one_configuration(cx, node, &name, declaration);
            }
            None => unknown_peer(cx, node, &name, backends, declaration),
        }
    }
}

/// Why the text of a backend can't be compiled with `double` for `float`.
fn not_in_f64(backend: &BackendDeclaration) -> Option<&'static str> {
    match &backend.implementation {
        Implementation::Kernels(kernels) if kernels.libraries.is_empty() => None,
        Implementation::Kernels(_) => Some("functions of its libraries take f32"),
        _ => Some("`dtype` is for kernels in C and CUDA"),
    }
}

/// Reports a backend that does not compute the workload, unless it could not be read, which is a
/// mistake already.
fn unknown_peer(
    cx: &mut Context<'_>,
    node: &Node,
    name: &str,
    backends: &[&Entry],
    declaration: &Declaration,
) {
    let workload = &declaration.workload;
    let entry = backends.iter().find(|entry| entry.key == family_of(name));
    let of_entry = entry.and_then(|entry| entry.value.get("workload")?.text());
    if of_entry == Some(workload) {
        return;
    }
    let known = declaration.backends.iter();
    let known: Vec<&str> = known.map(|backend| &*backend.name).collect();
    let message = format!("`{workload}` has no backend `{name}`");
    let label = match of_entry {
        Some(other) => format!("it computes `{other}`"),
        None => format!("there is no `[backend.{name}]` in this manifest"),
    };
    let report = cx
        .report(Code::UnknownBackend, node.at, message)
        .label(label);
    if !known.is_empty() {
        report.help(suggest::among(name, "backends", &known));
    }
}

/// The value of `backend` of a workload's reference.
fn peer_node(entry: &Entry) -> Option<&Node> {
    let check = entry.value.get("check")?;
    let reference = check.get("reference")?;
    reference.get("backend")
}

/// Reports a name that is not that of one configuration.
fn one_configuration(cx: &mut Context<'_>, node: &Node, name: &str, declaration: &Declaration) {
    // What can't be made is reported where all are.
    let Ok(declared) = Declared::of(declaration) else {
        return;
    };
    let names = declared.info().backends.iter().map(|info| info.name);
    let names: Vec<&str> = names
        .filter(|held| family_of(held) == family_of(name))
        .collect();
    if names.contains(&name) {
        return;
    }
    let shown = names
        .iter()
        .take(SHOWN)
        .copied()
        .collect::<Vec<_>>()
        .join(" ");
    let message = format!(
        "`{name}` is none of the {} configurations of `{}`",
        names.len(),
        family_of(name)
    );
    cx.report(Code::UnknownBackend, node.at, message)
        .help(format!("name one, such as: {shown}"));
}
