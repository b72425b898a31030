//! The text of a plot: its fixed dimensions, how often and where it was measured, and failures.

use std::collections::{BTreeMap, BTreeSet};

use super::Slice;
use super::fixed::FixedDimensions;
use crate::report::chart::Caption;
use sweeper_model::row::entry::Times;
use sweeper_model::status::Status;

/// The caption of a plot of `held`'s rows. `is_timed` plots explain their intervals.
pub(super) fn caption(
    slice: &Slice<'_>,
    title: &str,
    held: &FixedDimensions,
    is_timed: bool,
) -> Caption {
    let mut parts = Vec::new();
    if !slice.request.section.is_empty() {
        parts.push(slice.request.section.to_owned());
    }
    if !held.values.is_empty() {
        parts.push(format!("at {}", held.said()));
    }
    if !held.tied.is_empty() {
        let names = held.tied.join(", ");
        parts.push(format!("{names} moving with it"));
    }
    parts.extend(samples(slice, &held.rows, is_timed));
    parts.extend(cache(slice, &held.rows));
    parts.push(devices(slice, &held.rows));
    parts.retain(|part| !part.is_empty());
    Caption {
        title: match slice.question.is_empty() {
            true => title.to_owned(),
            false => format!("{title}: {}", slice.question),
        },
        subtitle: parts.join("; "),
        notes: Vec::new(),
    }
}

/// The number of samples, and the meaning of the intervals.
fn samples(slice: &Slice<'_>, rows: &[usize], is_timed: bool) -> Option<String> {
    if !is_timed {
        return None;
    }
    let times: Vec<Times> = rows
        .iter()
        .filter_map(|&row| slice.frame().entries[row].times)
        .collect();
    samples_of(&times)
}

fn samples_of(times: &[Times]) -> Option<String> {
    let counts: BTreeSet<u32> = times.iter().filter_map(|times| times.n).collect();
    // One sample has no interval.
    let several = times.iter().filter(|times| times.n != Some(1));
    let coverage = several.filter_map(|times| times.coverage);
    let coverage = coverage.fold(f64::INFINITY, f64::min);
    let what = match (counts.first(), counts.last()) {
        (Some(1), Some(1)) => return Some("one sample each, no intervals".to_owned()),
        (Some(least), Some(most)) if least == most => format!("medians of {least} samples"),
        (Some(least), Some(most)) => format!("medians of {least} to {most} samples"),
        _ if times.is_empty() => return None,
        _ => return Some("medians and quartiles; number of samples not recorded".to_owned()),
    };
    if !coverage.is_finite() {
        return Some(what);
    }
    let percent = (coverage * 100.0).floor().min(95.0);
    let but = match counts.first() {
        Some(1) => " (none of one sample)",
        _ => "",
    };
    Some(format!("{what} with {percent:.0} % intervals{but}"))
}

/// The state of the cache, if all rows have one state.
fn cache(slice: &Slice<'_>, rows: &[usize]) -> Option<String> {
    let mut states = rows
        .iter()
        .map(|&row| slice.frame().entries[row].l2.as_deref());
    let first = states.next()??;
    states
        .all(|state| state == Some(first))
        .then(|| format!("{first} cache"))
}

/// The devices, or the files of sources that name no device.
fn devices(slice: &Slice<'_>, rows: &[usize]) -> String {
    let names: BTreeSet<&str> = rows
        .iter()
        .filter_map(|&row| slice.frame().entries[row].device_name.as_deref())
        .collect();
    if names.len() == 1 && slice.request.sources.len() == 1 {
        return slice.request.sources[0].label.clone();
    }
    let labels: Vec<&str> = slice
        .request
        .sources
        .iter()
        .map(|source| source.label.as_str())
        .collect();
    labels.join(", ")
}

/// The statuses of rows without a result, by line: `streaming 2 oom, 1 skipped`.
pub(super) fn failures(slice: &Slice<'_>, rows: &[usize]) -> Option<String> {
    let mut counts: BTreeMap<(String, Status), usize> = BTreeMap::new();
    for &row in rows {
        let entry = slice.frame().entries[row];
        if !entry.is_ok() {
            let key = (slice.frame().series(row), entry.status);
            *counts.entry(key).or_default() += 1;
        }
    }
    if counts.is_empty() {
        return None;
    }
    let mut lines: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for ((name, status), count) in counts {
        let words = lines.entry(name).or_default();
        words.push(format!("{count} {}", status_word(status)));
    }
    let lines: Vec<String> = lines
        .into_iter()
        .map(|(name, words)| format!("{name} {}", words.join(", ")))
        .collect();
    Some(lines.join("; "))
}

/// A status in words; a row that is `ok` without a time has no time that counts.
pub(super) fn status_word(status: Status) -> &'static str {
    match status {
        Status::Ok => "without a time",
        Status::PredictedOom => "predicted oom",
        Status::CompileError => "compile error",
        Status::CompileTimeout => "compile timeout",
        Status::LaunchError => "launch error",
        other => other.name(),
    }
}

/// Why a plot would be empty: `what` the plot needed, and which rows have no result.
pub(super) fn reason(slice: &Slice<'_>, rows: &[usize], what: &str) -> String {
    match failures(slice, rows) {
        Some(failed) => format!("{what}; without a result: {failed}"),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_single_sample_among_others_takes_no_interval_from_them() {
        let times = |n: u32, coverage| Times {
            n: Some(n),
            coverage: Some(coverage),
            ..Times::default()
        };
        for (times, expected) in [
            (vec![times(1, 0.0)], "one sample each, no intervals"),
            (
                vec![times(5, 0.9375), times(20, 0.959)],
                "medians of 5 to 20 samples with 93 % intervals",
            ),
            (
                vec![times(1, 0.0), times(20, 0.959)],
                "medians of 1 to 20 samples with 95 % intervals (none of one sample)",
            ),
        ] {
            assert_eq!(samples_of(&times).as_deref(), Some(expected));
        }
    }
}
