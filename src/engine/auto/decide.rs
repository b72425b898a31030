//! When compiling a loop pays, by cost.

/// A loop that has run so many iterations is expected to run this many times as many again. By the
/// doubling rule it would be once; but compiling in the background costs the loop nothing, so that
/// a program that is ready too early loses less than one that is ready too late.
const EXPECTED_RATIO: f64 = 4.0;

/// A smaller part of an iteration's time is not worth a program.
const LEAST_SHARE: f64 = 0.02;

/// What a launch costs beside its bytes, in nanoseconds: the dispatch on a GPU, a few calls on a
/// CPU.
pub(super) const fn launch_ns(is_gpu: bool) -> f64 {
    if is_gpu { 2000.0 } else { 200.0 }
}

/// Loading a program whose kernels are compiled, in nanoseconds.
const LOADING_NS: f64 = 500e3;

/// Planning a program: for each of its operations, in nanoseconds.
const PLANNING_NS: f64 = 30e3;

/// What asking for a plan costs the loop itself, in nanoseconds: events, and waking a thread.
const ASKING_NS: f64 = 100e3;

/// The part of a loop's time that may be spent on asking in vain.
const ASKING_SHARE: f64 = 0.01;

/// Launches and bytes of one iteration.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Work {
    pub(super) launches: u64,
    pub(super) bytes: u64,
}

/// A planned program, in numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Offer {
    /// What it gains an iteration, in nanoseconds.
    pub(super) gain_ns: f64,
    /// What is still to be paid for it, in nanoseconds.
    pub(super) price_ns: f64,
}

impl Offer {
    /// The offer of a program for a loop whose iterations take `eager_ns`: the part of the time
    /// that belongs to the bytes that the program does not move, and to launches that it does not
    /// make. That is too much where arithmetic bounds the loop; whether the program is faster is
    /// found out in turns. `missing_ns` is what compiling takes.
    pub(super) fn of(
        eager_ns: f64,
        [eager, program]: [Work; 2],
        launch_ns: f64,
        missing_ns: f64,
    ) -> Self {
        let saved = |eager: u64, program: u64| eager.saturating_sub(program) as f64;
        let bytes = saved(eager.bytes, program.bytes) / (eager.bytes as f64).max(1.0);
        let launches = saved(eager.launches, program.launches) * launch_ns;
        Offer {
            gain_ns: (eager_ns * bytes + launches).min(0.9 * eager_ns),
            price_ns: missing_ns + LOADING_NS,
        }
    }

    /// The offer to a loop that gains so much an iteration already, in nanoseconds.
    pub(super) fn beyond(self, gained_ns: f64) -> Self {
        Offer {
            gain_ns: (self.gain_ns - gained_ns).max(0.0),
            ..self
        }
    }

    /// Whether the program is hardly faster by its work.
    pub(super) fn is_worthless(&self, eager_ns: f64) -> bool {
        self.gain_ns < LEAST_SHARE * eager_ns
    }

    /// Whether it pays after so many iterations.
    pub(super) fn pays(&self, iterations: u32) -> bool {
        EXPECTED_RATIO * f64::from(iterations) * self.gain_ns > self.price_ns
    }
}

/// Whether a plan pays for a loop of `operations` that has run for `elapsed_ns`.
pub(super) fn plan_pays(operations: usize, elapsed_ns: f64) -> bool {
    EXPECTED_RATIO * elapsed_ns > PLANNING_NS * operations as f64
        && ASKING_SHARE * elapsed_ns > ASKING_NS
}

/// The next number of iterations at which to look again: an eighth more.
pub(super) const fn next_look(iterations: u32) -> u32 {
    iterations.saturating_add(iterations / 8 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn work(launches: u64, bytes: u64) -> Work {
        Work { launches, bytes }
    }

    #[test]
    fn gains_are_bytes_and_launches_that_are_saved() {
        let offer = Offer::of(1e6, [work(10, 1000), work(4, 400)], 100.0, 1e8);
        assert!((offer.gain_ns - 600_600.0).abs() < 1e-6, "{offer:?}");
        assert!((offer.price_ns - 100_500_000.0).abs() < 1e-6);
        let equal = Offer::of(1e6, [work(3, 1000), work(3, 1000)], 100.0, 1e8);
        assert!(equal.is_worthless(1e6));
        let more = Offer::of(1e6, [work(3, 1000), work(9, 2000)], 100.0, 1e8);
        assert!(more.is_worthless(1e6));
        let most = Offer::of(1000.0, [work(100, 10), work(1, 10)], 2000.0, 0.0);
        assert!((most.gain_ns - 900.0).abs() < 1e-9, "no more than there is");
    }

    #[test]
    fn a_program_pays_once_its_gain_is_its_price() {
        let offer = Offer {
            gain_ns: 1e5,
            price_ns: 1e8,
        };
        assert!(!offer.pays(249));
        assert!(!offer.pays(250));
        assert!(offer.pays(251));
        let nothing = Offer {
            gain_ns: 0.0,
            price_ns: 1.0,
        };
        assert!(!nothing.pays(u32::MAX));
    }

    #[test]
    fn looks_become_rare() {
        let mut looks = 0;
        let mut at = 1;
        while at < 1_000_000 {
            at = next_look(at);
            looks += 1;
        }
        assert!((50..150).contains(&looks), "{looks}");
        assert!(plan_pays(5, 11e6) && !plan_pays(5, 9e6));
        assert!(
            !plan_pays(2000, 11e6),
            "a large program takes longer to plan"
        );
    }
}
