//! Break-even is where the totals cross, and its interval is right.

use proptest::prelude::*;

use super::*;
/// The iterations of a loop that a manifest has where it says none.
const ITERATIONS: u32 = 100;

fn priced(compile_ns: f64, median_ns: f64, width: f64) -> Priced {
    Priced {
        compile_ns,
        read_ns: Some(10.0),
        starting: starting(5.0 + 5.0 * median_ns, Some(width)),
        cold_starting: None,
        steady: Steady {
            median_ns,
            interval_ns: Some((median_ns * (1.0 - width), median_ns * (1.0 + width))),
        },
        checked: Checked::Full,
    }
}

/// Five first iterations and the work before them, with the relative width of the interval.
fn starting(median_ns: f64, width: Option<f64>) -> Starting {
    Starting {
        processes: width.map_or(0, |_| 5),
        iterations: 5,
        median_ns,
        interval_ns: width.map(|width| (median_ns * (1.0 - width), median_ns * (1.0 + width))),
    }
}

fn cold(baseline: &Priced, other: &Priced) -> Comparison {
    Comparison::new(baseline, other, Start::Cold, ITERATIONS).unwrap()
}

#[test]
fn a_loop_by_hand() {
    // 1000 ns more to compile, 10 ns saved by each of 105 iterations, of which 5 saved 50 while
    // warming up.
    let (baseline, other) = (priced(0.0, 30.0, 0.0), priced(1000.0, 20.0, 0.0));
    let found = cold(&baseline, &other);
    assert_eq!(found.baseline.warmup_ns, 155.0);
    assert_eq!(found.other.warmup_ns, 1105.0);
    assert_eq!(found.break_even().estimate, Crossing::At(100));
    let both = [found.baseline, found.other].map(|held| held.total_ns(100));
    assert_eq!(both, [3005.0, 3005.0]);
    assert_eq!(found.verdict(), Verdict::RoughlyEqual);
    let warm = Comparison::new(&baseline, &other, Start::Warm, ITERATIONS).unwrap();
    assert_eq!(warm.break_even().estimate, Crossing::At(1));
    assert_eq!(warm.verdict(), Verdict::Wins);
    let shipped = Comparison::new(&baseline, &other, Start::BaselineCached, ITERATIONS).unwrap();
    assert_eq!(shipped.break_even().estimate, Crossing::At(99));
}

#[test]
fn a_library_that_compiles_is_paid_in_the_first_call() {
    let (baseline, mut other) = (priced(0.0, 30.0, 0.0), priced(0.0, 20.0, 0.0));
    assert!(!other.compiles());
    // 1105 ns with empty caches of the library, 105 once it has compiled.
    other.cold_starting = Some(starting(1105.0, Some(0.1)));
    assert!(other.compiles());
    let found = cold(&baseline, &other);
    assert_eq!(found.other.warmup_ns, 1105.0);
    assert_eq!(found.other.warmup_ends_ns, Some((994.5, 1215.5)));
    assert_eq!(found.break_even().estimate, Crossing::At(100));
    let warm = Comparison::new(&baseline, &other, Start::Warm, ITERATIONS).unwrap();
    assert_eq!(warm.other.warmup_ns, 115.0);
}

#[test]
fn what_does_not_gain_never_pays() {
    let slower = cold(&priced(0.0, 20.0, 0.01), &priced(1000.0, 30.0, 0.01));
    let never = BreakEven {
        estimate: Crossing::Never,
        ends: Some((Crossing::Never, Crossing::Never)),
        is_unclear: false,
    };
    assert_eq!(slower.break_even(), never);
    assert!(!slower.break_even().is_unclear);
    assert_eq!(slower.verdict(), Verdict::Loses);
    let same = priced(1000.0, 20.0, 0.0);
    assert_eq!(cold(&same, &same).break_even(), never);
}

