//! The manifest as it was written: the spanned twins of [`Case`](super::case::Case) and its parts,
//! read without knowing any workload.

use std::collections::BTreeMap;

use super::axis::{self, WireAxis};
use super::diagnostics::Code;
use super::merge::RULES;
use super::section::{Context, Section, Spanned};
use super::text::At;
use super::tree::{Entry, Node, Raw};
use crate::status::Status;

/// The text of an expression, with the key it stands under.
#[derive(Clone, Debug)]
pub(super) struct WireText {
    pub(super) key: String,
    pub(super) text: String,
    pub(super) at: At,
}

/// Things that can be shared by all cases, or belong to one.
#[derive(Clone, Debug, Default)]
pub(super) struct WireScope {
    pub(super) axes: Vec<WireAxis>,
    pub(super) ties: Vec<WireTie>,
    pub(super) derive: Vec<(Spanned<String>, WireText)>,
    pub(super) restrict: Vec<WireRestrict>,
    pub(super) require: Vec<WireRule>,
    pub(super) exclude: Vec<WireRule>,
    pub(super) include: Vec<WireInclude>,
}

/// Axes that walk together: a zip or a table.
#[derive(Clone, Debug)]
pub(super) struct WireTie {
    pub(super) columns: Vec<Spanned<String>>,
    pub(super) rows: Vec<Vec<Spanned<sweeper_kernels::Value>>>,
    pub(super) when: Option<WireText>,
    pub(super) otherwise: Option<Vec<Spanned<sweeper_kernels::Value>>>,
    pub(super) at: At,
}

/// A condition with a reason.
#[derive(Clone, Debug)]
pub(super) struct WireRule {
    pub(super) when: WireText,
    pub(super) reason: Option<String>,
}

/// A narrowed axis.
#[derive(Clone, Debug)]
pub(super) struct WireRestrict {
    pub(super) when: Option<WireText>,
    pub(super) axis: Spanned<String>,
    pub(super) values: Vec<Spanned<sweeper_kernels::Value>>,
}

/// An extra point.
#[derive(Clone, Debug)]
pub(super) struct WireInclude {
    pub(super) case: Option<Spanned<String>>,
    pub(super) values: Vec<(Spanned<String>, Spanned<sweeper_kernels::Value>)>,
    pub(super) backends: Option<Vec<Spanned<String>>>,
    pub(super) phases: Option<Vec<Spanned<String>>>,
    pub(super) at: At,
}

/// A case.
#[derive(Clone, Debug)]
pub(super) struct WireCase {
    pub(super) name: Spanned<String>,
    pub(super) at: At,
    pub(super) workload: Option<Spanned<String>>,
    pub(super) backends: Option<Vec<Spanned<String>>>,
    pub(super) phases: Option<Vec<Spanned<String>>>,
    pub(super) dtype: Option<Spanned<String>>,
    pub(super) inputs: Option<Spanned<std::path::PathBuf>>,
    pub(super) needs: Vec<Spanned<String>>,
    pub(super) scope: WireScope,
    /// Keys that may be parameters of the workload.
    pub(super) others: Vec<Entry>,
    /// Keys that a case has, for suggestions.
    pub(super) known: Vec<&'static str>,
}

/// Reads what may be shared, at the top or in a case.
pub(super) fn scope(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    shared: &BTreeMap<String, WireAxis>,
) -> WireScope {
    let mut scope = WireScope::default();
    if let Some(node) = section.take(cx, "grid") {
        scope.axes = axes(cx, node, &section.path_of("grid"), shared);
    }
    if let Some(node) = section.take(cx, "derive") {
        scope.derive = derive(cx, node, &section.path_of("derive"));
    }
    for key in RULES.iter().copied() {
        let Some(node) = section.take(cx, key) else {
            continue;
        };
        for item in tables(cx, node, key) {
            rule(cx, &mut scope, item, key, shared);
        }
    }
    scope
}

fn rule(
    cx: &mut Context<'_>,
    scope: &mut WireScope,
    node: &Node,
    key: &'static str,
    shared: &BTreeMap<String, WireAxis>,
) {
    let Some(mut section) = cx.section(node, key) else {
        return;
    };
    match key {
        "zip" => scope.ties.extend(axis::zip(cx, &mut section, shared)),
        "table" => scope.ties.extend(axis::table(cx, &mut section)),
        "restrict" => restrict(cx, &mut section, &mut scope.restrict),
        "require" => scope.require.extend(condition(cx, &mut section, "that")),
        "exclude" => scope.exclude.extend(condition(cx, &mut section, "when")),
        _ => scope.include.extend(include(cx, &mut section)),
    }
    section.finish(cx, &[]);
}

