//! `[workload.X]` and `[backend.Y]`: problems and kernels that a manifest declares.
//!
//! Every expression is checked here, with its place; [`super`] gets texts that are known to be
//! right.

mod problem;
mod check;
mod inputs_from;
mod reference;
mod source;
mod kernels;
mod command;
mod command_files;
mod python;
mod python_arguments;
mod kernelbench;
mod backend;
mod render;
pub(crate) mod schema;

use sweeper_program::Phase;
use sweeper_program::workload::{Workload, WorkloadInfo};

use super::Declared;
use super::declaration::{Declaration, FileDeclaration, ProblemDeclaration};
use super::pieces;
use super::python::declaration::PythonDeclaration;
use crate::diagnostics::Code;
use crate::like::{BACKENDS, LIKE};
use crate::rules;
use crate::section::{Context, Section, Spanned};
use crate::suggest;
use crate::tree::{Entry, Node};
use crate::wire;
use sweeper_model::expression::{Expression, Kind, Scope, Tree};

pub(crate) use command_files::{COMMAND_SOURCES, scripts};
pub(crate) use inputs_from::{INPUTS_FROM, parts};
use python::PythonSettings;
pub(crate) use render::DeclaredTable;

/// The problems and kernels that a manifest declares.
#[derive(Debug, Default)]
pub(crate) struct Declarations {
    /// Workloads of the manifest, and those of this build with backends of the manifest.
    pub(crate) workloads: Vec<&'static Declared>,
    /// The tables, with paths that hold anywhere.
    pub(crate) tables: Vec<DeclaredTable>,
}

