//! The manifest as it was written: the spanned twins of [`Case`](crate::case::Case) and its parts,
//! read without knowing any workload.

use crate::axis::{self, WireAxis};
use crate::diagnostics::Code;
use crate::merge::RULES;
use crate::section::{Context, Section, Spanned};
use crate::text::At;
use crate::tree::{Entry, Node, Raw};
use sweeper_model::status::Status;

/// The text of an expression, with the key it stands under.
#[derive(Clone, Debug)]
pub(crate) struct WireText {
    pub(crate) key: String,
    pub(super) text: String,
    pub(crate) at: At,
    /// The hint on how to restrict the rule to some cases, if it applies to all of several cases.
    pub(super) for_all: Option<&'static str>,
    /// It is of a declared workload or backend, which has no axes.
    pub(super) is_declared: bool,
}

/// The cases that a shared setting applies to, by name or workload; all cases where none are named.
#[derive(Clone, Debug, Default)]
pub(super) struct WireCases(pub(super) Option<Vec<Spanned<String>>>);

impl WireCases {
    /// Whether the setting applies to a case.
    pub(super) fn have(&self, case: &WireCase) -> bool {
        let workload = case.workload.as_ref().map(|workload| &workload.value);
        self.0.as_ref().is_none_or(|names| {
            let mut names = names.iter().map(|name| &name.value);
            names.any(|name| *name == case.name.value || Some(name) == workload)
        })
    }
}

/// Things that can be shared by all cases, or belong to one.
#[derive(Clone, Debug, Default)]
pub(super) struct WireScope {
    pub(super) axes: Vec<WireAxis>,
    pub(super) ties: Vec<WireTie>,
    pub(super) derive: Vec<(Spanned<String>, WireText)>,
    pub(super) exclude: Vec<WireRule>,
    pub(super) include: Vec<WireInclude>,
}

/// Axes that walk together: a zip.
#[derive(Clone, Debug)]
pub(super) struct WireTie {
    pub(super) cases: WireCases,
    pub(super) columns: Vec<Spanned<String>>,
    pub(super) rows: Vec<Vec<Spanned<sweeper_program::Value>>>,
    pub(super) when: Option<WireText>,
    pub(super) otherwise: Option<Vec<Spanned<sweeper_program::Value>>>,
    pub(super) at: At,
}

/// A condition with a reason.
#[derive(Clone, Debug)]
pub(super) struct WireRule {
    pub(super) cases: WireCases,
    pub(super) when: WireText,
    pub(super) reason: Option<String>,
}

/// An extra point.
#[derive(Clone, Debug)]
pub(super) struct WireInclude {
    pub(super) cases: WireCases,
    pub(super) values: Vec<(Spanned<String>, Spanned<sweeper_program::Value>)>,
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

/// Whose axes and rules are read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Owner {
    /// All cases, which are several or not.
    Cases {
        are_several: bool,
    },
    Case,
}

impl WireScope {
    /// The cases that each of the rules is for.
    pub(super) fn cases(&self) -> impl Iterator<Item = &WireCases> {
        let ties = self.ties.iter().map(|tie| &tie.cases);
        let exclude = self.exclude.iter().map(|rule| &rule.cases);
        let include = self.include.iter().map(|include| &include.cases);
        ties.chain(exclude).chain(include)
    }
}

/// Reads the keys that may be shared, at the top or in a case.
pub(super) fn scope(cx: &mut Context<'_>, section: &mut Section<'_>, owner: Owner) -> WireScope {
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
pub(super) const NAME_CASES: &str = "name the cases that it is for: `cases = [\"NAME\"]`";

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
    "abs",
    "floor",
    "sqrt",
    "exp",
    "log",
    "sin",
    "cos",
    "tanh",
    "erf",
    "where",
    "backend",
    "phase",
    "dtype",
    "workload",
];

/// Why a text can't be the name of a parameter or a tensor, if so.
pub fn objection(name: &str) -> Option<&'static str> {
    let plain = |c: char| c == '_' || c.is_alphanumeric();
    if RESERVED.contains(&name) {
        return Some("this word means something else in expressions");
    }
    let starts_with_digit = name.starts_with(|c: char| c.is_ascii_digit());
    let is_plain = !name.is_empty() && !starts_with_digit && name.chars().all(plain);
    (!is_plain).then_some("letters, digits and `_`, and no digit first")
}

/// Checks the name of an axis or a derived value: one that expressions can use.
pub(super) fn name(cx: &mut Context<'_>, entry: &Entry) -> bool {
    let key = &entry.key;
    let Some(label) = objection(key) else {
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
        for_all: None,
        is_declared: false,
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

fn exclude(cx: &mut Context<'_>, section: &mut Section<'_>, cases: WireCases) -> Option<WireRule> {
    let reason = section
        .take(cx, "reason")
        .and_then(|node| cx.text(node, "reason"));
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
        cases,
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
pub(super) fn cases(cx: &mut Context<'_>, node: &Node) -> Vec<WireCase> {
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
