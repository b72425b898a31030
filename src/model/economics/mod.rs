//! When compiling pays: the whole costs of a loop by two programs, and from how many iterations on
//! one of them is ahead.
//!
//! The costs of a loop are those of starting it, its first iterations included, and the median for
//! each further iteration. METHODOLOGY.md has the rules, the compilation guide the question.

use crate::interval::LogInterval;
use crate::row::CompileUse;
use crate::row::outcome::{Checked, Starting};

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
    /// The baseline's kernels are there, as an eager framework ships its own; the other's are
    /// compiled.
    BaselineCached,
    /// Both programs' kernels are in the cache.
    Warm,
}

/// The start where nothing tells a cold one from a warm one.
pub const SEEN: &str = "seen";

impl Start {
    /// What these starts yield, each under its name, or once as [`SEEN`] if all yield the same.
    pub fn each<T: PartialEq>(
        starts: &[Start],
        of: impl Fn(Start) -> Option<T>,
    ) -> Vec<(&'static str, T)> {
        let all: Vec<Option<T>> = starts.iter().map(|&start| of(start)).collect();
        let is_same = all.windows(2).all(|pair| pair[0] == pair[1]);
        let name = |start: &Start| if is_same { SEEN } else { start.name() };
        let found = starts.iter().map(name).zip(all);
        let found = found.filter_map(|(name, found)| Some((name, found?)));
        found.take(if is_same { 1 } else { starts.len() }).collect()
    }

    /// All starts.
    pub const ALL: [Start; 3] = [Start::Cold, Start::BaselineCached, Start::Warm];

    /// The word of tables.
    pub const fn name(self) -> &'static str {
        match self {
            Start::Cold => "cold",
            Start::BaselineCached => "baseline_cached",
            Start::Warm => "warm",
        }
    }

    /// Where the kernels of the baseline are, and where those of the other program are.
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
    /// The median's interval; none of a single sample.
    pub interval_ns: Option<(f64, f64)>,
}

/// A program with all costs of a loop of it, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Priced {
    /// Compiling its kernels: the time in which at least one of them was being compiled.
    pub compile_ns: f64,
    /// Reading them from the cache; none where there is no cache.
    pub read_ns: Option<f64>,
    /// Making it ready from compiled kernels, and its first iterations.
    pub starting: Starting,
    /// As `starting`, where libraries of a function in Python have to compile first; none where
    /// that was not seen, or the kernels are this program's.
    pub cold_starting: Option<Starting>,
    /// All further ones.
    pub steady: Steady,
    /// How thoroughly its outputs were judged.
    pub checked: Checked,
}

impl Priced {
    /// The costs of a row's program, if the row has all of them.
    pub fn new(
        compile: &CompileUse,
        starting: Option<Starting>,
        cold_starting: Option<Starting>,
        steady: Steady,
        checked: Checked,
    ) -> Option<Self> {
        let nothing_to_read = (compile.kernels == 0).then_some(0);
        Some(Priced {
            // Rows of earlier versions have the sum alone.
            compile_ns: compile.wall_ns.unwrap_or(compile.compile_ns) as f64,
            read_ns: compile.read_ns.or(nothing_to_read).map(|ns| ns as f64),
            starting: starting?,
            cold_starting,
            steady: Some(steady).filter(|steady| steady.median_ns > 0.0)?,
            checked,
        })
    }

    /// True if something is compiled before a loop whose kernels are in no cache.
    pub fn compiles(&self) -> bool {
        self.compile_ns > 0.0 || self.cold_starting.is_some()
    }

