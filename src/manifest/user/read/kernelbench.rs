//! `kernelbench` of workloads and backends: models of PyTorch in the form of KernelBench.
//!
//! A file of a problem has a class `Model`, `get_init_inputs` with the arguments of its
//! constructor, and constants, which parameters of the workload set. A candidate has a class
//! `ModelNew`, which gets these arguments, and the weights of `Model`.

use sweeper_program::Value;

use super::names::Names;
use super::python::{PythonSettings, entry_of, options, text_of, verified};
use super::python_arguments::Reader;
use crate::files::python::{ArrayLibrary, PythonFile, assigns};
use crate::grammar::section::{Context, Section};
use crate::text::diagnostics::Code;
use crate::text::tree::Node;
use crate::user::check::Reference;
use crate::user::declaration::ProblemDeclaration;
use crate::user::python::declaration::{
    Load, ModelDeclaration, PythonArgument, PythonDeclaration, PythonSource,
};
use crate::user::{parameters, problem_scope};

/// The key of a source.
pub(super) const KERNELBENCH: &str = "kernelbench";

/// The word for the class of the problem, as a backend and as a reference.
pub(super) const MODEL: &str = "model";

/// Classes of problems and of candidates.
const CLASSES: [&str; 2] = ["Model", "ModelNew"];

/// The outputs of a workload with a model, which have to be said: nothing is executed to find them.
pub(super) fn outputs<'n>(cx: &mut Context<'_>, section: &mut Section<'n>) -> Option<&'n Node> {
    let found = section.take(cx, "outputs");
    if found.is_none() {
        let at = section.table.get(KERNELBENCH);
        let at = at.map_or(section.at, |entry| entry.key_at);
        let message = format!("`{}` has no `outputs`", section.path);
        cx.report(Code::MissingKey, at, message)
            .label("a manifest says the shapes of a model's inputs and outputs")
            .help("`sweeper import kernelbench FILE` finds them, and writes a manifest");
    }
    found
}

/// Reads `kernelbench` of a workload whose tensors are known; whether it is there.
pub(super) fn model(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    problem: &mut ProblemDeclaration,
    settings: &PythonSettings,
) -> bool {
    let Some(node) = section.take(cx, KERNELBENCH) else {
        return false;
    };
    let Some(found) = verified(cx, section, node, settings) else {
        return true;
    };
    let constants = problem.parameters.iter();
    let constants: Vec<String> = constants.map(|held| held.name.clone()).collect();
    let text = &found.files[0].text;
    for name in &constants {
        if !assigns(text, name) && !cx.broken.contains(name) {
            let message = format!("`{}` has no constant `{name}`", found.files[0].name);
            cx.report(Code::UnknownName, node.at, message)
                .label("parameters of a workload with `kernelbench` set constants of its file");
        }
    }
    let mut place = settings.place();
    place.folder = text_of(&found.folder);
    let inputs = problem.inputs.iter().map(|input| PythonArgument::Tensor {
        name: input.tensor.name.clone(),
        shape: None,
    });
    let args = match section.take(cx, "args") {
        Some(node) => Reader {
            names: &Names::of_problem(problem),
            scope: &problem_scope(parameters(problem)),
        }
        .list(cx, node, "args"),
        None => Some(inputs.collect()),
    };
    let Some(args) = args else {
        return true;
    };
    let returns = problem.outputs.iter();
    problem.model = Some(PythonDeclaration {
        place,
        source: PythonSource::Files {
            files: found.files,
            load: Load::All,
            module: None,
        },
        entry: CLASSES[0].to_owned(),
        arrays: ArrayLibrary::Torch,
        args,
        kwargs: Vec::new(),
        returns: returns.map(|output| output.tensor.name.clone()).collect(),
        torch_compile: None,
        autograd: None,
        is_fickle: false,
        model: Some(ModelDeclaration {
            problem: Vec::new(),
            constants,
        }),
    });
    true
}

/// The model of a workload as its reference.
pub(super) fn reference(
    cx: &mut Context<'_>,
    node: &Node,
    problem: &ProblemDeclaration,
) -> Option<Reference> {
    let model = problem.model.clone();
    if model.is_none() {
        cx.report(Code::MissingKey, node.at, "this workload has no model")
            .help("`kernelbench = \"FILE.py\"` of the workload names one");
    }
    model.map(|model| Reference::Python(Box::new(model)))
}

/// Reads a backend that is the problem's model, or a candidate's.
pub(super) fn backend(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    names: &Names,
    tune: &[(String, Vec<Value>)],
    settings: &PythonSettings,
) -> Option<PythonDeclaration> {
    let node = section.take(cx, KERNELBENCH)?;
    let entry = section.take(cx, "entry").map(|node| entry_of(cx, node));
    let compiled = section.take(cx, "torch_compile");
    let compiled = compiled.map(|node| options(cx, node));
    let deterministic = section.read(cx, "deterministic", Context::boolean);
    let Some(model) = &names.model else {
        // A mistake of the workload's file is reported there.
        let message = "the workload of this backend has no model";
        cx.report(Code::MissingKey, node.at, message)
            .help("`kernelbench = \"FILE.py\"` of the workload names one");
        return None;
    };
    let mut declaration = match node.text() {
        Some(MODEL) => model.clone(),
        _ => candidate(cx, section, node, model, settings)?,
    };
    if let Some(entry) = entry {
        declaration.entry = entry?;
    }
    if let Some(options) = compiled {
        declaration.torch_compile = Some(options?);
    }
    declaration.is_fickle = deterministic == Some(false);
    let PythonSource::Files { files, .. } = &declaration.source else {
        return None;
    };
    let mut tuned = tune.iter().map(|(name, _)| name);
    if let Some(name) = tuned.find(|name| !assigns(&files[0].text, name)) {
        let message = format!("`{}` has no constant `{name}`", files[0].name);
        cx.report(Code::UnknownName, node.at, message)
            .label("tuned values of a model set constants of its file");
        return None;
    }
    Some(declaration)
}

/// A class of another file that takes the place of a model.
fn candidate(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    node: &Node,
    model: &PythonDeclaration,
    settings: &PythonSettings,
) -> Option<PythonDeclaration> {
    let found = verified(cx, section, node, settings)?;
    let mut declaration = model.clone();
    let folder = std::mem::replace(&mut declaration.place.folder, text_of(&found.folder));
    let own = PythonSource::Files {
        files: found.files,
        load: Load::All,
        module: None,
    };
    let PythonSource::Files { files, .. } = std::mem::replace(&mut declaration.source, own) else {
        return None;
    };
    let at_home = |file: PythonFile| match file.folder.as_str() {
        "" => PythonFile {
            folder: folder.clone(),
            ..file
        },
        _ => file,
    };
    declaration.entry = CLASSES[1].to_owned();
    declaration.model = declaration.model.map(|held| ModelDeclaration {
        // Modules alone: those of a candidate that nobody trusts read them.
        problem: files
            .into_iter()
            .filter(|file| file.module != file.name)
            .map(at_home)
            .collect(),
        ..held
    });
    Some(declaration)
}
