//! The result of one point.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use sweeper_program::check::Check;
use sweeper_program::{Role, Totals};

use crate::hardware::DeviceMemory;
use crate::hardware::clocks::ClockSummary;
use crate::stats::Summary;
use crate::toml_text::is_hidden;

use crate::row::hot_path::HotPath;
pub use crate::row::metric::MetricValues;
pub use crate::status::Status;

/// What follows the name of an output in a judgement on inputs that show mistakes.
pub const ON_SHOWING_INPUTS: &str = " (showing)";

/// How thoroughly outputs were judged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Checked {
    /// All outputs against the oracle.
    Full,
    /// All outputs of these kernels on a smaller problem, because the oracle of the whole one would
    /// take too long.
    Reduced,
    /// All outputs against those of another backend, which may be wrong, too.
    Peer,
    /// Not at all.
    #[default]
    None,
}

impl Checked {
    /// The words of rows, for people.
    pub const WORDS: &str = "`full`, `reduced`, `peer` or `none`";
    /// The meaning of the word, for people.
    pub const ABOUT: &str = "how outputs were compared with the oracle's: `full`, `reduced`, \
         `peer` (with another backend's, or a text's in f64) or `none`";

    /// The word of rows.
    pub const fn name(self) -> &'static str {
        match self {
            Checked::Full => "full",
            Checked::Reduced => "reduced",
            Checked::Peer => "peer",
            Checked::None => "none",
        }
    }
}

/// Something to know about a row that does not make it a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Flag {
    /// The samples still had a trend when the warm-up's time was over.
    Unsteady,
    /// The adaptive rule ran out of samples or time before the interval was narrow enough.
    WideInterval,
    /// One sample is shorter than a thousand ticks of the clock.
    CoarseClock,
    /// The device did not wait until a sample was queued: times may hold some of the host's.
    Ungated,
    /// Calls of the program's kernels alone take more than a twentieth of its time.
    LaunchFloor,
    /// The program changed floating-point modes, which were restored after each of its samples.
    FloatModes,
    /// The device held its clocks back in a sample that was kept.
    Throttled,
    /// A sample that was kept waited for a processor for more than a hundredth of its time: that of
    /// others is in it.
    Waited,
    /// A process that is none of this sweep's had the device open: its work may be in the times.
    SharedGpu,
    /// The median is below the bound of the device's measured ceilings.
    AboveRoofline,
    /// The device's account of memory and the program's differ by more than 1 % and 2 MiB.
    MemoryMismatch,
    /// A kernel keeps values in memory for which it has no registers.
    Spills,
    /// A configuration of a raced backend that was clearly slower than the best of its problem: it
    /// has the samples that it had by then.
    Outraced,
    /// A function in Python loaded files of the user that are not part of the run's identity.
    UnlistedSource,
    /// A function in Python whose outputs differ from call to call, all within the tolerance.
    Varying,
    /// Rounding moves an output by as much as its right value: zeros would pass, too.
    BelowRounding,
    /// An output is right, and further out than it would be if long sums were made of blocks.
    Inexact,
    /// The reference has operations of which the model of rounding knows nothing.
    UnmodelledRounding,
    /// A program of the user changed the process that it shares with others.
    ChangesProcess,
    /// The referee measured it: in a sandbox, by a clock that it can't reach, on inputs of which no
    /// two calls have the same.
    Refereed,
}

impl Flag {
    /// All flags.
    pub const ALL: [Flag; 20] = [
        Flag::Unsteady,
        Flag::WideInterval,
        Flag::CoarseClock,
        Flag::Ungated,
        Flag::LaunchFloor,
        Flag::FloatModes,
        Flag::Throttled,
        Flag::Waited,
        Flag::SharedGpu,
        Flag::AboveRoofline,
        Flag::MemoryMismatch,
        Flag::Spills,
        Flag::Outraced,
        Flag::UnlistedSource,
        Flag::Varying,
        Flag::BelowRounding,
        Flag::Inexact,
        Flag::UnmodelledRounding,
        Flag::ChangesProcess,
        Flag::Refereed,
    ];

