//! The pipeline from sources to a manifest, but for its last step: the points of the grid are
//! judged where they are made. `sources` reads the files at the edge, [`overrides`] are settings
//! from outside, `merge` lays one manifest over another, and `like` one backend over another.

mod like;
mod merge;
pub mod overrides;
mod sources;

use std::collections::BTreeSet;

use sweeper_model::hardware::DeviceKind;
use sweeper_program::workload::WorkloadInfo;

use crate::cases::build;
use crate::cases::chosen;
use crate::cases::null::WireNull;
use crate::cases::relate;
use crate::cases::shared::{Places, Shared, unknown_case};
use crate::files::sources::Sources;
use crate::grammar::section::{Context, Section};
use crate::grammar::wire::{self, Owner, WireCase, WireScope};
use crate::model::case::Case;
use crate::model::manifest::{Manifest, SCHEMA};
use crate::model::settings::DeviceUse;
use crate::setting;
use crate::setting::read as settings;
use crate::text::diagnostics::{Code, Diagnostic, Diagnostics, Severity};
use crate::text::tree::{self, Node, Raw};
use crate::user::read::{self, Declarations};
use overrides::Overrides;

/// A manifest that was read and checked against the workloads, before checks of its points.
pub(crate) struct Draft<'s> {
    cx: Context<'s>,
    read: Option<(Manifest, Vec<Places>)>,
    deny_lints: bool,
}

