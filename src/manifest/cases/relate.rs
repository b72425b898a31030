//! Settings that refer to the cases: buckets, sampling, pruning, the baseline.

use std::collections::BTreeSet;
use std::sync::Arc;

use sweeper_program::Value;

use super::scope::kind_of;
use crate::grammar::section::{Context, Spanned};
use crate::model::case::Case;
use crate::model::manifest::Manifest;
use crate::model::settings::{Canonical, Limits, Prune};
use crate::setting::read::Given;
use crate::text::diagnostics::Code;
use crate::text::suggest;
use crate::text::texts::At;
use crate::text::tree::Node;
use sweeper_model::expression::Kind;
use sweeper_model::status::Status;

/// The kind of a name in a case: of an axis or of a derived value.
fn kind_in(case: &Case, name: &str) -> Option<Kind> {
    if let Some(index) = case.variable(name) {
        return Some(kind_of(&case.variables[index], &case.dimensions));
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

/// Checks and completes the settings that refer to the cases of `manifest`.
pub(crate) fn settings(cx: &mut Context<'_>, given: &Given<'_>, manifest: &mut Manifest) {
    let cases = std::mem::take(&mut manifest.cases);
    if let Some(node) = given.get("plan.buckets") {
        buckets(cx, node, &cases);
    }
    if let (Canonical::Published { .. }, Some(node)) =
        (manifest.plan.canonical, given.get("plan.canonical"))
    {
        published(cx, node, &cases);
    }
    prune(cx, given, &mut manifest.limits, &cases);
    if let Some(node) = given.get("report.baseline") {
        manifest.report.baseline = baseline(cx, node, &cases);
    }
    manifest.cases = cases;
}

/// The further baselines of loops. Each is a backend of some case's workload, whichever cases are
/// chosen.
pub(crate) fn more_baselines(
    cx: &mut Context<'_>,
    given: &Given<'_>,
    cases: &[Case],
) -> Vec<String> {
    let node = given.get("report.more_baselines");
    let names = node.and_then(|node| cx.words(node, "more_baselines"));
    let mut found = Vec::new();
    for Spanned { value, at } in names.unwrap_or_default() {
        let mut infos = cases.iter().map(|case| case.workload.info);
        match infos.find_map(|info| info.backend(&value)) {
            Some(backend) => found.push(backend.name.to_owned()),
            None => {
                let known = cases.iter().flat_map(|case| case.workload.info.backends);
                let known: BTreeSet<&str> = known.map(|backend| backend.name).collect();
                cx.unknown_word(at, "more_baselines", &value, known);
            }
        }
    }
    found
}

/// Buckets must be of integers that some case has.
fn buckets(cx: &mut Context<'_>, node: &Node, cases: &[Case]) {
    if cases.is_empty() {
        return;
    }
    for entry in node.table().into_iter().flat_map(|table| &table.entries) {
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
    let message = format!("unknown axis `{name}` in `{key}`");
    cx.report(Code::UnknownAxis, at, message)
        .label("not an axis or derived value of any case")
        .help(suggest::among(name, "in scope", &known));
}

/// The published sampling is of one workload; cases of others can have its sizes, too.
fn published(cx: &mut Context<'_>, node: &Node, cases: &[Case]) {
    let sizes = Canonical::published_sampling().map_or([].as_slice(), |sampling| &sampling.sizes);
    for case in cases {
        let missing = sizes
            .iter()
            .find(|name| kind_in(case, name) != Some(Kind::Int));
        if let Some(missing) = missing {
            let message = format!("the published sampling needs an integer axis `{missing}`");
            cx.report(Code::PublishedNeeds, node.at, message)
                .label(format!("case `{}` has none", case.name));
        }
    }
}

/// Checks the axes of pruning, and expands the short form to a rule.
fn prune(cx: &mut Context<'_>, given: &Given<'_>, limits: &mut Limits, cases: &[Case]) {
    let rule = given.get("limits.prune");
    if let Some(node) = rule {
        along(cx, node, cases);
    }
    let Some(short) = given.get("limits.skip_adjacent_oom") else {
        return;
    };
    let wanted = cx.boolean(short, "skip_adjacent_oom").unwrap_or(false);
    if let Some(rule) = rule {
        let before = cx.name_of(rule.at);
        let message = "`skip_adjacent_oom` is short for a `prune`";
        cx.report(Code::Conflict, short.at, message)
            .label(format!("`prune` is set at {before}"));
    } else if wanted {
        limits.prune = adjacent(cases);
        let path = "limits.prune".to_owned();
        cx.provenance.note(&cx.texts, path, short.at);
    }
}

/// Points are pruned along axes that have an order.
fn along(cx: &mut Context<'_>, rule: &Node, cases: &[Case]) {
    let along = rule.table().and_then(|table| table.get("along"));
    let words = along.and_then(|entry| cx.words(&entry.value, "along"));
    for name in words.into_iter().flatten() {
        let is_ordered =
            |case: &Case| matches!(kind_in(case, &name.value), Some(Kind::Int | Kind::Float));
        if !cases.is_empty() && !cases.iter().any(is_ordered) {
            unknown_axis(cx, name.at, &name.value, "along", cases);
        }
    }
}

/// Out of memory, along every integer axis.
fn adjacent(cases: &[Case]) -> Option<Prune> {
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
    (!along.is_empty()).then(|| Prune {
        on: vec![Status::Oom, Status::PredictedOom],
        along,
    })
}

/// The backend that ratios are relative to.
fn baseline(cx: &mut Context<'_>, node: &Node, cases: &[Case]) -> Option<&'static str> {
    let word = cx.text(node, "baseline")?;
    let backends = || cases.iter().flat_map(|case| case.backends.iter());
    let spelt = |name: &str, aliases: &[&str]| name == word || aliases.contains(&&*word);
    let found = backends().find(|backend| spelt(backend.name, backend.aliases));
    if found.is_none() && !cases.is_empty() {
        let mut known: Vec<&str> = backends().map(|backend| backend.name).collect();
        known.sort_unstable();
        known.dedup();
        let message = format!("the baseline `{word}` is not measured");
        // One that was left out, from the command line perhaps, is not a slip of the pen.
        let exists = cases
            .iter()
            .any(|case| case.workload.info.backend(&word).is_some());
        let code = match exists {
            true => Code::NoBaseline,
            false => Code::UnknownBackend,
        };
        cx.report(code, node.at, message)
            .label("no backend of any case")
            .help(suggest::among(&word, "backends", &known));
    }
    found.map(|backend| backend.0.name)
}
