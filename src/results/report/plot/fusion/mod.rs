//! Speedups by fusing: `compiled` over `eager` by pattern and size, with the control beside each.

use std::collections::BTreeMap;

use super::fixed::FixedDimensions;
use super::{Drawn, Plot, Request, Slice, describe};
use crate::report::chart::{Chart, Estimate, Forest, ForestGroup, ForestRow};
use crate::report::frame::Key;
use crate::report::fused::{Pair, conditions, pairs};
use sweeper_model::fusion::{BOUNDS, Basis, Class, FUSED, Judged, MARGIN, Ratio, UNFUSED, Verdict};
use sweeper_model::quantity;

/// The name of the plot.
pub(super) const NAME: &str = "fusion_speedup";

/// So many rows fit on a page: where there are more, each workload has a plot of its own.
const MOST_ROWS: usize = 44;

/// All verdicts that have a speedup, with the style of their marks, in the order of the legend.
const STYLES: [(Verdict, usize); 5] = [
    (Verdict::Is(Class::Strong), 2),
    (Verdict::AtLeastModerate, 5),
    (Verdict::Is(Class::Moderate), 0),
    (Verdict::Is(Class::Minimal), 4),
    (Verdict::Is(Class::Slower), 1),
];
/// The style of an inconclusive verdict.
const UNCLEAR: usize = 3;

/// Speedups with their intervals, controls and verdicts: a plot for each combination of phase,
/// machine and other conditions.
pub(super) fn fusion_speedup(request: &Request<'_>) -> Vec<Plot<Drawn>> {
    let frame = request.frame;
    let names = conditions(frame);
    let mut questions: BTreeMap<Key, Vec<Pair<'_>>> = BTreeMap::new();
    for pair in pairs(frame, request.rows) {
        let key = frame.key_of(pair.row, &names);
        questions.entry(key).or_default().push(pair);
    }
    let plots = questions.into_values().flat_map(|pairs| {
        let words = names
            .iter()
            .filter_map(|name| frame.value(pairs[0].row, name));
        let words: Vec<String> = words.map(|word| word.to_string()).collect();
        parts(pairs)
            .into_iter()
            .map(|(workload, pairs)| {
                let words: Vec<String> = workload.into_iter().chain(words.clone()).collect();
                let suffix: String = words.iter().map(|word| format!("_{word}")).collect();
                Plot {
                    name: crate::report::files::file_name(&format!("{NAME}{suffix}")),
                    chart: Ok(chart(request, &pairs, words.join(", "))),
                }
            })
            .collect::<Vec<Plot<Drawn>>>()
    });
    plots.collect()
}

/// All pairs at once if they fit, else the pairs of each workload.
fn parts(pairs: Vec<Pair<'_>>) -> Vec<(Option<String>, Vec<Pair<'_>>)> {
    if pairs.len() <= MOST_ROWS {
        return vec![(None, pairs)];
    }
    let mut parts: BTreeMap<String, Vec<Pair<'_>>> = BTreeMap::new();
    for pair in pairs {
        let workload = pair.unfused.workload.to_string();
        parts.entry(workload).or_default().push(pair);
    }
    parts
        .into_iter()
        .map(|(workload, pairs)| (Some(workload), pairs))
        .collect()
}

fn chart(request: &Request<'_>, pairs: &[Pair<'_>], question: String) -> Chart {
    let slice = Slice {
        request,
        rows: rows_of(request, pairs),
        question,
    };
    let held = FixedDimensions {
        rows: slice.rows.clone(),
        ..FixedDimensions::default()
    };
    let title = format!("Speedup by fusing ({UNFUSED} over {FUSED})");
    let mut caption = describe::caption(&slice, &title, &held, false);
    let shown = spread(pairs, MOST_ROWS);
    let mut groups: Vec<ForestGroup> = Vec::new();
    for pair in &shown {
        let title = &pair.subject.pattern;
        if groups.last().is_none_or(|group| group.title != *title) {
            groups.push(ForestGroup {
                title: title.clone(),
                rows: Vec::new(),
            });
        }
        if let Some(group) = groups.last_mut() {
            group.rows.push(row(pair));
        }
    }
    let has = |is: &dyn Fn(&Judged) -> bool| shown.iter().any(|pair| is(&pair.judged));
    let mut legend: Vec<(usize, String)> = STYLES
        .iter()
        .filter(|(verdict, _)| has(&|judged| judged.verdict == *verdict))
        .map(|(verdict, style)| (*style, verdict.name().to_owned()))
        .collect();
    if has(&|judged| judged.verdict.doubt().is_some() && judged.speedup.is_some()) {
        legend.push((UNCLEAR, "inconclusive".to_owned()));
    }
    let control = format!("control: {UNFUSED} over itself");
    let beside = has(&|judged| judged.control.is_some()).then_some(control);
    caption.notes = notes(&slice, pairs, &shown);
    Chart::Forest(Forest {
        caption,
        x_label: "speedup".to_owned(),
        groups,
        rules: BOUNDS
            .map(|bound| (bound, false))
            .into_iter()
            .chain([(1.0, true)])
            .collect(),
        legend,
        beside,
    })
}

