//! The pipeline from sources to a manifest.

use std::collections::BTreeMap;
use std::sync::Arc;

use sweeper_kernels::Value;
use sweeper_kernels::workload::WorkloadInfo;

use super::build::{self, Shared, Usage};
use super::case::Case;
use super::diagnostics::{Code, Diagnostic, Diagnostics, Severity};
use super::expression::Kind;
use super::null::WireNull;
use super::provenance::Provenance;
use super::section::{Context, Section};
use super::settings::{Canonical, Limits, Prune, Report, Status};
use super::sources::Sources;
use super::text::At;
use super::tree::{self, Node, Raw, Table};
use super::wire::{self, WireCase, WireScope};
use super::{Manifest, Overrides, SCHEMA, decode, merge, overrides, suggest};

pub(super) fn resolve(
    sources: &Sources,
    overrides: &Overrides,
    registry: &[&'static WorkloadInfo],
) -> Result<Manifest, Diagnostics> {
    let mut cx = Context {
        sources,
        texts: sources.texts.clone(),
        diagnostics: Diagnostics::default(),
        provenance: Provenance::default(),
    };
    let root = document(&mut cx, overrides);
    let manifest = root.and_then(|root| read(&mut cx, &root, registry));
    let mut diagnostics = cx.diagnostics;
    if let Some(manifest) = &manifest
        && diagnostics.errors() == 0
    {
        let _ = manifest;
    }
    diagnostics.settle();
    match manifest {
        Some(mut manifest) if acceptable(&diagnostics, overrides) => {
            manifest.provenance = cx.provenance;
            manifest.warnings = diagnostics;
            Ok(manifest)
        }
        _ => Err(diagnostics),
    }
}

fn acceptable(diagnostics: &Diagnostics, overrides: &Overrides) -> bool {
    let severities = diagnostics.iter().map(|each| each.code.severity());
    let worst = severities.min();
    match worst {
        None => true,
        Some(Severity::Warning) => !overrides.deny_lints,
        Some(Severity::Error) => false,
    }
}

/// The manifest as one tree: what it extends below, settings from outside above.
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
    // Text that could not be read leaves holes; what is around them would be judged wrongly.
    if cx.diagnostics.errors() > 0 {
        return None;
    }
    overrides::apply(&mut root, overrides, &mut cx.texts, &mut cx.diagnostics);
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

/// Reads the whole tree. Everything is read even where something is wrong, so that all is reported.
fn read(cx: &mut Context<'_>, root: &Node, registry: &[&'static WorkloadInfo]) -> Option<Manifest> {
    let empty = Table::default();
    let mut section = cx.section(root, "")?;
    schema(cx, &mut section);
    let stem = default_name(cx);
    let name = section.or(cx, "name", stem, name);
    let about = section.or(cx, "about", String::new(), Context::text);
    let tags = section
        .take(cx, "tags")
        .and_then(|node| cx.words(node, "tags"));
    let tags = tags
        .unwrap_or_default()
        .into_iter()
        .map(|tag| tag.value)
        .collect();
    let seed = section.or(cx, "seed", 42, |cx, node, key| {
        cx.integer(node, key, 0, i64::MAX).map(|seed| seed as u64)
    });
    let (scope, wires) = cases_as_written(cx, &mut section);
    let mut plan_section = decode::open(cx, &mut section, "plan", &empty);
    let plan = decode::plan(cx, &mut plan_section);
    let device = decode::read(cx, &mut section, "device", decode::device);
    let cache = decode::read(cx, &mut section, "cache", decode::cache);
    let measure = decode::read(cx, &mut section, "measure", decode::measure);
    let mut limits_section = decode::open(cx, &mut section, "limits", &empty);
    let mut limits = decode::limits(cx, &mut limits_section);
    let output = decode::read(cx, &mut section, "output", decode::output);
    let mut report_section = decode::open(cx, &mut section, "report", &empty);
    let null = null(cx, &mut section);
    section.finish(cx, &["extends"]);

    let mentioned: Vec<String> = plan
        .buckets
        .iter()
        .map(|(name, _)| name.to_string())
        .collect();
    let cases = cases(cx, &scope, &wires, registry, null.as_ref(), &mentioned);
    buckets(cx, &plan_section, &cases);
    published(cx, &plan_section, plan.canonical, &cases);
    prune(cx, &mut limits_section, &mut limits, &cases);
    let report = report(cx, &mut report_section, &cases);
    if matches!(device.use_, super::settings::DeviceUse::Null) && null.is_none() {
        let message = "the device `null` needs a `[null]` table that says what it answers";
        let at = section
            .table
            .get("device")
            .map_or(root.at, |entry| entry.value.at);
        cx.report(Code::NullScript, at, message);
    }
    Some(Manifest {
        name,
        about,
        tags,
        seed,
        cases,
        plan,
        device,
        cache,
        measure,
        limits,
        output,
        report,
        null: null.as_ref().map(WireNull::plain),
        provenance: Provenance::default(),
        warnings: Diagnostics::default(),
    })
}

