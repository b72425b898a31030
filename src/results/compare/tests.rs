//! Whole comparisons of rows made up for them.

use std::slice;

use super::metrics::Change;
use super::testing::source;
use super::verdict::Correction;
use super::*;
use sweeper_model::row::metric::{Better, MetricSummary};

fn settings() -> Settings {
    Settings {
        rule: Rule {
            margin: 0.01,
            correction: Correction::Holm,
        },
        pairs: Pairs::Auto,
        spread: Spread::given(0.002),
        by: Vec::new(),
    }
}

fn verdicts(comparison: &Comparison) -> Vec<Option<Verdict>> {
    comparison
        .points
        .iter()
        .map(|point| point.verdict)
        .collect()
}

#[test]
fn each_point_has_its_verdict() {
    let a = [source(&[
        ("fused", 8, 100.0),
        ("fused", 16, 100.0),
        ("fused", 32, 100.0),
        ("eager", 8, 100.0),
    ])];
    let b = [source(&[
        ("fused", 8, 110.0),
        ("fused", 16, 100.1),
        ("fused", 32, 90.0),
        ("eager", 9, 1.0),
    ])];
    let mut by_length = settings();
    by_length.by = vec!["T".to_owned()];
    let found = compare([&a, &b], &by_length).unwrap();
    let expected = [Verdict::Slower, Verdict::Same, Verdict::Faster].map(Some);
    assert_eq!(verdicts(&found), expected);
    assert_eq!(found.only, [["T=8 eager"], ["T=9 eager"]]);
    assert_eq!(found.groups.len(), 4);
    let all = &found.groups[0];
    assert!((all.estimate.log_ratio - (1.1f64 * 1.001 * 0.9).ln() / 3.0).abs() < 1e-9);
    assert_eq!((all.points, found.groups[1].value.as_str()), (3, "8"));
    // The other way round everything is the inverse.
    let turned = compare([&b, &a], &by_length).unwrap();
    let mirrored = [Verdict::Faster, Verdict::Same, Verdict::Slower].map(Some);
    assert_eq!(verdicts(&turned), mirrored);
    let mut nowhere = settings();
    nowhere.by = vec!["colour".to_owned()];
    assert!(
        compare([&a, &b], &nowhere)
            .unwrap_err()
            .to_string()
            .contains("there are T, backend")
    );
    let error = |other: Source| {
        compare([&a, &[other]], &settings())
            .unwrap_err()
            .to_string()
    };
    assert!(error(source(&[])).contains("B has no rows"));
    assert!(error(source(&[("fused", 1, 1.0)])).contains("in common"));
}

#[test]
fn pairs_that_are_too_few_for_so_many_points_say_so() {
    let rows: Vec<(String, i64, f64)> = (0..20).map(|t| ("fused".to_owned(), t, 100.0)).collect();
    let rows: Vec<(&str, i64, f64)> = rows.iter().map(|(b, t, m)| (b.as_str(), *t, *m)).collect();
    let runs: Vec<Source> = (0..6).map(|_| source(&rows)).collect();
    let mut settings = settings();
    settings.pairs = Pairs::Yes;
    let found = compare([&runs, &runs], &settings).unwrap();
    // 2 x 20 / 2^n <= 5 % from ten pairs on.
    assert!(
        found
            .warnings
            .iter()
            .any(|warning| warning.ends_with("; 10 can")),
        "{:?}",
        found.warnings
    );
    assert_eq!(found.count(Verdict::Same), 20);
}

#[test]
fn statuses_and_outputs_are_compared_too() {
    let digest = |source: &mut Source, row: usize, digest: &str| {
        let measurement = sweeper_model::row::measured::Measured {
            output_digest: Some(digest.into()),
            ..Default::default()
        };
        source.entries[row].measurement = Some(Box::new(measurement));
    };
    let mut a = source(&[
        ("fused", 8, 100.0),
        ("fused", 16, 100.0),
        ("fused", 32, 100.0),
    ]);
    let mut b = a.clone();
    for (row, (one, other)) in [("00", "00"), ("00", "11")].into_iter().enumerate() {
        digest(&mut a, row, one);
        digest(&mut b, row, other);
    }
    b.entries[2].status = Status::Oom;
    b.entries[2].reason = Some("too much".into());
    b.entries[2].times = None;
    let found = compare([&[a.clone()], &[b.clone()]], &settings()).unwrap();
    let digests: Vec<Digests> = found.points.iter().map(|point| point.digests).collect();
    assert_eq!(
        digests,
        [Digests::Identical, Digests::Changed, Digests::Unknown]
    );
    let last = &found.points[2];
    assert!(last.has_other_status() && last.is_worse() && last.verdict.is_none());
    assert_eq!(last.reasons[1].as_deref(), Some("too much"));
    let count = |text: &str| text.parse::<fail_on::FailOn>().unwrap().count(&found);
    assert_eq!(
        [count("status"), count("digest"), count("missing")],
        [1, 1, 0]
    );
    // An improvement is a change, and never worse.
    let better = compare([&[b], &[a]], &settings()).unwrap();
    assert!(better.points[2].has_other_status() && !better.points[2].is_worse());
}