    /// The word of rows.
    pub const fn name(self) -> &'static str {
        match self {
            Flag::Unsteady => "unsteady",
            Flag::WideInterval => "wide_interval",
            Flag::CoarseClock => "coarse_clock",
            Flag::Ungated => "ungated",
            Flag::LaunchFloor => "launch_floor",
            Flag::FloatModes => "float_modes",
            Flag::Throttled => "throttled",
            Flag::Waited => "waited",
            Flag::SharedGpu => "shared_gpu",
            Flag::AboveRoofline => "above_roofline",
            Flag::MemoryMismatch => "memory_mismatch",
            Flag::Spills => "spills",
            Flag::Outraced => "outraced",
            Flag::UnlistedSource => "unlisted_source",
            Flag::Varying => "varying",
            Flag::BelowRounding => "below_rounding",
            Flag::Inexact => "inexact",
            Flag::UnmodelledRounding => "unmodelled_rounding",
            Flag::ChangesProcess => "changes_process",
            Flag::Refereed => "refereed",
        }
    }
}

/// A kernel that a program launched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KernelUse {
    /// Name of the entry point or builtin.
    pub name: Arc<str>,
    /// Kernel key in full; absent for builtins.
    pub key: Option<Arc<str>>,
}

/// A program's first iterations, each timed by itself: the costs of a loop that has just begun.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FirstRuns {
    /// How many: few, and one where an iteration is long.
    pub count: u32,
    /// The time of all first iterations, in nanoseconds, as the device's samples have it.
    pub elapsed_ns: f64,
}

/// Kernels of libraries that a function launches on a GPU, by an untimed call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LibraryUse {
    /// Their share of the time of all kernels, without those that copy and fill memory.
    pub share: f64,
    /// Names of those that take the most of it, the first first.
    pub kernels: Vec<String>,
}

/// The costs of starting a program in a process in which no other had run.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct FreshStart {
    /// How long it took to make the program ready, in nanoseconds, without importing libraries.
    pub prepare_ns: u64,
    /// The first iterations of the program.
    pub first_runs: FirstRuns,
}

/// Starts of a program in processes of their own.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FreshStarts {
    /// Starts that found compiled code where it is kept.
    pub warm: Vec<FreshStart>,
    /// Starts of a function in Python whose libraries found none, and compiled it.
    pub cold: Vec<FreshStart>,
}

/// The costs of starting a program: making it ready, and its first iterations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Starting {
    /// How often it was seen: in so many processes of its own, or 0 for once, in a process that had
    /// run other programs before.
    pub processes: u32,
    /// First iterations in it.
    pub iterations: u32,
    /// How long it took, in nanoseconds: the median.
    pub median_ns: f64,
    /// The median's interval; none of fewer than two.
    pub interval_ns: Option<(f64, f64)>,
}

impl Starting {
    /// The start in the worker that measured the program.
    pub fn once(prepare_ns: u64, first_runs: FirstRuns) -> Option<Self> {
        (first_runs.count > 0).then_some(Starting {
            processes: 0,
            iterations: first_runs.count,
            median_ns: prepare_ns as f64 + first_runs.elapsed_ns,
            interval_ns: None,
        })
    }

    /// Starts in processes of their own, with so many first `iterations`. Where one has fewer, each
    /// missing one is taken to last `iteration_ns`.
    pub(super) fn of(starts: &[FreshStart], iterations: u32, iteration_ns: f64) -> Option<Self> {
        let time_ns = |start: &FreshStart| {
            let further = f64::from(iterations - start.first_runs.count);
            start.prepare_ns as f64 + start.first_runs.elapsed_ns + further * iteration_ns
        };
        let times_ns: Vec<f64> = starts.iter().map(time_ns).collect();
        let summary = Summary::of(&times_ns).filter(|_| iterations > 0)?;
        let interval = (summary.interval.low, summary.interval.high);
        Some(Starting {
            processes: starts.len() as u32,
            iterations,
            median_ns: summary.median,
            interval_ns: (starts.len() > 1).then_some(interval),
        })
    }
}

