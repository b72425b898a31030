//! The points that could be run, and their memory: a panel for each backend.

use std::collections::{BTreeMap, BTreeSet};

use super::fixed::fix_dimensions;
use super::{Drawn, Slice, describe};
use crate::report::chart::{Chart, Heat, HeatCell, Panel};
use crate::report::frame::number_of;
use sweeper_model::status::Status;

/// So many panels fit on a page.
const MOST_PANELS: usize = 8;

/// Status and peak memory over two sizes.
pub(super) fn feasibility(slice: &Slice<'_>) -> Option<Drawn> {
    let layout = slice.request.layout;
    let (x, y) = axes(slice)?;
    let is_of = |name: &str, axis: &str| name == axis || layout.is_factor(name, axis);
    let sizes = layout.sizes_of_rows().into_iter();
    let fixed: Vec<&str> = sizes
        .filter(|name| !is_of(name, &x) && !is_of(name, &y))
        .collect();
    let held = fix_dimensions(slice.frame(), &slice.rows, &x, &fixed);
    let cells = cells(slice, &held.rows, &x, &y);
    if cells.is_empty() {
        return Some(Err(format!("no point has both {x} and {y}")));
    }
    let numbers = |pick: fn(&(usize, u64, u64)) -> u64| {
        let numbers: BTreeSet<u64> = cells.keys().map(pick).collect();
        numbers.into_iter().collect::<Vec<u64>>()
    };
    let columns = numbers(|place| place.1);
    let mut rows = numbers(|place| place.2);
    rows.reverse();
    let styles: BTreeSet<usize> = cells.keys().map(|place| place.0).collect();
    let name = |bits: &u64| f64::from_bits(*bits).to_string();
    let title = format!("What runs, by {} and {}", slice.label(&x), slice.label(&y));
    let mut caption = describe::caption(slice, &title, &held, false);
    match describe::failures(slice, &held.rows) {
        Some(words) => caption.notes.push(format!(
            "Hatched: no result, of one shape at least ({words})."
        )),
        None => caption.notes.push("Every point was measured.".to_owned()),
    }
    if styles.len() > MOST_PANELS {
        caption.notes.push(format!(
            "{} more backends are not shown.",
            styles.len() - MOST_PANELS
        ));
    }
    let cell = |place: (usize, u64, u64)| cells.get(&place).cloned().unwrap_or(HeatCell::Blank);
    let panels = styles.into_iter().take(MOST_PANELS).map(|style| Panel {
        title: slice.request.series[style].clone(),
        rows: rows.iter().map(name).collect(),
        cells: rows
            .iter()
            .map(|&y| columns.iter().map(|&x| cell((style, x, y))).collect())
            .collect(),
    });
    Some(Ok(Chart::Heat(Heat {
        caption,
        x_label: slice.label(&x).to_owned(),
        y_label: slice.label(&y).to_owned(),
        columns: columns.iter().map(name).collect(),
        panels: panels.collect(),
        colour_label: "peak memory (MiB)".to_owned(),
        is_ratio: false,
    })))
}

/// The sizes to the right and upwards.
fn axes(slice: &Slice<'_>) -> Option<(String, String)> {
    let main = slice.main_axis()?;
    let layout = slice.request.layout;
    match layout.presentation {
        Some(shown) => Some((shown.second_axis.to_owned(), main)),
        None => {
            let other = layout.sizes.iter().find(|name| **name != main)?;
            Some((main, other.clone()))
        }
    }
}

/// The worst result at each place, over all rows there: a failure, or the greatest peak in MiB.
fn cells(
    slice: &Slice<'_>,
    rows: &[usize],
    x: &str,
    y: &str,
) -> BTreeMap<(usize, u64, u64), HeatCell> {
    let mut cells: BTreeMap<(usize, u64, u64), HeatCell> = BTreeMap::new();
    for &row in rows {
        let entry = slice.frame().entries[row];
        let size = |name: &str| number_of(entry, name).filter(|&size| size > 0.0);
        let (Some(x), Some(y)) = (size(x), size(y)) else {
            continue;
        };
        let peak_mib = entry
            .memory
            .peak_allocated
            .map_or(0.0, |bytes| bytes as f64 / f64::from(1 << 20));
        let own = match entry.status {
            Status::Ok if entry.times.is_some() => HeatCell::Value(peak_mib.max(1e-6)),
            status => HeatCell::Failed(short(status)),
        };
        let place = cells
            .entry((slice.style(row), x.to_bits(), y.to_bits()))
            .or_insert(HeatCell::Blank);
        *place = match (place.clone(), own) {
            (HeatCell::Value(held), HeatCell::Value(own)) => HeatCell::Value(held.max(own)),
            (held @ HeatCell::Failed(_), _) => held,
            (_, own) => own,
        };
    }
    cells
}

/// A status, short enough for a cell.
fn short(status: Status) -> &'static str {
    match status {
        Status::Ok => "no time",
        Status::PredictedOom => "(oom)",
        Status::CompileError | Status::CompileTimeout => "compile",
        Status::LaunchError => "launch",
        Status::Unavailable => "n/a",
        other => other.name(),
    }
}
