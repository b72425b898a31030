//! Iterations of both in turns: is the program faster?

use crate::device::launcher::Moment;
use sweeper_model::stats::Summary;

/// Fewer pairs prove nothing: of six, all have to agree.
const LEAST_PAIRS: usize = 6;

/// After so many pairs without a verdict, the program is not faster.
const MOST_PAIRS: usize = 24;

/// A turn lasts this long at least, in nanoseconds: a hundred ticks of a coarse clock.
const TURN_NS: f64 = 100e3;

/// Iterations of a turn at most.
const MOST_ITERATIONS: u32 = 32;

/// Who runs an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Operation by operation.
    Eager,
    /// The compiled program.
    Compiled,
}

impl Side {
    const fn other(self) -> Side {
        match self {
            Side::Eager => Side::Compiled,
            Side::Compiled => Side::Eager,
        }
    }
}

/// A turn that ended.
#[derive(Clone, Copy, Debug)]
struct Turn {
    side: Side,
    from: Moment,
    to: Moment,
}

/// What to do after an iteration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Go on.
    Stay,
    /// A turn begins or ends here: note the moment, and tell it.
    Note,
}

/// Turns of the program and of single operations, and their times.
#[derive(Debug)]
pub(super) struct Turns {
    iterations: u32,
    side: Side,
    /// Iterations of this turn, and the moment before them once one of this side was there.
    done: u32,
    from: Option<Moment>,
    turns: Vec<Turn>,
    /// Times of those turns that the device has passed, by side, in nanoseconds of one iteration.
    times_ns: [Vec<f64>; 2],
    read: usize,
}

impl Turns {
    /// Turns of a loop whose iterations take so long; the program is first.
    pub(super) fn new(eager_ns: f64) -> Self {
        let iterations = (TURN_NS / eager_ns.max(1.0)).ceil();
        Turns {
            iterations: (iterations as u32).clamp(1, MOST_ITERATIONS),
            side: Side::Compiled,
            done: 0,
            from: None,
            turns: Vec::new(),
            times_ns: [Vec::new(), Vec::new()],
            read: 0,
        }
    }

    /// Who is to run the next iteration.
    pub(super) fn side(&self) -> Side {
        self.side
    }

    /// Takes in that an iteration ended.
    pub(super) fn ended(&mut self, side: Side) -> Next {
        if side != self.side || self.from.is_none() {
            // The iteration in which the sides change is of neither.
            self.done = 0;
            return Next::Note;
        }
        self.done += 1;
        match self.done < self.iterations {
            true => Next::Stay,
            false => Next::Note,
        }
    }

    /// Takes in the moment after the iteration that ended last. Returns whether the sides change.
    pub(super) fn note(&mut self, moment: Moment) -> bool {
        let (Some(from), true) = (self.from, self.done >= self.iterations) else {
            self.from = Some(moment);
            return false;
        };
        self.turns.push(Turn {
            side: self.side,
            from,
            to: moment,
        });
        self.side = self.side.other();
        self.from = None;
        self.done = 0;
        true
    }

    /// Reads the times of turns that are over.
    ///
    /// # Errors
    /// Those of `between_ns`.
    pub(super) fn read<E>(
        &mut self,
        mut between_ns: impl FnMut(Moment, Moment) -> Result<Option<f64>, E>,
    ) -> Result<(), E> {
        while let Some(turn) = self.turns.get(self.read) {
            let Some(time_ns) = between_ns(turn.from, turn.to)? else {
                return Ok(());
            };
            self.times_ns[turn.side as usize].push(time_ns / f64::from(self.iterations));
            self.read += 1;
        }
        Ok(())
    }

    /// Whether enough turns were taken, also if the device has not passed them yet.
    pub(super) fn are_enough(&self) -> bool {
        self.turns.len() >= 2 * MOST_PAIRS
    }

    /// Whether the program is faster beyond its interval; none as long as that is not known.
    pub(super) fn verdict(&self) -> Option<bool> {
        let [eager, compiled] = &self.times_ns;
        let ratios = compiled.iter().zip(eager).map(|(own, eager)| own / eager);
        let ratios: Vec<f64> = ratios.collect();
        if ratios.len() < LEAST_PAIRS {
            return None;
        }
        let interval = Summary::of(&ratios)?.interval;
        match (interval.high < 1.0, interval.low > 1.0) {
            (true, _) => Some(true),
            (_, true) => Some(false),
            _ => (ratios.len() >= MOST_PAIRS).then_some(false),
        }
    }

    /// Median times of an iteration, operation by operation and compiled, in nanoseconds.
    pub(super) fn medians_ns(&self) -> Option<[f64; 2]> {
        let [eager, compiled] = &self.times_ns;
        Some([Summary::of(eager)?.median, Summary::of(compiled)?.median])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs turns in which iterations take as long as `time_ns` says for side and number.
    fn verdict(time_ns: impl Fn(Side, u32) -> f64) -> (Option<bool>, usize) {
        let mut turns = Turns::new(time_ns(Side::Eager, 0));
        let mut now_ns = 0.0;
        let mut moments: Vec<f64> = Vec::new();
        for iteration in 0..10_000 {
            let side = turns.side();
            now_ns += time_ns(side, iteration);
            if turns.ended(side) == Next::Note {
                moments.push(now_ns);
                turns.note(Moment(moments.len() - 1));
            }
            let between = |from: Moment, to: Moment| Ok(Some(moments[to.0] - moments[from.0]));
            turns.read::<()>(between).unwrap();
            if turns.verdict().is_some() {
                break;
            }
        }
        (turns.verdict(), turns.turns.len())
    }

    #[test]
    fn faster_programs_are_kept_and_others_are_not() {
        let faster = |side, _| match side {
            Side::Eager => 1e6,
            Side::Compiled => 0.9e6,
        };
        assert_eq!(verdict(faster), (Some(true), 2 * LEAST_PAIRS));
        let slower = |side, _| match side {
            Side::Eager => 1e6,
            Side::Compiled => 1.1e6,
        };
        assert_eq!(verdict(slower), (Some(false), 2 * LEAST_PAIRS));
        let noise = |_, iteration: u32| 1e6 + f64::from(iteration * 7919 % 101) * 1e3;
        let (kept, turns) = verdict(noise);
        assert_eq!(kept, Some(false));
        assert!(turns > 2 * LEAST_PAIRS, "{turns}");
    }

    #[test]
    fn short_iterations_share_a_turn() {
        assert_eq!(Turns::new(1e4).iterations, 10);
        assert_eq!(Turns::new(1.0).iterations, MOST_ITERATIONS);
        assert_eq!(Turns::new(1e9).iterations, 1);
    }

    #[test]
    fn an_iteration_of_the_other_side_belongs_to_no_turn() {
        let mut turns = Turns::new(1e6);
        assert_eq!(turns.ended(Side::Eager), Next::Note);
        assert!(!turns.note(Moment(0)));
        assert_eq!(turns.ended(Side::Eager), Next::Note);
        assert!(!turns.note(Moment(1)), "still not compiled");
        assert_eq!(turns.ended(Side::Compiled), Next::Note);
        assert!(turns.note(Moment(2)));
        assert_eq!(turns.side(), Side::Eager);
        assert_eq!(
            (turns.turns[0].from, turns.turns[0].to),
            (Moment(1), Moment(2))
        );
    }
}
