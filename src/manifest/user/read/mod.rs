//! `[workload.X]` and `[backend.Y]`: problems and kernels that a manifest declares.
//!
//! Every expression is checked here, with its place; [`super`] gets texts that are known to be
//! right.

pub(crate) mod keys;
mod names;
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

use sweeper_program::workload::{Workload, WorkloadInfo};

use super::Declared;
use super::declaration::Declaration;
use crate::grammar::expression::check_name;
use crate::grammar::section::{BACKENDS, Context, LIKE, Section};
use crate::text::diagnostics::Code;
use crate::text::suggest;
use crate::text::tree::Entry;
use names::Names;
use python::PythonSettings;

pub(crate) use command_files::{COMMAND_SOURCES, scripts};
pub(crate) use inputs_from::{INPUTS_FROM, parts};
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
        let is_named = check_name(cx, entry);
        if !is_named {
            cx.broken.insert(format!("{key}.{}", entry.key));
        }
        is_named
    };
    entries.filter(is_named).collect()
}