/// Rows of the two programs, also without a result, with the conditions and workloads of `pairs`.
fn rows_of(request: &Request<'_>, pairs: &[Pair<'_>]) -> Vec<usize> {
    let frame = request.frame;
    let names = conditions(frame);
    let key = pairs.first().map(|pair| frame.key_of(pair.row, &names));
    let is_of = |row: &usize| {
        let entry = frame.entries[*row];
        [UNFUSED, FUSED].contains(&&*entry.backend)
            && key.as_ref() == Some(&frame.key_of(*row, &names))
            && pairs
                .iter()
                .any(|pair| pair.unfused.workload == entry.workload)
    };
    request.rows.iter().copied().filter(is_of).collect()
}

/// At most so many of the pairs, evenly among all: they are sorted by pattern and size.
fn spread<'p, 'f>(pairs: &'p [Pair<'f>], most: usize) -> Vec<&'p Pair<'f>> {
    let count = pairs.len().min(most);
    let last = count.saturating_sub(1).max(1);
    let places = (0..count).map(|place| place * (pairs.len() - 1) / last);
    places.map(|place| &pairs[place]).collect()
}

fn row(pair: &Pair<'_>) -> ForestRow {
    let Judged {
        speedup,
        control,
        verdict,
    } = pair.judged;
    let style = STYLES.iter().find(|(held, _)| *held == verdict);
    let style = style.map_or(UNCLEAR, |(_, style)| *style);
    let estimate = |ratio: Ratio, style| Estimate {
        value: ratio.value,
        low: ratio.low,
        high: ratio.high,
        style,
    };
    let is_shown = |ratio: &Ratio| ratio.value.is_finite() && ratio.value > 0.0;
    let speedup = speedup.filter(is_shown);
    ForestRow {
        label: pair.subject.shape(),
        estimate: speedup.map(|ratio| estimate(ratio, style)),
        beside: control.filter(is_shown).map(|ratio| estimate(ratio, 0)),
        said: match (&speedup, verdict) {
            (Some(ratio), _) => quantity::significant(ratio.value),
            (None, Verdict::SameProgram) => "same".to_owned(),
            (None, _) => "?".to_owned(),
        },
    }
}

fn notes(slice: &Slice<'_>, pairs: &[Pair<'_>], shown: &[&Pair<'_>]) -> Vec<String> {
    let count = |is: &dyn Fn(&Judged) -> bool| shown.iter().filter(|pair| is(&pair.judged)).count();
    let [minimal, moderate, strong] = BOUNDS;
    let mut notes = vec![format!(
        "Bars: 95 % intervals. Dashed: {minimal}, {moderate} and {strong}, the bounds of verdicts, which need the \
         whole interval."
    )];
    let is_of_medians = |judged: &Judged| {
        judged
            .speedup
            .is_some_and(|speedup| speedup.basis == Basis::Medians)
    };
    match count(&is_of_medians) {
        0 => {}
        medians => notes.push(format!(
            "{medians} without samples: intervals are made of those of both medians."
        )),
    }
    if shown.len() < pairs.len() {
        notes.push(format!(
            "{} of {} sizes are shown; fusion.csv has all.",
            shown.len(),
            pairs.len()
        ));
    }
    if count(&|judged| judged.verdict == Verdict::SameProgram) > 0 {
        notes.push("same: nothing was fused, both are one program.".to_owned());
    }
    let is_unknown = |judged: &Judged| judged.speedup.is_none() && judged.verdict.doubt().is_some();
    if count(&is_unknown) > 0 {
        notes.push("?: no speedup can be had; fusion.csv says why.".to_owned());
    }
    let is_off = |judged: &Judged| {
        judged
            .control
            .is_some_and(|control| control.certain_distance() > MARGIN)
    };
    match count(&is_off) {
        0 => {}
        off => notes.push(format!(
            "{off} of {} controls are certainly off 1 by more than 1 %: nothing is said there.",
            count(&|judged| judged.control.is_some())
        )),
    }
    if let Some(failed) = describe::failures(slice, &slice.rows) {
        notes.push(format!("No result: {failed}."));
    }
    notes
}

#[cfg(test)]
mod tests;
