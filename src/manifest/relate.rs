//! Settings that refer to the cases: buckets, sampling, pruning, the baseline.

use std::sync::Arc;

use sweeper_kernels::Value;

use super::case::Case;
use super::decode;
use super::diagnostics::Code;
use super::dimensions::kind_of;
use super::expression::Kind;
use super::section::{Context, Section};
use super::settings::{Canonical, ITERATIONS, Limits, Prune, Report};
use super::suggest;
use super::text::At;
use crate::status::Status;

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

/// Buckets must be of integers that some case has.
pub(super) fn buckets(cx: &mut Context<'_>, plan: &Section<'_>, cases: &[Case]) {
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

pub(super) fn published(
    cx: &mut Context<'_>,
    plan: &Section<'_>,
    canonical: Canonical,
    cases: &[Case],
) {
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
pub(super) fn prune(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    limits: &mut Limits,
    cases: &[Case],
) {
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
            limits.prune = adjacent(cases);
        }
    }
    section.finish(cx, &[]);
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

pub(super) fn report(cx: &mut Context<'_>, section: &mut Section<'_>, cases: &[Case]) -> Report {
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
            // One that was left out, from the command line perhaps, is no slip of the pen.
            let exists = cases
                .iter()
                .any(|case| case.workload.0.backend(&word).is_some());
            let code = match exists {
                true => Code::NoBaseline,
                false => Code::UnknownBackend,
            };
            cx.report(code, node.at, message)
                .label("no backend of any case")
                .help(suggest::among(&word, "backends", &known));
        }
        found.map(|backend| backend.0.name)
    });
    let iterations = section.or(cx, "iterations", ITERATIONS, Context::count);
    section.finish(cx, &[]);
    Report {
        baseline,
        iterations,
        plots,
        formats,
    }
}
