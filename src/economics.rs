//! When compiling pays: what a loop costs in all by two programs, and from how many iterations on one of them
//! is ahead.
//!
//! A loop costs what starting it costs, its first iterations included, and the median for each further
//! iteration. METHODOLOGY.md has the rules, guide 003 the question.

use crate::execute::outcome::{Checked, FirstRuns};
use crate::interval::LogInterval;
use crate::record::row::CompileUse;

/// A crossing at more iterations than this is none: no loop is so long, and f64 counts no further.
const MOST_ITERATIONS: f64 = 1e15;

/// Where a loop finds the kernels of a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kernels {
    /// Nowhere: they are compiled.
    Compiled,
    /// In the kernel cache.
    Cached,
}

/// Where the kernels of both sides are when the loop starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Both programs are compiled.
    Cold,
    /// The baseline's kernels are there, as an eager framework ships its own; the other's are compiled.
    BaselineCached,
    /// Both programs' kernels are in the cache.
    Warm,
}

impl Start {
    /// All of them.
    pub const ALL: [Start; 3] = [Start::Cold, Start::BaselineCached, Start::Warm];

    /// The word of tables.
    pub const fn name(self) -> &'static str {
        match self {
            Start::Cold => "cold",
            Start::BaselineCached => "baseline_cached",
            Start::Warm => "warm",
        }
    }

    /// Where the kernels of the baseline are, and those of the other program.
    const fn kernels(self) -> (Kernels, Kernels) {
        match self {
            Start::Cold => (Kernels::Compiled, Kernels::Compiled),
            Start::BaselineCached => (Kernels::Cached, Kernels::Compiled),
            Start::Warm => (Kernels::Cached, Kernels::Cached),
        }
    }
}

/// The median time of an iteration, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// The median.
    pub median_ns: f64,
    /// Its interval; none of a single sample.
    pub interval_ns: Option<(f64, f64)>,
}

/// A program with all that a loop of it pays, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Priced {
    /// Compiling its kernels: the time in which at least one of them was being compiled.
    pub compile_ns: f64,
    /// Reading them from the cache; none where there is no cache.
    pub read_ns: Option<f64>,
    /// Making it ready from compiled kernels.
    pub prepare_ns: f64,
    /// Its first iterations.
    pub first_runs: FirstRuns,
    /// All further ones.
    pub steady: Steady,
    /// How thoroughly its outputs were judged.
    pub checked: Checked,
}

impl Priced {
    /// What a row says of its program, if it says everything.
    pub fn new(
        compile: &CompileUse,
        prepare_ns: Option<u64>,
        first_runs: Option<FirstRuns>,
        steady: Steady,
        checked: Checked,
    ) -> Option<Self> {
        let nothing_to_read = (compile.kernels == 0).then_some(0);
        Some(Priced {
            // Rows of earlier versions have the sum alone.
            compile_ns: compile.wall_ns.unwrap_or(compile.compile_ns) as f64,
            read_ns: compile.read_ns.or(nothing_to_read).map(|ns| ns as f64),
            prepare_ns: prepare_ns? as f64,
            first_runs: first_runs.filter(|first| first.count > 0)?,
            steady: Some(steady).filter(|steady| steady.median_ns > 0.0)?,
            checked,
        })
    }

    /// The loop that begins with `first` iterations, of which those that were not timed by themselves
    /// take the median; none where it would read from a cache that there is not.
    pub fn begin(&self, kernels: Kernels, first: u32) -> Option<Loop> {
        let kernels_ns = match kernels {
            Kernels::Compiled => self.compile_ns,
            Kernels::Cached => self.read_ns?,
        };
        let further = f64::from(first) - f64::from(self.first_runs.count);
        let runs_ns = self.first_runs.elapsed_ns + further * self.steady.median_ns;
        Some(Loop {
            first,
            warmup_ns: kernels_ns + self.prepare_ns + runs_ns,
            steady: self.steady,
        })
    }
}

/// A loop: its warm-up, then iterations of one length.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Loop {
    /// Iterations of the warm-up.
    pub first: u32,
    /// The warm-up: kernels, preparing, first iterations; in nanoseconds.
    pub warmup_ns: f64,
    /// Each further iteration.
    pub steady: Steady,
}

impl Loop {
    /// What `iterations` cost in all, in nanoseconds, if an iteration takes `steady_ns` after the warm-up.
    fn total_at(&self, iterations: u64, steady_ns: f64) -> f64 {
        self.warmup_ns + (iterations as f64 - f64::from(self.first)) * steady_ns
    }

    /// What `iterations` cost in all, in nanoseconds: as many as the warm-up has, or more.
    pub fn total_ns(&self, iterations: u64) -> f64 {
        self.total_at(iterations, self.steady.median_ns)
    }

    /// Its interval in nanoseconds, which follows from that of the median: the warm-up was seen once.
    pub fn total_ends_ns(&self, iterations: u64) -> Option<(f64, f64)> {
        let (low, high) = self.steady.interval_ns?;
        Some((
            self.total_at(iterations, low),
            self.total_at(iterations, high),
        ))
    }

    /// What `iterations` cost in all, with the interval.
    pub fn total(&self, iterations: u64) -> LogInterval {
        LogInterval::new(self.total_ns(iterations), self.total_ends_ns(iterations))
    }

    /// The time of an iteration after the warm-up, with its interval.
    pub fn iteration(&self) -> LogInterval {
        LogInterval::new(self.steady.median_ns, self.steady.interval_ns)
    }
}

/// From how many iterations on a program is ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Crossing {
    /// From this one.
    At(u64),
    /// From none.
    Never,
}

