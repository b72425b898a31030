//! The estimated rest of a run, from the times of similar points.
//!
//! The plan guesses what each point costs ([`crate::plan::cost`]): for points of one kind (case,
//! backend, phase) the guesses are wrong by a common factor, which is measured as rows come in.
//! Until then the factor of other kinds holds, and guesses as they are. The estimate leaves out
//! compiling, which happens before points of a kind, or beside the first of them, whose time does
//! not count.

use std::collections::BTreeMap;

use sweeper_program::Phase;

use crate::plan::{Plan, Planned};

/// Part of all guesses that counts as if it had taken what was guessed: the first rows say little
/// about kinds that come later.
const BELIEVED: f64 = 0.1;

/// Points that take alike: their case, backend and phase.
type Kind = (u16, u16, Phase);

/// Statistics of the points of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// Predicted time of the points that are left, in nanoseconds.
    left_ns: f64,
    /// Number of finished points, with and without a time.
    done: usize,
    /// Predicted and real time of the points that were measured, in nanoseconds.
    guessed_ns: f64,
    took_ns: f64,
}

/// The rest of a run.
#[derive(Debug, Default)]
pub(super) struct Remaining {
    /// Predicted time of each point of the plan in nanoseconds, and its kind.
    points: Vec<(Kind, f64)>,
    kinds: BTreeMap<Kind, Known>,
    /// What was guessed for all points that were left, in nanoseconds.
    guessed_ns: f64,
    /// Time of the last row, in nanoseconds since the run began to measure.
    last_ns: f64,
}

impl Remaining {
    /// The estimate for points that `is_left` selects, with `threads` threads for oracles.
    pub(super) fn of(plan: &Plan<'_>, threads: usize, is_left: impl Fn(&Planned) -> bool) -> Self {
        let guesses = plan.points.iter().zip(plan.guesses_ns(threads));
        let mut remaining = Remaining {
            points: guesses.map(|(point, ns)| (kind(point), ns)).collect(),
            ..Remaining::default()
        };
        for (point, &(kind, guess_ns)) in plan.points.iter().zip(&remaining.points) {
            if is_left(point) {
                add(&mut remaining.kinds, kind, guess_ns);
                remaining.guessed_ns += guess_ns;
            }
        }
        remaining
    }

    /// A point of the plan has its row, `now_ns` after the run began to measure.
    pub(super) fn done(&mut self, number: u32, now_ns: f64) {
        let (kind, guess_ns) = self.points[number as usize];
        self.passed(kind, guess_ns, now_ns);
    }

    fn passed(&mut self, kind: Kind, guess_ns: f64, now_ns: f64) {
        let took_ns = now_ns - self.last_ns;
        self.last_ns = now_ns;
        let known = self.kinds.entry(kind).or_default();
        known.left_ns = (known.left_ns - guess_ns).max(0.0);
        known.done += 1;
        if known.done > 1 {
            known.guessed_ns += guess_ns;
            known.took_ns += took_ns;
        }
    }

    /// The predicted time of a point in nanoseconds, from the times of points of its kind, else
    /// from those of others.
    pub(super) fn point_ns(&self, number: u32) -> f64 {
        let (kind, guess_ns) = self.points[number as usize];
        let known = self.kinds.get(&kind).copied().unwrap_or_default();
        guess_ns * self.factor(&known)
    }

    /// The estimated rest in nanoseconds.
    pub(super) fn left_ns(&self) -> f64 {
        let kinds = self.kinds.values();
        kinds.map(|known| known.left_ns * self.factor(known)).sum()
    }

    /// How many times as long points of a kind take as was guessed.
    fn factor(&self, known: &Known) -> f64 {
        let sum = |of: fn(&Known) -> f64| self.kinds.values().map(of).sum::<f64>();
        let (took_ns, guessed_ns, believed_ns) = match known.guessed_ns > 0.0 {
            true => (known.took_ns, known.guessed_ns, 0.0),
            false => (
                sum(|known| known.took_ns),
                sum(|known| known.guessed_ns),
                BELIEVED * self.guessed_ns,
            ),
        };
        match guessed_ns + believed_ns > 0.0 {
            true => (took_ns + believed_ns) / (guessed_ns + believed_ns),
            false => 1.0,
        }
    }
}