fn schema(cx: &mut Context<'_>, section: &mut Section<'_>) {
    let Some(node) = section.take(cx, "schema") else {
        cx.report(
            Code::Schema,
            section.at,
            "the manifest does not say the version of its format",
        )
        .help(format!("write `schema = {SCHEMA}` at the top"));
        return;
    };
    if !matches!(node.raw, Raw::Int(SCHEMA)) {
        cx.report(Code::Schema, node.at, "unknown version of the format")
            .label(format!("this build reads version {SCHEMA}"));
    }
}

/// The name of the file, without its ending.
fn default_name(cx: &Context<'_>) -> String {
    let path = cx.texts.0.first().map_or("", |text| &text.name);
    let stem = std::path::Path::new(path).file_stem().unwrap_or_default();
    let plain = |c: char| if is_name_character(c) { c } else { '_' };
    stem.to_string_lossy().chars().map(plain).collect()
}

fn is_name_character(c: char) -> bool {
    matches!(c, '_' | '-' | '.') || c.is_alphanumeric()
}

fn name(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<String> {
    let name = cx.text(node, key)?;
    if !name.is_empty() && !name.starts_with('.') && name.chars().all(is_name_character) {
        return Some(name);
    }
    cx.report(
        Code::Name,
        node.at,
        format!("`{name}` can't be the name of a sweep"),
    )
    .label("letters, digits, `_`, `-` and `.`")
    .help("folders are named by it");
    None
}

fn cases_as_written(cx: &mut Context<'_>, section: &mut Section<'_>) -> (WireScope, Vec<WireCase>) {
    let mut named = BTreeMap::new();
    // Axes first: everything else can refer to them.
    if let Some(grid) = section
        .table
        .get("grid")
        .and_then(|entry| entry.value.table())
    {
        for entry in &grid.entries {
            let mut quiet = Context {
                sources: cx.sources,
                texts: cx.texts.clone(),
                diagnostics: Diagnostics::default(),
                provenance: Provenance::default(),
            };
            if let Some(axis) = super::axis::axis(&mut quiet, entry, &BTreeMap::new()) {
                named.insert(entry.key.clone(), axis);
            }
        }
    }
    let scope = wire::scope(cx, section, &named);
    let wires = match section.take(cx, "case") {
        Some(node) => wire::cases(cx, node, &named),
        None => Vec::new(),
    };
    if wires.is_empty() && cx.diagnostics.errors() == 0 {
        cx.report(Code::NoCases, section.at, "the manifest has no cases")
            .help("add `[case.NAME]` with `workload = \"...\"`");
    }
    (scope, wires)
}

fn null(cx: &mut Context<'_>, section: &mut Section<'_>) -> Option<WireNull> {
    let node = section.take(cx, "null")?;
    let mut inner = cx.section(node, "null")?;
    WireNull::read(cx, &mut inner)
}

/// All cases, each after those it needs.
fn cases(
    cx: &mut Context<'_>,
    scope: &WireScope,
    wires: &[WireCase],
    registry: &[&'static WorkloadInfo],
    null: Option<&WireNull>,
    mentioned: &[String],
) -> Vec<Case> {
    let workloads: Vec<_> = wires
        .iter()
        .map(|wire| build::workload(cx, wire, registry))
        .collect();
    let shared = Shared {
        scope,
        cases: wires,
        workloads: &workloads,
        null,
        mentioned,
    };
    let mut usage = Usage::default();
    let mut built: Vec<Option<Case>> = Vec::new();
    for (wire, info) in wires.iter().zip(&workloads) {
        built.push(info.and_then(|info| build::case(cx, wire, info, &shared, &mut usage)));
    }
    if built.iter().all(Option::is_some) {
        unused(cx, scope, wires, &workloads, &usage);
    }
    let complete = built.iter().all(Option::is_some);
    let cases: Vec<Case> = built.into_iter().flatten().collect();
    if complete {
        in_order(cx, cases, wires)
    } else {
        cases
    }
}

/// Warns of shared things that no case has a use for.
fn unused(
    cx: &mut Context<'_>,
    scope: &WireScope,
    wires: &[WireCase],
    workloads: &[Option<&'static WorkloadInfo>],
    usage: &Usage,
) {
    let Some(info) = workloads.iter().flatten().next() else {
        return;
    };
    let own = wires.iter().flat_map(|wire| &wire.scope.axes);
    let referred: Vec<&String> = own.filter_map(|axis| axis.refers_to.as_ref()).collect();
    for axis in &scope.axes {
        let name = &axis.name.value;
        if !usage.axes.contains(name) && !referred.contains(&name) {
            super::dimensions::unused(cx, name, axis.name.at, info);
        }
    }
    for column in scope.ties.iter().filter_map(|tie| tie.columns.first()) {
        if !usage.axes.contains(&column.value) {
            super::dimensions::unused(cx, &column.value, column.at, info);
        }
    }
    for text in build::texts_of(scope) {
        let is_rule = matches!(text.key.as_str(), "when" | "that");
        let of_axis = scope
            .axes
            .iter()
            .any(|axis| axis.when.as_ref().is_some_and(|w| w.at == text.at))
            || scope
                .ties
                .iter()
                .any(|tie| tie.when.as_ref().is_some_and(|w| w.at == text.at));
        if is_rule && !of_axis && !usage.expressions.contains(&text.at) {
            cx.report(Code::NeverFires, text.at, "this rule belongs to no case")
                .label("no single case has all these names");
        }
    }
    for (name, text) in &scope.derive {
        if !usage.expressions.contains(&text.at) {
            let message = format!("no case can compute `{}`", name.value);
            cx.report(Code::UnusedDerived, name.at, message)
                .label("no single case has all these names");
        }
    }
    for include in &scope.include {
        if usage.includes.contains(&include.at) {
            continue;
        }
        let message = "the extra point belongs to no case";
        let known: Vec<&str> = wires.iter().map(|wire| wire.name.value.as_str()).collect();
        match &include.case {
            Some(case) => {
                cx.report(
                    Code::UnknownCase,
                    case.at,
                    format!("unknown case `{}`", case.value),
                )
                .help(suggest::among(&case.value, "cases", &known));
            }
            None => {
                cx.report(Code::Include, include.at, message)
                    .label("no case has all these axes");
            }
        }
    }
}

/// Orders cases so that each comes after those it needs.
fn in_order(cx: &mut Context<'_>, cases: Vec<Case>, wires: &[WireCase]) -> Vec<Case> {
    let mut order: Vec<usize> = Vec::new();
    while order.len() < cases.len() {
        let ready = |index: &usize| {
            !order.contains(index) && cases[*index].needs.iter().all(|need| order.contains(need))
        };
        let Some(next) = (0..cases.len()).find(ready) else {
            let stuck: Vec<usize> = (0..cases.len())
                .filter(|index| !order.contains(index))
                .collect();
            let names: Vec<Arc<str>> = stuck
                .iter()
                .map(|index| cases[*index].name.clone())
                .collect();
            let at = wires[stuck[0]]
                .needs
                .first()
                .map_or(wires[stuck[0]].at, |need| need.at);
            let message = format!("cases wait for each other: {}", super::listed(&names));
            cx.report(Code::NeedsCycle, at, message)
                .label("never gets its turn");
            return cases;
        };
        order.push(next);
    }
    let mut places = vec![0; cases.len()];
    for (place, index) in order.iter().enumerate() {
        places[*index] = place;
    }
    let mut sorted: Vec<(usize, Case)> = cases
        .into_iter()
        .enumerate()
        .map(|(index, mut case)| {
            case.needs.iter_mut().for_each(|need| *need = places[*need]);
            (places[index], case)
        })
        .collect();
    sorted.sort_by_key(|(place, _)| *place);
    sorted.into_iter().map(|(_, case)| case).collect()
}

/// The kind of a name in a case: of an axis or of a derived value.
fn kind_in(case: &Case, name: &str) -> Option<Kind> {
    if let Some(index) = case.variable(name) {
        return Some(super::dimensions::kind_of(
            &case.variables[index],
            &case.dimensions,
        ));
    }
    let derived = case.derived.iter().find(|derived| &*derived.name == name)?;
    Some(derived.expression.kind())
}

fn all_names(cases: &[Case]) -> Vec<&str> {
    let variables = cases
        .iter()
        .flat_map(|case| case.variables.iter().map(|each| &*each.name));
    let derived = cases
        .iter()
        .flat_map(|case| case.derived.iter().map(|each| &*each.name));
    let mut names: Vec<&str> = variables.chain(derived).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Buckets must be of integers that some case has.
fn buckets(cx: &mut Context<'_>, plan: &Section<'_>, cases: &[Case]) {
    let buckets = plan
        .table
        .get("buckets")
        .and_then(|entry| entry.value.table());
    if cases.is_empty() {
        return;
    }
    for entry in buckets.into_iter().flat_map(|table| &table.entries) {
        let kinds: Vec<Kind> = cases
            .iter()
            .filter_map(|case| kind_in(case, &entry.key))
            .collect();
        if kinds.is_empty() {
            unknown_axis(cx, entry.key_at, &entry.key, "buckets", cases);
        } else if kinds.iter().any(|kind| *kind != Kind::Int) {
            let message = format!("buckets are of integers, `{}` is not one", entry.key);
            cx.report(Code::ExpressionKind, entry.key_at, message);
        }
    }
}

fn unknown_axis(cx: &mut Context<'_>, at: At, name: &str, key: &str, cases: &[Case]) {
    let known = all_names(cases);
    cx.report(
        Code::UnknownAxis,
        at,
        format!("unknown axis `{name}` in `{key}`"),
    )
    .label("not an axis or derived value of any case")
    .help(suggest::among(name, "in scope", &known));
}

fn published(cx: &mut Context<'_>, plan: &Section<'_>, canonical: Canonical, cases: &[Case]) {
    let (Canonical::Published { .. }, Some(entry)) = (canonical, plan.table.get("canonical"))
    else {
        return;
    };
    for case in cases {
        let missing = ["T", "K", "C"]
            .into_iter()
            .find(|name| kind_in(case, name) != Some(Kind::Int));
        if let Some(missing) = missing {
            let message = format!("the published sampling needs an integer axis `{missing}`");
            cx.report(Code::PublishedNeeds, entry.value.at, message)
                .label(format!("case `{}` has none", case.name));
        }
    }
}

/// Reads what prunes.
fn prune(cx: &mut Context<'_>, section: &mut Section<'_>, limits: &mut Limits, cases: &[Case]) {
    let rule = section.take(cx, "prune");
    let short = section.take(cx, "skip_adjacent_oom");
    if let Some(node) = rule {
        limits.prune = cx.section(node, "limits.prune").and_then(|mut inner| {
            let on = inner
                .need(cx, "on")
                .and_then(|node| cx.word_list::<Status>(node, "on"));
            let along = inner.need(cx, "along");
            let along = along.and_then(|node| cx.words(node, "along"));
            inner.finish(cx, &[]);
            let along = along?;
            for name in &along {
                let ordered = |case: &Case| {
                    matches!(kind_in(case, &name.value), Some(Kind::Int | Kind::Float))
                };
                if !cases.is_empty() && !cases.iter().any(ordered) {
                    unknown_axis(cx, name.at, &name.value, "along", cases);
                }
            }
            let along = along
                .iter()
                .map(|name| name.value.as_str().into())
                .collect();
            Some(Prune { on: on?, along })
        });
    }
    if let Some(node) = short {
        let wanted = cx.boolean(node, "skip_adjacent_oom").unwrap_or(false);
        if let Some(rule) = rule {
            let before = cx.name_of(rule.at);
            cx.report(
                Code::Conflict,
                node.at,
                "`skip_adjacent_oom` is short for a `prune`",
            )
            .label(format!("`prune` is set at {before}"));
        } else if wanted {
            limits.prune = Some(adjacent(cases));
        }
    }
    section.finish(cx, &[]);
}

/// Out of memory, along every integer axis.
fn adjacent(cases: &[Case]) -> Prune {
    let mut along: Vec<Arc<str>> = Vec::new();
    for case in cases {
        for variable in &case.variables {
            let dimension = &case.dimensions[variable.dimension];
            let is_integer = matches!(dimension.rows[0][variable.column], Value::Int(_));
            if is_integer && !along.contains(&variable.name) {
                along.push(variable.name.clone());
            }
        }
    }
    Prune {
        on: vec![Status::Oom, Status::PredictedOom],
        along,
    }
}

fn report(cx: &mut Context<'_>, section: &mut Section<'_>, cases: &[Case]) -> Report {
    let (plots, formats) = decode::report(cx, section);
    let baseline = section.take(cx, "baseline").and_then(|node| {
        let word = cx.text(node, "baseline")?;
        let backends = || cases.iter().flat_map(|case| case.backends.iter());
        let spelt = |name: &str, aliases: &[&str]| name == word || aliases.contains(&&*word);
        let found = backends().find(|backend| spelt(backend.name, backend.aliases));
        if found.is_none() && !cases.is_empty() {
            let mut known: Vec<&str> = backends().map(|backend| backend.name).collect();
            known.sort_unstable();
            known.dedup();
            let message = format!("the baseline `{word}` is not measured");
            cx.report(Code::UnknownBackend, node.at, message)
                .label("no backend of any case")
                .help(suggest::among(&word, "backends", &known));
        }
        found.map(|backend| backend.0.name)
    });
    section.finish(cx, &[]);
    Report {
        baseline,
        plots,
        formats,
    }
}