#[test]
fn advice_is_what_the_intervals_are_sure_of() {
    let baseline = priced(0.0, 30.0, 0.0);
    let best = |other: &Priced| cold(&baseline, other).best_for();
    assert_eq!(best(&priced(1000.0, 20.0, 0.0)), "loops of 100 or more");
    assert_eq!(best(&priced(0.0, 20.0, 0.0)), "any loop");
    // Ahead from the second of the five iterations of the warm-up on: not in a loop of one.
    let early = priced(20.0, 20.0, 0.0);
    let found = cold(&baseline, &early).break_even();
    assert_eq!(found.estimate, Crossing::At(2));
    assert_eq!(best(&early), "loops of 2 or more");
    assert_eq!(best(&priced(1000.0, 40.0, 0.0)), "no loop");
    assert_eq!(best(&priced(1000.0, 29.9, 0.1)), "unclear");
    // 1000 ns sooner ready, 10 ns slower in each iteration after the fifth, of which five cost 50
    // more.
    let late = priced(1000.0, 30.0, 0.0);
    let found = cold(&late, &priced(0.0, 40.0, 0.0));
    assert_eq!(found.best_for(), "loops of 100 or fewer");
    let totals = [100, 101].map(|at| found.other.total_ns(at) - found.baseline.total_ns(at));
    assert_eq!(totals, [0.0, 10.0]);
    // The upper end of the interval, not its middle.
    let sure = |width: f64| cold(&priced(0.0, 30.0, width), &priced(1000.0, 20.0, width));
    let (_, most) = sure(0.05).break_even().ends.unwrap();
    let Crossing::At(most) = most else {
        panic!("it pays in the end");
    };
    assert!(most > 100, "{most}");
    assert_eq!(sure(0.05).best_for(), format!("loops of {most} or more"));
    assert_eq!(sure(0.05).of_same_program(true).best_for(), "either");
}

#[test]
fn intervals_that_overlap_leave_it_open() {
    for (one, other, estimate) in [
        (20.25, 20.0, Crossing::At(4000)),
        (20.0, 20.25, Crossing::Never),
    ] {
        let found = cold(&priced(0.0, one, 0.05), &priced(1000.0, other, 0.05)).break_even();
        assert!(found.is_unclear);
        assert_eq!(found.estimate, estimate);
        let (least, most) = found.ends.unwrap();
        assert!(least < Crossing::At(4000) && most == Crossing::Never);
    }
}

#[test]
fn verdicts_follow_from_intervals_alone() {
    let baseline = priced(0.0, 30.0, 0.01);
    let other = priced(0.0, 20.0, 0.01);
    assert_eq!(cold(&baseline, &other).verdict(), Verdict::Wins);
    // The warm-up is most of the total, and its time is uncertain.
    let mut wide = priced(0.0, 20.0, 0.01);
    wide.starting = starting(1100.0, Some(0.9));
    assert_eq!(cold(&baseline, &wide).verdict(), Verdict::Unclear);
    // One that was seen once has no interval.
    wide.starting = starting(1100.0, None);
    let once = cold(&baseline, &wide);
    assert_eq!(once.verdict(), Verdict::RoughlyEqual);
    assert_eq!(once.break_even().ends, None);
}

#[test]
fn what_was_not_checked_wins_nothing() {
    let mut other = priced(0.0, 20.0, 0.0);
    let baseline = priced(0.0, 30.0, 0.0);
    assert_eq!(cold(&baseline, &other).verdict(), Verdict::Wins);
    other.checked = Checked::None;
    assert_eq!(cold(&baseline, &other).verdict(), Verdict::NotChecked);
    assert_eq!(cold(&baseline, &other).best_for(), "not checked");
}