    /// The loop that begins with `first` iterations; those that were not timed by themselves take
    /// the median; none where it would read from a cache that there is not.
    pub fn begin(&self, kernels: Kernels, first: u32) -> Option<Loop> {
        let (kernels_ns, starting) = match kernels {
            Kernels::Compiled => (self.compile_ns, self.cold_starting.unwrap_or(self.starting)),
            Kernels::Cached => (self.read_ns?, self.starting),
        };
        let further = f64::from(first) - f64::from(starting.iterations);
        let known_ns = kernels_ns + further * self.steady.median_ns;
        let ends_ns = starting.interval_ns;
        Some(Loop {
            first,
            warmup_ns: known_ns + starting.median_ns,
            warmup_ends_ns: ends_ns.map(|(low, high)| (known_ns + low, known_ns + high)),
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
    /// The warm-up's interval; none where the program was started once.
    pub warmup_ends_ns: Option<(f64, f64)>,
    /// Each further iteration.
    pub steady: Steady,
}

impl Loop {
    /// Iterations after the warm-up.
    fn further(&self, iterations: u64) -> f64 {
        iterations as f64 - f64::from(self.first)
    }

    /// The costs of `iterations` in all, in nanoseconds: as many as the warm-up has, or more.
    pub fn total_ns(&self, iterations: u64) -> f64 {
        self.warmup_ns + self.further(iterations) * self.steady.median_ns
    }

    /// The interval of [`total_ns`](Self::total_ns), from those of the warm-up and of the median,
    /// errors taken as independent ([`sum_ends`]); none where the warm-up was seen once, since it
    /// varies most.
    pub fn total_ends_ns(&self, iterations: u64) -> Option<(f64, f64)> {
        let further = self.further(iterations);
        let (low, high) = self.steady.interval_ns?;
        let steady = (
            further * low,
            further * self.steady.median_ns,
            further * high,
        );
        let (low, high) = self.warmup_ends_ns?;
        Some(sum_ends((low, self.warmup_ns, high), steady))
    }

    /// The costs of `iterations` in all, with the interval.
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
    /// The least and the most that the intervals of medians and warm-ups allow; none where there
    /// are not intervals.
    pub ends: Option<(Crossing, Crossing)>,
    /// The medians' intervals do not say whether an iteration is faster: it may be that it never
    /// pays.
    pub is_unclear: bool,
}

/// A value between the ends of its interval.
type Within = (f64, f64, f64);

/// The interval of a sum of two estimates from theirs (Zou and Donner 2008), errors taken as
/// independent.
fn sum_ends(one: Within, other: Within) -> (f64, f64) {
    let sum = one.1 + other.1;
    let below = (one.1 - one.0).hypot(other.1 - other.0);
    let above = (one.2 - one.1).hypot(other.2 - other.1);
    (sum - below, sum + above)
}

/// The interval of a difference of two estimates from theirs, errors taken as independent.
fn difference_ends(one: Within, other: Within) -> (f64, f64) {
    sum_ends(one, (-other.2, -other.1, -other.0))
}

/// The compilation guide's judgement of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The other program is faster in all, by more than a tenth.
    Wins,
    /// Neither.
    RoughlyEqual,
    /// The baseline is faster in all.
    Loses,
    /// The interval of the total speedup does not tell which of these it is.
    Unclear,
    /// Outputs of one of the two were not checked: a program that may be wrong wins nothing.
    NotChecked,
    /// Both backends have one program: compiling is not the reason for different times.
    SameProgram,
}

impl Verdict {
    /// Of a total speedup, by the compilation guide's bounds.
    pub fn of(total_speedup: f64) -> Self {
        match total_speedup {
            speedup if speedup > 1.1 => Verdict::Wins,
            speedup if speedup > 0.95 => Verdict::RoughlyEqual,
            _ => Verdict::Loses,
        }
    }

    /// The compilation guide's words.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Wins => "COMPILE WINS",
            Verdict::RoughlyEqual => "ROUGHLY EQUAL",
            Verdict::Loses => "NO COMPILE WINS",
            Verdict::Unclear => "UNCLEAR",
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
    /// Compares a program with the baseline over so many iterations, or over those of the warm-up
    /// if it has more; none where a side would read from a cache that there is not.
    pub fn new(baseline: &Priced, other: &Priced, start: Start, iterations: u32) -> Option<Self> {
        let first = baseline.starting.iterations.max(other.starting.iterations);
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

    /// This comparison, marked as one of two backends with one program if that is so.
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
            (false, true) => {
                let [low, estimate, high] = self.total_speedup().numbers().map(Verdict::of);
                let has_interval = self.has_total_interval();
                match has_interval && (low != estimate || high != estimate) {
                    true => Verdict::Unclear,
                    false => estimate,
                }
            }
            (false, false) => Verdict::NotChecked,
        }
    }

    /// Advice: for which loops the other program is the better one, as far as the intervals are
    /// sure of it.
    pub fn best_for(&self) -> String {
        let found = self.break_even();
        match found.ends.map_or(found.estimate, |(_, most)| most) {
            _ if self.is_same_program => "either".to_owned(),
            _ if !self.is_checked => "not checked".to_owned(),
            _ if found.is_unclear => "unclear".to_owned(),
            Crossing::At(1) => "any loop".to_owned(),
            Crossing::At(at) => format!("loops of {at} or more"),
            Crossing::Never => match self.last_ahead() {
                Some(last) => format!("loops of {last} or fewer"),
                None => "no loop".to_owned(),
            },
        }
    }

    /// The last iteration that ends with the other program ahead, which starts sooner and is slower
    /// then.
    fn last_ahead(&self) -> Option<u64> {
        let seen = |one: f64, other: f64| (one - other, one - other);
        let steady = [self.baseline, self.other].map(|held| held.steady.median_ns);
        let gain = self.gain_ends().unwrap_or(seen(steady[0], steady[1]));
        let warmup = [self.other, self.baseline].map(|held| held.warmup_ns);
        let behind = self.behind_ends().unwrap_or(seen(warmup[0], warmup[1]));
        let further = (-behind.1 / -gain.0).floor();
        let is_ahead = behind.1 < 0.0 && further < MOST_ITERATIONS;
        is_ahead.then(|| u64::from(self.other.first) + further as u64)
    }

    fn has_total_interval(&self) -> bool {
        let ends = [self.baseline, self.other].map(|held| held.total_ends_ns(self.iterations));
        ends.iter().all(Option::is_some)
    }

    /// From how many iterations on the other program stays ahead: where the totals cross.
    pub fn break_even(&self) -> BreakEven {
        let gain = self.baseline.steady.median_ns - self.other.steady.median_ns;
        let behind = self.other.warmup_ns - self.baseline.warmup_ns;
        let gains = self.gain_ends();
        let ends = gains.zip(self.behind_ends()).map(|(gains, behinds)| {
            let corners = [gains.0, gains.1].into_iter();
            let corners = corners.flat_map(|gain| [(gain, behinds.0), (gain, behinds.1)]);
            let crossings = corners.map(|(gain, behind)| self.crossing(gain, behind));
            crossings.fold((Crossing::Never, Crossing::At(0)), |(least, most), at| {
                (least.min(at), most.max(at))
            })
        });
        BreakEven {
            estimate: self.crossing(gain, behind),
            ends,
            is_unclear: gains.is_some_and(|(low, high)| low <= 0.0 && high > 0.0),
        }
    }

    /// The gain of an iteration, least and most.
    fn gain_ends(&self) -> Option<(f64, f64)> {
        let [one, other] = [self.baseline.steady, self.other.steady].map(|steady| {
            let (low, high) = steady.interval_ns?;
            Some((low, steady.median_ns, high))
        });
        Some(difference_ends(one?, other?))
    }

    /// By how much the other program is behind after the warm-up, least and most.
    fn behind_ends(&self) -> Option<(f64, f64)> {
        let [one, other] = [self.other, self.baseline].map(|held| {
            let (low, high) = held.warmup_ends_ns?;
            Some((low, held.warmup_ns, high))
        });
        Some(difference_ends(one?, other?))
    }

    /// The first iteration that ends with the other program ahead, if it is behind by so much after
    /// the warm-up, and each iteration gains so much.
    fn crossing(&self, gain_ns: f64, behind_ns: f64) -> Crossing {
        if gain_ns <= 0.0 {
            return Crossing::Never;
        }
        let iterations = (f64::from(self.other.first) + behind_ns / gain_ns).ceil();
        match iterations < MOST_ITERATIONS {
            true => Crossing::At(iterations.max(1.0) as u64),
            false => Crossing::Never,
        }
    }
}

#[cfg(test)]
mod tests;
