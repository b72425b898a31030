//! Lines over a size: time, throughput, memory.

use std::collections::BTreeMap;

use super::fixed::{FixedDimensions, fix_dimensions};
use super::{Drawn, Slice, describe};
use crate::report::chart::{Axis, Chart, Lines, Point, Rule, Scale, Series};
use crate::report::frame::{number_of, product_of};
use crate::report::table::means::LogInterval;
use sweeper_manifest::settings::GB;
use sweeper_model::row::entry::Entry;

/// A value of a line at a place.
pub(super) struct Value {
    /// Style of the line.
    pub(super) style: usize,
    /// Place on the axis.
    pub(super) x: f64,
    /// The value at this place, with its interval.
    pub(super) value: LogInterval,
}

/// Why there is no plot of values that every measured point has.
const NOT_MEASURED: &str = "no point was measured";

/// Sizes from here on are read in powers of ten: nobody knows such powers of two.
const MANY: f64 = 1e7;

/// A place where a line has no result.
pub(super) struct Failure {
    pub(super) style: usize,
    pub(super) x: f64,
}

/// Names of sizes that a plot over `axis` holds fixed.
pub(super) fn fixed<'s>(slice: &'s Slice<'_>, axis: &str) -> Vec<&'s str> {
    let layout = slice.request.layout;
    let sizes = layout.sizes_of_rows().into_iter();
    sizes
        .filter(|name| *name != axis && !layout.is_factor(name, axis))
        .collect()
}

/// Time over a size. If there are several axes, this one must have two places beside the fixed
/// ones.
pub(super) fn scalability(slice: &Slice<'_>, axis: &str) -> Drawn {
    let held = fix_dimensions(slice.frame(), &slice.rows, axis, &fixed(slice, axis));
    refuse_single_place(slice, &held, axis)?;
    let measure = |entry: &Entry| LogInterval::of(entry);
    let (values, failures) = measured(slice, &held.rows, axis, measure);
    let (factor, unit) = time_unit(&values);
    let values = values
        .into_iter()
        .map(|value| Value {
            value: LogInterval {
                value: value.value.value - f64::ln(factor),
                ..value.value
            },
            ..value
        })
        .collect();
    let about = About {
        title: format!("Time over {}", slice.label(axis)),
        axis,
        label: &format!("time ({unit})"),
        needed: NOT_MEASURED,
        is_timed: true,
    };
    lines(slice, &held, &about, (values, failures))
}

/// Refuses an axis with one place beside the fixed dimensions, unless it is the main one.
pub(super) fn refuse_single_place(
    slice: &Slice<'_>,
    held: &FixedDimensions,
    axis: &str,
) -> Result<(), String> {
    match places(slice, held, axis)[..] {
        [place] if slice.main_axis().is_some_and(|main| main != axis) => {
            Err(format!("{axis} is {place} alone at {}", held.said()))
        }
        _ => Ok(()),
    }
}

/// The places on an axis where there are rows.
fn places(slice: &Slice<'_>, held: &FixedDimensions, axis: &str) -> Vec<f64> {
    let rows = held.rows.iter();
    let mut places: Vec<f64> = rows
        .filter_map(|&row| number_of(slice.frame().entries[row], axis))
        .collect();
    places.sort_by(f64::total_cmp);
    places.dedup();
    places
}

/// The unit that suits most of the times: its length in nanoseconds, and its name.
pub(super) fn time_unit(values: &[Value]) -> (f64, &'static str) {
    let all: Vec<LogInterval> = values.iter().map(|value| value.value).collect();
    let mean_ns = LogInterval::mean(&all).map_or(1e6, LogInterval::number);
    match mean_ns {
        mean if mean < 1e3 => (1.0, "ns"),
        mean if mean < 1e6 => (1e3, "µs"),
        mean if mean < 1e9 => (1e6, "ms"),
        _ => (1e9, "s"),
    }
}

