//! The plots that reports have, by name. Some names contain a word of the workload's presentation.

use std::collections::BTreeSet;
use std::sync::LazyLock;

use sweeper_program::workload::Presentation;

/// The kinds of plots. [`plot_name`] replaces words in braces by words of the workload, if that
/// compares a word.
pub const PLOT_KINDS: &[&str] = &[
    "scalability_{second}",
    "scalability_{leading}",
    "throughput",
    "speedup",
    "efficiency",
    "memory_efficiency",
    "backward_forward_ratio",
    "{compared}_overhead",
    "time_ratio_baseline",
    "memory_ratio_baseline",
    "time_ratio_heatmap",
    "memory_ratio_heatmap",
    "feasibility",
    "roofline",
    "break_even",
    "hot_paths",
    "tuning",
    "fusion_speedup",
];

/// The name of a kind of plots for a workload, if it has such plots.
pub fn plot_name(kind: &str, presentation: Option<&Presentation>) -> Option<String> {
    let shown = presentation.and_then(|shown| Some((shown, shown.compared?.name)));
    let words = shown.map_or([""; 3], |(shown, compared)| {
        [shown.second_axis, shown.leading_axis, compared]
    });
    let mut name = kind.to_owned();
    for (place, word) in ["{second}", "{leading}", "{compared}"]
        .into_iter()
        .zip(words)
    {
        if word.is_empty() && kind.contains(place) {
            return None;
        }
        name = name.replace(place, word);
    }
    Some(name)
}

/// The names of a kind of plots, for all workloads.
pub fn plot_names(kind: &str) -> BTreeSet<String> {
    let workloads = sweeper_workloads::registry::workloads().iter();
    workloads
        .filter_map(|workload| plot_name(kind, workload.info().presentation))
        .collect()
}

/// The plots, by the names that `report.plots` takes.
pub static PLOTS: LazyLock<Vec<&'static str>> = LazyLock::new(|| {
    let names = PLOT_KINDS.iter().flat_map(|kind| plot_names(kind));
    names.map(|name| &*name.leak()).collect()
});
