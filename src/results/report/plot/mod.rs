//! Plots: charts made from rows. [`PLOTS`] lists all of them; a new plot is a function and a line
//! there.
//!
//! A plot is made once for each question of a section: a phase and, where the workload compares a
//! word, a value of it.

use std::sync::Arc;

use rayon::prelude::*;
use sweeper_program::Value;

use super::chart::Chart;
use super::frame::Frame;
use super::source::Source;
use super::table::Layout;
use sweeper_manifest::plots;

mod break_even;
mod describe;
mod feasible;
mod fusion;
mod heat;
mod hot_paths;
mod fixed;
mod over;
mod pairs;
mod roofline;
mod tuning;

/// The input of all plots.
pub struct Request<'r> {
    /// The rows.
    pub frame: &'r Frame<'r>,
    /// The sources of the rows.
    pub sources: &'r [Source],
    /// The rows of the section.
    pub rows: &'r [usize],
    /// The words that distinguish the section from others: `potentials = decomposed`.
    pub section: &'r str,
    /// The backend that ratios are relative to.
    pub baseline: Option<&'r str>,
    /// Further backends that loops are held against.
    pub more_baselines: &'r [String],
    /// The section's columns.
    pub layout: &'r Layout,
    /// Names of lines, in the order of their colours.
    pub series: &'r [String],
}

/// A chart, or the reason why it would be empty.
pub type Drawn = Result<Chart, String>;

/// A plot of one question.
pub struct Plot<C> {
    /// Name of its file, without an extension.
    pub name: String,
    /// The chart: a [`Chart`], or [`Drawn`] while it may still turn out to be empty.
    pub chart: C,
}

/// The rows of one question.
struct Slice<'r> {
    request: &'r Request<'r>,
    rows: Vec<usize>,
    /// The question: `log semiring, forward`.
    question: String,
}

impl<'r> Slice<'r> {
    fn frame(&self) -> &'r Frame<'r> {
        self.request.frame
    }

    /// The axis that most plots have: the workload's leading one, or the size with the most values.
    fn main_axis(&self) -> Option<String> {
        if let Some(shown) = self.request.layout.presentation {
            return Some(shown.leading_axis.to_owned());
        }
        let frame = self.frame();
        let values = |name: &&String| {
            let dimension = frame.dimension(name);
            dimension.map_or(0, |index| frame.dimensions[index].values.len())
        };
        let mut sizes = self.request.layout.sizes.iter();
        let first = sizes.next()?;
        let most = sizes.fold(first, |best, name| {
            if values(&name) > values(&best) {
                name
            } else {
                best
            }
        });
        Some(most.clone())
    }

    /// The name of an axis as plots write it.
    fn label<'n>(&self, axis: &'n str) -> &'n str {
        self.request.layout.label(axis)
    }

    /// The place of a row's line among all, which chooses its colour.
    fn style(&self, row: usize) -> usize {
        let name = self.frame().series(row);
        let found = self.request.series.iter().position(|held| *held == name);
        found.unwrap_or(0)
    }
}

