//! Plots of configurations whose times are known.

use super::*;
use crate::report::frame::Frame;
use crate::report::frame::tests::{linear, source};
use crate::report::plot::{Plot, Request, of_section};
use crate::report::source::Source;
use crate::report::table::Layout;
use sweeper_model::row::entry::{Again, Entry};
use sweeper_model::row::outcome::Flag;
use sweeper_model::status::Status;

fn plots(entries: Vec<Entry>) -> Vec<Plot<Drawn>> {
    let mut sources: Vec<Source> = vec![source("here", &[])];
    sources[0].entries = entries;
    let frame = Frame::new(&sources);
    let rows = frame.all();
    let layout = Layout::of(&frame, &rows);
    let request = Request {
        frame: &frame,
        sources: &sources,
        rows: &rows,
        section: "",
        baseline: None,
        more_baselines: &[],
        layout: &layout,
        series: &[],
    };
    of_section(&request, |name| name == "tuning")
}

fn forest(plots: &[Plot<Drawn>]) -> &Forest {
    match plots {
        [
            Plot {
                chart: Ok(Chart::Forest(forest)),
                ..
            },
        ] => forest,
        other => panic!("{} plots", other.len()),
    }
}

fn configuration(threads: u32, m: i64, time_ns: f64) -> Entry {
    let name = format!("mine{{threads={threads}}}");
    linear(&name, "bias", m, time_ns)
}

fn again(entry: Entry, median_ns: f64) -> Entry {
    Entry {
        again: Some(Box::new(Again {
            n: 10,
            median_ns,
            low_ns: median_ns * 0.999,
            high_ns: median_ns * 1.001,
        })),
        ..entry
    }
}

#[test]
fn configurations_stand_below_the_best_of_their_problem() {
    let mut outraced = configuration(512, 64, 4000.0);
    if let Some(found) = &mut outraced.measurement {
        found.flags.push(Flag::Outraced);
    }
    let mut failed = configuration(1024, 64, 1.0);
    (failed.status, failed.times) = (Status::LaunchError, None);
    let entries = vec![
        configuration(32, 64, 2000.0),
        // The luckier one at first.
        again(configuration(64, 64, 1000.0), 1010.0),
        again(configuration(128, 64, 1001.0), 1009.0),
        outraced,
        failed,
        configuration(32, 128, 3000.0),
        again(configuration(64, 128, 6000.0), 6000.0),
        // One configuration alone is not a choice.
        linear("other{threads=1}", "bias", 64, 10.0),
        linear("eager", "bias", 64, 10.0),
    ];
    let plots = plots(entries);
    assert_eq!(plots[0].name, "tuning_forward");
    let forest = forest(&plots);
    let groups = forest.groups.iter().map(|group| {
        let rows = group.rows.iter();
        let rows = rows.map(|row| (&*row.label, &*row.said, row.estimate.map(|one| one.style)));
        (&*group.title, rows.collect::<Vec<_>>())
    });
    let [best, alike, slower, outraced] = STYLES.map(|(_, style, _)| Some(style));
    let expected = [
        (
            "mine, m = 64",
            vec![
                ("threads=128", "1.00", best),
                ("threads=64", "1.00", alike),
                ("threads=32", "0.50", slower),
                ("threads=512", "0.25", outraced),
            ],
        ),
        (
            "mine, m = 128",
            vec![("threads=32", "1.00", best), ("threads=64", "0.50", slower)],
        ),
    ];
    assert_eq!(groups.collect::<Vec<_>>(), expected);
    assert_eq!(forest.legend.len(), 4);
    let notes = forest.caption.notes.join(" ");
    assert!(notes.contains("In 1 of 2 problems"), "{notes}");
    assert!(
        notes.contains("mine{threads=1024} 1 launch error"),
        "{notes}"
    );
}

#[test]
fn a_page_has_the_fastest_of_many() {
    let of = |problem: i64| {
        let all = 1..=40;
        all.map(move |threads| configuration(threads, problem, 1000.0 * f64::from(threads)))
    };
    let plots = plots([64, 128].into_iter().flat_map(of).collect());
    let forest = forest(&plots);
    for group in &forest.groups {
        assert_eq!(group.rows.len(), MOST_ROWS / 2);
        assert_eq!(group.rows[0].label, "threads=1");
    }
    let notes = forest.caption.notes.join(" ");
    assert!(notes.contains("fastest 44 of 80"), "{notes}");
    assert!(notes.contains("luckiest"), "{notes}");
}

#[test]
fn there_is_no_plot_without_a_choice() {
    let plain = vec![
        linear("eager", "bias", 64, 10.0),
        configuration(32, 64, 10.0),
    ];
    assert!(plots(plain).is_empty());
    let failed = [32, 64].map(|threads| Entry {
        status: Status::Oom,
        times: None,
        ..configuration(threads, 64, 1.0)
    });
    let [
        Plot {
            chart: Err(why), ..
        },
    ] = &plots(failed.into())[..]
    else {
        panic!("a chart of failures");
    };
    assert!(why.contains("mine{threads=32} 1 oom"), "{why}");
}