#[test]
fn points_that_were_measured_on_other_inputs_are_declared_first_and_not_judged() {
    let rows: Vec<(&str, i64, f64)> = (0..6).map(|t| ("fused", t, 100.0)).collect();
    let measured = |inputs: [Option<&str>; 6]| {
        let mut source = source(&rows);
        for (entry, inputs) in source.entries.iter_mut().zip(inputs) {
            let measurement = sweeper_model::row::measured::Measured {
                input_digest: inputs.map(Box::from),
                output_digest: Some("00".into()),
                ..Default::default()
            };
            entry.measurement = Some(Box::new(measurement));
        }
        source
    };
    let a = measured([
        Some("aa"),
        Some("a1"),
        Some("a2"),
        Some("a3"),
        Some("a4"),
        None,
    ]);
    let b = measured([
        Some("aa"),
        Some("b1"),
        Some("b2"),
        Some("b3"),
        Some("b4"),
        None,
    ]);
    let found = compare([slice::from_ref(&a), slice::from_ref(&b)], &settings()).unwrap();
    let judged: Vec<bool> = found.points.iter().map(|it| it.verdict.is_some()).collect();
    assert_eq!(judged, [true, false, false, false, false, true]);
    let digests = |at: usize| (found.points[at].inputs, found.points[at].digests);
    assert_eq!(digests(0), (Digests::Identical, Digests::Identical));
    assert_eq!(digests(1), (Digests::Changed, Digests::Unknown));
    assert_eq!(digests(5), (Digests::Unknown, Digests::Identical));
    assert_eq!(found.changes[0].field, "input_digest of 4 points");
    assert_eq!(found.changes[0].b, ["b1", "b2", "b3", "1 more"]);
    // The geometric mean has those that are judged.
    assert_eq!(found.groups[0].points, 2);
    let digest: fail_on::FailOn = "digest".parse().unwrap();
    assert_eq!(digest.count(&found), 4);
    let failures = [(&digest, 4)];
    let terminal = render::terminal::text(&found, &[], false, &|_, text| text.to_owned());
    let markdown = render::markdown::text(&found, &failures);
    for text in [&terminal, &markdown] {
        assert!(
            text.contains("nor outputs are compared: 4 points"),
            "{text}"
        );
        assert!(text.contains("4 not compared, of other inputs"), "{text}");
    }
    let csv = render::data::csv(&found).unwrap();
    assert!(
        csv.lines().nth(3).unwrap().ends_with(",unknown,changed"),
        "{csv}"
    );
    // One of several runs suffices.
    let runs = [a.clone(), b];
    let found = compare([&runs, &[a.clone(), a]], &settings()).unwrap();
    assert_eq!(found.points[1].inputs, Digests::Vary);
    assert!(found.points[1].verdict.is_none() && found.points[0].verdict.is_some());
}

/// A source of one point whose program has these metrics: the name, the median, the half width of
/// its interval, and which is better.
fn with_metrics(metrics: &[(&str, f64, f64, Option<Better>)]) -> Source {
    let mut source = source(&[("tool", 8, 100.0)]);
    let summaries = metrics.iter().map(|&(name, median, width, better)| {
        let summary = MetricSummary {
            median,
            low: median - width,
            high: median + width,
            unit: "MB/s".into(),
            better,
        };
        (Arc::from(name), summary)
    });
    source.entries[0].metrics = summaries.collect();
    source
}

/// Metrics of A and of B.
fn sides_with_metrics() -> [Source; 2] {
    let (higher, lower) = (Some(Better::Higher), Some(Better::Lower));
    let a = with_metrics(&[
        ("speed", 100.0, 1.0, higher),
        ("wobbly", 100.0, 20.0, higher),
        ("size", 1000.0, 0.0, lower),
        ("count", 0.0, 0.0, None),
        ("near", 100.0, 0.1, higher),
        ("peak_bytes", 1000.0, 0.0, lower),
        ("gone", 1.0, 0.0, None),
    ]);
    let b = with_metrics(&[
        ("speed", 90.0, 1.0, higher),
        ("wobbly", 90.0, 20.0, higher),
        ("size", 900.0, 0.0, lower),
        ("count", 3.0, 0.0, None),
        ("near", 98.9, 0.1, higher),
        ("peak_bytes", 1020.0, 0.0, lower),
    ]);
    [a, b]
}

fn change_of(comparison: &Comparison, name: &str) -> Option<Change> {
    let mut metrics = comparison.points[0].metrics.iter();
    let found = metrics.find(|metric| &*metric.name == name);
    found.map(|metric| metric.change)
}