/// All that was measured of a point. Times are nanoseconds of one iteration.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    /// One entry a sample, in the order taken.
    pub samples_ns: Vec<f64>,
    /// Samples of the second measurement, which the best configuration of a tuned backend gets and
    /// those that can't be told from it, in the order taken.
    #[serde(default)]
    pub again_samples_ns: Vec<f64>,
    /// How often the timed steps ran in a sample.
    pub iterations: u32,
    /// Samples before the first that counts.
    pub warmup_samples: u32,
    /// The time of an iteration's calls alone, in nanoseconds: of as many calls of a function that
    /// does nothing; absent where times do not hold it, or nobody can tell.
    #[serde(default)]
    pub launch_floor_ns: Option<f64>,
    /// The part of the samples' time that one of the program's threads stood ready and had no
    /// processor; absent where nobody can tell.
    #[serde(default)]
    pub waited_share: Option<f64>,
    /// The median time of a call of an empty function by the referee, in nanoseconds: it is
    /// subtracted from times.
    #[serde(default)]
    pub referee_ns: Option<u64>,
    /// The distance of the quartiles of such calls, in nanoseconds.
    #[serde(default)]
    pub referee_spread_ns: Option<u64>,
    /// The kernels of libraries that it launches, where that was asked for and is known.
    #[serde(default)]
    pub library_use: Option<LibraryUse>,
    /// How long it took to make the program ready from its compiled kernels, as if it were the
    /// first of its process, in nanoseconds; absent where no time passes.
    #[serde(default)]
    pub prepare_ns: Option<u64>,
    /// Of this, the time of loading libraries: NVIDIA's, or a function in Python and the library
    /// of its arrays.
    #[serde(default)]
    pub import_ns: Option<u64>,
    /// Of this, the time of its first call, in which it compiles.
    #[serde(default)]
    pub first_call_ns: Option<u64>,
    /// Files of the user that a function in Python loaded, and that are not part of the run's
    /// identity.
    #[serde(default)]
    pub unlisted_sources: Vec<String>,
    /// States of the process, which it shares with others, that a program of the user changed.
    #[serde(default)]
    pub process_changes: Vec<String>,
    /// Configurations that autotuners chose for kernels that a function in Python launches, in
    /// order: `softmax_kernel: BLOCK=1024 num_warps=8`.
    #[serde(default)]
    pub autotuned: Vec<String>,
    /// The first iterations of the program; absent in rows from before they were recorded.
    #[serde(default)]
    pub first_runs: Option<FirstRuns>,
    /// Starts in processes of their own, in the order made; none unless the manifest asks for some.
    #[serde(default)]
    pub fresh_starts: Vec<FreshStart>,
    /// As many starts of a function in Python whose libraries had to compile.
    #[serde(default)]
    pub cold_starts: Vec<FreshStart>,
    /// Further values of each sample, by name; of commands alone.
    #[serde(default)]
    pub metrics: BTreeMap<String, MetricValues>,
    /// Bytes of the program's buffers, by role.
    pub memory_bytes: BTreeMap<Role, u64>,
    /// The device's own account.
    pub device_memory: DeviceMemory,
    /// Launches and bytes moved, an iteration; none where another process runs the program.
    #[serde(default)]
    pub totals: Option<Totals>,
    /// Kernels, in the order of the program.
    pub kernels: Vec<KernelUse>,
    /// An earlier backend in the block with an equal program: measured twice, it is one program.
    #[serde(default)]
    pub same_program_as: Option<String>,
    /// How thoroughly outputs were judged.
    pub checked: Checked,
    /// The judgement.
    pub check: Option<Check>,
    /// SHA-256 of inputs that a function of the user made; absent for all others, which follow from
    /// the problem.
    #[serde(default)]
    pub input_digest: Option<String>,
    /// SHA-256 of the outputs, in full; absent where nothing was computed.
    pub output_digest: Option<String>,
    /// Useful floating-point operations.
    pub flops: f64,
    /// The least bytes that must be moved.
    pub compulsory_bytes: f64,
    /// What became of the first loop of the backend `auto`.
    #[serde(default)]
    pub hot_path: Option<Box<HotPath>>,
    /// How the device was doing, where it can be asked.
    #[serde(default)]
    pub clocks: Option<ClockSummary>,
    /// Further facts about the measurement.
    pub flags: Vec<Flag>,
}

