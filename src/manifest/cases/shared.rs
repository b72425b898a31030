//! What the cases of a manifest share, and the words by which they name backends and phases.

use sweeper_program::Phase;
use sweeper_program::workload::WorkloadInfo;

use super::null::WireNull;
use crate::grammar::expression::WireText;
use crate::grammar::section::{Context, Spanned};
use crate::grammar::wire::{WireCase, WireScope};
use crate::model::case::KnownBackend;
use crate::text::diagnostics::Code;
use crate::text::suggest;
use crate::text::texts::At;
use crate::user::read::Declarations;
use sweeper_model::tuning::family_of;

/// The settings that the cases of a manifest share, and the list of these cases.
pub(crate) struct Shared<'a> {
    pub(crate) scope: &'a WireScope,
    pub(crate) cases: &'a [WireCase],
    /// The workload of each case, where it is known.
    pub(crate) workloads: &'a [Option<&'static WorkloadInfo>],
    /// What the manifest declares itself.
    pub(crate) declarations: &'a Declarations,
    pub(crate) null: Option<&'a WireNull>,
    /// Names that settings refer to: buckets, axes along which points are pruned.
    pub(crate) mentioned: &'a [String],
}

/// Where the parts of a case were written.
#[derive(Clone, Debug)]
pub(crate) struct Places {
    pub(crate) name: At,
    pub(crate) rows: Vec<Vec<At>>,
    pub(crate) when: Vec<Option<WireText>>,
    pub(crate) derived: Vec<WireText>,
    pub(crate) exclude: Vec<WireText>,
    pub(crate) include: Vec<At>,
    pub(crate) outcomes: Vec<At>,
}

impl Shared<'_> {
    /// The conditions of a case: its own, and the shared conditions that apply to it.
    pub(crate) fn texts<'s>(&'s self, wire: &'s WireCase) -> impl Iterator<Item = &'s WireText> {
        let scopes = [self.scope, &wire.scope];
        let rules = scopes.into_iter().flat_map(|scope| &scope.exclude);
        let rules = rules.filter(|rule| rule.cases.have(wire));
        let axes = scopes.into_iter().flat_map(|scope| &scope.axes);
        let ties = scopes.into_iter().flat_map(|scope| &scope.ties);
        let ties = ties.filter(|tie| tie.cases.have(wire));
        rules
            .map(|rule| &rule.when)
            .chain(axes.filter_map(|axis| axis.when.as_ref()))
            .chain(ties.filter_map(|tie| tie.when.as_ref()))
    }

    /// Whether there are several cases, so that a shared setting can apply to some of them.
    pub(crate) fn is_several(&self) -> bool {
        self.cases.len() > 1
    }

    /// Whether a word that `wire`'s workload does not know needs no error: it stands in several
    /// cases alike, as `--backends` puts it, and either another one knows it or an earlier one told
    /// of it.
    pub(super) fn is_told(&self, word: &Spanned<String>, wire: &WireCase) -> bool {
        let has = |wire: &WireCase| {
            let mut words = wire.backends.iter().flatten();
            words.any(|other| other.at == word.at)
        };
        let cases = self.cases.iter().zip(self.workloads);
        let mut cases = cases.filter(|(wire, _)| has(wire)).peekable();
        let is_first = cases
            .peek()
            .is_none_or(|(first, _)| first.name.at == wire.name.at);
        !is_first
            || cases.any(|(_, info)| info.is_some_and(|info| !named(&word.value, info).is_empty()))
    }

    /// True if `name` belongs to the workload of another case, so that this one has no use for it.
    pub(crate) fn is_foreign(&self, name: &str, info: &WorkloadInfo) -> bool {
        info.parameter(name).is_none()
            && self
                .workloads
                .iter()
                .flatten()
                .any(|other| other.name != info.name && other.parameter(name).is_some())
    }
}

/// Backends of a workload by words, but for those of which `is_told` says that they need no error.
pub(crate) fn backend_list(
    cx: &mut Context<'_>,
    words: &[Spanned<String>],
    info: &'static WorkloadInfo,
    is_told: impl Fn(&Spanned<String>) -> bool,
) -> Option<Vec<KnownBackend>> {
    let mut found: Vec<KnownBackend> = Vec::new();
    let mut sound = true;
    for word in words {
        let held = named(&word.value, info);
        if held.is_empty() && !is_told(word) {
            sound = false;
            if !cx.is_broken_backend(&word.value) {
                let message = format!("`{}` has no backend `{}`", info.name, word.value);
                let names = info.backends.iter().map(|each| family_of(each.name));
                let mut names: Vec<&str> = names.collect();
                names.dedup();
                cx.report(Code::UnknownBackend, word.at, message)
                    .label("no backend of this workload")
                    .help(suggest::among(&word.value, "backends", &names));
            }
        }
        for backend in held {
            match found.contains(&backend) {
                true if word.value.contains('*') => {}
                true => cx.twice(word.at, "backends", backend.name),
                false => found.push(backend),
            }
        }
    }
    sound.then_some(found)
}

/// Reports the name of a case that there is not.
pub(crate) fn unknown_case<'n>(
    cx: &mut Context<'_>,
    name: &Spanned<String>,
    known: impl Iterator<Item = &'n str>,
) {
    let message = format!("unknown case `{}`", name.value);
    let known: Vec<&str> = known.collect();
    cx.report(Code::UnknownCase, name.at, message)
        .help(suggest::among(&name.value, "cases", &known));
}

/// The backends that a word names: one, the configurations of a tuned one, or those that fit a
/// pattern such as `*_eager`.
fn named(word: &str, info: &'static WorkloadInfo) -> Vec<KnownBackend> {
    if let Some(backend) = info.backend(word) {
        return vec![KnownBackend(backend)];
    }
    let all = info.backends.iter();
    let named = all.filter(|each| fits(word, each.name) || fits(word, family_of(each.name)));
    named.map(KnownBackend).collect()
}

/// Whether a name fits a pattern, in which `*` stands for any characters.
fn fits(pattern: &str, name: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == name,
        Some((head, tail)) => name.strip_prefix(head).is_some_and(|rest| {
            let mut ends = rest.char_indices().map(|(at, _)| &rest[at..]).chain([""]);
            ends.any(|end| fits(tail, end))
        }),
    }
}

/// Phases by name; without a list all of the workload.
pub(crate) fn phases(
    cx: &mut Context<'_>,
    words: Option<&[Spanned<String>]>,
    info: &'static WorkloadInfo,
) -> Option<Vec<Phase>> {
    let Some(words) = words else {
        return Some(info.phases.to_vec());
    };
    let mut found = Vec::new();
    let mut sound = true;
    for word in words {
        match info.phases.iter().find(|phase| phase.name() == word.value) {
            Some(phase) if found.contains(phase) => cx.twice(word.at, "phases", phase.name()),
            Some(phase) => found.push(*phase),
            None => {
                sound = false;
                let message = format!("`{}` has no phase `{}`", info.name, word.value);
                let names: Vec<&str> = info.phases.iter().map(|phase| phase.name()).collect();
                cx.report(Code::UnknownPhase, word.at, message)
                    .label("no phase of this workload")
                    .help(suggest::among(&word.value, "phases", &names));
            }
        }
    }
    sound.then_some(found)
}
