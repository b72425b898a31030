//! Expressions of a manifest: their texts with places, the names in them, and their check.

use std::ops::Range;

use super::section::Context;
use crate::text::diagnostics::Code;
use crate::text::suggest;
use crate::text::texts::At;
use crate::text::tree::{Entry, Node, Raw};
use sweeper_model::expression::{Expression, Fault, FaultKind, Kind, Scope, Tree};

/// The text of an expression, with the key it stands under.
#[derive(Clone, Debug)]
pub(crate) struct WireText {
    pub(crate) key: String,
    pub(crate) text: String,
    pub(crate) at: At,
    /// The hint on how to restrict the rule to some cases, if it applies to all of several cases.
    pub(crate) for_all: Option<&'static str>,
    /// It is of a declared workload or backend, which has no axes.
    pub(crate) is_declared: bool,
}

impl Context<'_> {
    /// The place of a part of an expression.
    pub(crate) fn inside(&self, text: &WireText, part: Range<usize>) -> At {
        self.texts.inside(text.at, &text.text, part)
    }
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
pub(crate) fn check_name(cx: &mut Context<'_>, entry: &Entry) -> bool {
    let key = &entry.key;
    let Some(label) = objection(key) else {
        return true;
    };
    cx.report(Code::Name, entry.key_at, format!("`{key}` can't be a name"))
        .label(label);
    false
}

/// The text of an expression. A number or a boolean is one too.
pub(crate) fn expression(cx: &mut Context<'_>, node: &Node, key: &str) -> Option<WireText> {
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

/// Parses and checks an expression; errors are reported at its place in the string.
pub(crate) fn compile(cx: &mut Context<'_>, wire: &WireText, scope: &Scope) -> Option<Expression> {
    let WireText { key, text, at, .. } = wire;
    let tree = match Tree::parse(text) {
        Ok(tree) => tree,
        Err(error) => {
            let place = cx.texts.inside(*at, text, error.span);
            let message = format!("`{key}` is not an expression");
            cx.report(Code::ExpressionSyntax, place, message)
                .label(error.message)
                .help(error.help.unwrap_or_default());
            return None;
        }
    };
    let mut names = Vec::new();
    tree.names(&mut |name, _| names.push(name.to_owned()));
    if names
        .iter()
        .any(|name| cx.broken.contains(name) && scope.find(name).is_none())
    {
        return None;
    }
    match Expression::compile(text, &tree, scope) {
        Ok(expression) => {
            for span in expression.float_equalities() {
                let place = cx.texts.inside(*at, text, span.clone());
                cx.report(Code::FloatEquality, place, "a float is compared with `==`")
                    .label("hardly ever equal")
                    .help("compare with `<` and `>`, or give the axis integers");
            }
            Some(expression)
        }
        Err(faults) => {
            faults
                .into_iter()
                .for_each(|fault| report(cx, wire, fault, scope));
            None
        }
    }
}

fn report(cx: &mut Context<'_>, wire: &WireText, fault: Fault, scope: &Scope) {
    let place = cx.texts.inside(wire.at, &wire.text, fault.span);
    match fault.kind {
        FaultKind::UnknownName(name) => {
            let known = names(scope);
            let noun = if wire.is_declared { "name" } else { "axis" };
            let message = format!("unknown {noun} `{name}` in `{}`", wire.key);
            let report = cx.report(Code::UnknownName, place, message);
            match wire.for_all {
                // Reported once, not for each case that lacks this name.
                Some(help) => report
                    .label("not an axis, derived value or variable of every case")
                    .help(suggest::did_you_mean(&name, known))
                    .help(help),
                None if wire.is_declared => report
                    .label("neither a parameter nor another name that is known here")
                    .help(suggest::among(&name, "names", &known)),
                None => report
                    .label("not an axis, derived value or variable of this case")
                    .help(suggest::among(&name, "in scope", &known)),
            };
        }
        FaultKind::UnknownWord { word, name, .. }
            if name == "backend" && cx.is_broken_backend(&word) => {}
        FaultKind::UnknownWord { word, name, known } => {
            let code = match name.as_str() {
                "backend" => Code::UnknownBackend,
                "phase" => Code::UnknownPhase,
                "dtype" => Code::UnknownDtype,
                _ => Code::UnknownChoice,
            };
            cx.report(code, place, format!("`{name}` is never `{word}`"))
                .label("no value of it")
                .help(suggest::among(&word, "values", &known));
        }
        FaultKind::Mismatch(label) => {
            let message = format!("`{}` combines kinds that don't go together", wire.key);
            cx.report(Code::ExpressionKind, place, message).label(label);
        }
    }
}

/// A condition.
pub(crate) fn condition(
    cx: &mut Context<'_>,
    wire: &WireText,
    scope: &Scope,
) -> Option<Expression> {
    let expression = compile(cx, wire, scope)?;
    if expression.kind() == Kind::Bool {
        return Some(expression);
    }
    let message = format!("`{}` is neither true nor false", wire.key);
    cx.report(Code::NotACondition, wire.at, message)
        .label(format!("this is {}", expression.kind().noun()))
        .help("compare it with something");
    None
}

/// Names as a scope shows them, in the order in which they are listed for people.
pub(crate) fn names(scope: &Scope) -> Vec<&str> {
    let names = scope.names.iter().map(|known| &*known.name);
    names.filter(|name| !name.is_empty()).collect()
}