/// Where the cause of a missing result lies, if not in the point itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Trouble of the moment around the point: a full disk, a compiler or worker that was killed
    /// from outside, a missing compiler. The next run tries the point again.
    Surroundings,
    /// The device can't have the backend at all, or can't launch one configuration of a tuned one.
    /// That is not a failure of the run.
    Device,
    /// The time that the run was given was over. The next run measures the point.
    Time,
}

/// The result of one point.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outcome {
    /// The word.
    pub status: Status,
    /// Why, where the word is not `ok`.
    pub reason: Option<String>,
    /// Where the cause of a missing result lies; none for the point itself.
    #[serde(default)]
    pub cause: Option<Cause>,
    /// The measurement; also of wrong points, without samples.
    pub measurement: Option<Box<Measurement>>,
}

impl Measurement {
    /// How long it took to make the program ready, without loading libraries: a process that
    /// runs many programs has them, as it has its device.
    pub fn own_prepare_ns(&self) -> Option<u64> {
        own_prepare_ns(self.prepare_ns, self.import_ns)
    }
}

/// The time of making a program ready, without that of loading libraries.
pub(super) fn own_prepare_ns(prepare_ns: Option<u64>, import_ns: Option<u64>) -> Option<u64> {
    Some(prepare_ns?.saturating_sub(import_ns.unwrap_or(0)))
}

/// A longer reason is cut: each of its rows has it.
const MOST_REASON_BYTES: usize = 8192;

/// A reason without characters that would steer a terminal, and of some length at most: messages of
/// programs and functions stand in it.
fn bounded(mut reason: String) -> String {
    let length = reason.len();
    reason.truncate(reason.floor_char_boundary(MOST_REASON_BYTES));
    if reason.len() < length {
        reason += &format!("... and {} bytes more", length - reason.len());
    }
    reason.retain(|letter| !is_hidden(letter) || matches!(letter, '\n' | '\t'));
    reason
}

impl Outcome {
    /// A failure, or a point that was left out.
    pub fn without_measurement(status: Status, reason: impl Into<String>) -> Self {
        Outcome {
            status,
            reason: Some(bounded(reason.into())),
            cause: None,
            measurement: None,
        }
    }

    /// This outcome, with a cause outside of the point.
    pub fn because_of(self, cause: Cause) -> Self {
        Outcome {
            cause: Some(cause),
            ..self
        }
    }

    /// True where a run that holds such a row ends with exit code 4.
    pub fn is_failure(&self) -> bool {
        is_failure(self.status, self.cause)
    }

    /// A measured point.
    pub fn measured(measurement: Measurement) -> Self {
        Outcome {
            status: Status::Ok,
            reason: None,
            cause: None,
            measurement: Some(Box::new(measurement)),
        }
    }
}

/// True where a point without a result is a failure of the run: it was neither left out by
/// declaration nor is it a backend that the device can't have.
pub fn is_failure(status: Status, cause: Option<Cause>) -> bool {
    !status.is_fine() && cause != Some(Cause::Device)
}
