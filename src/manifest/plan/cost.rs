//! The cost of a plan: rough predictions for progress, budgets and the spread over devices. Nothing
//! else depends on them.

use sweeper_program::Totals;
use sweeper_program::workload::ORACLE_OPERATIONS_PER_SECOND;

use super::oracle::Asked;
use super::{Plan, Planned};
use crate::model::settings::Stopping;
use sweeper_model::hardware::DeviceKind;

/// The parts of a device's time.
struct Rates {
    /// Time of a launch that has nothing to do.
    launch_ns: f64,
    bytes_per_ns: f64,
    flops_per_ns: f64,
    /// Where libraries compute products, which are most of the work then.
    product_flops_per_ns: f64,
}

/// One core with vectors; fitted to the paper's sweep, in which half of the points are within a
/// factor of two.
const CPU: Rates = Rates {
    launch_ns: 250.0,
    bytes_per_ns: 12.0,
    flops_per_ns: 2.5,
    product_flops_per_ns: 40.0,
};

/// A large GPU that a single small program does not fill.
const GPU: Rates = Rates {
    launch_ns: 2500.0,
    bytes_per_ns: 1000.0,
    flops_per_ns: 1000.0,
    product_flops_per_ns: 20_000.0,
};

/// Warm-up of a point, however small it is.
const WARMUP_NS: f64 = 10e6;
/// Runs beside the samples: to check, to choose a batch, to warm up.
const OTHER_RUNS: f64 = 6.0;
/// Poisoning memory, reading results and digesting them, for each byte of a program.
const CHECK_NS_PER_BYTE: f64 = 1.5;

/// A device's oracle, with the host's on a smaller problem beside it.
const DEVICE_ORACLE_NS: f64 = 0.5e9;
/// A function in another process, of which nothing is known: a call of it, and a start for some.
const FUNCTION_ORACLE_NS: f64 = 1e9;

/// A guess at the time that a point takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Guess {
    /// Within samples, in nanoseconds.
    pub sampling_ns: f64,
    /// Beside them, in nanoseconds: inputs, answers, checks, warm-up.
    pub other_ns: f64,
}

impl Guess {
    /// All of it, in nanoseconds.
    pub fn all_ns(self) -> f64 {
        self.sampling_ns + self.other_ns
    }
}

/// A guess at one iteration's time, in nanoseconds.
pub(super) fn iteration_ns(kind: DeviceKind, totals: &Totals, flops: f64) -> f64 {
    let rates = match kind.facts().is_gpu {
        false => CPU,
        true => GPU,
    };
    let flops_per_ns = match totals.calls {
        0 => rates.flops_per_ns,
        _ => rates.product_flops_per_ns,
    };
    let moved = (totals.read_bytes + totals.written_bytes) as f64;
    totals.launches as f64 * rates.launch_ns + moved / rates.bytes_per_ns + flops / flops_per_ns
}

/// A sample of short iterations has as many as last so long: a thousand ticks of a clock.
const LEAST_SAMPLE_NS: f64 = 20e3;

/// How long samples of one iteration take. A quiet machine needs the fewest that are asked for, a
/// busy one the most: their geometric mean is wrong by the same factor either way.
fn sampling_ns(stopping: Stopping, iteration_ns: f64) -> f64 {
    let iteration_ns = iteration_ns.max(LEAST_SAMPLE_NS);
    match stopping {
        Stopping::Repeats(repeats) => f64::from(repeats) * iteration_ns,
        Stopping::Adaptive {
            min_samples,
            max_samples,
            max_time,
            ..
        } => {
            let [least, most] = [min_samples, max_samples].map(f64::from);
            let usual_ns = (least * most).sqrt() * iteration_ns;
            let max_ns = max_time.as_secs_f64() * 1e9;
            usual_ns.min(max_ns).max(least * iteration_ns)
        }
    }
}

impl Plan<'_> {
    /// A guess at the time that measuring everything takes, in nanoseconds, on one device and with
    /// `threads` threads for the oracle. Compiling is not in it.
    pub fn guess_ns(&self, threads: usize) -> f64 {
        let guesses = self.guesses(threads);
        guesses.into_iter().map(Guess::all_ns).sum()
    }

    /// A guess for each of [`Plan::points`], as by [`Plan::guess_ns`]: points of a block share the
    /// time of its oracle.
    pub fn guesses(&self, threads: usize) -> Vec<Guess> {
        let measure = &self.manifest().measure;
        let guess = |point: &Planned| match point.refusal {
            Some(_) => Guess::default(),
            None => Guess {
                sampling_ns: sampling_ns(measure.stopping, point.guess_ns),
                other_ns: WARMUP_NS
                    + OTHER_RUNS * point.guess_ns
                    + CHECK_NS_PER_BYTE * point.memory_bytes as f64,
            },
        };
        let mut guesses: Vec<Guess> = self.points.iter().map(guess).collect();
        let limit = self.manifest().limits.oracle_time.as_secs_f64() * 1e9;
        let oracle_ns = |asked: Asked| match asked {
            Asked::Nobody => 0.0,
            Asked::Host(operations) => {
                let all_ns = operations / ORACLE_OPERATIONS_PER_SECOND * 1e9;
                (all_ns / threads.max(1) as f64).min(limit)
            }
            Asked::Device => DEVICE_ORACLE_NS,
            Asked::Function => FUNCTION_ORACLE_NS.min(limit),
        };
        if measure.verify && self.device.kind.facts().computes {
            for block in &self.blocks {
                let share_ns = oracle_ns(block.oracle.asked) / block.points.len() as f64;
                for &point in &block.points {
                    guesses[point as usize].other_ns += share_ns;
                }
            }
        }
        guesses
    }
}