/// From how many iterations on a program is ahead, with the interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BreakEven {
    /// The estimate.
    pub estimate: Crossing,
    /// What the medians' intervals allow, least and most; none where there are none.
    pub ends: Option<(Crossing, Crossing)>,
}

impl BreakEven {
    /// True if the intervals do not say whether an iteration is faster: it may be that it never pays.
    pub fn is_unclear(&self) -> bool {
        matches!(self.ends, Some((Crossing::At(_), Crossing::Never)))
    }
}

/// What guide 003 calls the two in the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The other program is faster in all, by more than a tenth.
    Wins,
    /// Neither.
    RoughlyEqual,
    /// The baseline is faster in all.
    Loses,
    /// Outputs of one of the two were not checked: what may be wrong wins nothing.
    NotChecked,
    /// Both backends have one program: what their times differ by is not compiling.
    SameProgram,
}

impl Verdict {
    /// Of a total speedup, by guide 003's bounds.
    pub fn of(total_speedup: f64) -> Self {
        match total_speedup {
            speedup if speedup > 1.1 => Verdict::Wins,
            speedup if speedup > 0.95 => Verdict::RoughlyEqual,
            _ => Verdict::Loses,
        }
    }

    /// Guide 003's words.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Wins => "COMPILE WINS",
            Verdict::RoughlyEqual => "ROUGHLY EQUAL",
            Verdict::Loses => "NO COMPILE WINS",
            Verdict::NotChecked => "not checked",
            Verdict::SameProgram => "same program",
        }
    }
}

/// True if two backends have one program, by the backend that each says had it before.
pub fn is_same_program(one: (&str, Option<&str>), other: (&str, Option<&str>)) -> bool {
    let first = |(backend, same): (&str, Option<&str>)| same.unwrap_or(backend).to_owned();
    first(one) == first(other)
}

/// One loop by two programs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Comparison {
    /// The baseline's loop.
    pub baseline: Loop,
    /// The other's, with as many iterations of warm-up.
    pub other: Loop,
    /// Iterations that totals and the verdict are of: never fewer than the warm-up has.
    pub iterations: u64,
    /// Outputs of both were checked.
    pub is_checked: bool,
    /// Both backends have one program.
    pub is_same_program: bool,
}

impl Comparison {
    /// Compares a program with the baseline over so many iterations, or over those of the warm-up if it has
    /// more; none where a side would read from a cache that there is not.
    pub fn new(baseline: &Priced, other: &Priced, start: Start, iterations: u32) -> Option<Self> {
        let first = baseline.first_runs.count.max(other.first_runs.count);
        let (kernels_of_baseline, kernels_of_other) = start.kernels();
        Some(Comparison {
            baseline: baseline.begin(kernels_of_baseline, first)?,
            other: other.begin(kernels_of_other, first)?,
            iterations: u64::from(iterations.max(first)),
            is_checked: [baseline, other]
                .iter()
                .all(|one| one.checked != Checked::None),
            is_same_program: false,
        })
    }

    /// The same comparison, of two backends that have one program if that is so.
    pub fn of_same_program(self, is_same_program: bool) -> Self {
        Comparison {
            is_same_program,
            ..self
        }
    }

    /// How much faster an iteration is after the warm-up.
    pub fn steady_speedup(&self) -> LogInterval {
        self.baseline.iteration().over(self.other.iteration())
    }

    /// How much faster the loop is in all.
    pub fn total_speedup(&self) -> LogInterval {
        let [baseline, other] = [self.baseline, self.other].map(|held| held.total(self.iterations));
        baseline.over(other)
    }

    /// The verdict on the loop in all.
    pub fn verdict(&self) -> Verdict {
        match (self.is_same_program, self.is_checked) {
            (true, _) => Verdict::SameProgram,
            (false, true) => Verdict::of(self.total_speedup().number()),
            (false, false) => Verdict::NotChecked,
        }
    }

    /// From how many iterations on the other program is ahead for good: where the totals cross.
    pub fn break_even(&self) -> BreakEven {
        let gain = self.baseline.steady.median_ns - self.other.steady.median_ns;
        let ends = self.gain_ends().map(|(low, high)| {
            let (one, other) = (self.crossing(low), self.crossing(high));
            (one.min(other), one.max(other))
        });
        BreakEven {
            estimate: self.crossing(gain),
            ends,
        }
    }

    /// What is gained by an iteration, least and most: the interval of the difference of two medians from
    /// theirs (Zou and Donner 2008), errors taken as independent.
    fn gain_ends(&self) -> Option<(f64, f64)> {
        let (one, other) = (self.baseline.steady, self.other.steady);
        let (one_low, one_high) = one.interval_ns?;
        let (other_low, other_high) = other.interval_ns?;
        let gain = one.median_ns - other.median_ns;
        let below = (one.median_ns - one_low).hypot(other_high - other.median_ns);
        let above = (one_high - one.median_ns).hypot(other.median_ns - other_low);
        Some((gain - below, gain + above))
    }

    /// The first iteration that ends with the other program ahead, if each after the warm-up gains so much.
    fn crossing(&self, gain_ns: f64) -> Crossing {
        if gain_ns <= 0.0 {
            return Crossing::Never;
        }
        let behind_ns = self.other.warmup_ns - self.baseline.warmup_ns;
        let iterations = (f64::from(self.other.first) + behind_ns / gain_ns).ceil();
        match iterations < MOST_ITERATIONS {
            true => Crossing::At(iterations.max(1.0) as u64),
            false => Crossing::Never,
        }
    }
}

#[cfg(test)]
mod tests;
