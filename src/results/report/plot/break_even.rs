//! Time of a loop over its iterations, by the baseline and by the other backends, with kernels from
//! the cache and compiled; where the lines cross is marked, with the interval.

use std::collections::BTreeMap;

use super::fixed::fix_dimensions;
use super::over::{Value, time_unit};
use super::pairs::NO_BASELINE;
use super::{Drawn as Made, Slice, describe};
use crate::report::chart::{Axis, Caption, Chart, Lines, Mark, Point, Scale, Series, dashed};
use crate::report::loops::{Body, Problem, baselines_of, problems};
use sweeper_manifest::settings::ITERATIONS;
use sweeper_model::economics::{Comparison, Crossing, Kernels, Loop, Start};

/// Points of a line, of which enough for a curve are left where low ones are one iteration.
const POINTS: u32 = 160;
/// A plot ends at so many iterations at least.
const LEAST_END: u64 = 1000;
/// A plot ends at so many iterations at most.
const MOST_END: u64 = 1_000_000_000_000;

/// Time of a loop over its iterations.
pub(super) fn break_even(slice: &Slice<'_>) -> Option<Made> {
    let frame = slice.frame();
    let sizes = slice.request.layout.sizes_of_rows();
    let held = fix_dimensions(frame, &slice.rows, "", &sizes);
    let baselines = baselines_of(slice.request.baseline, slice.request.more_baselines);
    let baseline = baselines[0];
    let problems = problems(frame, &held.rows, &baselines);
    if problems.is_empty() {
        let is_baseline = |row: &usize| *frame.entries[*row].backend == *baseline;
        if slice.request.baseline.is_none() && !slice.rows.iter().any(is_baseline) {
            return Some(Err(NO_BASELINE.to_owned()));
        }
        let needed =
            format!("no point says what starting took of both `{baseline}` and another backend");
        return Some(Err(describe::reason(slice, &held.rows, &needed)));
    }
    let mut drawn = Drawn::default();
    for Problem { baseline, others } in &problems {
        for other in others {
            drawn.compare(slice, baseline, other);
        }
    }
    let mut caption = describe::caption(slice, "Time of a loop over its iterations", &held, true);
    let note = match drawn.loops.keys().any(|&(_, is_compiled)| is_compiled) {
        true => "Cold (dashed): kernels are compiled first; warm: they are read from the cache.",
        false => "Warm: there is nothing to compile.",
    };
    caption.notes.push(note.to_owned());
    if !drawn.crossings.is_empty() {
        let passed = baselines.join(" or ");
        caption.notes.push(format!(
            "Rings: a backend passes {passed} for good, after so many iterations; bars: the interval."
        ));
    }
    Some(Ok(drawn.chart(caption)))
}

/// The contents of the chart.
#[derive(Default)]
struct Drawn {
    /// Loops by style and whether their kernels are compiled first, with their lines' names.
    loops: BTreeMap<(usize, bool), (String, Loop)>,
    /// The points where other backends cross the baseline.
    crossings: Vec<Passing>,
}

/// The point where a loop crosses the baseline's loop.
#[derive(PartialEq)]
struct Passing {
    at: u64,
    ends: Option<(Crossing, Crossing)>,
    of: Loop,
}

impl Drawn {
    fn compare(&mut self, slice: &Slice<'_>, baseline: &Body, other: &Body) {
        let counts = [baseline, other].map(|body| body.price.starting.iterations);
        let first = counts[0].max(counts[1]);
        for Body { row, price } in [baseline, other] {
            for kernels in [Kernels::Cached, Kernels::Compiled] {
                // Without anything to compile, both lines are one.
                let is_compiled = kernels == Kernels::Compiled;
                if is_compiled && !price.compiles() {
                    continue;
                }
                if let Some(held) = price.begin(kernels, first) {
                    let name = slice.frame().series(*row);
                    let key = (slice.style(*row), is_compiled);
                    self.loops.insert(key, (name, held));
                }
            }
        }
        for start in Start::ALL {
            let Some(found) = Comparison::new(&baseline.price, &other.price, start, ITERATIONS)
            else {
                continue;
            };
            let break_even = found.break_even();
            if let Crossing::At(at) = break_even.estimate
                && at > u64::from(first)
            {
                let passing = Passing {
                    at,
                    ends: break_even.ends,
                    of: found.other,
                };
                if !self.crossings.contains(&passing) {
                    self.crossings.push(passing);
                }
            }
        }
    }