/// The tables of a list of tables; a single table is a list of one.
fn tables<'n>(cx: &mut Context<'_>, node: &'n Node, key: &str) -> &'n [Node] {
    match &node.raw {
        Raw::Array(items) => items,
        Raw::Table(_) => std::slice::from_ref(node),
        _ => {
            cx.wrong_type(node, key, &format!("tables, written `[[{key}]]`"));
            &[]
        }
    }
}

fn axes(
    cx: &mut Context<'_>,
    node: &Node,
    path: &str,
    shared: &BTreeMap<String, WireAxis>,
) -> Vec<WireAxis> {
    let Some(section) = cx.section(node, path) else {
        return Vec::new();
    };
    let entries = section.table.entries.iter();
    entries
        .filter_map(|entry| {
            cx.provenance
                .note(&cx.texts, section.path_of(&entry.key), entry.value.at);
            axis::axis(cx, entry, shared)
        })
        .collect()
}

fn derive(cx: &mut Context<'_>, node: &Node, path: &str) -> Vec<(Spanned<String>, WireText)> {
    let Some(section) = cx.section(node, path) else {
        return Vec::new();
    };
    let entries = section.table.entries.iter();
    entries
        .filter_map(|entry| {
            cx.provenance
                .note(&cx.texts, section.path_of(&entry.key), entry.value.at);
            if !name(cx, entry) {
                return None;
            }
            let text = expression(cx, &entry.value, &entry.key)?;
            let name = Spanned {
                value: entry.key.clone(),
                at: entry.key_at,
            };
            Some((name, text))
        })
        .collect()
}

/// Words of the language that can't be names.
const RESERVED: &[&str] = &[
    "and",
    "or",
    "not",
    "in",
    "true",
    "false",
    "True",
    "False",
    "min",
    "max",
    "ceil_div",
    "next_pow2",
    "backend",
    "phase",
    "dtype",
    "workload",
];

/// Checks the name of an axis or a derived value: one that expressions can use.
pub(super) fn name(cx: &mut Context<'_>, entry: &Entry) -> bool {
    let key = entry.key.as_str();
    let plain = |c: char| c == '_' || c.is_alphanumeric();
    let label = if RESERVED.contains(&key) {
        "this word means something else in expressions"
    } else if key.starts_with(|c: char| c.is_ascii_digit())
        || !key.chars().all(plain)
        || key.is_empty()
    {
        "letters, digits and `_`, and no digit first"
    } else {
        return true;
    };
    cx.report(Code::Name, entry.key_at, format!("`{key}` can't be a name"))
        .label(label);
    false
}

