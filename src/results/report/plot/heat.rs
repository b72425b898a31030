//! Heatmaps of ratios: backends down, sizes to the right.

use std::collections::{BTreeMap, BTreeSet};

use super::fixed::{FixedDimensions, fix_dimensions};
use super::over::fixed;
use super::pairs::{NO_BASELINE, baseline_pairs, peak, shared_no_point};
use super::{Drawn, Slice, describe};
use crate::report::chart::{Chart, Heat, HeatCell, Panel};
use crate::report::frame::number_of;
use crate::report::table::means::LogInterval;
use sweeper_model::row::entry::Entry;

/// A row's quantity, of which ratios are made.
type Measure = fn(&Entry) -> Option<LogInterval>;

/// Time over the baseline's time.
pub(super) fn time_ratio_heatmap(slice: &Slice<'_>) -> Option<Drawn> {
    heatmap(slice, "time ratio", LogInterval::of)
}

/// Peak memory over the baseline's peak memory.
pub(super) fn memory_ratio_heatmap(slice: &Slice<'_>) -> Option<Drawn> {
    heatmap(slice, "memory ratio", peak)
}

/// A line's style and the bits of a place on the axis.
type Place = (usize, u64);

/// The contents of the cells.
#[derive(Default)]
struct Cells {
    ratios: BTreeMap<Place, Vec<LogInterval>>,
    /// Cells without a ratio, with a word for the reason.
    failed: BTreeMap<Place, &'static str>,
}

fn heatmap(slice: &Slice<'_>, label: &str, measure: Measure) -> Option<Drawn> {
    let axis = slice.main_axis()?;
    let held = fix_dimensions(slice.frame(), &slice.rows, &axis, &fixed(slice, &axis));
    let Some(baseline) = slice.request.baseline else {
        return Some(Err(NO_BASELINE.to_owned()));
    };
    let cells = Cells::of(slice, &held, (&axis, baseline), measure);
    if cells.ratios.is_empty() {
        let needed = shared_no_point(baseline);
        return Some(Err(describe::reason(slice, &held.rows, &needed)));
    }
    let axis = slice.label(&axis);
    let kind = match label {
        "time ratio" => "Time ratio",
        _ => "Memory ratio",
    };
    let title = format!("{kind} to the baseline by {axis}");
    let mut caption = describe::caption(slice, &title, &held, label == "time ratio");
    if cells.ratios.values().any(|ratios| ratios.len() > 1) {
        let note = format!("Cells are geometric means over shapes with one {axis}.");
        caption.notes.push(note);
    }
    if !cells.failed.is_empty() {
        let words = describe::failures(slice, &held.rows).unwrap_or_default();
        caption.notes.push(format!(
            "Hatched: no ratio, for want of a result ({words})."
        ));
    }
    let columns = cells.places(|place| place.1);
    let styles = cells.places(|place| place.0);
    let row = |&style: &usize| columns.iter().map(|&x| cells.at((style, x))).collect();
    Some(Ok(Chart::Heat(Heat {
        caption,
        x_label: axis.to_owned(),
        y_label: "backend".to_owned(),
        columns: columns
            .iter()
            .map(|&x| f64::from_bits(x).to_string())
            .collect(),
        panels: vec![Panel {
            title: String::new(),
            rows: styles
                .iter()
                .map(|&style| slice.request.series[style].clone())
                .collect(),
            cells: styles.iter().map(row).collect(),
        }],
        colour_label: format!("{label} to {baseline}; blue is less"),
        is_ratio: true,
    })))
}

impl Cells {
    fn of(
        slice: &Slice<'_>,
        held: &FixedDimensions,
        (axis, baseline): (&str, &str),
        measure: Measure,
    ) -> Self {
        let frame = slice.frame();
        let x = |row: usize| number_of(frame.entries[row], axis).filter(|&x| x > 0.0);
        let mut cells = Cells::default();
        for (base, row) in baseline_pairs(slice, &held.rows, baseline) {
            let both = measure(frame.entries[row]).zip(measure(frame.entries[base]));
            if let (Some((own, base)), Some(x)) = (both, x(row)) {
                let place = (slice.style(row), x.to_bits());
                cells.ratios.entry(place).or_default().push(own.over(base));
            }
        }
        for &row in &held.rows {
            let entry = frame.entries[row];
            let is_other = entry.backend.as_ref() != baseline;
            if let Some(x) = x(row).filter(|_| is_other) {
                let word = match entry.is_ok() {
                    true => "no base",
                    false => describe::status_word(entry.status),
                };
                cells.failed.insert((slice.style(row), x.to_bits()), word);
            }
        }
        let ratios = &cells.ratios;
        cells.failed.retain(|place, _| !ratios.contains_key(place));
        cells
    }

    /// Rows or columns, each once, in order.
    fn places<T: Ord>(&self, pick: fn(&Place) -> T) -> Vec<T> {
        let places = self.ratios.keys().chain(self.failed.keys());
        let places: BTreeSet<T> = places.map(pick).collect();
        places.into_iter().collect()
    }

    fn at(&self, place: Place) -> HeatCell {
        match (self.ratios.get(&place), self.failed.get(&place)) {
            (Some(ratios), _) => LogInterval::mean(ratios)
                .map_or(HeatCell::Blank, |mean| HeatCell::Value(mean.number())),
            (None, Some(word)) => HeatCell::Failed(word),
            (None, None) => HeatCell::Blank,
        }
    }
}
