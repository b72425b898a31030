//! Time of a loop over its iterations, by `auto` and by both programs that it decides between; the
//! switch is marked, and where compiling first would have paid.

use super::break_even::over_iterations;
use super::fixed::FixedDimensions;
use super::over::{Value, time_unit};
use super::{Drawn, Plot, Request, Slice, describe};
use crate::report::chart::{Chart, Mark, Point, Series, dashed};
use crate::report::hot_loops::{Length, Loops, hot_path, problems, total_ns};
use crate::report::table::means::LogInterval;

/// A line: its name, its style, and its points by iterations, in nanoseconds.
struct Line {
    label: String,
    style: usize,
    points: Vec<(u32, LogInterval)>,
}

/// The name of the plots.
pub(super) const NAME: &str = "hot_paths";

/// A plot for each problem whose loops decided themselves, at some length.
pub(super) fn hot_paths(request: &Request<'_>) -> Vec<Plot<Drawn>> {
    let frame = request.frame;
    let besides = ["backend", "mode"];
    let (words, sizes) = (frame.words(&besides), frame.sizes(&besides));
    let found = problems(frame, request.rows, request.baseline);
    let plots = found.into_iter().filter_map(|loops| {
        let rows: Vec<usize> = loops.values().flat_map(Length::rows).collect();
        let first = *rows.first()?;
        let of = |name: &&str| Some((name.to_string(), frame.value(first, name)?));
        let words = words.iter().filter_map(of);
        let words = words.map(|(_, value)| [value.to_string(), value.to_string()]);
        let sizes = sizes.iter().filter_map(of);
        let sizes = sizes.map(|(name, value)| [format!("{name} = {value}"), value.to_string()]);
        let parts: Vec<[String; 2]> = words.chain(sizes).collect();
        let suffix: String = parts.iter().map(|[_, part]| format!("_{part}")).collect();
        let question: Vec<&str> = parts.iter().map(|[said, _]| said.as_str()).collect();
        let slice = Slice {
            request,
            rows,
            question: question.join(", "),
        };
        Some(Plot {
            name: crate::report::files::file_name(&format!("{NAME}{suffix}")),
            chart: Ok(chart(&slice, &loops)),
        })
    });
    plots.collect()
}

fn chart(slice: &Slice<'_>, loops: &Loops) -> Chart {
    let held = FixedDimensions {
        rows: slice.rows.clone(),
        ..FixedDimensions::default()
    };
    let mut lines: Vec<Line> = Vec::new();
    let rows: [fn(&Length) -> Option<usize>; 3] = [
        |length| length.eager,
        |length| length.compiled,
        |length| length.auto,
    ];
    for row in rows {
        lines.extend(line(slice, loops, row));
    }
    lines.extend(compiled_first(slice, loops));
    let values = lines.iter().flat_map(|line| {
        line.points.iter().map(|(at, value)| Value {
            style: line.style,
            x: f64::from(*at),
            value: *value,
        })
    });
    let values: Vec<Value> = values.collect();
    let (factor, unit) = time_unit(&values);
    let mut caption = describe::caption(slice, "Time of a loop over its iterations", &held, true);
    caption.notes.push(
        "Dashed: compiled before the loop begins, with that time. Rings: auto switches to its \
         program; compiling first is as fast as not compiling."
            .to_owned(),
    );
    let marks = marks(slice, loops).into_iter().map(|(x, ns, label)| Mark {
        x,
        y: ns / factor,
        ends: None,
        label,
    });
    let series = lines.into_iter().map(|line| series(line, factor));
    over_iterations(caption, unit, series.collect(), marks.collect())
}

/// The line of the rows that `row` picks.
fn line(slice: &Slice<'_>, loops: &Loops, row: fn(&Length) -> Option<usize>) -> Option<Line> {
    let frame = slice.frame();
    let rows = loops
        .iter()
        .filter_map(|(at, length)| Some((*at, row(length)?)));
    let rows: Vec<(u32, usize)> = rows.collect();
    let (_, any) = *rows.first()?;
    let points = rows.iter().filter_map(|&(at, row)| {
        let each = LogInterval::of(frame.entries[row])?;
        let value = each.value + f64::from(at).ln();
        Some((at, LogInterval { value, ..each }))
    });
    Some(Line {
        label: frame.series(any),
        style: slice.style(any),
        points: points.collect(),
    })
}

/// The line of loops whose program is compiled before they begin, with what that costs.
fn compiled_first(slice: &Slice<'_>, loops: &Loops) -> Option<Line> {
    let compiled = line(slice, loops, |length| length.compiled)?;
    let price_ns = price_ns(slice, loops)?;
    let points = compiled.points.into_iter().map(|(at, value)| {
        let total_ns = value.value.exp() + price_ns;
        (at, LogInterval::new(total_ns, None))
    });
    Some(Line {
        label: format!("{} cold", compiled.label),
        style: dashed(compiled.style),
        points: points.collect(),
    })
}

/// What compiling before a loop costs.
fn price_ns(slice: &Slice<'_>, loops: &Loops) -> Option<f64> {
    let row = loops.values().find_map(|length| length.compiled)?;
    let entry = slice.frame().entries[row];
    let prepare_ns = entry.measurement.as_ref()?.prepare_ns?;
    let compile_ns = entry.compile.wall_ns.unwrap_or(entry.compile.compile_ns);
    Some((prepare_ns + compile_ns) as f64)
}

/// Places to look at: the switch of the longest loop, and where compiling first breaks even.
fn marks(slice: &Slice<'_>, loops: &Loops) -> Vec<(f64, f64, String)> {
    let frame = slice.frame();
    let mut marks = Vec::new();
    let longest = loops.iter().rev().find(|(_, length)| length.auto.is_some());
    let path = longest.and_then(|(_, length)| hot_path(frame.entries[length.auto?]));
    if let Some(path) = path
        && let Some((at, eager_ns)) = path.switched_at.zip(path.eager_ns)
    {
        let before = f64::from(at).max(1.0);
        marks.push((before, before * eager_ns, format!("switch {at}")));
    }
    let each = |row: fn(&Length) -> Option<usize>| {
        let (at, length) = loops
            .iter()
            .rev()
            .find(|(_, length)| row(length).is_some())?;
        Some(total_ns(frame, row(length)?, *at)? / f64::from(*at))
    };
    let eager = each(|length| length.eager);
    let compiled = each(|length| length.compiled);
    if let Some((eager, compiled)) = eager.zip(compiled)
        && let Some(price_ns) = price_ns(slice, loops)
        && eager > compiled
    {
        let at = price_ns / (eager - compiled);
        let last = loops.keys().next_back().copied().unwrap_or(1);
        if (1.0..=f64::from(last)).contains(&at) {
            marks.push((at, at * eager, format!("break-even {at:.0}")));
        }
    }
    marks
}

fn series(line: Line, factor: f64) -> Series {
    let point = |(at, value): &(u32, LogInterval)| {
        let [low, y, high] = value.numbers().map(|ns| ns / factor);
        let [low, high] = [low, high].map(|end| if end.is_nan() { y } else { end });
        Point {
            x: f64::from(*at),
            y,
            low,
            high,
        }
    };
    Series {
        label: line.label,
        style: line.style,
        is_joined: true,
        points: line.points.iter().map(point).collect(),
        dots: Vec::new(),
        failures: Vec::new(),
    }
}