#[test]
fn what_is_not_known_is_not_said() {
    let mut baseline = priced(0.0, 30.0, 0.0);
    let other = priced(1000.0, 20.0, 0.0);
    baseline.steady.interval_ns = None;
    assert_eq!(cold(&baseline, &other).break_even().ends, None);
    baseline.read_ns = None;
    assert!(Comparison::new(&baseline, &other, Start::Cold, ITERATIONS).is_some());
    assert_eq!(
        Comparison::new(&baseline, &other, Start::Warm, ITERATIONS),
        None
    );
    let use_of = |kernels, read_ns| CompileUse {
        kernels,
        read_ns,
        ..CompileUse::default()
    };
    let of = |compile, start| Priced::new(&compile, start, None, other.steady, Checked::Full);
    let once = Some(starting(105.0, None));
    assert_eq!(of(use_of(0, None), once).unwrap().read_ns, Some(0.0));
    assert_eq!(of(use_of(1, None), once).unwrap().read_ns, None);
    assert_eq!(of(use_of(1, Some(1)), None), None);
    // The time waited counts; in rows without it, the time of compiling in all.
    let waited = |wall_ns| CompileUse {
        compile_ns: 900,
        wall_ns,
        ..use_of(2, Some(1))
    };
    for (wall_ns, expected) in [(Some(500), 500.0), (None, 900.0)] {
        let found = of(waited(wall_ns), once).unwrap();
        assert_eq!(found.compile_ns, expected);
    }
}

/// Programs with any prices, and with medians that may be close.
fn any() -> impl Strategy<Value = Priced> {
    let start = (1u32..8, 0.0..1e9f64, 0.0..0.5f64);
    let steady = (1.0..1e6f64, 0.0..0.2f64, 0.0..0.2f64);
    (0.0..1e10f64, 0.0..1e7f64, start, steady).prop_map(
        |(compile_ns, read_ns, (iterations, start_ns, spread), (median_ns, below, above))| Priced {
            compile_ns,
            read_ns: Some(read_ns),
            starting: Starting {
                iterations,
                ..starting(start_ns, Some(spread))
            },
            cold_starting: None,
            steady: Steady {
                median_ns,
                interval_ns: Some((median_ns * (1.0 - below), median_ns * (1.0 + above))),
            },
            checked: Checked::Full,
        },
    )
}

proptest! {
    #[test]
    fn break_even_is_where_the_totals_cross(one in any(), other in any()) {
        for start in Start::ALL {
            let found = Comparison::new(&one, &other, start, ITERATIONS).unwrap();
            // Totals are long sums: this is their rounding error.
            let slack = |n: u64| 1e-9 * found.baseline.total_ns(n).abs().max(found.other.total_ns(n).abs());
            let lead = |n: u64| found.baseline.total_ns(n) - found.other.total_ns(n);
            match found.break_even().estimate {
                Crossing::At(n) => {
                    prop_assert!(lead(n) >= -slack(n));
                    prop_assert!(lead(2 * n) >= -slack(2 * n));
                    if n > 1 {
                        prop_assert!(lead(n - 1) <= slack(n - 1));
                    }
                }
                Crossing::Never => prop_assert!(
                    found.other.steady.median_ns >= found.baseline.steady.median_ns || lead(1 << 49) < 0.0
                ),
            }
        }
    }

    #[test]
    fn the_interval_contains_the_estimate(one in any(), other in any()) {
        let found = cold(&one, &other).break_even();
        let (least, most) = found.ends.unwrap();
        prop_assert!(least <= found.estimate && found.estimate <= most);
    }

    #[test]
    fn more_to_pay_first_is_later_to_pay_off(one in any(), other in any(), more in 0.0..1e9f64) {
        let dearer = Priced { compile_ns: other.compile_ns + more, ..other };
        let (cheap, dear) = (cold(&one, &other).break_even(), cold(&one, &dearer).break_even());
        prop_assert!(cheap.estimate <= dear.estimate);
        let (cheap, dear) = (cheap.ends.unwrap(), dear.ends.unwrap());
        prop_assert!(cheap.0 <= dear.0 && cheap.1 <= dear.1);
    }

    #[test]
    fn wider_intervals_say_less(one in any(), other in any()) {
        let certain = Priced {
            steady: Steady { interval_ns: Some((other.steady.median_ns, other.steady.median_ns)), ..other.steady },
            ..other
        };
        let (narrow, wide) = (cold(&one, &certain).break_even(), cold(&one, &other).break_even());
        let (narrow, wide) = (narrow.ends.unwrap(), wide.ends.unwrap());
        prop_assert!(wide.0 <= narrow.0 && narrow.1 <= wide.1);
    }
}
