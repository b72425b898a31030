//! The estimated rest of a run, from the times of similar points.
//!
//! The plan guesses what each point costs ([`sweeper_manifest::plan::cost`]). For points of one
//! kind (case, backend, phase) the guesses of what their samples take are wrong by a common factor,
//! by how many a noisy machine needs, and by how fast the backend is: it is measured as rows come
//! in. What all takes beside samples has another factor. The estimate leaves out compiling, which
//! happens before points of a kind, or beside the first of them, whose time beside samples does not
//! count.

use std::collections::BTreeMap;

use sweeper_program::Phase;

use sweeper_manifest::plan::cost::Guess;
use sweeper_manifest::plan::{Plan, Planned};

/// Part of all guesses that counts as if it had taken what was guessed: the first rows say little
/// about kinds that come later.
const BELIEVED: f64 = 0.1;

/// Points that take alike: their case, backend and phase.
type Kind = (u16, u16, Phase);

/// What was guessed for some points, and what they took.
#[derive(Clone, Copy, Debug, Default)]
struct Share {
    guessed_ns: f64,
    took_ns: f64,
}

impl Share {
    fn add(&mut self, guessed_ns: f64, took_ns: f64) {
        self.guessed_ns += guessed_ns;
        self.took_ns += took_ns;
    }

    /// How many times as long points take as was guessed, where `believed_ns` are as guessed.
    fn factor(self, believed_ns: f64) -> f64 {
        let guessed_ns = self.guessed_ns + believed_ns;
        match guessed_ns > 0.0 {
            // Points of one block end in another order than their samples were taken in.
            true => (self.took_ns.max(0.0) + believed_ns) / guessed_ns,
            false => 1.0,
        }
    }
}

/// Statistics of the points of one kind.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// What is guessed for the points that are left.
    left: Guess,
    /// Number of finished points, with and without a time.
    done: usize,
    /// Samples of the points that were measured.
    sampling: Share,
}

/// The rest of a run.
#[derive(Debug, Default)]
pub(super) struct Remaining {
    /// Guessed time of each point of the plan, and its kind.
    points: Vec<(Kind, Guess)>,
    kinds: BTreeMap<Kind, Known>,
    /// What was guessed for all points that were left.
    guessed: Guess,
    /// What measured points took beside their samples.
    other: Share,
    /// Time of the last row, in nanoseconds since the run began to measure.
    last_ns: f64,
}

impl Remaining {
    /// The estimate for points that `is_left` selects, with `threads` threads for oracles.
    pub(super) fn of(plan: &Plan<'_>, threads: usize, is_left: impl Fn(&Planned) -> bool) -> Self {
        let guesses = plan.points.iter().zip(plan.guesses(threads));
        let points: Vec<(Kind, Guess)> = guesses.map(|(it, guess)| (kind(it), guess)).collect();
        let mut remaining = Remaining::default();
        for (point, &(kind, guess)) in plan.points.iter().zip(&points) {
            if is_left(point) {
                remaining.add(kind, guess);
            }
        }
        remaining.points = points;
        remaining
    }

    fn add(&mut self, kind: Kind, guess: Guess) {
        let left = &mut self.kinds.entry(kind).or_default().left;
        for sum in [left, &mut self.guessed] {
            sum.sampling_ns += guess.sampling_ns;
            sum.other_ns += guess.other_ns;
        }
    }

    /// A point of the plan has its row, `now_ns` after the run began to measure, of which its
    /// samples took `sampled_ns`.
    pub(super) fn done(&mut self, number: u32, now_ns: f64, sampled_ns: Option<f64>) {
        let (kind, guess) = self.points[number as usize];
        self.passed(kind, guess, now_ns, sampled_ns);
    }

    fn passed(&mut self, kind: Kind, guess: Guess, now_ns: f64, sampled_ns: Option<f64>) {
        let took_ns = now_ns - self.last_ns;
        self.last_ns = now_ns;
        let known = self.kinds.entry(kind).or_default();
        known.left.sampling_ns = (known.left.sampling_ns - guess.sampling_ns).max(0.0);
        known.left.other_ns = (known.left.other_ns - guess.other_ns).max(0.0);
        known.done += 1;
        if let Some(sampled_ns) = sampled_ns {
            known.sampling.add(guess.sampling_ns, sampled_ns);
        }
        if known.done > 1 {
            let other_ns = took_ns - sampled_ns.unwrap_or(0.0);
            self.other.add(guess.other_ns, other_ns);
        }
    }

    /// The predicted time of a point in nanoseconds, from the times of points of its kind, else
    /// from those of others.
    pub(super) fn point_ns(&self, number: u32) -> f64 {
        let (kind, guess) = self.points[number as usize];
        let known = self.kinds.get(&kind).copied().unwrap_or_default();
        self.predicted_ns(guess, known.sampling)
    }

    /// The estimated rest in nanoseconds.
    pub(super) fn left_ns(&self) -> f64 {
        let kinds = self.kinds.values();
        kinds
            .map(|known| self.predicted_ns(known.left, known.sampling))
            .sum()
    }

