//! From a case as it was written to a [`Case`]: workload and variants looked up, shared settings
//! taken over, everything checked against the definition of the workload.

use std::collections::BTreeSet;

use sweeper_program::workload::WorkloadInfo;
use sweeper_program::{Dtype, Phase};

use crate::axis;
use crate::case::{Case, InputFile, KnownBackend, KnownWorkload};
use crate::diagnostics::Code;
use crate::dimensions::{self, Columns};
use crate::null;
use crate::rules;
use crate::section::{Context, Spanned, unknown_key};
use crate::suggest;
use crate::text::At;
use crate::user::read::Declarations;
use crate::uses::Uses;
use crate::wire::{WireCase, WireScope, WireText};
use sweeper_model::tuning::family_of;

/// The settings that the cases of a manifest share, and the list of these cases.
pub(super) struct Shared<'a> {
    pub(super) scope: &'a WireScope,
    pub(super) cases: &'a [WireCase],
    /// The workload of each case, where it is known.
    pub(super) workloads: &'a [Option<&'static WorkloadInfo>],
    /// What the manifest declares itself.
    pub(super) declarations: &'a Declarations,
    pub(super) null: Option<&'a null::WireNull>,
    /// Names that settings refer to: buckets, axes along which points are pruned.
    pub(super) mentioned: &'a [String],
}

/// Where the parts of a case were written.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) name: At,
    pub(crate) rows: Vec<Vec<At>>,
    pub(crate) when: Vec<Option<WireText>>,
    pub(crate) derived: Vec<WireText>,
    pub(crate) exclude: Vec<WireText>,
    pub(crate) include: Vec<At>,
    pub(crate) outcomes: Vec<At>,
}

impl Shared<'_> {
    /// The conditions of a case: its own, and the shared conditions that apply to it.
    pub(super) fn texts<'s>(&'s self, wire: &'s WireCase) -> impl Iterator<Item = &'s WireText> {
        let scopes = [self.scope, &wire.scope];
        let rules = scopes.into_iter().flat_map(|scope| &scope.exclude);
        let rules = rules.filter(|rule| rule.cases.have(wire));
        let axes = scopes.into_iter().flat_map(|scope| &scope.axes);
        let ties = scopes.into_iter().flat_map(|scope| &scope.ties);
        let ties = ties.filter(|tie| tie.cases.have(wire));
        rules
            .map(|rule| &rule.when)
            .chain(axes.filter_map(|axis| axis.when.as_ref()))
            .chain(ties.filter_map(|tie| tie.when.as_ref()))
    }

    /// Whether there are several cases, so that a shared setting can apply to some of them.
    pub(super) fn is_several(&self) -> bool {
        self.cases.len() > 1
    }

    /// Whether a word that `wire`'s workload does not know needs no error: it stands in several
    /// cases alike, as `--backends` puts it, and either another one knows it or an earlier one told
    /// of it.
    fn is_told(&self, word: &Spanned<String>, wire: &WireCase) -> bool {
        let has = |wire: &WireCase| {
            let mut words = wire.backends.iter().flatten();
            words.any(|other| other.at == word.at)
        };
        let cases = self.cases.iter().zip(self.workloads);
        let mut cases = cases.filter(|(wire, _)| has(wire)).peekable();
        let is_first = cases
            .peek()
            .is_none_or(|(first, _)| first.name.at == wire.name.at);
        !is_first
            || cases.any(|(_, info)| info.is_some_and(|info| !named(&word.value, info).is_empty()))
    }

    /// True if `name` belongs to the workload of another case, so that this one has no use for it.
    pub(super) fn is_foreign(&self, name: &str, info: &WorkloadInfo) -> bool {
        info.parameter(name).is_none()
            && self
                .workloads
                .iter()
                .flatten()
                .any(|other| other.name != info.name && other.parameter(name).is_some())
    }
}

