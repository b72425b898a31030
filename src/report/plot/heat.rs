//! Heatmaps of ratios: backends down, sizes to the right.

use std::collections::BTreeMap;

use super::held::hold;
use super::over::{axis_label, fixed};
use super::pairs::{baseline_pairs, peak};
use super::{Slice, describe};
use crate::report::chart::{Chart, Heat, HeatCell, Panel};
use crate::report::entry::Entry;
use crate::report::frame::number_of;
use crate::report::table::means::LogInterval;

/// Time over that of the baseline.
pub(super) fn time_ratio_heatmap(slice: &Slice<'_>) -> Option<Chart> {
    heatmap(
        slice,
        "Time ratio to the baseline",
        "time ratio",
        LogInterval::of,
    )
}

/// Peak memory over that of the baseline.
pub(super) fn memory_ratio_heatmap(slice: &Slice<'_>) -> Option<Chart> {
    heatmap(slice, "Memory ratio to the baseline", "memory ratio", peak)
}

fn heatmap(
    slice: &Slice<'_>,
    title: &str,
    label: &str,
    measure: fn(&Entry) -> Option<LogInterval>,
) -> Option<Chart> {
    let axis = slice.main_axis()?;
    let frame = slice.frame();
    let held = hold(frame, &slice.rows, &axis, &fixed(slice, &axis));
    let title = format!("{title} by {}", axis_label(&axis));
    let is_timed = label == "time ratio";
    let mut caption = describe::caption(slice, &title, &held, is_timed);
    let mut heat = Heat {
        caption: caption.clone(),
        x_label: axis_label(&axis).to_owned(),
        y_label: "backend".to_owned(),
        columns: Vec::new(),
        panels: Vec::new(),
        colour_label: label.to_owned(),
        is_ratio: true,
    };
    let Some(baseline) = slice.request.baseline else {
        let needed = "there is no baseline; choose one with --baseline";
        heat.caption.empty = Some(describe::reason(slice, &held.rows, needed));
        return Some(Chart::Heat(heat));
    };
    heat.colour_label = format!("{label} to {baseline}; blue is less");
    let x = |row: usize| number_of(frame.entries[row], &axis).filter(|&x| x > 0.0);
    let mut cells: BTreeMap<(usize, u64), Vec<LogInterval>> = BTreeMap::new();
    for (base, row) in baseline_pairs(slice, &held.rows, baseline) {
        let both = measure(frame.entries[row]).zip(measure(frame.entries[base]));
        if let (Some((own, base)), Some(x)) = (both, x(row)) {
            let place = (slice.style(row), x.to_bits());
            cells.entry(place).or_default().push(own.over(base));
        }
    }
    let mut failed: BTreeMap<(usize, u64), &'static str> = BTreeMap::new();
    for &row in &held.rows {
        let entry = frame.entries[row];
        let is_other = entry.backend.as_ref() != baseline;
        if let Some(x) = x(row).filter(|_| !entry.is_ok() && is_other) {
            let place = (slice.style(row), x.to_bits());
            failed.insert(place, describe::status_word(entry.status));
        }
    }
    if cells.is_empty() {
        let needed = format!("`{baseline}` and another backend share no point");
        heat.caption.empty = Some(describe::reason(slice, &held.rows, &needed));
        return Some(Chart::Heat(heat));
    }
    let places = || cells.keys().chain(failed.keys());
    let mut columns: Vec<u64> = places().map(|place| place.1).collect();
    columns.sort_unstable();
    columns.dedup();
    let mut styles: Vec<usize> = places().map(|place| place.0).collect();
    styles.sort_unstable();
    styles.dedup();
    let cell = |style: usize, x: u64| match (cells.get(&(style, x)), failed.get(&(style, x))) {
        (Some(ratios), _) => {
            LogInterval::mean(ratios).map_or(HeatCell::Blank, |mean| HeatCell::Value(mean.number()))
        }
        (None, Some(word)) => HeatCell::Failed(word),
        (None, None) => HeatCell::Blank,
    };
    if cells.values().any(|ratios| ratios.len() > 1) {
        let note = format!(
            "Cells are geometric means over shapes with one {}.",
            heat.x_label
        );
        caption.notes.push(note);
    }
    if !failed.is_empty() {
        let words = describe::failures(slice, &held.rows).unwrap_or_default();
        caption.notes.push(format!("Hatched: no result ({words})."));
    }
    heat.caption = caption;
    heat.columns = columns
        .iter()
        .map(|&x| f64::from_bits(x).to_string())
        .collect();
    heat.panels = vec![Panel {
        title: String::new(),
        rows: styles
            .iter()
            .map(|&style| slice.request.series[style].clone())
            .collect(),
        cells: styles
            .iter()
            .map(|&style| columns.iter().map(|&x| cell(style, x)).collect())
            .collect(),
    }];
    Some(Chart::Heat(heat))
}
