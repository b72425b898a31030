//! Cases as they are written: the spanned twins of `Case` and its parts, read without knowing any
//! workload.

use super::axis::{self, WireAxis, WireCases, WireTie};
use super::expression::{WireText, check_name, expression};
use super::keys::keys;
use super::section::{Context, Section, Spanned};
use crate::text::diagnostics::Code;
use crate::text::texts::At;
use crate::text::tree::{Entry, Node, Raw};
use sweeper_model::status::Status;

keys! {
    /// `[case.NAME]`, beside what cases share and the parameters of its workload.
    CASE {
        "workload": Text, "what is computed";
        "backends": List(&Text), "its implementations; `\"fused*\"` names several";
        "phases": List(&Text), "what is timed; all where it is not said";
        "dtype": Text, "type of the elements; the workload's first where it is not said";
        "inputs": Path, "file of tensors, relative to the manifest";
        "needs": List(&Text), "cases that must have finished first";
    }

    /// What a case has of its own, or all cases share.
    SHARED {
        "grid": Named(&Axis), "axes, multiplied";
        "derive": Named(&Expression), "named expressions";
        "zip": List(&Table(ZIP)), "axes that walk together";
        "exclude": List(&Table(EXCLUDE)), "points that are left out";
        "include": List(&Table(INCLUDE)), "points beside the grid";
    }

    ZIP {
        "axes" (needed): Named(&Axis), "the axes, of one length";
        "when": Expression, "the condition under which they exist";
        "else": Named(&Scalar), "their values where they do not";
    }

    EXCLUDE {
        "when" (needed): Expression, "the condition";
        "reason": Text, "why, for people";
    }

    INCLUDE {
        "point" (needed): Named(&Scalar), "a value of each axis that has several";
        "backends": List(&Text), "the backends that measure it; all where it is not said";
        "phases": List(&Text), "the phases that are timed; all where it is not said";
    }

    /// Of rules that cases share.
    CASES {
        "cases": List(&Text), "cases that it is for, by name or workload; all by default";
    }
}

/// Lists of rules, at the top and in a case.
pub(crate) const RULES: &[&str] = &["zip", "exclude", "include"];

impl WireCases {
    /// Whether the setting applies to a case.
    pub(crate) fn have(&self, case: &WireCase) -> bool {
        let workload = case.workload.as_ref().map(|workload| &workload.value);
        self.0.as_ref().is_none_or(|names| {
            let mut names = names.iter().map(|name| &name.value);
            names.any(|name| *name == case.name.value || Some(name) == workload)
        })
    }
}

/// Things that can be shared by all cases, or belong to one.
#[derive(Clone, Debug, Default)]
pub(crate) struct WireScope {
    pub(crate) axes: Vec<WireAxis>,
    pub(crate) ties: Vec<WireTie>,
    pub(crate) derive: Vec<(Spanned<String>, WireText)>,
    pub(crate) exclude: Vec<WireRule>,
    pub(crate) include: Vec<WireInclude>,
}

/// A condition with a reason.
#[derive(Clone, Debug)]
pub(crate) struct WireRule {
    pub(crate) cases: WireCases,
    pub(crate) when: WireText,
    pub(crate) reason: Option<String>,
}

/// An extra point.
#[derive(Clone, Debug)]
pub(crate) struct WireInclude {
    pub(crate) cases: WireCases,
    pub(crate) values: Vec<(Spanned<String>, Spanned<sweeper_program::Value>)>,
    pub(crate) backends: Option<Vec<Spanned<String>>>,
    pub(crate) phases: Option<Vec<Spanned<String>>>,
    pub(crate) at: At,
}

/// A case.
#[derive(Clone, Debug)]
pub(crate) struct WireCase {
    pub(crate) name: Spanned<String>,
    pub(crate) at: At,
    pub(crate) workload: Option<Spanned<String>>,
    pub(crate) backends: Option<Vec<Spanned<String>>>,
    pub(crate) phases: Option<Vec<Spanned<String>>>,
    pub(crate) dtype: Option<Spanned<String>>,
    pub(crate) inputs: Option<Spanned<std::path::PathBuf>>,
    pub(crate) needs: Vec<Spanned<String>>,
    pub(crate) scope: WireScope,
    /// Keys that may be parameters of the workload.
    pub(crate) others: Vec<Entry>,
}

/// Whose axes and rules are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Owner {
    /// All cases, which are several or not.
    Cases {
        are_several: bool,
    },
    Case,
}

impl WireScope {
    /// The cases that each of the rules is for.
    pub(crate) fn cases(&self) -> impl Iterator<Item = &WireCases> {
        let ties = self.ties.iter().map(|tie| &tie.cases);
        let exclude = self.exclude.iter().map(|rule| &rule.cases);
        let include = self.include.iter().map(|include| &include.cases);
        ties.chain(exclude).chain(include)
    }
}

