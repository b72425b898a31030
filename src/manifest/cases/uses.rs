//! The names that the expressions of a case use: derived values in the order in which they can be
//! computed, and names of axes.

use std::collections::BTreeSet;

use sweeper_program::workload::WorkloadInfo;

use super::shared::Shared;
use crate::grammar::expression::WireText;
use crate::grammar::section::{Context, Spanned};
use crate::grammar::wire::WireCase;
use crate::text::diagnostics::Code;
use sweeper_model::expression::Tree;

/// The derived values of a case, and the names that its expressions use.
pub(crate) struct Uses {
    /// Derived values, each after the derived values that it uses.
    pub(crate) derived: Vec<(Spanned<String>, WireText)>,
    /// Names that some expression or setting uses.
    names: BTreeSet<String>,
}

impl Uses {
    pub(crate) fn new(cx: &mut Context<'_>, wire: &WireCase, shared: &Shared<'_>) -> Self {
        let own = &wire.scope.derive;
        let is_own = |name: &str| own.iter().any(|(own, _)| own.value == name);
        let theirs = shared.scope.derive.iter();
        let listed: Vec<_> = theirs
            .filter(|(name, _)| !is_own(&name.value))
            .chain(own)
            .cloned()
            .collect();
        let mut names: BTreeSet<String> = shared.mentioned.iter().cloned().collect();
        let derived = listed.iter().map(|(_, text)| text);
        let null = shared.null.into_iter().flat_map(|null| null.texts());
        for text in derived.chain(shared.texts(wire)).chain(null) {
            names.extend(names_of(text));
        }
        Uses {
            derived: in_order(cx, listed),
            names,
        }
    }

    /// True if the case has a use for an axis of this name.
    pub(crate) fn want(&self, name: &str, info: &WorkloadInfo) -> bool {
        info.parameter(name).is_some() || self.names.contains(name)
    }

    /// The index of the derived value called `name`.
    pub(crate) fn derived_index(&self, name: &str) -> Option<usize> {
        self.derived.iter().position(|(held, _)| held.value == name)
    }
}

/// Derived values, each after the derived values that it uses; a cycle is reported and left out.
fn in_order(
    cx: &mut Context<'_>,
    mut waiting: Vec<(Spanned<String>, WireText)>,
) -> Vec<(Spanned<String>, WireText)> {
    let mut derived = Vec::new();
    while !waiting.is_empty() {
        let pending: BTreeSet<String> =
            waiting.iter().map(|(name, _)| name.value.clone()).collect();
        let is_ready = |text: &WireText| !names_of(text).iter().any(|name| pending.contains(name));
        let before = waiting.len();
        waiting.retain(|each| {
            let is_ready = is_ready(&each.1);
            if is_ready {
                derived.push(each.clone());
            }
            !is_ready
        });
        if waiting.len() == before {
            let all: Vec<&str> = waiting.iter().map(|(name, _)| &*name.value).collect();
            let message = format!("derived values use each other: {}", all.join(", "));
            cx.report(Code::DerivedCycle, waiting[0].0.at, message)
                .label("has no beginning");
            cx.broken.extend(pending);
            break;
        }
    }
    derived
}

fn names_of(text: &WireText) -> Vec<String> {
    let mut found = Vec::new();
    if let Ok(tree) = Tree::parse(&text.text) {
        tree.names(&mut |name, _| found.push(name.to_owned()));
    }
    found
}