/// The workload's work a second over the leading axis; of workloads that count none, compulsory
/// bytes a second.
pub(super) fn throughput(slice: &Slice<'_>) -> Option<Drawn> {
    let axis = slice.main_axis()?;
    let held = fix_dimensions(slice.frame(), &slice.rows, &axis, &fixed(slice, &axis));
    let work = slice
        .request
        .layout
        .presentation
        .and_then(|shown| shown.work);
    let amount = |entry: &Entry| match work {
        Some(work) => product_of(entry, work.factors),
        None => Some(entry.measurement.as_ref()?.compulsory_bytes),
    };
    let measure = |entry: &Entry| {
        let work = LogInterval::exact(amount(entry)? * 1e9)?;
        Some(work.over(LogInterval::of(entry)?))
    };
    let unit = work.map_or("compulsory bytes", |work| work.unit);
    let about = About {
        title: format!("Throughput over {}", slice.label(&axis)),
        axis: &axis,
        label: &format!("{unit} a second"),
        needed: NOT_MEASURED,
        is_timed: true,
    };
    let found = measured(slice, &held.rows, &axis, measure);
    Some(lines(slice, &held, &about, found))
}

/// The attained part of the roofline over a size; data that stays in a cache can lift it above 1.
pub(super) fn efficiency(slice: &Slice<'_>) -> Option<Drawn> {
    let axis = slice.main_axis()?;
    let held = fix_dimensions(slice.frame(), &slice.rows, &axis, &fixed(slice, &axis));
    let measure = |entry: &Entry| {
        let least = LogInterval::exact(entry.roofline_ns?)?;
        Some(least.over(LogInterval::of(entry)?))
    };
    let found = measured(slice, &held.rows, &axis, measure);
    let places = found.0.iter().map(|value| value.x);
    let ends = [places.clone().reduce(f64::min), places.reduce(f64::max)];
    let about = About {
        title: format!("Attained part of the roofline over {}", slice.label(&axis)),
        axis: &axis,
        label: "least possible time / time",
        needed: "no point was measured on a device whose ceilings are known",
        is_timed: true,
    };
    let mut chart = lines(slice, &held, &about, found);
    if let (Ok(Chart::Lines(lines)), [Some(first), Some(last)]) = (&mut chart, ends) {
        lines.rules.push(Rule {
            // A little longer, so that a single place has a line, too.
            from: (first / 1.2, 1.0),
            to: (last * 1.2, 1.0),
            label: "roofline".to_owned(),
        });
    }
    Some(chart)
}

/// Peak memory for each unit of the workload's work over the leading axis; else peak memory.
pub(super) fn memory_efficiency(slice: &Slice<'_>) -> Option<Drawn> {
    let axis = slice.main_axis()?;
    let held = fix_dimensions(slice.frame(), &slice.rows, &axis, &fixed(slice, &axis));
    let layout = slice.request.layout;
    let memory = layout.presentation.and_then(|shown| shown.memory);
    let measure = |entry: &Entry| {
        let bytes = entry.memory.peak_allocated.filter(|_| entry.is_ok())? as f64;
        // The semi-CRF guide's formula calls a millionth of 2^30 bytes a kilobyte, which it is not.
        let amount = match memory {
            Some(memory) => bytes / GB * 1e6 / product_of(entry, memory.factors)?,
            None => bytes / f64::from(1 << 20),
        };
        LogInterval::exact(amount)
    };
    let (title, label) = match memory {
        Some(memory) => {
            let factors = memory.factors.iter().map(|name| layout.label(name));
            let factors = factors.collect::<Vec<_>>().join("·");
            (
                format!("Memory per {} over {}", memory.unit, slice.label(&axis)),
                format!("peak (millionths of a GiB for each {factors})"),
            )
        }
        None => (
            format!("Peak memory over {}", layout.label(&axis)),
            "peak (MiB)".to_owned(),
        ),
    };
    let about = About {
        title,
        axis: &axis,
        label: &label,
        needed: "no point has a peak of memory",
        is_timed: false,
    };
    let found = measured(slice, &held.rows, &axis, measure);
    Some(lines(slice, &held, &about, found))
}