impl<'s> Draft<'s> {
    /// Reads sources.
    pub(crate) fn new(
        sources: &'s Sources,
        overrides: &Overrides,
        registry: &[&'static WorkloadInfo],
    ) -> Self {
        let mut cx = Context::new(sources, sources.texts.clone());
        let root = document(&mut cx, overrides);
        let read = root.and_then(|root| read(&mut cx, &root, registry));
        Draft {
            cx,
            read,
            deny_lints: overrides.deny_lints,
        }
    }

    /// The context for reports, the manifest, and its cases' places, if there is no error yet.
    pub(crate) fn sound(&mut self) -> Option<(&mut Context<'s>, &Manifest, &[Places])> {
        let (manifest, places) = self.read.as_ref()?;
        let is_sound = self.cx.diagnostics.errors() == 0;
        is_sound.then_some((&mut self.cx, manifest, places))
    }

    /// The manifest, or everything that is wrong.
    ///
    /// # Errors
    /// All that was reported, in the order of the text.
    pub(crate) fn settle(self) -> Result<Manifest, Diagnostics> {
        let mut diagnostics = self.cx.diagnostics;
        diagnostics.settle();
        match self.read {
            Some((mut manifest, _)) if acceptable(&diagnostics, self.deny_lints) => {
                manifest.provenance.0 = self.cx.provenance;
                manifest.warnings.0 = diagnostics;
                Ok(manifest)
            }
            _ => Err(diagnostics),
        }
    }
}

fn acceptable(diagnostics: &Diagnostics, deny_lints: bool) -> bool {
    let severities = diagnostics.iter().map(|each| each.code.severity());
    let worst = severities.min();
    match worst {
        None => true,
        Some(Severity::Warning) => !deny_lints,
        Some(Severity::Error) => false,
    }
}

/// The manifest as one tree with settings from outside, if it has no mistakes so far.
pub(crate) fn merged(sources: &Sources, overrides: &Overrides) -> Option<Node> {
    document(&mut Context::new(sources, sources.texts.clone()), overrides)
}

/// The manifest as one tree: the manifest that it extends below, settings from outside above.
fn document(cx: &mut Context<'_>, overrides: &Overrides) -> Option<Node> {
    let count = cx.texts.0.len();
    let mut merged: Option<Node> = None;
    for source in (0..count).rev() {
        let mut node = tree::parse(&cx.texts, source, &mut cx.diagnostics);
        if source == 0 && cx.diagnostics.is_empty() {
            refuse_empty(cx, &node);
        }
        if let Some(table) = node.table_mut()
            && let Some(extends) = table.remove("extends")
            && extends.value.text().is_none()
        {
            cx.wrong_type(&extends.value, "extends", "the path of a manifest");
        }
        merged = Some(match (merged, node.raw) {
            (Some(mut base), Raw::Table(over)) => {
                if let Some(base) = base.table_mut() {
                    merge::overlay(base, over);
                }
                Node {
                    at: node.at,
                    ..base
                }
            }
            (_, raw) => Node { at: node.at, raw },
        });
    }
    let mut root = merged?;
    // Text that could not be read leaves holes, which would cause misleading errors.
    if cx.diagnostics.errors() > 0 {
        return None;
    }
    overrides::apply(&mut root, overrides, &mut cx.texts, &mut cx.diagnostics);
    let unlike = like::expand(&mut root);
    like::report(cx, unlike, &root);
    Some(root)
}

fn refuse_empty(cx: &mut Context<'_>, node: &Node) {
    if node.table().is_some_and(|table| table.entries.is_empty()) {
        let message = format!("the manifest `{}` is empty", cx.texts.0[0].name);
        let diagnostic = Diagnostic::new(Code::Empty, message);
        cx.diagnostics
            .push(diagnostic.help("`sweeper init` writes a manifest to start from"));
    }
}

/// Reads the whole tree. Reading goes on after errors, so that all of them are reported.
fn read(
    cx: &mut Context<'_>,
    root: &Node,
    registry: &[&'static WorkloadInfo],
) -> Option<(Manifest, Vec<Places>)> {
    let mut section = cx.section(root, "")?;
    schema(cx, &section);
    let mut manifest = Manifest::with_defaults(default_name(cx));
    let given = settings::settings(cx, &mut section, &mut manifest);
    let mut declarations = read::declarations(cx, &mut section, registry);
    let registry = &*declarations.extend(registry);
    let (scope, wires) = cases_as_written(cx, &mut section);
    section.finish(cx);

    let script = manifest.null.as_ref();
    let script = script.and_then(|null| WireNull::new(cx, &given, null));
    let buckets = manifest.plan.buckets.iter();
    let mentioned: Vec<String> = buckets.map(|(name, _)| name.to_string()).collect();
    let known = (registry, &declarations);
    let (cases, places) = cases(cx, &scope, &wires, known, script.as_ref(), &mentioned);
    manifest.report.more_baselines = relate::more_baselines(cx, &given, &cases);
    let chosen = given.get("cases").and_then(|node| cx.words(node, "cases"));
    let (cases, places) = chosen::choose(cx, &chosen.unwrap_or_default(), (cases, places));
    manifest.cases = cases;
    manifest.declared = std::mem::take(&mut declarations.tables);
    relate::settings(cx, &given, &mut manifest);
    if manifest.device.use_ == DeviceUse::All(DeviceKind::Null) && script.is_none() {
        no_script(cx, &section);
    }
    Some((manifest, places))
}

fn no_script(cx: &mut Context<'_>, root: &Section<'_>) {
    let device = root.table.get("device");
    let at = device.map_or(root.at, |entry| entry.value.at);
    let message = "the device `null` needs a `[null]` table that says what it answers";
    cx.report(Code::NullScript, at, message);
}

fn schema(cx: &mut Context<'_>, section: &Section<'_>) {
    let Some(entry) = section.table.get("schema") else {
        let message = "the manifest does not say the version of its format";
        cx.report(Code::Schema, section.at, message)
            .help(format!("write `schema = {SCHEMA}` at the top"));
        return;
    };
    if !matches!(entry.value.raw, Raw::Int(SCHEMA)) {
        let message = "unknown version of the format";
        cx.report(Code::Schema, entry.value.at, message)
            .label(format!("this build reads version {SCHEMA}"));
    }
}

/// The name of the file, without its ending.
fn default_name(cx: &Context<'_>) -> String {
    let path = cx.texts.0.first().map_or("", |text| &text.name);
    let stem = std::path::Path::new(path).file_stem().unwrap_or_default();
    let plain = |c: char| {
        if setting::is_name_character(c) {
            c
        } else {
            '_'
        }
    };
    stem.to_string_lossy().chars().map(plain).collect()
}

fn cases_as_written(cx: &mut Context<'_>, section: &mut Section<'_>) -> (WireScope, Vec<WireCase>) {
    let wires = match section.take(cx, "case") {
        Some(node) => wire::cases(cx, node),
        None => Vec::new(),
    };
    let are_several = wires.len() > 1;
    let scope = wire::scope(cx, section, Owner::Cases { are_several });
    if wires.is_empty() && cx.diagnostics.errors() == 0 {
        cx.report(Code::NoCases, section.at, "the manifest has no cases")
            .help("add `[case.NAME]` with `workload = \"...\"`");
    }
    known_cases(cx, &scope, &wires);
    (scope, wires)
}

/// Reports cases that shared rules name and the manifest does not have.
fn known_cases(cx: &mut Context<'_>, scope: &WireScope, wires: &[WireCase]) {
    let workloads = wires.iter().filter_map(|wire| wire.workload.as_ref());
    let known: Vec<&str> = wires
        .iter()
        .map(|wire| &wire.name)
        .chain(workloads)
        .map(|name| name.value.as_str())
        .collect();
    let names = scope.cases().flat_map(|cases| cases.0.iter().flatten());
    for name in names.filter(|name| !known.contains(&name.value.as_str())) {
        unknown_case(cx, name, wires.iter().map(|wire| &*wire.name.value));
    }
}

/// All cases, each after the cases that it needs.
fn cases(
    cx: &mut Context<'_>,
    scope: &WireScope,
    wires: &[WireCase],
    (registry, declarations): (&[&'static WorkloadInfo], &Declarations),
    null: Option<&WireNull>,
    mentioned: &[String],
) -> (Vec<Case>, Vec<Places>) {
    let workloads: Vec<_> = wires
        .iter()
        .map(|wire| build::workload(cx, wire, registry))
        .collect();
    let shared = Shared {
        scope,
        cases: wires,
        workloads: &workloads,
        declarations,
        null,
        mentioned,
    };
    let mut used_axes = BTreeSet::new();
    let known = wires.iter().zip(&workloads);
    let known = known.filter_map(|(wire, info)| Some((wire, (*info)?)));
    let (cases, places): (Vec<Case>, Vec<Places>) = known
        .map(|(wire, info)| build::case(cx, wire, info, &shared, &mut used_axes))
        .unzip();
    if cx.diagnostics.errors() > 0 {
        return (cases, places);
    }
    unused(cx, scope, &workloads, &used_axes);
    in_order(cx, cases, places, wires)
}

/// Warns of shared axes that no case has a use for.
fn unused(
    cx: &mut Context<'_>,
    scope: &WireScope,
    workloads: &[Option<&'static WorkloadInfo>],
    used_axes: &BTreeSet<String>,
) {
    let Some(info) = workloads.iter().flatten().next() else {
        return;
    };
    for axis in &scope.axes {
        if !used_axes.contains(&axis.name.value) {
            crate::cases::dimensions::unused(cx, &axis.name, info, "");
        }
    }
}

/// Orders cases so that each comes after the cases that it needs, and otherwise as written.
fn in_order(
    cx: &mut Context<'_>,
    cases: Vec<Case>,
    places: Vec<Places>,
    wires: &[WireCase],
) -> (Vec<Case>, Vec<Places>) {
    let (order, stuck) = order(&cases);
    if !stuck.is_empty() {
        let names = stuck.iter().map(|&index| &*cases[index].name);
        let names: Vec<&str> = names.collect();
        let needs = stuck.iter().filter_map(|&index| wires[index].needs.first());
        let at = needs.map(|need| need.at).next().unwrap_or(wires[0].at);
        let message = format!("cases wait for each other: {}", names.join(", "));
        cx.report(Code::NeedsCycle, at, message)
            .label("never gets its turn");
        return (cases, places);
    }
    let mut place_of = vec![0; cases.len()];
    for (place, &index) in order.iter().enumerate() {
        place_of[index] = place;
    }
    let mut sorted: Vec<(usize, (Case, Places))> = cases
        .into_iter()
        .zip(places)
        .enumerate()
        .map(|(index, (mut case, places))| {
            case.needs
                .iter_mut()
                .for_each(|need| *need = place_of[*need]);
            (place_of[index], (case, places))
        })
        .collect();
    sorted.sort_by_key(|(place, _)| *place);
    sorted.into_iter().map(|(_, pair)| pair).unzip()
}

/// The positions of cases in order: each after the cases that it needs, and of several candidates
/// the first; and the cases that wait for each other.
fn order(cases: &[Case]) -> (Vec<usize>, Vec<usize>) {
    let mut waits_for: Vec<usize> = cases.iter().map(|case| case.needs.len()).collect();
    let mut wanted_by: Vec<Vec<usize>> = vec![Vec::new(); cases.len()];
    for (index, case) in cases.iter().enumerate() {
        for &need in &case.needs {
            wanted_by[need].push(index);
        }
    }
    let is_ready = |index: &usize| waits_for[*index] == 0;
    let mut ready: BTreeSet<usize> = (0..cases.len()).filter(is_ready).collect();
    let mut order = Vec::with_capacity(cases.len());
    while let Some(next) = ready.pop_first() {
        order.push(next);
        for &waiting in &wanted_by[next] {
            waits_for[waiting] -= 1;
            if waits_for[waiting] == 0 {
                ready.insert(waiting);
            }
        }
    }
    let stuck = (0..cases.len()).filter(|&index| waits_for[index] > 0);
    let stuck = stuck.collect();
    (order, stuck)
}