/// The text of an expression. A number or a boolean is one too.
pub(super) fn expression(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<WireText> {
    let text = match &node.raw {
        Raw::Text(text) => text.clone(),
        Raw::Int(_) | Raw::Float(_) | Raw::Bool(_) => cx.texts.slice(node.at).to_owned(),
        _ if !cx.is_file(node.at) => cx.texts.slice(node.at).to_owned(),
        _ => {
            cx.wrong_type(node, key, "an expression in quotes");
            return None;
        }
    };
    Some(WireText {
        key: key.to_owned(),
        text,
        at: node.at,
    })
}

/// The outcomes of the scripted test device.
pub(super) fn outcomes(cx: &mut Context<'_>, node: &Node) -> Vec<(WireText, Status)> {
    let Raw::Array(items) = &node.raw else {
        cx.wrong_type(node, "outcomes", "a list of tables");
        return Vec::new();
    };
    let mut found = Vec::new();
    for item in items {
        let Some(mut section) = cx.section(item, "outcomes") else {
            continue;
        };
        let when = section.need(cx, "when");
        let when = when.and_then(|node| expression(cx, node, "when"));
        let status = section.need(cx, "status");
        let status = status.and_then(|node| cx.word::<Status>(node, "status"));
        section.finish(cx, &[]);
        found.extend(when.zip(status));
    }
    found
}

fn condition(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    key: &'static str,
) -> Option<WireRule> {
    let reason = section
        .take(cx, "reason")
        .and_then(|node| cx.text(node, "reason"));
    let node = section.need(cx, key)?;
    let when = expression(cx, node, key)?;
    Some(WireRule { when, reason })
}

fn restrict(cx: &mut Context<'_>, section: &mut Section<'_>, found: &mut Vec<WireRestrict>) {
    let when = section
        .take(cx, "when")
        .and_then(|node| expression(cx, node, "when"));
    let Some(node) = section.need(cx, "keep") else {
        return;
    };
    let Some(keep) = cx.section(node, "keep") else {
        return;
    };
    for entry in &keep.table.entries {
        let Some(values) = axis::values(cx, &entry.value, &entry.key) else {
            continue;
        };
        found.push(WireRestrict {
            when: when.clone(),
            axis: Spanned {
                value: entry.key.clone(),
                at: entry.key_at,
            },
            values,
        });
    }
}

fn include(cx: &mut Context<'_>, section: &mut Section<'_>) -> Option<WireInclude> {
    let case = section
        .take(cx, "case")
        .and_then(|node| spanned_text(cx, node, "case"));
    let backends = section
        .take(cx, "backends")
        .and_then(|node| cx.words(node, "backends"));
    let phases = section
        .take(cx, "phases")
        .and_then(|node| cx.words(node, "phases"));
    let node = section.need(cx, "point")?;
    let point = cx.section(node, "point")?;
    let mut values = Vec::new();
    for entry in &point.table.entries {
        let value = axis::scalar(cx, &entry.value, &entry.key)?;
        let name = Spanned {
            value: entry.key.clone(),
            at: entry.key_at,
        };
        values.push((name, value));
    }
    Some(WireInclude {
        case,
        values,
        backends,
        phases,
        at: node.at,
    })
}

pub(super) fn spanned_text(
    cx: &mut Context<'_>,
    node: &Node,
    key: &str,
) -> Option<Spanned<String>> {
    let value = cx.text(node, key)?;
    Some(Spanned { value, at: node.at })
}

/// Reads `[case.*]`.
pub(super) fn cases(
    cx: &mut Context<'_>,
    node: &Node,
    shared: &BTreeMap<String, WireAxis>,
) -> Vec<WireCase> {
    let Some(section) = cx.section(node, "case") else {
        return Vec::new();
    };
    let entries = section.table.entries.iter();
    entries
        .filter_map(|entry| case(cx, entry, shared))
        .collect()
}

fn case(
    cx: &mut Context<'_>,
    entry: &Entry,
    shared: &BTreeMap<String, WireAxis>,
) -> Option<WireCase> {
    let plain = |c: char| matches!(c, '_' | '-') || c.is_ascii_alphanumeric();
    if entry.key.is_empty() || !entry.key.chars().all(plain) {
        let message = format!("`{}` can't be the name of a case", entry.key);
        cx.report(Code::Name, entry.key_at, message)
            .label("letters, digits, `_` and `-`");
        return None;
    }
    let path = format!("case.{}", entry.key);
    let mut section = cx.section(&entry.value, &path)?;
    let scope = scope(cx, &mut section, shared);
    let workload = section.need(cx, "workload");
    let workload = workload.and_then(|node| spanned_text(cx, node, "workload"));
    let backends = section
        .take(cx, "backends")
        .and_then(|node| cx.words(node, "backends"));
    let phases = section
        .take(cx, "phases")
        .and_then(|node| cx.words(node, "phases"));
    let dtype = section
        .take(cx, "dtype")
        .and_then(|node| spanned_text(cx, node, "dtype"));
    let inputs = section.take(cx, "inputs").and_then(|node| {
        let value = cx.path(node, "inputs")?;
        Some(Spanned { value, at: node.at })
    });
    let needs = section.take(cx, "needs");
    let needs = needs.filter(|node| !matches!(&node.raw, Raw::Array(items) if items.is_empty()));
    let needs = needs
        .and_then(|node| cx.words(node, "needs"))
        .unwrap_or_default();
    Some(WireCase {
        name: Spanned {
            value: entry.key.clone(),
            at: entry.key_at,
        },
        at: entry.key_at,
        workload,
        backends,
        phases,
        dtype,
        inputs,
        needs,
        scope,
        others: section.rest().cloned().collect(),
        known: section.asked(),
    })
}
