//! Verdicts by hand, and properties of all of them.

use proptest::prelude::*;

use super::*;

fn ratio(low: f64, high: f64) -> Ratio {
    Ratio {
        value: (low * high).sqrt(),
        low,
        high,
        basis: Basis::Rounds(30),
    }
}

fn judged(low: f64, high: f64) -> String {
    let judged = Judged::new(false, Some(ratio(low, high)), Some(ratio(0.99, 1.02)));
    let doubt = judged.verdict.doubt();
    match doubt {
        Some(doubt) => format!("{}: {doubt}", judged.verdict.name()),
        None => judged.verdict.name().to_owned(),
    }
}

#[test]
fn verdicts_need_the_whole_interval() {
    assert_eq!(judged(1.5, 2.0), "strong");
    assert_eq!(judged(1.1, 1.49), "moderate");
    assert_eq!(judged(0.95, 1.09), "minimal");
    assert_eq!(judged(0.7, 0.94), "slower");
    assert_eq!(judged(1.4, 1.7), "at least moderate");
    assert_eq!(
        judged(0.9, 1.0),
        "inconclusive: the interval reaches from slower to minimal"
    );
    assert_eq!(
        judged(1.05, 1.7),
        "inconclusive: the interval reaches from minimal to strong"
    );
}

#[test]
fn a_control_that_differs_takes_the_verdict_away() {
    let speedup = Some(ratio(3.0, 3.1));
    let verdict = |control| Judged::new(false, speedup, Some(control)).verdict;
    for off in [ratio(1.03, 1.05), ratio(0.9, 0.97)] {
        let doubt = verdict(off).doubt().unwrap();
        assert!(matches!(doubt, Doubt::Control(part) if part > 0.029));
        assert!(doubt.to_string().contains("can't tell"), "{doubt}");
    }
    // The control's interval excludes 1, by less than the margin.
    assert_eq!(verdict(ratio(1.005, 1.05)), Verdict::Is(Class::Strong));
    assert_eq!(verdict(ratio(0.8, 1.3)), Verdict::Is(Class::Strong));
    assert_eq!(
        Judged::new(false, speedup, None).verdict,
        Verdict::Is(Class::Strong)
    );
}

#[test]
fn what_was_not_fused_or_not_sampled_has_no_speedup() {
    let judged = Judged::new(true, Some(ratio(1.0, 1.1)), None);
    assert_eq!(
        (judged.speedup, judged.verdict),
        (None, Verdict::SameProgram)
    );
    let none = Judged::new(false, None, None);
    assert_eq!(none.verdict, Verdict::Inconclusive(Doubt::Samples));
    let single = Some(ratio(f64::NAN, f64::NAN));
    assert_eq!(
        Judged::new(false, single, None).verdict,
        Verdict::Inconclusive(Doubt::Samples)
    );
    assert_eq!(ratio(f64::NAN, f64::NAN).certain_distance(), 0.0);
}

#[test]
fn programs_are_the_same_in_any_order() {
    // As declared: unfused first, fused first, and a control before both.
    assert!(is_same_program(None, Some("eager")));
    assert!(is_same_program(Some("compiled"), None));
    assert!(is_same_program(Some("control"), Some("control")));
    assert!(!is_same_program(None, None));
    assert!(!is_same_program(Some("control"), None));
    assert!(!is_same_program(None, Some("primitive")));
}

/// Rounds of a machine whose speed wanders: each sample alone varies by a third, their ratio by a
/// percent.
#[test]
fn what_slows_both_programs_of_a_round_cancels() {
    let speed = |round: i32| 1.0 + 0.3 * f64::from(round * 7 % 11) / 11.0;
    let own = |round: i32| 1.0 + 0.01 * f64::from(round * 5 % 7 - 3) / 3.0;
    let unfused: Vec<f64> = (0..30).map(|round| 200.0 * speed(round)).collect();
    let fused: Vec<f64> = (0..30)
        .map(|round| 100.0 * speed(round) * own(round))
        .collect();
    let found = Ratio::of_rounds(&unfused, &fused).unwrap();
    assert_eq!(found.basis, Basis::Rounds(30));
    assert!(
        found.low > 1.98 && found.high < 2.02 && found.low < 2.0 && found.high > 2.0,
        "{found:?}"
    );
}

/// Equal samples in two orders: as they rise, and the low ones and the high ones in turns.
#[test]
fn rounds_that_remember_say_less() {
    let rising: Vec<f64> = (0..40).map(|round| 100.0 + f64::from(round)).collect();
    let turns: Vec<f64> = (0..20)
        .flat_map(|round| [rising[round], rising[39 - round]])
        .collect();
    let width = |samples: &[f64]| {
        let found = Ratio::of_rounds(samples, &[100.0; 40]).unwrap();
        (found.high / found.low).ln()
    };
    assert!(width(&rising) > 1.5 * width(&turns));
}

#[test]
fn few_rounds_are_none_or_by_t() {
    assert_eq!(Ratio::of_rounds(&[2.0], &[1.0]), None);
    assert_eq!(Ratio::of_rounds(&[2.0, 0.0], &[1.0, 1.0]), None);
    let found = Ratio::of_rounds(&[2.0, 2.1, 2.2], &[1.0, 1.0, 1.0, 1.0]).unwrap();
    assert_eq!(found.basis, Basis::Rounds(3));
    assert!(found.low < 2.0 && found.high > 2.2, "{found:?}");
}

fn samples() -> impl Strategy<Value = Vec<(f64, f64)>> {
    prop::collection::vec((1.0..2.0f64, 1.0..2.0f64), 2..40)
}

proptest! {
    #[test]
    fn a_verdict_holds_at_both_ends(low in 0.5..2.0f64, width in 0.0..1.0f64) {
        let high = low + width;
        match Judged::new(false, Some(ratio(low, high)), None).verdict {
            Verdict::Is(class) => {
                prop_assert_eq!(Class::of(low), class);
                prop_assert_eq!(Class::of(high), class);
            }
            Verdict::AtLeastModerate => prop_assert!(low >= 1.1 && high >= 1.5 && low < 1.5),
            Verdict::Inconclusive(Doubt::Between(from, to)) => prop_assert!(from < to),
            other => prop_assert!(false, "{other:?}"),
        }
    }

    #[test]
    fn a_ratio_turned_round_is_its_inverse(pairs in samples()) {
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let (one, other) = (Ratio::of_rounds(&a, &b).unwrap(), Ratio::of_rounds(&b, &a).unwrap());
        let near = |x: f64, y: f64| (x * y - 1.0).abs() < 1e-9;
        prop_assert!(near(one.value, other.value));
        prop_assert!(near(one.low, other.high) && near(one.high, other.low));
        prop_assert!((one.certain_distance() - other.certain_distance()).abs() < 1e-9);
    }

    #[test]
    fn the_estimate_lies_in_its_interval(pairs in samples()) {
        let (a, b): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let found = Ratio::of_rounds(&a, &b).unwrap();
        prop_assert!(found.low <= found.value && found.value <= found.high);
    }
}