fn between([a, b]: [&Source; 2], settings: &Settings) -> Comparison {
    compare([slice::from_ref(a), slice::from_ref(b)], settings).unwrap()
}

#[test]
fn metrics_are_better_or_worse_by_what_the_manifest_says() {
    let [a, b] = &sides_with_metrics();
    let mut wide = settings();
    wide.spread = Spread::given(0.2);
    for (settings, noisy) in [(settings(), Change::Worse), (wide, Change::NotShown)] {
        let found = between([a, b], &settings);
        for (name, change) in [
            ("speed", noisy),
            ("wobbly", Change::NotShown),
            // All samples agree: runs do not differ in it.
            ("size", Change::Better),
            ("count", Change::Different),
            ("near", Change::NotShown),
            // By the system's account, which varies from run to run.
            ("peak_bytes", noisy),
        ] {
            assert_eq!(change_of(&found, name), Some(change), "{name}");
        }
        assert_eq!(change_of(&found, "gone"), None);
        let fails: fail_on::FailOn = "metric".parse().unwrap();
        assert_eq!(fails.count(&found), usize::from(noisy == Change::Worse));
        let turned = between([b, a], &settings);
        assert_eq!(change_of(&turned, "size"), Some(Change::Worse));
    }
    let found = between([a, b], &settings());
    let text = render::terminal::text(&found, &[], true, &|_, text| text.to_owned());
    assert!(text.contains("metrics that differ: 4"), "{text}");
    assert!(text.contains("speed: 100 -> 90.0 MB/s, worse"), "{text}");
}

#[test]
fn few_samples_show_no_difference_of_metrics() {
    let mut sides = sides_with_metrics();
    for (samples, [speed, size]) in [
        (6, [Change::Worse, Change::Better]),
        (5, [Change::NotShown, Change::Better]),
        (1, [Change::NotShown; 2]),
    ] {
        for side in &mut sides {
            side.entries[0].times.as_mut().unwrap().n = Some(samples);
        }
        let found = between([&sides[0], &sides[1]], &settings());
        let changes = ["speed", "size"].map(|name| change_of(&found, name));
        assert_eq!(changes, [Some(speed), Some(size)], "{samples} samples");
    }
}

#[test]
fn other_choices_of_autotuners_are_declared_and_judged_all_the_same() {
    let rows = [
        ("fused", 8, 100.0),
        ("fused", 16, 100.0),
        ("fused", 32, 100.0),
    ];
    let measured = |choices: [Option<&str>; 3]| {
        let mut source = source(&rows);
        for (entry, choices) in source.entries.iter_mut().zip(choices) {
            let measurement = sweeper_model::row::measured::Measured {
                autotuned: choices.map(Box::from),
                ..Default::default()
            };
            entry.measurement = Some(Box::new(measurement));
        }
        source
    };
    let a = measured([Some("k: B=1; other: B=4"), Some("k: B=1"), None]);
    let b = measured([Some("k: B=2; other: B=4"), Some("k: B=1"), None]);
    let found = compare([slice::from_ref(&a), slice::from_ref(&b)], &settings()).unwrap();
    assert!(verdicts(&found).iter().all(Option::is_some));
    let differ: Vec<bool> = found.points.iter().map(Point::has_other_choices).collect();
    assert_eq!(differ, [true, false, false]);
    let change = &found.changes[0];
    assert_eq!(change.field, "autotuned of 1 point");
    assert_eq!(
        (&*change.a, &*change.b),
        (&["k: B=1".to_owned()][..], &["k: B=2".to_owned()][..])
    );
    let terminal = render::terminal::text(&found, &[], false, &|_, text| text.to_owned());
    let line = "T=8 fused: k: B=1 -> k: B=2\n";
    assert!(
        terminal.contains("other bits: 1 point\n") && terminal.contains(line),
        "{terminal}"
    );
    assert!(render::markdown::text(&found, &[]).contains("k: B=1 -&gt; k: B=2"));
    let json = render::data::json(&found, &[]);
    assert_eq!(
        json["points"][0]["autotuned"]["b"],
        serde_json::json!(["k: B=2"])
    );
    // A record from before says nothing of them; a run of several may have the choice.
    let old = measured([None; 3]);
    let found = compare([slice::from_ref(&old), slice::from_ref(&a)], &settings()).unwrap();
    let terminal = render::terminal::text(&found, &[], false, &|_, text| text.to_owned());
    assert!(
        terminal.contains("none noted -> k: B=1; other: B=4"),
        "{terminal}"
    );
    let found = compare([&[a.clone(), b][..], slice::from_ref(&a)], &settings()).unwrap();
    assert_eq!(
        found.points[0].autotuned,
        [vec!["k: B=2".to_owned()], vec![]]
    );
}
