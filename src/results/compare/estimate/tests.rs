//! How often intervals cover and tests reject, on machines whose laws are known.

use proptest::prelude::*;

use super::super::testing::Random;
use super::*;

fn centre(log: f64) -> Option<Centre> {
    let error = Error {
        size: 0.001,
        freedom: 4.0,
    };
    Some(Centre {
        log,
        error: Some(error),
    })
}

fn pairs(count: usize) -> Design {
    Design::Pairs((0..count).map(|index| [index, index]).collect())
}

/// A machine: a slow state that all runs share, and for each run something of its own.
struct Machine {
    random: Random,
    state: f64,
    memory: f64,
    own: f64,
}

impl Machine {
    fn new(memory: f64, own: f64) -> Self {
        Machine {
            random: Random::new(7),
            state: 0.0,
            memory,
            own,
        }
    }

    fn run(&mut self) -> Option<Centre> {
        let step = (1.0 - self.memory.powi(2)).sqrt();
        self.state = self.memory * self.state + step * self.random.normal();
        // Now and then a neighbour gets in the way.
        let hit = if self.random.uniform() < 0.05 {
            0.2
        } else {
            0.0
        };
        centre(0.03 * self.state + self.own * self.random.normal() + hit)
    }

    /// The share of comparisons of a program with itself that find a difference.
    fn rejections(&mut self, design: &Design, runs: usize, spreads: &[Spread]) -> f64 {
        const TRIALS: usize = 2000;
        let mut rejected = 0;
        for trial in 0..TRIALS {
            let spread = &spreads[trial % spreads.len()];
            let (before, after): (Vec<_>, Vec<_>) = match design {
                Design::Pairs(_) => (0..runs).map(|_| (self.run(), self.run())).unzip(),
                _ => {
                    let before: Vec<_> = (0..runs).map(|_| self.run()).collect();
                    (0..50).for_each(|_| {
                        self.run();
                    });
                    (before, (0..runs).map(|_| self.run()).collect())
                }
            };
            let found = Estimate::of(design, [&before, &after], spread).unwrap();
            assert_eq!(
                found.p <= 0.05,
                found.low > 0.0 || found.high < 0.0,
                "{found:?}"
            );
            rejected += usize::from(found.p <= 0.05);
        }
        rejected as f64 / TRIALS as f64
    }
}

#[test]
fn the_same_program_differs_in_five_of_a_hundred_comparisons_at_most() {
    for (memory, own) in [(0.0, 0.01), (0.9, 0.01), (0.99, 0.002)] {
        let mut machine = Machine::new(memory, own);
        let logs = |machine: &mut Machine| (0..200).map(|_| machine.run().unwrap().log).collect();
        let spreads: Vec<Spread> = (0..20)
            .map(|_| Spread::measured(&[logs(&mut machine), logs(&mut machine)]).unwrap())
            .collect();
        for (design, runs) in [
            (pairs(3), 3),
            (pairs(6), 6),
            (pairs(20), 20),
            (Design::Apart, 2),
            (Design::Apart, 8),
            (Design::Single, 1),
        ] {
            let rate = machine.rejections(&design, runs, &spreads);
            // Three standard errors of a rate of 5 % in two thousand.
            assert!(rate <= 0.065, "{memory} {design:?} {runs}: {rate}");
        }
    }
}

/// The purpose of the spread: without it, runs made one side after the other give false alarms.
#[test]
fn runs_apart_would_cry_wolf_without_the_machines_spread() {
    let mut machine = Machine::new(0.99, 0.002);
    let none = Spread::given(0.0);
    assert!(machine.rejections(&Design::Apart, 8, &[none]) > 0.3);
}

#[test]
fn pairs_find_what_slow_changes_hide() {
    let mut machine = Machine::new(0.99, 0.005);
    let found = (0..200).filter(|_| {
        let (before, after): (Vec<_>, Vec<_>) = (0..20)
            .map(|_| {
                let slower = |centre: Option<Centre>| {
                    centre.map(|centre| Centre {
                        log: centre.log + 0.03,
                        ..centre
                    })
                };
                (machine.run(), slower(machine.run()))
            })
            .unzip();
        let found = Estimate::of(&pairs(20), [&before, &after], &Spread::given(0.0)).unwrap();
        found.low > 0.0
    });
    let count = found.count();
    assert!(count >= 180, "{count} of 200");
}

#[test]
fn nothing_is_made_of_nothing() {
    let spread = Spread::given(0.01);
    let of = |design: &Design, before: &[Option<Centre>], after: &[Option<Centre>]| {
        Estimate::of(design, [before, after], &spread)
    };
    assert_eq!(of(&Design::Single, &[None], &[centre(1.0)]), None);
    assert_eq!(of(&pairs(2), &[None, None], &[centre(1.0), None]), None);
    let bare = Some(Centre {
        log: 1.0,
        error: None,
    });
    assert_eq!(of(&Design::Single, &[bare], &[bare]), None);
    // One whole pair of three is left: the machine's spread has to do.
    let found = of(
        &pairs(3),
        &[centre(0.0), None, None],
        &[centre(0.1), None, None],
    )
    .unwrap();
    assert_eq!((found.method, found.runs), (Method::Spread, [1, 1]));
    // The scripted device repeats itself to the digit.
    let same = Estimate::of(&pairs(3), [&[centre(1.0); 3], &[centre(1.0); 3]], &spread).unwrap();
    assert_eq!((same.low, same.high, same.p), (0.0, 0.0, 1.0));
    let other = Estimate::of(&pairs(3), [&[centre(1.0); 3], &[centre(2.0); 3]], &spread).unwrap();
    assert_eq!((other.low, other.high, other.p), (1.0, 1.0, 0.0));
}

proptest! {
    #[test]
    fn turned_round_it_is_the_inverse(
        before in prop::collection::vec(-1.0f64..1.0, 1..9),
        after in prop::collection::vec(-1.0f64..1.0, 1..9),
    ) {
        let centres = |logs: &[f64]| logs.iter().map(|&log| centre(log)).collect::<Vec<_>>();
        let (before, after) = (centres(&before), centres(&after));
        let spread = Spread::given(0.02);
        let both = before.len().min(after.len());
        for design in [Design::Single, Design::Apart, pairs(both)] {
            let one = Estimate::of(&design, [&before, &after], &spread).unwrap();
            let other = Estimate::of(&design, [&after, &before], &spread).unwrap();
            prop_assert!((one.log_ratio + other.log_ratio).abs() < 1e-12);
            prop_assert!((one.low + other.high).abs() < 1e-9 && (one.high + other.low).abs() < 1e-9);
            prop_assert!((one.p - other.p).abs() < 1e-9);
        }
    }
}