/// The values and failures of rows.
pub(super) fn measured(
    slice: &Slice<'_>,
    rows: &[usize],
    axis: &str,
    measure: impl Fn(&Entry) -> Option<LogInterval>,
) -> (Vec<Value>, Vec<Failure>) {
    let (mut values, mut failures) = (Vec::new(), Vec::new());
    for &row in rows {
        let entry = slice.frame().entries[row];
        let Some(x) = number_of(entry, axis).filter(|&x| x > 0.0) else {
            continue;
        };
        let style = slice.style(row);
        match measure(entry) {
            Some(value) => values.push(Value { style, x, value }),
            None if !entry.is_ok() => failures.push(Failure { style, x }),
            None => {}
        }
    }
    (values, failures)
}

/// The descriptions of a chart of lines.
pub(super) struct About<'a> {
    pub(super) title: String,
    pub(super) axis: &'a str,
    /// The quantity upwards, with its unit.
    pub(super) label: &'a str,
    /// The reason for an empty chart, where there are no values.
    pub(super) needed: &'a str,
    /// True if intervals come from samples.
    pub(super) is_timed: bool,
}

/// The chart of some values.
pub(super) fn lines(
    slice: &Slice<'_>,
    held: &FixedDimensions,
    about: &About<'_>,
    (values, failures): (Vec<Value>, Vec<Failure>),
) -> Drawn {
    let axis = about.axis;
    if values.is_empty() {
        return Err(describe::reason(slice, &held.rows, about.needed));
    }
    let mut caption = describe::caption(slice, &about.title, held, about.is_timed);
    let (series, has_means) = series(slice, &values, &failures);
    if has_means {
        let note = match slice.request.layout.derived(axis) {
            Some(derived) => format!(
                "Lines are geometric means over the shapes with that {} (dots).",
                derived.label
            ),
            None => "Lines are geometric means over the dots.".to_owned(),
        };
        caption.notes.push(note);
    }
    if !failures.is_empty() {
        let failed = describe::failures(slice, &held.rows).unwrap_or_default();
        caption.notes.push(format!("× no result: {failed}."));
    }
    Ok(Chart::Lines(Lines {
        caption,
        x: Axis {
            label: slice.label(axis).to_owned(),
            scale: match values.iter().any(|value| value.x >= MANY) {
                true => Scale::Log10,
                false => Scale::Log2,
            },
        },
        y: Axis {
            label: about.label.to_owned(),
            scale: Scale::Log10,
        },
        series,
        rules: Vec::new(),
        marks: Vec::new(),
    }))
}

/// Lines through the means of values at one place; true if any point is the mean of several values.
pub(super) fn series(
    slice: &Slice<'_>,
    values: &[Value],
    failures: &[Failure],
) -> (Vec<Series>, bool) {
    let mut by_style: BTreeMap<usize, BTreeMap<u64, Vec<LogInterval>>> = BTreeMap::new();
    for value in values {
        // Numbers greater than zero are in the order of their bits.
        let places = by_style.entry(value.style).or_default();
        places
            .entry(value.x.to_bits())
            .or_default()
            .push(value.value);
    }
    for failure in failures {
        by_style.entry(failure.style).or_default();
    }
    let mut has_means = false;
    let series = by_style
        .into_iter()
        .map(|(style, places)| {
            let mut points = Vec::new();
            let mut dots = Vec::new();
            for (x, values) in places {
                let x = f64::from_bits(x);
                let Some(mean) = LogInterval::mean(&values) else {
                    continue;
                };
                if values.len() > 1 {
                    has_means = true;
                    dots.extend(values.iter().map(|value| (x, value.number())));
                }
                // A value without an interval is shown as a point.
                let [low, y, high] = mean.numbers();
                let [low, high] = [low, high].map(|end| if end.is_nan() { y } else { end });
                points.push(Point { x, y, low, high });
            }
            let mut failed: Vec<f64> = failures
                .iter()
                .filter(|failure| failure.style == style)
                .map(|failure| failure.x)
                .collect();
            failed.sort_by(f64::total_cmp);
            failed.dedup();
            Series {
                label: slice.request.series[style].clone(),
                style,
                is_joined: true,
                points,
                dots,
                failures: failed,
            }
        })
        .collect();
    (series, has_means)
}
