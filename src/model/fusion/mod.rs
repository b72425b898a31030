//! The gain of fusing: ratios of times that were measured in turns, and verdicts on them (the
//! calibration guide).
//!
//! [`Ratio`] is the time of one program over that of another, with its interval; [`Verdict`]
//! follows from it, and from the ratio of two measurements of one program on this machine;
//! [`subject`] names the fused patterns.

use std::fmt;

use crate::stats::{memory, paired};

pub mod subject;

/// The backend that runs operation by operation.
pub const UNFUSED: &str = "eager";
/// The backend that fuses them.
pub const FUSED: &str = "compiled";
/// The backend that is the unfused one once more.
pub const CONTROL: &str = "control";

/// Intervals cover with this probability.
const CONFIDENCE: f64 = 0.95;

/// A control that is certainly further from 1 than this says that the machine can't tell programs
/// apart: the margin at which a comparison takes times for equal.
pub const MARGIN: f64 = 0.01;

/// From which speedups on a gain is minimal, moderate and strong; a smaller one is slower.
pub const BOUNDS: [f64; 3] = [0.95, 1.1, 1.5];

/// The basis of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// The ratios of so many rounds, in each of which both programs were timed.
    Rounds(usize),
    /// The intervals of both medians, as if their errors were independent.
    Medians,
}

/// A ratio of two times, with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ratio {
    /// The estimate.
    pub value: f64,
    /// Lower end of its interval; NaN where there is none, as of single samples.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// The basis of the interval.
    pub basis: Basis,
}

impl Ratio {
    /// The first time over the second, from samples whose positions are rounds.
    ///
    /// The estimate is the centre of the logarithms of the rounds' ratios ([`paired::centre`]):
    /// influences that slow both programs of a round cancel. Where rounds in a row are alike, the
    /// interval is wider by the root of [`memory::memory`]. None of fewer than two rounds, or where
    /// a time is not over zero.
    pub fn of_rounds(over_ns: &[f64], under_ns: &[f64]) -> Option<Self> {
        let rounds = over_ns.iter().zip(under_ns);
        let logs: Vec<f64> = rounds.map(|(over, under)| (over / under).ln()).collect();
        let found = paired::centre(&logs, CONFIDENCE)?;
        let wider = memory::memory(&logs, median(&logs)).sqrt();
        Some(Ratio {
            value: found.centre.exp(),
            low: (found.centre - wider * (found.centre - found.low)).exp(),
            high: (found.centre + wider * (found.high - found.centre)).exp(),
            basis: Basis::Rounds(logs.len()),
        })
    }

    /// How far from 1 it certainly is, as a part of 1 on either side: 0.02 for [1.02, 1.05] and for
    /// its inverse. Zero if the interval holds 1, or is none.
    pub fn certain_distance(&self) -> f64 {
        let nearest = self.low.max(1.0 / self.high);
        match nearest > 1.0 {
            true => nearest - 1.0,
            false => 0.0,
        }
    }
}

/// The middle of some numbers; of two middle ones their mean, so that none of an even number is the
/// median.
fn median(numbers: &[f64]) -> f64 {
    let mut sorted = numbers.to_vec();
    sorted.sort_by(f64::total_cmp);
    let count = sorted.len();
    (sorted[(count - 1) / 2] + sorted[count / 2]) / 2.0
}

/// How much fusing gains, by the calibration guide's bounds of the speedup.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Class {
    /// Less than 0.95: the fused program is slower.
    Slower,
    /// From 0.95: no gain, or one that is hard to see.
    Minimal,
    /// From 1.1.
    Moderate,
    /// From 1.5.
    Strong,
}

impl Class {
    /// The class of a speedup.
    pub fn of(speedup: f64) -> Self {
        let [minimal, moderate, strong] = BOUNDS;
        match speedup {
            speedup if speedup >= strong => Class::Strong,
            speedup if speedup >= moderate => Class::Moderate,
            speedup if speedup >= minimal => Class::Minimal,
            _ => Class::Slower,
        }
    }

    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Class::Slower => "slower",
            Class::Minimal => "minimal",
            Class::Moderate => "moderate",
            Class::Strong => "strong",
        }
    }
}

