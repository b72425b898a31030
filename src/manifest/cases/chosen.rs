//! The cases that are run, where not all are: `cases = ["gelu"]`, `--case gelu`, the operations
//! guide's `--operations GELU`.

use super::shared::{Places, unknown_case};
use crate::grammar::section::{Context, Spanned};
use crate::model::case::Case;
use crate::text::diagnostics::Code;

/// The workloads that the operations guide calls by one name, `Loss`.
const LOSSES: [&str; 2] = ["mse", "cross_entropy"];

/// Keeps the named cases, or all, that have backends. The other cases were read and checked, too:
/// an error in a case counts even if the case is not run.
pub(crate) fn choose(
    cx: &mut Context<'_>,
    named: &[Spanned<String>],
    (cases, places): (Vec<Case>, Vec<Places>),
) -> (Vec<Case>, Vec<Places>) {
    for word in named {
        if !cases.iter().any(|case| is_named(case, &word.value)) {
            unknown_case(cx, word, cases.iter().map(|case| &*case.name));
        }
    }
    let is_kept = |case: &Case| {
        let is_named = |word: &Spanned<String>| is_named(case, &word.value);
        !case.backends.is_empty() && (named.is_empty() || named.iter().any(is_named))
    };
    let kept: Vec<usize> = (0..cases.len())
        .filter(|&index| is_kept(&cases[index]))
        .collect();
    if let ([], [first, ..]) = (&*kept, named)
        && cx.diagnostics.errors() == 0
    {
        let message = "no case that is run has any of the backends that are named";
        cx.report(Code::UnknownBackend, first.at, message);
    }
    let place_of = |old: usize| kept.iter().position(|held| *held == old);
    let pairs = cases.into_iter().zip(places).enumerate();
    pairs
        .filter(|(index, _)| place_of(*index).is_some())
        .map(|(_, (mut case, places))| {
            // A case that does not run needs no waiting for.
            case.needs = case
                .needs
                .iter()
                .filter_map(|need| place_of(*need))
                .collect();
            (case, places)
        })
        .unzip()
}

/// True if a word is the name of a case, or of its workload, as a guide may spell it:
/// `CrossEntropy`, and `Loss` for each of the losses.
fn is_named(case: &Case, word: &str) -> bool {
    let bare = |name: &str| {
        let letters = name
            .chars()
            .filter(|letter| !matches!(letter, '_' | '-' | ' '));
        letters.collect::<String>().to_lowercase()
    };
    let workload = case.workload.info.name;
    let is_loss = bare(word) == "loss" && LOSSES.contains(&workload);
    let mut names = [&*case.name, workload].into_iter();
    is_loss || names.any(|name| bare(name) == bare(word))
}
