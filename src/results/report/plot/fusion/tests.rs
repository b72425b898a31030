//! Plots of rows whose times are known.

use sweeper_program::Phase;

use super::*;
use crate::report::frame::Frame;
use crate::report::frame::tests::{linear, source};
use crate::report::source::Source;
use crate::report::table::Layout;
use sweeper_model::row::entry::Entry;
use sweeper_model::row::measured::Measured;
use sweeper_model::status::Status;

fn rows(pattern: &str, m: i64, times_ns: [f64; 3]) -> Vec<Entry> {
    let backends = ["eager", "compiled", "control"].into_iter().zip(times_ns);
    let entries = backends.map(|(backend, time_ns)| linear(backend, pattern, m, time_ns));
    entries.collect()
}

fn plots(entries: Vec<Entry>) -> Vec<Plot<Drawn>> {
    let mut sources: Vec<Source> = vec![source("here", &[])];
    sources[0].entries = entries;
    let frame = Frame::new(&sources);
    let rows = frame.all();
    let layout = Layout::of(&frame, &rows);
    fusion_speedup(&Request {
        frame: &frame,
        sources: &sources,
        rows: &rows,
        section: "",
        baseline: None,
        more_baselines: &[],
        layout: &layout,
        series: &[],
    })
}

/// A pattern and its rows: size, the text of the ratio, and the style of its mark.
type Group<'f> = (&'f str, Vec<(&'f str, &'f str, Option<usize>)>);

fn forest(plot: &Plot<Drawn>) -> &Forest {
    match &plot.chart {
        Ok(Chart::Forest(forest)) => forest,
        other => panic!("{other:?}"),
    }
}

#[test]
fn patterns_are_groups_of_sizes_with_their_verdicts() {
    let mut entries = rows("bias_relu", 512, [1200.0, 1000.0, 1200.0]);
    entries.extend(rows("bias", 128, [1000.0, 500.0, 1000.0]));
    entries.extend(rows("bias", 64, [1000.0, 2000.0, 1000.0]));
    // The control is far off, and so is the interval of the verdict.
    entries.extend(rows("bias", 256, [1000.0, 500.0, 1500.0]));
    entries.extend(rows("bias_gelu", 64, [1000.0, 1000.0, 1000.0]));
    let last = entries.len() - 2;
    let measurement = Measured {
        same_program_as: Some("eager".into()),
        ..Measured::default()
    };
    entries[last].measurement = Some(Box::new(measurement));
    let mut lost = linear("compiled", "bias_relu", 64, 1.0);
    (lost.status, lost.times) = (Status::Oom, None);
    entries.push(lost);

    let plots = plots(entries);
    let [plot] = &plots[..] else {
        panic!("{} plots", plots.len())
    };
    assert_eq!(plot.name, "fusion_speedup");
    let forest = forest(plot);
    let shown: Vec<Group<'_>> = forest
        .groups
        .iter()
        .map(|group| {
            let rows = group.rows.iter().map(|row| {
                assert!(row.beside.is_some(), "{row:?}");
                let style = row.estimate.map(|estimate| estimate.style);
                (row.label.as_str(), row.said.as_str(), style)
            });
            (group.title.as_str(), rows.collect())
        })
        .collect();
    assert_eq!(
        shown,
        [
            (
                "Linear_Bias",
                vec![
                    ("64x512x256", "0.50", Some(1)),
                    ("128x512x256", "2.00", Some(2)),
                    ("256x512x256", "2.00", Some(UNCLEAR)),
                ]
            ),
            ("Linear_Bias_GELU", vec![("64x512x256", "same", None)]),
            ("Linear_Bias_ReLU", vec![("512x512x256", "1.20", Some(0))]),
        ]
    );
    let legend: Vec<&str> = forest
        .legend
        .iter()
        .map(|(_, name)| name.as_str())
        .collect();
    assert_eq!(legend, ["strong", "moderate", "slower", "inconclusive"]);
    let notes = forest.caption.notes.join(" ");
    for part in ["same:", "1 of 5 controls", "compiled 1 oom"] {
        assert!(notes.contains(part), "{part} is not in {notes}");
    }
}

#[test]
fn phases_have_plots_of_their_own_and_long_lists_are_cut() {
    let mut entries: Vec<Entry> = (1..=60)
        .flat_map(|m| rows("bias", m, [1000.0, 500.0, 1000.0]))
        .collect();
    let backward = rows("bias", 1, [1000.0, 900.0, 1000.0]);
    entries.extend(backward.into_iter().map(|entry| Entry {
        phase: Phase::Both,
        ..entry
    }));
    let plots = plots(entries);
    let names: Vec<&str> = plots.iter().map(|plot| plot.name.as_str()).collect();
    assert_eq!(
        names,
        ["fusion_speedup_both", "fusion_speedup_linear_forward"]
    );
    let cut = forest(&plots[1]);
    let labels: Vec<&str> = cut.groups[0].rows.iter().map(|row| &*row.label).collect();
    assert_eq!(labels.len(), MOST_ROWS);
    assert_eq!(
        (labels[0], labels[MOST_ROWS - 1]),
        ("1x512x256", "60x512x256")
    );
    assert!(
        cut.caption
            .notes
            .iter()
            .any(|note| note.contains("44 of 60"))
    );
}

#[test]
fn nothing_fused_is_nothing_to_plot() {
    let entries = rows("bias", 64, [1.0, 1.0, 1.0]);
    let unfused = entries.into_iter().filter(|held| &*held.backend == "eager");
    assert!(plots(unfused.collect()).is_empty());
}