/// The verdict on a speedup.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Verdict {
    /// The whole interval lies in one class.
    Is(Class),
    /// The whole interval lies in the upper two classes, and in both.
    AtLeastModerate,
    /// Nothing was fused: both backends have one program.
    SameProgram,
    /// Neither is shown.
    Inconclusive(Doubt),
}

/// Why a verdict is inconclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Doubt {
    /// The interval reaches over several classes.
    Between(Class, Class),
    /// Two measurements of one program certainly differ by this part.
    Control(f64),
    /// There are too few samples for an interval.
    Samples,
    /// One program was sampled after the other: changes of the machine between them may be the
    /// difference.
    Apart,
}

impl Verdict {
    /// The word, for files.
    pub const fn name(self) -> &'static str {
        match self {
            Verdict::Is(class) => class.name(),
            Verdict::AtLeastModerate => "at least moderate",
            Verdict::SameProgram => "same program",
            Verdict::Inconclusive(_) => "inconclusive",
        }
    }

    /// Why it is inconclusive, if it is.
    pub fn doubt(self) -> Option<Doubt> {
        match self {
            Verdict::Inconclusive(doubt) => Some(doubt),
            _ => None,
        }
    }

    fn of(speedup: &Ratio) -> Self {
        if speedup.low.is_nan() || speedup.high.is_nan() {
            return Verdict::Inconclusive(Doubt::Samples);
        }
        match (Class::of(speedup.low), Class::of(speedup.high)) {
            (low, high) if low == high => Verdict::Is(low),
            (Class::Moderate, Class::Strong) => Verdict::AtLeastModerate,
            (low, high) => Verdict::Inconclusive(Doubt::Between(low, high)),
        }
    }
}

impl fmt::Display for Doubt {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Doubt::Between(low, high) => {
                write!(
                    out,
                    "the interval reaches from {} to {}",
                    low.name(),
                    high.name()
                )
            }
            Doubt::Control(part) => write!(
                out,
                "the control differs from its own program by {:.1} % or more: this machine can't tell",
                100.0 * part
            ),
            Doubt::Apart => out.write_str("backends were not sampled in turns"),
            Doubt::Samples => out.write_str("too few samples for an interval"),
        }
    }
}

/// The judgement of one pattern of one size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judged {
    /// Unfused over fused; none where both are one program.
    pub speedup: Option<Ratio>,
    /// Unfused over the control, where one was measured.
    pub control: Option<Ratio>,
    /// The verdict on the speedup.
    pub verdict: Verdict,
}

impl Judged {
    /// Judges a speedup by its interval, and by that of the control beside it.
    pub fn new(is_same_program: bool, speedup: Option<Ratio>, control: Option<Ratio>) -> Self {
        let speedup = speedup.filter(|_| !is_same_program);
        let off = control.map_or(0.0, |control| control.certain_distance());
        let verdict = match &speedup {
            _ if is_same_program => Verdict::SameProgram,
            _ if off > MARGIN => Verdict::Inconclusive(Doubt::Control(off)),
            Some(speedup) => Verdict::of(speedup),
            None => Verdict::Inconclusive(Doubt::Samples),
        };
        Judged {
            speedup,
            control,
            verdict,
        }
    }

    /// The judgement where the programs were not timed in turns: only whether they are one.
    pub fn apart(is_same_program: bool) -> Self {
        Judged {
            speedup: None,
            control: None,
            verdict: match is_same_program {
                true => Verdict::SameProgram,
                false => Verdict::Inconclusive(Doubt::Apart),
            },
        }
    }
}

/// True if two backends of a block have one program, by the earlier backend that each of them
/// names.
pub fn is_same_program(unfused_as: Option<&str>, fused_as: Option<&str>) -> bool {
    let first = |own: &'static str, said: Option<&str>| said.unwrap_or(own).to_owned();
    first(UNFUSED, unfused_as) == first(FUSED, fused_as)
}

/// The part that fusing saves: 1 - fused / unfused; none of nothing.
pub fn reduction(unfused: f64, fused: f64) -> Option<f64> {
    (unfused > 0.0).then(|| 1.0 - fused / unfused)
}

#[cfg(test)]
mod tests;