fn add(kinds: &mut BTreeMap<Kind, Known>, kind: Kind, guess_ns: f64) {
    kinds.entry(kind).or_default().left_ns += guess_ns;
}

fn kind(point: &Planned) -> Kind {
    (point.point.case, point.point.backend, point.point.phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Kind = (0, 0, Phase::Forward);
    const SLOW: Kind = (0, 1, Phase::Forward);

    /// Points of two kinds with equal guesses, where points of `slow` take 50 times as long.
    fn remaining(points: usize) -> Remaining {
        let mut remaining = Remaining::default();
        for _ in 0..points {
            add(&mut remaining.kinds, FAST, 1e6);
            add(&mut remaining.kinds, SLOW, 1e6);
            remaining.guessed_ns += 2e6;
        }
        remaining
    }

    #[test]
    fn guesses_hold_until_something_is_known() {
        let mut all = remaining(100);
        assert_eq!(all.left_ns(), 200e6);
        // Compiling and ceilings are in no estimate.
        all.passed(FAST, 1e6, 60e9);
        assert_eq!(all.left_ns(), 199e6);
        // One row of a hundredth of all does not yet tell of the other kind.
        all.passed(FAST, 1e6, 60e9 + 2e6);
        let left = all.left_ns();
        assert!((296e6..320e6).contains(&left), "{left}");
    }

    #[test]
    fn each_kind_goes_by_its_own_time() {
        let mut all = remaining(100);
        let mut now = 0.0;
        for _ in 0..3 {
            for (kind, took) in [(FAST, 2e6), (SLOW, 100e6)] {
                // The first ones wait for a compiler.
                let waits = if now < 1e9 { 10e9 } else { 0.0 };
                now += took + waits;
                all.passed(kind, 1e6, now);
            }
        }
        let left = all.left_ns();
        let expected = 97.0 * (2e6 + 100e6);
        assert!((left / expected - 1.0).abs() < 1e-6, "{left} {expected}");
    }

    #[test]
    fn a_point_is_predicted_by_its_kind() {
        let mut all = remaining(100);
        all.points = vec![(FAST, 1e6), (SLOW, 4e6), ((9, 9, Phase::Forward), 2e6)];
        assert!((all.point_ns(1) - 4e6).abs() < 1.0, "nothing was measured");
        let mut now = 0.0;
        for _ in 0..3 {
            for (kind, took) in [(FAST, 2e6), (SLOW, 100e6)] {
                now += took;
                all.passed(kind, 1e6, now);
            }
        }
        let predicted = [0, 1, 2].map(|number| all.point_ns(number));
        // Nothing is known of the third kind: (2 (2 + 100) + 20) / (2 (1 + 1) + 20) times as long.
        for (predicted, expected) in predicted.iter().zip([2e6, 400e6, 2e6 * 224.0 / 24.0]) {
            assert!(
                (predicted / expected - 1.0).abs() < 1e-6,
                "{predicted} {expected}"
            );
        }
    }

    #[test]
    fn greater_points_are_expected_to_take_longer() {
        let mut all = Remaining::default();
        for size in 1..=10 {
            add(&mut all.kinds, FAST, f64::from(size) * 1e6);
        }
        let mut now = 0.0;
        for size in 1..=4 {
            now += f64::from(size) * 3e6;
            all.passed(FAST, f64::from(size) * 1e6, now);
        }
        let left = all.left_ns();
        assert!((left - 45.0 * 3e6).abs() < 1.0, "{left}");
    }

    #[test]
    fn at_the_end_nothing_is_left() {
        let mut all = remaining(4);
        let mut now = 0.0;
        for _ in 0..4 {
            for kind in [FAST, SLOW] {
                now += 1e6;
                all.passed(kind, 1e6, now);
            }
        }
        assert_eq!(all.left_ns(), 0.0);
    }
}
