//! What became of one loop.

use serde::{Deserialize, Serialize};

use crate::word::Word;

/// The end of the search for a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HotOutcome {
    /// No loop was found.
    #[default]
    Undetected,
    /// Only loops were found that are parts of an iteration.
    Parts,
    /// It ran too short to look for a program.
    Short,
    /// The program's gain was not yet worth its price.
    Unpaid,
    /// The program would do as much work.
    Worthless,
    /// The program was not compiled when the loop ended.
    Compiling,
    /// The loop ended while both ran in turns.
    Trying,
    /// The program is faster, and took over.
    Kept,
    /// The program whose repeated parts alone are compiled took over; that of the whole iteration
    /// was not worth its price yet, or is not faster.
    KeptParts,
    /// The program is not faster: the loop went back.
    Back,
    /// There is no program.
    Failed,
    /// An earlier loop's program ran from the first iteration on.
    Remembered,
}

impl Word for HotOutcome {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("undetected", HotOutcome::Undetected),
        ("parts", HotOutcome::Parts),
        ("short", HotOutcome::Short),
        ("unpaid", HotOutcome::Unpaid),
        ("worthless", HotOutcome::Worthless),
        ("compiling", HotOutcome::Compiling),
        ("trying", HotOutcome::Trying),
        ("kept", HotOutcome::Kept),
        ("kept_parts", HotOutcome::KeptParts),
        ("back", HotOutcome::Back),
        ("failed", HotOutcome::Failed),
        ("remembered", HotOutcome::Remembered),
    ];
}

/// A loop that decided itself whether to compile. Iterations are counted from 1; times are in
/// nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct HotPath {
    /// The end of the search for a program.
    pub outcome: HotOutcome,
    /// Why there is no program, or none that was kept; the decision on one that was still being
    /// compiled.
    pub note: Option<String>,
    /// The iteration in which the loop was found.
    pub detected_at: Option<u32>,
    /// The first iteration that the program ran whose repeated parts alone are compiled.
    pub parts_at: Option<u32>,
    /// The first iteration that the program of the whole iteration ran.
    pub switched_at: Option<u32>,
    /// Iterations that one of the programs ran.
    pub replaced: u32,
    /// Programs that were not faster.
    pub regressions: u32,
    /// Time in which operations were recorded until the loop was found.
    pub detection_ns: Option<f64>,
    /// Time of planning and compiling, beside the loop.
    pub background_ns: f64,
    /// The predicted price of compiling.
    pub predicted_price_ns: Option<f64>,
    /// The predicted gain of an iteration.
    pub predicted_gain_ns: Option<f64>,
    /// Time of an iteration, operation by operation.
    pub eager_ns: Option<f64>,
    /// Time of an iteration of the last program that was tried, in turns with the others.
    pub compiled_ns: Option<f64>,
    /// Time of the whole loop.
    pub total_ns: f64,
}