impl Declarations {
    /// The workloads of `registry` as the manifest extends them, and its own.
    pub(crate) fn extend(&self, registry: &[&'static WorkloadInfo]) -> Vec<&'static WorkloadInfo> {
        let mut all = registry.to_vec();
        for declared in &self.workloads {
            let info = declared.info();
            match all.iter_mut().find(|held| held.name == info.name) {
                Some(held) => *held = info,
                None => all.push(info),
            }
        }
        all
    }

    /// The declared workload of an info, if it is of one.
    pub(crate) fn of(&self, info: &'static WorkloadInfo) -> Option<&'static Declared> {
        let mut workloads = self.workloads.iter();
        let found = workloads.find(|declared| std::ptr::eq(declared.info(), info));
        found.copied()
    }
}

/// Reads the tables `workload` and `backend`.
pub(crate) fn declarations(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    registry: &[&'static WorkloadInfo],
) -> Declarations {
    let python = section.table.get("python");
    let settings = python::settings(cx, section);
    let workloads = named_tables(cx, section, "workload");
    let backends = named_tables(cx, section, "backend");
    let mut declarations: Vec<Declaration> = Vec::new();
    let mut tables = Vec::new();
    tables.extend(python.and_then(|entry| render::settings(cx, entry)));
    for entry in &workloads {
        if registry.iter().any(|info| info.name == entry.key) {
            let message = format!("`{}` is a workload of this build", entry.key);
            cx.report(Code::Name, entry.key_at, message)
                .label("choose another name");
            continue;
        }
        if let Some(problem) = problem::problem(cx, entry, &settings) {
            declarations.push(Declaration {
                workload: entry.key.clone(),
                problem: Some(problem),
                backends: Vec::new(),
            });
        }
        tables.push(render::workload(cx, entry, &settings));
    }
    for entry in &backends {
        backend(cx, entry, registry, &settings, &mut declarations);
        let mut read = declarations.iter().flat_map(|held| &held.backends);
        if !read.any(|backend| backend.name == entry.key) {
            cx.broken.insert(format!("{BACKENDS}.{}", entry.key));
        }
        tables.push(render::backend(cx, entry, &settings));
    }
    reference::find_peers(cx, &workloads, &backends, &mut declarations);
    declarations.iter_mut().for_each(command::unify_stdout);
    let workloads = declarations.iter().filter_map(|declaration| {
        match Declared::of(declaration) {
            Ok(declared) => Some(declared),
            Err(reason) => {
                // Every part was checked before: this is a mistake of the program.
                cx.report(Code::Declaration, section.at, reason);
                None
            }
        }
    });
    Declarations {
        workloads: workloads.collect(),
        tables,
    }
}

/// Reads a backend, and adds it to the workload that it names.
fn backend(
    cx: &mut Context<'_>,
    entry: &Entry,
    registry: &[&'static WorkloadInfo],
    settings: &PythonSettings,
    declarations: &mut Vec<Declaration>,
) {
    let path = format!("backend.{}", entry.key);
    let Some(mut section) = cx.section(&entry.value, &path) else {
        return;
    };
    // Reported where it was looked for.
    if section
        .table
        .get(LIKE)
        .is_some_and(|entry| entry.value.text().is_some())
    {
        return;
    }
    let Some(node) = section.need(cx, "workload") else {
        return;
    };
    let Some(name) = cx.text(node, "workload") else {
        return;
    };
    let is_broken = cx.broken.contains(&format!("workload.{name}"));
    let built_in = registry.iter().find(|info| info.name == name).copied();
    let known = declarations.iter().position(|held| held.workload == name);
    let place = match (known, built_in) {
        (Some(place), _) => place,
        (None, Some(_)) => {
            declarations.push(Declaration {
                workload: name,
                problem: None,
                backends: Vec::new(),
            });
            declarations.len() - 1
        }
        (None, None) if is_broken => return,
        (None, None) => {
            let mut known: Vec<&str> = declarations.iter().map(|it| &*it.workload).collect();
            known.extend(registry.iter().map(|info| info.name));
            let message = format!("unknown workload `{name}`");
            cx.report(Code::UnknownWorkload, node.at, message)
                .label("neither in this build nor declared here")
                .help(suggest::among(&name, "workloads", &known));
            return;
        }
    };
    let names = match built_in {
        Some(info) => Names::of_build(info),
        None => match &declarations[place].problem {
            Some(problem) => Names {
                is_broken,
                ..Names::of_problem(problem)
            },
            None => return,
        },
    };
    if names.backends.contains(&entry.key.as_str()) {
        let message = format!("`{}` is a backend of this build", entry.key);
        cx.report(Code::Name, entry.key_at, message)
            .label("choose another name");
        return;
    }
    if let Some(backend) = backend::backend(cx, entry, &mut section, &names, settings) {
        declarations[place].backends.push(backend);
    }
}

/// The names of a workload that a backend may refer to.
struct Names {
    parameters: Vec<sweeper_program::workload::ParameterInfo>,
    inputs: Vec<String>,
    outputs: Vec<String>,
    /// Files that commands read.
    files: Vec<FileDeclaration>,
    /// The model of `kernelbench`.
    model: Option<PythonDeclaration>,
    backends: Vec<&'static str>,
    phases: &'static [Phase],
    /// Whether parameters or tensors are missing here that could not be read.
    is_broken: bool,
    /// Why no backend may multiply the workload's tolerances, and what to do.
    without_factor: Option<(&'static str, &'static str)>,
}

impl Names {
    /// Of parameters alone.
    fn of_parameters(parameters: &[sweeper_program::workload::ParameterInfo]) -> Self {
        Names {
            parameters: parameters.to_vec(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            files: Vec::new(),
            model: None,
            backends: Vec::new(),
            phases: &[],
            is_broken: false,
            without_factor: None,
        }
    }

    fn of_build(info: &'static WorkloadInfo) -> Self {
        let names = |tensors: &[sweeper_program::workload::TensorInfo]| {
            tensors
                .iter()
                .map(|tensor| tensor.name.to_owned())
                .collect()
        };
        let backends = info.backends.iter();
        Names {
            parameters: info.parameters.to_vec(),
            inputs: names(info.inputs),
            outputs: names(info.outputs),
            files: Vec::new(),
            model: None,
            phases: info.phases,
            is_broken: false,
            without_factor: None,
            backends: backends
                .flat_map(|each| std::iter::once(each.name).chain(each.aliases.iter().copied()))
                .collect(),
        }
    }

    fn of_problem(problem: &ProblemDeclaration) -> Self {
        let inputs = problem.inputs.iter().map(|input| input.tensor.name.clone());
        let outputs = problem
            .outputs
            .iter()
            .map(|output| output.tensor.name.clone());
        Names {
            parameters: super::parameters(problem).to_vec(),
            inputs: inputs.collect(),
            outputs: outputs.collect(),
            files: problem.files.clone(),
            model: problem.model.clone(),
            phases: &[Phase::Forward],
            backends: Vec::new(),
            is_broken: false,
            without_factor: check::without_factor(problem),
        }
    }
}

impl Names {
    /// Phases by name; those of the workload.
    fn phases(&self, cx: &mut Context<'_>, words: Vec<Spanned<String>>) -> Vec<Phase> {
        let mut found = Vec::new();
        for word in words {
            let mut phases = self.phases.iter();
            match phases.find(|phase| phase.name() == word.value) {
                Some(phase) => found.push(*phase),
                None => {
                    let known = self.phases.iter().map(|phase| phase.name());
                    cx.unknown_word(word.at, "phases", &word.value, known);
                }
            }
        }
        found
    }
}

/// The tables below `key`, whose names are checked.
fn named_tables<'n>(
    cx: &mut Context<'_>,
    section: &mut Section<'n>,
    key: &'static str,
) -> Vec<&'n Entry> {
    let Some(node) = section.take(cx, key) else {
        return Vec::new();
    };
    let Some(tables) = cx.section(node, key) else {
        return Vec::new();
    };
    let entries = tables.table.entries.iter();
    let is_named = |entry: &&Entry| {
        let is_named = wire::name(cx, entry);
        if !is_named {
            cx.broken.insert(format!("{key}.{}", entry.key));
        }
        is_named
    };
    entries.filter(is_named).collect()
}

/// An expression whose value is of a kind that fits; its text.
fn expression(
    cx: &mut Context<'_>,
    node: &Node,
    key: &str,
    scope: &Scope,
    (wanted, fits): (&str, fn(Kind) -> bool),
) -> Option<Expression> {
    let mut text = wire::expression(cx, node, key)?;
    text.is_declared = true;
    let expression = rules::compile(cx, &text, scope)?;
    note_used(cx, &expression, scope);
    if fits(expression.kind()) {
        return Some(expression);
    }
    let message = format!("`{key}` takes {wanted}");
    cx.report(Code::ExpressionKind, node.at, message)
        .label(format!("this is {}", expression.kind().noun()));
    None
}

/// A text in which expressions stand in braces, which are checked; the text.
fn template(cx: &mut Context<'_>, node: &Node, key: &str, scope: &Scope) -> Option<String> {
    let text = cx.text(node, key)?;
    template_of(cx, node, key, &text, scope)?;
    Some(text)
}

/// Checks the expressions in the braces of a text.
fn template_of(
    cx: &mut Context<'_>,
    node: &Node,
    key: &str,
    text: &str,
    scope: &Scope,
) -> Option<()> {
    let pieces = match pieces(text) {
        Ok(pieces) => pieces,
        Err(reason) => {
            cx.report(Code::Name, node.at, format!("`{key}`: {reason}"));
            return None;
        }
    };
    for inside in pieces.iter().filter_map(|(_, expression)| *expression) {
        let tree = Tree::parse(inside);
        if let Ok(tree) = &tree {
            let mut is_broken = false;
            tree.names(&mut |name, _| is_broken |= cx.broken.contains(name));
            if is_broken {
                return None;
            }
        }
        let compiled = tree.map_err(|error| error.message).and_then(|tree| {
            Expression::compile(inside, &tree, scope)
                .map_err(|_| format!("`{inside}` uses a name that is not known here"))
        });
        let reason = match compiled {
            Ok(expression) => {
                note_used(cx, &expression, scope);
                continue;
            }
            Err(reason) => reason,
        };
        let names = crate::dimensions::names(scope);
        let message = format!("`{key}` has a wrong expression");
        cx.report(Code::UnknownName, node.at, message)
            .label(reason)
            .help(format!("names: {}", names.join(" ")));
        return None;
    }
    Some(())
}

/// Notes the names that an expression uses.
fn note_used(cx: &mut Context<'_>, expression: &Expression, scope: &Scope) {
    let slots = expression.slots().iter();
    let names = slots.filter_map(|slot| scope.names.get(*slot));
    cx.used.extend(names.map(|known| known.name.to_string()));
}

/// A whole number, as sizes are.
const WHOLE: (&str, fn(Kind) -> bool) = ("a whole number", |kind| kind == Kind::Int);
/// A number.
const NUMBER: (&str, fn(Kind) -> bool) =
    ("a number", |kind| matches!(kind, Kind::Int | Kind::Float));
/// True or false.
const CONDITION: (&str, fn(Kind) -> bool) = ("a condition", |kind| kind == Kind::Bool);
/// Anything.
const ANY: (&str, fn(Kind) -> bool) = ("a value", |_| true);