    /// The first and the last iteration of the chart.
    fn ends(&self) -> (u64, u64) {
        let loops = self.loops.values();
        let first = loops.map(|(_, held)| u64::from(held.first)).min();
        let crossings = self.crossings.iter().map(|passing| passing.at);
        let last = crossings.max().unwrap_or(0).saturating_mul(10);
        (first.unwrap_or(1), last.clamp(LEAST_END, MOST_END))
    }

    fn chart(self, caption: Caption) -> Chart {
        let (first, last) = self.ends();
        let places = places(first, last);
        let values: Vec<Value> = self
            .loops
            .iter()
            .flat_map(|((style, _), (_, held))| {
                places.iter().map(move |&at| Value {
                    style: *style,
                    x: at as f64,
                    value: held.total(at),
                })
            })
            .collect();
        let (factor, unit) = time_unit(&values);
        let series = self
            .loops
            .into_iter()
            .map(|((style, is_compiled), (name, held))| Series {
                label: name + if is_compiled { " cold" } else { " warm" },
                style: if is_compiled { dashed(style) } else { style },
                is_joined: true,
                points: places.iter().map(|&at| point(&held, at, factor)).collect(),
                dots: Vec::new(),
                failures: Vec::new(),
            });
        let marks = self.crossings.into_iter().map(|passing| Mark {
            x: passing.at as f64,
            y: passing.of.total_ns(passing.at) / factor,
            ends: passing.ends.map(|(low, high)| [low, high].map(place)),
            label: count(passing.at),
        });
        over_iterations(caption, unit, series.collect(), marks.collect())
    }
}

/// A chart of the time of whole loops over their iterations.
pub(super) fn over_iterations(
    caption: Caption,
    unit: &str,
    series: Vec<Series>,
    marks: Vec<Mark>,
) -> Chart {
    Chart::Lines(Lines {
        caption,
        x: Axis {
            label: "iterations".to_owned(),
            scale: Scale::Log10,
        },
        y: Axis {
            label: format!("time in all ({unit})"),
            scale: Scale::Log10,
        },
        series,
        rules: Vec::new(),
        marks,
    })
}

/// The place of a crossing on the axis; no crossing is infinitely far away.
fn place(at: Crossing) -> f64 {
    match at {
        Crossing::At(iterations) => iterations as f64,
        Crossing::Never => f64::INFINITY,
    }
}

/// A number of iterations as it stands beside a ring.
fn count(iterations: u64) -> String {
    match iterations {
        0..1000 => iterations.to_string(),
        _ => sweeper_model::quantity::scaled(iterations as f64),
    }
}

/// Numbers of iterations at equal factors, each once.
fn places(first: u64, last: u64) -> Vec<u64> {
    let factor = (last as f64 / first as f64).powf(1.0 / f64::from(POINTS - 1));
    let places = (0..POINTS).map(|step| (first as f64 * factor.powf(step.into())).round() as u64);
    let mut places: Vec<u64> = places.collect();
    places.dedup();
    places
}

/// A loop's total, in `factor` nanoseconds.
fn point(held: &Loop, at: u64, factor: f64) -> Point {
    let [low, y, high] = held.total(at).numbers().map(|ns| ns / factor);
    // A value without an interval is shown as a point.
    let [low, high] = [low, high].map(|end| if end.is_nan() { y } else { end });
    Point {
        x: at as f64,
        y,
        low,
        high,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::chart::CURVE;

    #[test]
    fn loops_of_any_length_are_curves() {
        for (first, last) in [(1, LEAST_END), (5, LEAST_END), (1, MOST_END)] {
            let places = places(first, last);
            assert!(places.len() >= CURVE, "{first} to {last}: {}", places.len());
            assert_eq!((places[0], places[places.len() - 1]), (first, last));
        }
    }

    #[test]
    fn iterations_are_whole_numbers() {
        for (iterations, expected) in [(8, "8"), (541, "541"), (999, "999"), (3_730, "3.73 k")] {
            assert_eq!(count(iterations), expected);
        }
    }
}
