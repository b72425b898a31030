//! Everything in a case that is an expression: derived values, conditions, extra points.

use std::sync::Arc;

use sweeper_program::Value;

use super::dimensions::fit;
use super::scope::{kind_of, scope};
use super::shared::{self, Places, Shared};
use super::uses::Uses;
use crate::grammar::expression::{WireText, compile, condition};
use crate::grammar::section::{Context, Spanned};
use crate::grammar::wire::{NAME_CASES, WireCase, WireInclude, WireRule};
use crate::model::case::{Case, Derived, Include, NullScript, Rule};
use crate::text::diagnostics::Code;
use crate::text::suggest;
use sweeper_model::expression::{Expression, Kind, Known, Scope};

/// Fills in derived values, rules, extra points and the script of the test device; where each of
/// them was written goes into `places`.
pub(crate) fn complete(
    cx: &mut Context<'_>,
    case: &mut Case,
    wire: &WireCase,
    uses: &Uses,
    shared: &Shared<'_>,
    places: &mut Places,
) {
    let mut scope = scope(case.workload.info, &case.variables, &case.dimensions);
    derive(cx, case, uses, &mut scope, places);
    let scopes = [shared.scope, &wire.scope];
    let rules = scopes.iter().flat_map(|scope| &scope.exclude);
    for rule in rules.filter(|rule| rule.cases.have(wire)) {
        case.exclude.extend(rule_of(cx, rule, &scope));
        places.exclude.push(rule.when.clone());
    }
    // The case's own come last.
    let points = scopes.iter().flat_map(|scope| &scope.include);
    for point in points.filter(|point| point.cases.have(wire)) {
        let is_for_all = point.cases.0.is_none() && shared.is_several();
        let is_shared = shared.scope.include.iter().any(|held| held.at == point.at);
        let help = if is_for_all && is_shared {
            NAME_CASES
        } else {
            ""
        };
        let extra = include(cx, case, point, help);
        case.include.extend(extra);
        places.include.push(point.at);
    }
    if let Some(null) = shared.null {
        case.null = script(cx, null, &scope);
        let outcomes = null.outcomes.iter().map(|(when, _)| when.at);
        places.outcomes.extend(outcomes);
    }
}

fn derive(
    cx: &mut Context<'_>,
    case: &mut Case,
    uses: &Uses,
    scope: &mut Scope,
    places: &mut Places,
) {
    for (name, text) in &uses.derived {
        places.derived.push(text.clone());
        if case
            .variable(&name.value)
            .is_some_and(|index| case.variables[index].given)
        {
            let message = format!("`{}` is an axis and a derived value", name.value);
            cx.report(Code::AxisTwice, name.at, message)
                .label("an axis of this name is walked");
        }
        let expression = compile(cx, text, scope);
        let kind = expression.as_ref().map_or(Kind::Int, Expression::kind);
        let shared_name: Arc<str> = name.value.as_str().into();
        scope.names.push(Known {
            name: shared_name.clone(),
            kind,
            words: None,
        });
        case.derived.extend(expression.map(|expression| Derived {
            name: shared_name,
            expression,
        }));
    }
}

fn rule_of(cx: &mut Context<'_>, wire: &WireRule, scope: &Scope) -> Option<Rule> {
    let when = condition(cx, &wire.when, scope)?;
    let reason = match &wire.reason {
        Some(reason) => reason.as_str().into(),
        None => format!("excluded: {}", wire.when.text).into(),
    };
    Some(Rule { when, reason })
}

/// The variable that a key names.
fn variable(
    cx: &mut Context<'_>,
    case: &Case,
    name: &Spanned<String>,
    help: &str,
) -> Option<usize> {
    let found = case.variable(&name.value);
    if found.is_none() {
        let known: Vec<&str> = case
            .variables
            .iter()
            .map(|variable| &*variable.name)
            .collect();
        let message = format!("unknown axis `{}` in `point`", name.value);
        cx.report(Code::UnknownAxis, name.at, message)
            .label("not an axis of this case")
            .help(suggest::among(&name.value, "axes", &known))
            .help(help);
    }
    found
}