/// Reads the keys that may be shared, at the top or in a case.
pub(crate) fn scope(cx: &mut Context<'_>, section: &mut Section<'_>, owner: Owner) -> WireScope {
    let mut scope = WireScope::default();
    if let Some(node) = section.take(cx, "grid") {
        scope.axes = axes(cx, node, &section.path_of("grid"));
    }
    if let Some(node) = section.take(cx, "derive") {
        scope.derive = derive(cx, node, &section.path_of("derive"));
    }
    for key in RULES.iter().copied() {
        let Some(node) = section.take(cx, key) else {
            continue;
        };
        for item in tables(cx, node, key) {
            rule(cx, &mut scope, item, key, owner);
        }
    }
    if owner == (Owner::Cases { are_several: true }) {
        for (_, text) in &mut scope.derive {
            text.for_all = Some("write it in the cases that it is for: `[case.NAME.derive]`");
        }
        for rule in &mut scope.exclude {
            if rule.cases.0.is_none() {
                rule.when.for_all = Some(NAME_CASES);
            }
        }
    }
    scope
}

/// The help for a shared setting that does not fit one of the cases.
pub(crate) const NAME_CASES: &str = "name the cases that it is for: `cases = [\"NAME\"]`";

fn rule(cx: &mut Context<'_>, scope: &mut WireScope, node: &Node, key: &'static str, owner: Owner) {
    let Some(mut section) = cx.section(node, key) else {
        return;
    };
    let cases = match owner {
        Owner::Case => WireCases::default(),
        Owner::Cases { .. } => {
            let named = section.take(cx, "cases");
            WireCases(named.and_then(|node| cx.words(node, "cases")))
        }
    };
    match key {
        "zip" => scope.ties.extend(axis::zip(cx, &mut section, cases)),
        "exclude" => scope.exclude.extend(exclude(cx, &mut section, cases)),
        _ => scope.include.extend(include(cx, &mut section, cases)),
    }
    section.finish(cx);
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

fn axes(cx: &mut Context<'_>, node: &Node, path: &str) -> Vec<WireAxis> {
    let Some(section) = cx.section(node, path) else {
        return Vec::new();
    };
    let entries = section.table.entries.iter();
    entries
        .filter_map(|entry| {
            let path = section.path_of(&entry.key);
            cx.provenance.note(&cx.texts, path, entry.value.at);
            axis::axis(cx, entry)
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
            if !check_name(cx, entry) {
                return None;
            }
            let text = expression(cx, &entry.value, &entry.key)?;
            let name = Spanned::key(entry);
            Some((name, text))
        })
        .collect()
}

/// The outcomes of the scripted test device.
pub(crate) fn outcomes(cx: &mut Context<'_>, node: &Node) -> Vec<(WireText, Status)> {
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
        section.finish(cx);
        found.extend(when.zip(status));
    }
    found
}

fn exclude(cx: &mut Context<'_>, section: &mut Section<'_>, cases: WireCases) -> Option<WireRule> {
    let reason = section.read(cx, "reason", Context::text);
    let node = section.need(cx, "when")?;
    let when = expression(cx, node, "when")?;
    Some(WireRule {
        cases,
        when,
        reason,
    })
}

fn include(
    cx: &mut Context<'_>,
    section: &mut Section<'_>,
    cases: WireCases,
) -> Option<WireInclude> {
    let backends = section.read(cx, "backends", Context::words);
    let phases = section.read(cx, "phases", Context::words);
    let node = section.need(cx, "point")?;
    let point = cx.section(node, "point")?;
    let mut values = Vec::new();
    for entry in &point.table.entries {
        let value = axis::scalar(cx, &entry.value, &entry.key)?;
        let name = Spanned::key(entry);
        values.push((name, value));
    }
    Some(WireInclude {
        cases,
        values,
        backends,
        phases,
        at: node.at,
    })
}

pub(crate) fn spanned_text(
    cx: &mut Context<'_>,
    node: &Node,
    key: &str,
) -> Option<Spanned<String>> {
    let value = cx.text(node, key)?;
    Some(Spanned { value, at: node.at })
}

/// Reads `[case.*]`.
pub(crate) fn cases(cx: &mut Context<'_>, node: &Node) -> Vec<WireCase> {
    let Some(section) = cx.section(node, "case") else {
        return Vec::new();
    };
    let entries = section.table.entries.iter();
    entries.filter_map(|entry| case(cx, entry)).collect()
}

fn case(cx: &mut Context<'_>, entry: &Entry) -> Option<WireCase> {
    let plain = |c: char| matches!(c, '_' | '-') || c.is_ascii_alphanumeric();
    if entry.key.is_empty() || !entry.key.chars().all(plain) {
        let message = format!("`{}` can't be the name of a case", entry.key);
        cx.report(Code::Name, entry.key_at, message)
            .label("letters, digits, `_` and `-`");
        return None;
    }
    let path = format!("case.{}", entry.key);
    let mut section = cx.section(&entry.value, &path)?;
    let scope = scope(cx, &mut section, Owner::Case);
    let workload = section.need(cx, "workload");
    let workload = workload.and_then(|node| spanned_text(cx, node, "workload"));
    let backends = section.read(cx, "backends", Context::words);
    let phases = section.read(cx, "phases", Context::words);
    let dtype = section.read(cx, "dtype", spanned_text);
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
        name: Spanned::key(entry),
        at: entry.key_at,
        workload,
        backends,
        phases,
        dtype,
        inputs,
        needs,
        scope,
        others: section.rest().cloned().collect(),
    })
}