/// Makes a chart of a question, or none where the plot does not belong to the workload.
type Make = fn(&Slice<'_>) -> Option<Drawn>;

/// A kind of plot.
struct Kind {
    /// Name of the kind, as in [`plots::PLOT_KINDS`]; names of files begin with it.
    name: &'static str,
    /// False if the plot compares the two phases.
    has_phase: bool,
    /// False if the plot compares the values of the workload's compared word.
    has_word: bool,
    make: Make,
}

const fn kind(name: &'static str, make: Make) -> Kind {
    Kind {
        name,
        has_phase: true,
        has_word: true,
        make,
    }
}

/// Name of plots of time over the second axis; of workloads that compare no word, over each axis.
const SECOND: &str = "scalability_{second}";

/// Name of plots of speedups over each axis, of workloads that compare no word.
const SPEEDUP: &str = "speedup";

/// All plots, in the order in which they are listed.
const PLOTS: &[Kind] = &[
    kind(SECOND, |slice| {
        let shown = slice.request.layout.presentation?;
        Some(over::scalability(slice, shown.second_axis))
    }),
    kind("scalability_{leading}", |slice| {
        let shown = slice.request.layout.presentation?;
        Some(over::scalability(slice, shown.leading_axis))
    }),
    kind("throughput", over::throughput),
    kind(SPEEDUP, |_| None),
    kind("efficiency", over::efficiency),
    kind("memory_efficiency", over::memory_efficiency),
    Kind {
        has_phase: false,
        ..kind("backward_forward_ratio", pairs::backward_forward_ratio)
    },
    Kind {
        has_word: false,
        ..kind("{compared}_overhead", pairs::compared_overhead)
    },
    kind("time_ratio_baseline", pairs::time_ratio_baseline),
    kind("memory_ratio_baseline", pairs::memory_ratio_baseline),
    kind("time_ratio_heatmap", heat::time_ratio_heatmap),
    kind("memory_ratio_heatmap", heat::memory_ratio_heatmap),
    kind("feasibility", feasible::feasibility),
    kind("roofline", roofline::roofline),
    kind("break_even", break_even::break_even),
    kind("tuning", tuning::tuning),
];

/// The plots of all rows at once, as far as their names are `wanted`.
pub fn of_report(request: &Request<'_>, wanted: impl Fn(&str) -> bool) -> Vec<Plot<Drawn>> {
    let mut plots = Vec::new();
    if wanted(fusion::NAME) {
        plots.extend(fusion::fusion_speedup(request));
    }
    if wanted(hot_paths::NAME) {
        plots.extend(hot_paths::hot_paths(request));
    }
    plots
}

/// The plots of a section, as far as their names are `wanted`.
pub fn of_section(request: &Request<'_>, wanted: impl Fn(&str) -> bool + Sync) -> Vec<Plot<Drawn>> {
    let mut jobs = Vec::new();
    let is_wanted = |kind: &&Kind| plots::plot_names(kind.name).iter().any(|name| wanted(name));
    for kind in PLOTS.iter().filter(is_wanted) {
        for (suffix, slice) in slices(request, kind) {
            jobs.push((kind, suffix, slice));
        }
    }
    let made: Vec<Vec<Plot<Drawn>>> = jobs
        .par_iter()
        .map(|(kind, suffix, slice)| made(kind, suffix, slice))
        .collect();
    made.into_iter().flatten().collect()
}

fn made(kind: &Kind, suffix: &str, slice: &Slice<'_>) -> Vec<Plot<Drawn>> {
    let layout = slice.request.layout;
    let plot = |name: &str, chart: Drawn| Plot {
        name: format!("{name}{suffix}"),
        chart,
    };
    let axes = || layout.axes().into_iter();
    match (kind.name, plots::plot_name(kind.name, layout.presentation)) {
        (SPEEDUP, _) => axes()
            .map(|axis| plot(&format!("speedup_{axis}"), pairs::speedup(slice, axis)))
            .collect(),
        (_, Some(name)) => {
            let chart = (kind.make)(slice).into_iter();
            chart.map(|chart| plot(&name, chart)).collect()
        }
        (SECOND, None) => axes()
            .map(|axis| {
                let chart = over::scalability(slice, axis);
                plot(&format!("scalability_{axis}"), chart)
            })
            .collect(),
        (_, None) => Vec::new(),
    }
}

/// The questions of a kind of plot, each with the suffix that tells its file from others.
fn slices<'r>(request: &'r Request<'r>, kind: &Kind) -> Vec<(String, Slice<'r>)> {
    let mut names: Vec<&str> = Vec::new();
    if kind.has_word {
        names.extend(request.layout.words.iter().map(String::as_str));
    }
    if kind.has_phase {
        names.push("phase");
    }
    let word = |row: usize, name: &str| -> Arc<str> {
        match request.frame.value(row, name) {
            Some(Value::Text(word)) => word,
            Some(value) => value.to_string().into(),
            None => "none".into(),
        }
    };
    request
        .frame
        .groups(request.rows, &names)
        .into_values()
        .map(|rows| {
            let words: Vec<Arc<str>> = names.iter().map(|name| word(rows[0], name)).collect();
            let suffix: String = words.iter().map(|word| format!("_{word}")).collect();
            let phrase = names.iter().zip(&words).map(|(name, word)| match *name {
                "phase" => word.to_string(),
                name => format!("{word} {name}"),
            });
            let question = phrase.collect::<Vec<_>>().join(", ");
            (
                super::files::file_name(&suffix),
                Slice {
                    request,
                    rows,
                    question,
                },
            )
        })
        .collect()
}