/// An extra point. Values that no axis has become rows that are not walked.
fn include(
    cx: &mut Context<'_>,
    case: &mut Case,
    wire: &WireInclude,
    help: &str,
) -> Option<Include> {
    let info = case.workload.info;
    let mut given: Vec<(usize, Value)> = Vec::new();
    for (name, cell) in &wire.values {
        let index = variable(cx, case, name, help)?;
        let value = match (info.parameter(&name.value), &cell.value) {
            (Some(parameter), _) => fit(cx, cell, parameter)?,
            (None, Value::Int(value))
                if kind_of(&case.variables[index], &case.dimensions) == Kind::Float =>
            {
                Value::Float(*value as f64)
            }
            (None, value) => value.clone(),
        };
        given.push((index, value));
    }
    let mut rows = Vec::new();
    for index in 0..case.dimensions.len() {
        rows.push(row_of(cx, case, wire, index, &given)?);
    }
    let backends = match &wire.backends {
        Some(words) => {
            let listed = shared::backend_list(cx, words, info, |_| false)?;
            let backends = case.backends.iter().enumerate();
            let mine = backends.filter(|(_, backend)| listed.contains(backend));
            mine.map(|(index, _)| index).collect()
        }
        None => (0..case.backends.len()).collect(),
    };
    let phases = match &wire.phases {
        Some(words) => shared::phases(cx, Some(words), info)?,
        None => case.phases.clone(),
    };
    Some(Include {
        rows,
        backends,
        phases,
    })
}

/// The row of a dimension that an extra point is on.
fn row_of(
    cx: &mut Context<'_>,
    case: &mut Case,
    wire: &WireInclude,
    index: usize,
    given: &[(usize, Value)],
) -> Option<usize> {
    let dimension = &case.dimensions[index];
    let value_of = |column: &usize| given.iter().find(|(variable, _)| variable == column);
    let cells: Vec<_> = dimension.columns.iter().map(value_of).collect();
    if cells.iter().all(Option::is_none) && dimension.swept == 1 {
        return Some(0);
    }
    let missing = dimension
        .columns
        .iter()
        .zip(&cells)
        .find(|(_, cell)| cell.is_none());
    if let Some((column, _)) = missing {
        let name = &case.variables[*column].name;
        let message = format!("the extra point does not say its `{name}`");
        cx.report(Code::Include, wire.at, message)
            .label(format!("`{name}` has several values"))
            .help("every axis with more than one value needs one here");
        return None;
    }
    let row: Vec<Value> = cells
        .into_iter()
        .flatten()
        .map(|(_, value)| value.clone())
        .collect();
    let kinds = row.iter().zip(&dimension.rows[0]);
    if let Some((cell, held)) = { kinds }.find(|(a, b)| a.kind() != b.kind()) {
        let message = format!(
            "the extra point has {} where the axis has {}",
            sweeper_model::word::article(cell.kind()),
            sweeper_model::word::article(held.kind())
        );
        cx.report(Code::MixedKinds, wire.at, message);
        return None;
    }
    let rows = &mut case.dimensions[index].rows;
    if let Some(found) = rows.iter().position(|held| *held == row) {
        return Some(found);
    }
    rows.push(row);
    Some(rows.len() - 1)
}

fn script(cx: &mut Context<'_>, null: &super::null::WireNull, scope: &Scope) -> Option<NullScript> {
    let time_ns = number(cx, &null.time_ns, scope);
    let memory_bytes = match &null.memory_bytes {
        Some(wire) => Some(number(cx, wire, scope)?),
        None => None,
    };
    let outcomes = null.outcomes.iter();
    let outcomes = outcomes
        .map(|(when, status)| Some((condition(cx, when, scope)?, *status)))
        .collect::<Option<Vec<_>>>();
    Some(NullScript {
        time_ns: time_ns?,
        memory_bytes,
        noise: null.noise,
        outcomes: outcomes?,
    })
}

fn number(cx: &mut Context<'_>, wire: &WireText, scope: &Scope) -> Option<Expression> {
    let expression = compile(cx, wire, scope)?;
    if matches!(expression.kind(), Kind::Int | Kind::Float) {
        return Some(expression);
    }
    let message = format!("`{}` is not a number", wire.key);
    cx.report(Code::ExpressionKind, wire.at, message)
        .label(format!("this is {}", expression.kind().noun()));
    None
}
