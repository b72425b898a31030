//! Which shared expressions a case takes over.
//!
//! A shared rule whose names belong to the workload of another case is none of this case's business;
//! a name that belongs to no workload is a mistake, and stays in to be reported.

use std::collections::BTreeSet;

use sweeper_kernels::workload::WorkloadInfo;

use super::build::{self, Shared};
use super::diagnostics::Code;
use super::expression::Tree;
use super::section::{Context, Spanned};
use super::wire::{WireCase, WireText};

/// The derived values and names that the expressions of a case use.
pub(super) struct Applicable {
    /// Derived values in the order in which they can be computed.
    pub(super) derived: Vec<(Spanned<String>, WireText)>,
    /// Names that are absent here, because they belong to other workloads.
    absent: BTreeSet<String>,
    /// Names that some expression or setting uses.
    used: BTreeSet<String>,
}

impl Applicable {
    pub(super) fn new(
        cx: &mut Context<'_>,
        wire: &WireCase,
        info: &'static WorkloadInfo,
        shared: &Shared<'_>,
    ) -> Self {
        let own: BTreeSet<&str> = wire
            .scope
            .derive
            .iter()
            .map(|(name, _)| &*name.value)
            .collect();
        let mut listed: Vec<(Spanned<String>, WireText)> = Vec::new();
        for (name, text) in &shared.scope.derive {
            if !own.contains(name.value.as_str()) {
                listed.push((name.clone(), text.clone()));
            }
        }
        for (name, text) in &wire.scope.derive {
            listed.push((name.clone(), text.clone()));
        }
        let mut found = Applicable {
            derived: Vec::new(),
            absent: BTreeSet::new(),
            used: shared.mentioned.iter().cloned().collect(),
        };
        found.sort(cx, listed, info, shared);
        let texts = build::texts_of(shared.scope).chain(build::texts_of(&wire.scope));
        let null = shared.null.into_iter().flat_map(|null| null.texts());
        for text in texts.chain(null) {
            let names = names_of(text);
            if !names.iter().any(|name| found.is_absent(name, info, shared)) {
                found.used.extend(names);
            }
        }
        found
    }

    /// Orders derived values so that each comes after those it uses; the absent ones are left out.
    fn sort(
        &mut self,
        cx: &mut Context<'_>,
        mut waiting: Vec<(Spanned<String>, WireText)>,
        info: &'static WorkloadInfo,
        shared: &Shared<'_>,
    ) {
        while !waiting.is_empty() {
            let pending: BTreeSet<String> =
                waiting.iter().map(|(name, _)| name.value.clone()).collect();
            let before = waiting.len();
            waiting.retain(|each| {
                let names = names_of(&each.1);
                if names.iter().any(|name| pending.contains(name)) {
                    return true;
                }
                if names.iter().any(|name| self.is_absent(name, info, shared)) {
                    self.absent.insert(each.0.value.clone());
                } else {
                    self.used.extend(names);
                    self.derived.push(each.clone());
                }
                false
            });
            if waiting.len() == before {
                let all: Vec<&str> = waiting.iter().map(|(name, _)| &*name.value).collect();
                let message = format!("derived values use each other: {}", all.join(", "));
                cx.report(Code::DerivedCycle, waiting[0].0.at, message)
                    .label("has no beginning");
                cx.broken.extend(pending);
                return;
            }
        }
    }

    fn is_absent(&self, name: &str, info: &WorkloadInfo, shared: &Shared<'_>) -> bool {
        self.absent.contains(name) || shared.is_foreign(name, info)
    }

    /// True if all names of `text` can mean something in this case, or are plainly wrong.
    pub(super) fn applies(
        &self,
        text: &WireText,
        info: &WorkloadInfo,
        shared: &Shared<'_>,
    ) -> bool {
        !names_of(text)
            .iter()
            .any(|name| self.is_absent(name, info, shared))
    }

    /// True if the case has a use for an axis of this name.
    pub(super) fn wants(&self, name: &str, info: &WorkloadInfo) -> bool {
        info.parameter(name).is_some() || self.used.contains(name)
    }

    /// The index of the derived value called `name`.
    pub(super) fn derived_index(&self, name: &str) -> Option<usize> {
        self.derived.iter().position(|(held, _)| held.value == name)
    }
}

fn names_of(text: &WireText) -> Vec<String> {
    let mut found = Vec::new();
    if let Ok(tree) = Tree::parse(&text.text) {
        tree.names(&mut |name, _| found.push(name.to_owned()));
    }
    found
}