    /// The time of points of a kind whose samples took so long.
    fn predicted_ns(&self, guess: Guess, sampling: Share) -> f64 {
        let sampling = match sampling.guessed_ns > 0.0 {
            true => sampling.factor(0.0),
            false => {
                let mut all = Share::default();
                for known in self.kinds.values() {
                    all.add(known.sampling.guessed_ns, known.sampling.took_ns);
                }
                all.factor(BELIEVED * self.guessed.sampling_ns)
            }
        };
        let other = self.other.factor(BELIEVED * self.guessed.other_ns);
        guess.sampling_ns * sampling + guess.other_ns * other
    }
}

fn kind(point: &Planned) -> Kind {
    (point.point.case, point.point.backend, point.point.phase)
}

#[cfg(test)]
mod tests {
    use super::*;

    const FAST: Kind = (0, 0, Phase::Forward);
    const SLOW: Kind = (0, 1, Phase::Forward);
    const GUESS: Guess = Guess {
        sampling_ns: 1e6,
        other_ns: 0.0,
    };

    /// Points of two kinds with equal guesses.
    fn remaining(points: usize) -> Remaining {
        let mut remaining = Remaining::default();
        for _ in 0..points {
            remaining.add(FAST, GUESS);
            remaining.add(SLOW, GUESS);
        }
        remaining
    }

    #[test]
    fn guesses_hold_until_something_is_known() {
        let mut all = remaining(100);
        assert_eq!(all.left_ns(), 200e6);
        // Compiling and ceilings are in no estimate.
        all.passed(FAST, GUESS, 60e9, None);
        assert_eq!(all.left_ns(), 199e6);
        // One row of a hundredth of all does not yet tell of the other kind.
        all.passed(FAST, GUESS, 60e9 + 2e6, Some(2e6));
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
                all.passed(kind, GUESS, now, Some(took));
            }
        }
        let left = all.left_ns();
        let expected = 97.0 * (2e6 + 100e6);
        assert!((left / expected - 1.0).abs() < 1e-6, "{left} {expected}");
    }

    #[test]
    fn a_point_is_predicted_by_its_kind() {
        let mut all = remaining(100);
        let of = |sampling_ns| Guess {
            sampling_ns,
            ..GUESS
        };
        let new = (9, 9, Phase::Forward);
        all.points = vec![(FAST, of(1e6)), (SLOW, of(4e6)), (new, of(2e6))];
        assert!((all.point_ns(1) - 4e6).abs() < 1.0, "nothing was measured");
        let mut now = 0.0;
        for _ in 0..3 {
            for (kind, took) in [(FAST, 2e6), (SLOW, 100e6)] {
                now += took;
                all.passed(kind, GUESS, now, Some(took));
            }
        }
        let predicted = [0, 1, 2].map(|number| all.point_ns(number));
        // Nothing is known of the third kind: (3 (2 + 100) + 20) / (3 (1 + 1) + 20) times as long.
        for (predicted, expected) in predicted.iter().zip([2e6, 400e6, 2e6 * 326.0 / 26.0]) {
            assert!(
                (predicted / expected - 1.0).abs() < 1e-6,
                "{predicted} {expected}"
            );
        }
    }

    /// Small points take what surrounds their samples, large ones their samples: those of a noisy
    /// machine are many times as many as was guessed, for both.
    #[test]
    fn what_small_points_need_tells_of_large_ones() {
        let mut all = Remaining::default();
        let guess = |size: f64| Guess {
            sampling_ns: size * 1e4,
            other_ns: 10e6,
        };
        let sizes = [1.0, 10.0, 100.0, 1000.0, 10_000.0];
        for size in sizes {
            all.add(FAST, guess(size));
        }
        let mut now = 0.0;
        for size in &sizes[..4] {
            let sampled = 8.0 * guess(*size).sampling_ns;
            now += sampled + 20e6;
            all.passed(FAST, guess(*size), now, Some(sampled));
        }
        let left = all.left_ns();
        let expected = 8.0 * 100e6 + 20e6;
        assert!((left / expected - 1.0).abs() < 0.05, "{left} {expected}");
    }

    /// Points of a block are measured in turns, and their rows come at once.
    #[test]
    fn rows_of_a_block_share_what_surrounds_their_samples() {
        let mut all = Remaining::default();
        let guess = Guess {
            sampling_ns: 1e6,
            other_ns: 1e6,
        };
        for _ in 0..20 {
            all.add(FAST, guess);
            all.add(SLOW, guess);
        }
        let mut now = 0.0;
        for _ in 0..10 {
            now += 2.0 * 5e6 + 2.0 * 3e6;
            all.passed(FAST, guess, now, Some(5e6));
            all.passed(SLOW, guess, now, Some(5e6));
        }
        let left = all.left_ns();
        let expected = 20.0 * (5e6 + 3e6);
        assert!((left / expected - 1.0).abs() < 0.1, "{left} {expected}");
    }

    #[test]
    fn at_the_end_nothing_is_left() {
        let mut all = remaining(4);
        let mut now = 0.0;
        for _ in 0..4 {
            for kind in [FAST, SLOW] {
                now += 1e6;
                all.passed(kind, GUESS, now, Some(1e6));
            }
        }
        assert_eq!(all.left_ns(), 0.0);
    }
}
