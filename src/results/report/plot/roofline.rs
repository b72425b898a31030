//! The roofline: attained rate over arithmetic intensity, under the ceilings that were measured.

use std::collections::BTreeSet;

use super::fixed::FixedDimensions;
use super::{Drawn, Slice, describe};
use crate::report::chart::{Axis, Chart, Lines, Point, Rule, Scale, Series};
use sweeper_model::hardware::ceilings::Ceilings;
use sweeper_model::quantity::scaled;
use sweeper_model::row::entry::Entry;

/// Points closer than this part of a factor of e are one on paper.
const GRAIN: f64 = 60.0;

/// Attained operations a second over useful operations for each compulsory byte.
pub(super) fn roofline(slice: &Slice<'_>) -> Option<Drawn> {
    let (series, kinds) = series_and_kinds(slice);
    if series.is_empty() {
        let needed = "no point has a time and operations to place it by";
        return Some(Err(describe::reason(slice, &slice.rows, needed)));
    }
    let held = FixedDimensions {
        rows: slice.rows.clone(),
        ..FixedDimensions::default()
    };
    let mut caption = describe::caption(slice, "Roofline", &held, false);
    let points = || series.iter().flat_map(|one| &one.points);
    let low = points().map(|point| point.x).fold(f64::INFINITY, f64::min);
    let high = points().map(|point| point.x).fold(0.0, f64::max);
    let rules =
        common_ceilings(slice).map_or_else(Vec::new, |held| rules(held, &kinds, (low, high)));
    caption.notes.push(match rules.is_empty() {
        false => {
            "Ceilings were measured on the device. Bytes are those that must be moved; data that \
                  stays in a cache can lift a point above the slope."
                .to_owned()
        }
        true => "The run does not say what the device can do at most.".to_owned(),
    });
    Some(Ok(Chart::Lines(Lines {
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
    })))
}

/// The ceilings of the device; of several devices the ceilings of the first one, if all are alike.
fn common_ceilings<'s>(slice: &Slice<'s>) -> Option<&'s Ceilings> {
    let usages = slice.request.sources.iter();
    let devices = usages
        .filter_map(|source| source.usage.as_ref())
        .flat_map(|usage| &usage.devices);
    let mut ceilings = devices.filter_map(|device| device.ceilings.as_ref());
    let first = ceilings.next()?;
    let is_near =
        |one: &Ceilings| (one.copy_bytes_per_s / first.copy_bytes_per_s - 1.0).abs() < 0.1;
    ceilings.all(is_near).then_some(first)
}

/// Points by style, and the kinds of arithmetic that they use.
fn series_and_kinds<'s>(slice: &Slice<'s>) -> (Vec<Series>, BTreeSet<&'s str>) {
    let mut series: Vec<Series> = Vec::new();
    let mut seen: BTreeSet<(usize, i64, i64)> = BTreeSet::new();
    let mut kinds: BTreeSet<&str> = BTreeSet::new();
    for &row in &slice.rows {
        let entry = slice.frame().entries[row];
        let Some((intensity, rate)) = place(entry) else {
            continue;
        };
        kinds.extend(entry.arithmetic());
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
    series.sort_by_key(|one| one.style);
    (series, kinds)
}

/// Intensity and rate of a row.
fn place(entry: &Entry) -> Option<(f64, f64)> {
    let found = entry.measurement.as_ref()?;
    let rate = entry.flops_per_s()?;
    let intensity = found.flops / found.compulsory_bytes;
    let is_shown = |value: f64| value.is_finite() && value > 0.0;
    (is_shown(intensity) && is_shown(rate)).then_some((intensity, rate))
}

/// The slope of memory up to the highest ridge, and from its ridge on the level of each kind of
/// arithmetic that the rows use and that was measured; no rules if none was measured.
fn rules(held: &Ceilings, kinds: &BTreeSet<&str>, (low, high): (f64, f64)) -> Vec<Rule> {
    let rates = kinds
        .iter()
        .filter_map(|&kind| Some((kind, *held.flops_per_s.get(kind)?)));
    let mut levels: Vec<(&str, f64)> = rates.filter(|(_, rate)| *rate > 0.0).collect();
    levels.sort_by(|a, b| b.1.total_cmp(&a.1));
    let (Some(&(_, most)), Some(&(_, least))) = (levels.first(), levels.last()) else {
        return Vec::new();
    };
    let ridge = |rate: f64| rate / held.copy_bytes_per_s;
    let low = low.min(ridge(least) / 2.0);
    let high = high.max(ridge(most) * 2.0);
    let slope = Rule {
        from: (low, low * held.copy_bytes_per_s),
        to: (ridge(most), most),
        label: format!("{}B/s", scaled(held.copy_bytes_per_s)),
    };
    let levels = levels.into_iter().map(|(kind, rate)| Rule {
        from: (ridge(rate), rate),
        to: (high, rate),
        label: format!("{}flop/s {kind}", scaled(rate)),
    });
    std::iter::once(slope).chain(levels).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(kinds: &[&str]) -> Vec<(f64, String)> {
        let held = Ceilings {
            copy_bytes_per_s: 4e12,
            flops_per_s: [("f32", 5e13), ("tf32", 4e14), ("bf16", 8e14)]
                .map(|(kind, rate)| (kind.to_owned(), rate))
                .into(),
            ..Ceilings::default()
        };
        let kinds = kinds.iter().copied().collect();
        let rules = rules(&held, &kinds, (1.0, 100.0));
        rules
            .into_iter()
            .map(|rule| (rule.to.1, rule.label))
            .collect()
    }

    #[test]
    fn each_kind_of_arithmetic_has_its_own_level() {
        let of = |rate: f64, label: &str| (rate, label.to_owned());
        assert_eq!(
            levels(&["f32"]),
            [of(5e13, "4.00 TB/s"), of(5e13, "50.0 Tflop/s f32")]
        );
        // The slope goes up to the highest of the levels.
        assert_eq!(
            levels(&["f32", "tf32"]),
            [
                of(4e14, "4.00 TB/s"),
                of(4e14, "400 Tflop/s tf32"),
                of(5e13, "50.0 Tflop/s f32")
            ]
        );
        assert_eq!(levels(&["f64"]), []);
    }
}