/// The workload that a case names.
pub(super) fn workload(
    cx: &mut Context<'_>,
    wire: &WireCase,
    registry: &[&'static WorkloadInfo],
) -> Option<&'static WorkloadInfo> {
    let wanted = wire.workload.as_ref()?;
    let found = registry.iter().find(|info| info.name == wanted.value);
    let is_broken = cx.broken.contains(&format!("workload.{}", wanted.value));
    if found.is_none() && !is_broken {
        let known: Vec<&str> = registry.iter().map(|info| info.name).collect();
        cx.report(
            Code::UnknownWorkload,
            wanted.at,
            format!("unknown workload `{}`", wanted.value),
        )
        .label("not in this build")
        .help(suggest::among(&wanted.value, "workloads", &known));
    }
    found.copied()
}

/// Builds a case. An error is reported and replaced by a valid value, to judge the rest too.
pub(super) fn case(
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

/// Backends of a workload by words, but for those of which `is_told` says that they need no error.
pub(super) fn backend_list(
    cx: &mut Context<'_>,
    words: &[Spanned<String>],
    info: &'static WorkloadInfo,
    is_told: impl Fn(&Spanned<String>) -> bool,
) -> Option<Vec<KnownBackend>> {
    let mut found: Vec<KnownBackend> = Vec::new();
    let mut sound = true;
    for word in words {
        let held = named(&word.value, info);
        if held.is_empty() && !is_told(word) {
            sound = false;
            if !cx.is_broken_backend(&word.value) {
                let message = format!("`{}` has no backend `{}`", info.name, word.value);
                let names = info.backends.iter().map(|each| family_of(each.name));
                let mut names: Vec<&str> = names.collect();
                names.dedup();
                cx.report(Code::UnknownBackend, word.at, message)
                    .label("no backend of this workload")
                    .help(suggest::among(&word.value, "backends", &names));
            }
        }
        for backend in held {
            match found.contains(&backend) {
                true if word.value.contains('*') => {}
                true => cx.twice(word.at, "backends", backend.name),
                false => found.push(backend),
            }
        }
    }
    sound.then_some(found)
}

/// The backends that a word names: one, the configurations of a tuned one, or those that fit a
/// pattern such as `*_eager`.
fn named(word: &str, info: &'static WorkloadInfo) -> Vec<KnownBackend> {
    if let Some(backend) = info.backend(word) {
        return vec![KnownBackend(backend)];
    }
    let all = info.backends.iter();
    let named = all.filter(|each| fits(word, each.name) || fits(word, family_of(each.name)));
    named.map(KnownBackend).collect()
}

/// Whether a name fits a pattern, in which `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            let mut ends = rest.char_indices().map(|(at, _)| &rest[at..]).chain([""]);
            ends.any(|end| fits(tail, end))
        }),
    }
}

/// Phases by name; without a list all of the workload.
pub(super) fn phases(
    cx: &mut Context<'_>,
    words: Option<&[Spanned<String>]>,
    info: &'static WorkloadInfo,
) -> Option<Vec<Phase>> {
    let Some(words) = words else {
        return Some(info.phases.to_vec());
    };
    let mut found = Vec::new();
    let mut sound = true;
    for word in words {
        match info.phases.iter().find(|phase| phase.name() == word.value) {
            Some(phase) if found.contains(phase) => cx.twice(word.at, "phases", phase.name()),
            Some(phase) => found.push(*phase),
            None => {
                sound = false;
                let message = format!("`{}` has no phase `{}`", info.name, word.value);
                let names: Vec<&str> = info.phases.iter().map(|phase| phase.name()).collect();
                cx.report(Code::UnknownPhase, word.at, message)
                    .label("no phase of this workload")
                    .help(suggest::among(&word.value, "phases", &names));
            }
        }
    }
    sound.then_some(found)
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
                let known: Vec<&str> = shared.cases.iter().map(|c| c.name.value.as_str()).collect();
                cx.report(
                    Code::UnknownCase,
                    word.at,
                    format!("unknown case `{}`", word.value),
                )
                .help(suggest::among(&word.value, "cases", &known));
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
    let mut known = wire.known.clone();
    known.extend(info.parameters.iter().map(|parameter| parameter.name));
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
