//! The roofline: attained rate over arithmetic intensity, under the ceilings that were measured.

use std::collections::BTreeSet;

use super::held::Held;
use super::{Slice, describe};
use crate::device::ceilings::Ceilings;
use crate::report::chart::{Axis, Chart, Lines, Point, Rule, Scale, Series};

/// Points closer than this part of a factor of e are one on paper.
const GRAIN: f64 = 60.0;

/// Attained operations a second over useful operations for each compulsory byte.
pub(super) fn roofline(slice: &Slice<'_>) -> Option<Chart> {
    let frame = slice.frame();
    let ceilings: Vec<&Ceilings> = slice
        .request
        .sources
        .iter()
        .filter_map(|source| source.usage.as_ref())
        .flat_map(|usage| &usage.devices)
        .filter_map(|device| device.ceilings.as_ref())
        .collect();
    // Of several devices the first is drawn only if all are alike.
    let ceilings = ceilings.first().filter(|first| {
        let near =
            |one: &&Ceilings| (one.copy_bytes_per_s / first.copy_bytes_per_s - 1.0).abs() < 0.1;
        ceilings.iter().all(near)
    });
    let mut series: Vec<Series> = Vec::new();
    let mut seen: BTreeSet<(usize, i64, i64)> = BTreeSet::new();
    let mut dtype = None;
    for &row in &slice.rows {
        let entry = frame.entries[row];
        let Some((intensity, rate)) = place(entry) else {
            continue;
        };
        dtype = dtype.or(entry.dtype);
        let style = slice.style(row);
        let grain = |value: f64| (value.ln() * GRAIN).round() as i64;
        if !seen.insert((style, grain(intensity), grain(rate))) {
            continue;
        }
        let point = Point {
            x: intensity,
            y: rate,
            low: rate,
            high: rate,
        };
        match series.iter_mut().find(|one| one.style == style) {
            Some(one) => one.points.push(point),
            None => series.push(Series {
                label: slice.request.series[style].clone(),
                style,
                is_joined: false,
                points: vec![point],
                dots: Vec::new(),
                failures: Vec::new(),
            }),
        }
    }
    if series.is_empty() {
        return None;
    }
    series.sort_by_key(|one| one.style);
    let held = Held {
        rows: slice.rows.clone(),
        values: Vec::new(),
    };
    let mut caption = describe::caption(slice, "Roofline", &held, false);
    let peak = ceilings.and_then(|held| {
        let rate = held.flops_per_s.get(dtype?.name())?;
        Some((*held, *rate, dtype?.name()))
    });
    let points = || series.iter().flat_map(|one| &one.points);
    let rules = match peak {
        Some((held, rate, name)) => {
            caption.notes.push(
                "Ceilings were measured on the device. Bytes are those that must be moved; data that \
                 stays in a cache can lift a point above the slope."
                    .to_owned(),
            );
            let low = points().map(|point| point.x).fold(f64::INFINITY, f64::min);
            let high = points().map(|point| point.x).fold(0.0, f64::max);
            rules(held.copy_bytes_per_s, rate, name, (low, high))
        }
        None => {
            let note = "The run does not say what the device can do at most.";
            caption.notes.push(note.to_owned());
            Vec::new()
        }
    };
    Some(Chart::Lines(Lines {
        caption,
        x: Axis {
            label: "useful operations for each compulsory byte".to_owned(),
            scale: Scale::Log2,
        },
        y: Axis {
            label: "operations a second".to_owned(),
            scale: Scale::Log10,
        },
        series,
        rules,
        marks: Vec::new(),
    }))
}

/// Intensity and rate of a row.
fn place(entry: &crate::report::entry::Entry) -> Option<(f64, f64)> {
    let program = entry.program.as_ref()?;
    let rate = entry.flops_per_s()?;
    let intensity = program.flops / program.compulsory_bytes;
    let is_shown = |value: f64| value.is_finite() && value > 0.0;
    (is_shown(intensity) && is_shown(rate)).then_some((intensity, rate))
}

/// The slope of memory up to the ridge, and the level of arithmetic from there.
fn rules(bytes_per_s: f64, flops_per_s: f64, name: &str, (low, high): (f64, f64)) -> Vec<Rule> {
    let ridge = flops_per_s / bytes_per_s;
    let (low, high) = (low.min(ridge / 2.0), high.max(ridge * 2.0));
    let bytes = crate::quantity::scaled(bytes_per_s);
    let flops = crate::quantity::scaled(flops_per_s);
    vec![
        Rule {
            from: (low, low * bytes_per_s),
            to: (ridge, flops_per_s),
            label: format!("{bytes}B/s"),
        },
        Rule {
            from: (ridge, flops_per_s),
            to: (high, flops_per_s),
            label: format!("{flops}flop/s {name}"),
        },
    ]
}
