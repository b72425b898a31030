//! From a case as it was written to a [`Case`]: workload and variants looked up, shared settings
//! taken over, everything checked against the definition of the workload.

use std::collections::BTreeSet;

use sweeper_program::Dtype;
use sweeper_program::workload::WorkloadInfo;

use super::dimensions::{self, Columns};
use super::rules;
use super::shared::{Places, Shared, backend_list, phases, unknown_case};
use super::uses::Uses;
use crate::files::sources::InputFile;
use crate::grammar::axis;
use crate::grammar::section::{Context, unknown_key};
use crate::grammar::wire::{CASE, SHARED, WireCase};
use crate::model::case::{Case, KnownBackend, KnownWorkload};
use crate::text::diagnostics::Code;
use crate::text::suggest;
use crate::text::texts::At;

/// The workload that a case names.
pub(crate) fn workload(
    cx: &mut Context<'_>,
    wire: &WireCase,
    registry: &[&'static WorkloadInfo],
) -> Option<&'static WorkloadInfo> {
    let wanted = wire.workload.as_ref()?;
    let found = registry.iter().find(|info| info.name == wanted.value);
    let is_broken = cx.broken.contains(&format!("workload.{}", wanted.value));
    if found.is_none() && !is_broken {
        let known: Vec<&str> = registry.iter().map(|info| info.name).collect();
        let message = format!("unknown workload `{}`", wanted.value);
        cx.report(Code::UnknownWorkload, wanted.at, message)
            .label("not in this build")
            .help(suggest::among(&wanted.value, "workloads", &known));
    }
    found.copied()
}

/// Builds a case. An error is reported and replaced by a valid value, to judge the rest too.
pub(crate) fn case(
    cx: &mut Context<'_>,
    wire: &WireCase,
    info: &'static WorkloadInfo,
    shared: &Shared<'_>,
    used_axes: &mut BTreeSet<String>,
) -> (Case, Places) {
    let backends = backends(cx, wire, info, shared);
    let phases = phases(cx, wire.phases.as_deref(), info);
    let dtype = dtype(cx, wire, info);
    let inputs = inputs(cx, wire);
    let needs = needs(cx, wire, shared);
    let own = own_axes(cx, wire, info);
    note_origins(cx, wire, shared);
    let uses = Uses::new(cx, wire, shared);
    let columns = Columns::collect(cx, wire, &own, info, shared, &uses, used_axes);
    let built = dimensions::build(cx, wire, info, columns, &uses);
    let mut places = Places {
        name: wire.name.at,
        rows: built.rows,
        when: built.when,
        derived: Vec::new(),
        exclude: Vec::new(),
        include: Vec::new(),
        outcomes: Vec::new(),
    };
    let mut case = Case {
        name: wire.name.value.as_str().into(),
        workload: KnownWorkload {
            info,
            declared: shared.declarations.of(info),
        },
        backends: backends.unwrap_or_else(|| info.backends.iter().map(KnownBackend).collect()),
        phases: phases.unwrap_or_else(|| info.phases.to_vec()),
        dtype: dtype.unwrap_or(Dtype::F32),
        inputs,
        needs,
        variables: built.variables,
        dimensions: built.dimensions,
        derived: Vec::new(),
        exclude: Vec::new(),
        include: Vec::new(),
        parameters: built.parameters,
        null: None,
    };
    rules::complete(cx, &mut case, wire, &uses, shared, &mut places);
    (case, places)
}

/// Backends by name, alias or pattern; without a list all that the workload has by default. None
/// are left where a list for several cases has those of others alone.
fn backends(
    cx: &mut Context<'_>,
    wire: &WireCase,
    info: &'static WorkloadInfo,
    shared: &Shared<'_>,
) -> Option<Vec<KnownBackend>> {
    let Some(words) = &wire.backends else {
        let chosen = info.backends.iter().filter(|held| held.by_default);
        return Some(chosen.map(KnownBackend).collect());
    };
    backend_list(cx, words, info, |word| shared.is_told(word, wire))
}

fn dtype(cx: &mut Context<'_>, wire: &WireCase, info: &'static WorkloadInfo) -> Option<Dtype> {
    let Some(word) = &wire.dtype else {
        return info.dtypes.first().copied();
    };
    let found = info.dtypes.iter().find(|dtype| dtype.name() == word.value);
    if found.is_none() {
        let message = format!("`{}` is not defined for `{}`", info.name, word.value);
        let names: Vec<&str> = info.dtypes.iter().map(|dtype| dtype.name()).collect();
        cx.report(Code::UnknownDtype, word.at, message)
            .help(suggest::among(&word.value, "types", &names));
    }
    found.copied()
}

fn inputs(cx: &mut Context<'_>, wire: &WireCase) -> Option<InputFile> {
    let wanted = wire.inputs.as_ref()?;
    let path = cx.in_folder(wanted.at, &wanted.value);
    let why = match cx.sources.inputs.get(&path) {
        Some(Ok(file)) => return Some(file.clone()),
        Some(Err(why)) => why.clone(),
        None => "it was not read".to_owned(),
    };
    let message = format!("can't use the inputs `{}`: {why}", path.display());
    cx.report(Code::InputFile, wanted.at, message)
        .help("paths are relative to the manifest");
    None
}

/// Cases that must have finished first, by index.
fn needs(cx: &mut Context<'_>, wire: &WireCase, shared: &Shared<'_>) -> Vec<usize> {
    let mut found = Vec::new();
    for word in &wire.needs {
        let mut cases = shared.cases.iter();
        match cases.position(|case| case.name.value == word.value) {
            Some(index) if found.contains(&index) => cx.twice(word.at, "needs", &word.value),
            Some(index) => found.push(index),
            None => {
                let known = shared.cases.iter().map(|case| &*case.name.value);
                unknown_case(cx, word, known);
            }
        }
    }
    found
}

/// Axes that are keys of the case itself, such as `lengths = "full"`.
fn own_axes(
    cx: &mut Context<'_>,
    wire: &WireCase,
    info: &'static WorkloadInfo,
) -> Vec<axis::WireAxis> {
    let path = format!("case.{}", wire.name.value);
    let keys = CASE.iter().chain(SHARED).map(|key| key.name);
    let parameters = info.parameters.iter().map(|parameter| parameter.name);
    let known: Vec<&str> = keys.chain(parameters).collect();
    let mut found = Vec::new();
    for entry in &wire.others {
        if info.parameter(&entry.key).is_none() {
            unknown_key(cx, &path, entry, &known);
            continue;
        }
        cx.provenance.note(
            &cx.texts,
            format!("{path}.grid.{}", entry.key),
            entry.value.at,
        );
        found.extend(axis::axis(cx, entry));
    }
    found
}

/// Keeps where shared things that the case takes over were written.
fn note_origins(cx: &mut Context<'_>, wire: &WireCase, shared: &Shared<'_>) {
    let path = format!("case.{}", wire.name.value);
    let mut note = |key: String, at: At| {
        let full = format!("{path}.{key}");
        if !cx.provenance.has(&full) {
            cx.provenance.note(&cx.texts, full, at);
        }
    };
    for axis in &shared.scope.axes {
        note(format!("grid.{}", axis.name.value), axis.at);
    }
    for (name, text) in &shared.scope.derive {
        note(format!("derive.{}", name.value), text.at);
    }
    for scope in [shared.scope, &wire.scope] {
        for tie in &scope.ties {
            for column in &tie.columns {
                note(format!("grid.{}", column.value), tie.at);
            }
        }
        for rule in &scope.exclude {
            note(format!("rule.{}", rule.when.text), rule.when.at);
        }
    }
}
