//! The protocol of the main process and its workers: frames of a length and a postcard body.

use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sweeper_program::{Dtype, Phase, Value};

use crate::compile::CachePlace;
use crate::device::{Artifact, Script};
use sweeper_manifest::settings::{AutoRules, Order, Stopping, Warmup};
pub use sweeper_model::frames::{receive, send};
use sweeper_model::hardware::ceilings::Ceilings;
use sweeper_model::hardware::{DeviceIdentity, DeviceKind};
use sweeper_model::identity::CacheState;
use sweeper_model::mode::Mode;
use sweeper_model::row::outcome::{Flag, Outcome, Status};
use sweeper_model::stats::Interval;
use sweeper_model::tuning::{family_of, race};

/// Which device a worker opens, and how.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeviceRequest {
    /// The kind.
    pub kind: DeviceKind,
    /// Which of its kind.
    pub ordinal: u32,
    /// Threads of a measured program on a CPU.
    pub threads: u32,
    /// Processors of a CPU whose cores measure nothing: there the next block is made ready while
    /// one is measured.
    pub spare: Vec<usize>,
    /// State of the second-level cache before each sample.
    pub cache: CacheState,
    /// How long a worker may be silent; its own waits have to be shorter.
    pub silence_limit: Duration,
    /// The cache, for the oracle's answers and for loops that compile themselves; none to ask the
    /// oracle every time.
    pub answers: Option<CachePlace>,
    /// Where libraries of interpreters keep what they compile; below the cache's folder where none
    /// is said.
    pub compiled_code: Option<PathBuf>,
    /// Workloads that the manifest declares, as JSON.
    pub declared: Vec<String>,
}

/// How samples are taken.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Settings {
    /// When to stop.
    pub stop: Stopping,
    /// The warm-up before samples.
    pub warmup: Warmup,
    /// In how many processes of its own each program is started.
    pub fresh_starts: u32,
    /// Whether outputs are checked.
    pub verify: bool,
    /// Longest evaluation of the oracle, in seconds; a reduced problem is checked beyond.
    pub oracle_s: f64,
    /// Order of rounds inside a block.
    pub order: Order,
    /// How loops decide that compile themselves.
    pub auto: AutoRules,
    /// How long compiling a kernel may take while a loop runs.
    pub compile_limit: Duration,
}

/// A file that inputs come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InputFile {
    /// Absolute path.
    pub path: PathBuf,
    /// SHA-256 of the file when the manifest was read: the problem's identity has it.
    pub digest: [u8; 32],
}

/// All points of one problem.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Block {
    /// Name of the workload.
    pub workload: String,
    /// The parameters of the problem.
    pub parameters: Vec<(String, Value)>,
    /// Type of the elements.
    pub dtype: Dtype,
    /// The problem id, from which inputs and orders derive.
    pub problem: [u8; 32],
    /// Inputs come from this file instead.
    pub inputs: Option<InputFile>,
    /// Inputs and outputs are written below this folder.
    pub save_tensors: Option<PathBuf>,
    /// How samples are taken.
    pub settings: Settings,
    /// The points.
    pub points: Vec<BlockPoint>,
    /// Configurations of tuned backends of the block that were measured before.
    pub rivals: Vec<Rival>,
    /// Keys of the kernels of the device's oracle, or of the backend that is the reference, in the
    /// order of its program's sources; none where the host's oracle answers.
    pub oracle_kernels: Vec<String>,
    /// Why one of these kernels was not compiled.
    pub oracle_failure: Option<Outcome>,
    /// Kernels that the worker was not sent before.
    pub artifacts: Vec<Artifact>,
}

impl Block {
    /// The block with no configuration held against others.
    pub fn by_itself(mut self) -> Self {
        self.rivals.clear();
        self.points.iter_mut().for_each(|point| point.tuned = None);
        self
    }
}

/// One point of a block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct BlockPoint {
    /// Number of the point in the plan.
    pub number: u32,
    /// Name of the backend.
    pub backend: String,
    /// The phase.
    pub phase: Phase,
    /// How its program is run.
    pub mode: Mode,
    /// The canonical shape.
    pub canonical: Vec<(String, u64)>,
    /// Keys of the program's sources, in its order.
    pub kernels: Vec<String>,
    /// Name of the point's folder below [`Block::save_tensors`].
    pub folder: String,
    /// What the workload's tolerances are multiplied by for its outputs.
    pub tolerance_factor: f64,
    /// Set for a configuration that has others of its backend beside it.
    pub tuned: Option<Tuned>,
    /// The script of the null device.
    pub script: Option<Script>,
    /// The status that the null device pretends.
    pub scripted_status: Option<Status>,
}

#[cfg(test)]
impl BlockPoint {
    /// The forward pass by a backend, for tests.
    pub(super) fn forward(number: u32, backend: &str) -> Self {
        BlockPoint {
            number,
            backend: backend.to_owned(),
            phase: Phase::Forward,
            mode: Mode::Each(sweeper_model::mode::Launching::Launch),
            canonical: Vec::new(),
            kernels: Vec::new(),
            folder: String::new(),
            tolerance_factor: 1.0,
            tuned: None,
            script: None,
            scripted_status: None,
        }
    }
}

/// A configuration among others of its backend, for one problem, phase and mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tuned {
    /// Whether it stops once it is clearly slower than the best.
    pub is_raced: bool,
    /// Whether each of the others is in the block or was measured before: then the best of all is
    /// known at the end of the block.
    pub is_whole: bool,
}

/// A configuration that was measured before the others of its backend that a block has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rival {
    /// The backend, without tuned values.
    pub family: String,
    /// The phase.
    pub phase: Phase,
    /// How its program was run.
    pub mode: Mode,
    /// Number of samples.
    pub samples: usize,
    /// The interval of their median, in nanoseconds; none of a single sample.
    pub interval: Option<Interval>,
    /// Whether it has a second measurement.
    pub has_again: bool,
}

impl Rival {
    /// The configuration that was measured; none where it has no result or was outraced, so that it
    /// is not a rival of any.
    pub fn of(backend: &str, phase: Phase, mode: Mode, outcome: &Outcome) -> Option<Self> {
        let found = outcome.measurement.as_ref()?;
        let is_out = outcome.status != Status::Ok || found.flags.contains(&Flag::Outraced);
        (!is_out && family_of(backend) != backend).then(|| Rival {
            family: family_of(backend).to_owned(),
            phase,
            mode,
            samples: found.samples_ns.len(),
            interval: race::interval_of(&found.samples_ns),
            has_again: !found.again_samples_ns.is_empty(),
        })
    }
}

/// A request of the main process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Request {
    /// The first word.
    Open(DeviceRequest),
    /// Measure.
    Measure(Box<Block>),
    /// Measure the device's ceilings, with the kernels of its probes in their order.
    Calibrate(Vec<Option<Artifact>>),
}

/// An answer of a worker.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Event {
    /// The device answered.
    Ready(DeviceIdentity),
    /// The device did not; the worker ends.
    NotReady(String),
    /// The following messages are about this point (by number), until another is named.
    Working {
        /// The point.
        number: u32,
        /// The stage of the work.
        stage: Stage,
    },
    /// A point is finished.
    Finished {
        /// The point.
        number: u32,
        /// The result of the point.
        outcome: Outcome,
    },
    /// All points of the block are.
    BlockDone {
        /// How long the device was running programs, by the host's clock.
        running: Duration,
    },
    /// The device's ceilings, or why they are not known.
    Calibrated(Result<Ceilings, String>),
}

/// The stage of a worker's work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Making inputs and the oracle's answer.
    Inputs,
    /// Running the backend that is the reference.
    Reference,
    /// Preparing and checking.
    Check,
    /// Warming up.
    Warmup,
    /// Sampling.
    Sample,
}

impl Stage {
    /// One word, for screens.
    pub const fn name(self) -> &'static str {
        match self {
            Stage::Inputs => "inputs",
            Stage::Reference => "reference",
            Stage::Check => "check",
            Stage::Warmup => "warm-up",
            Stage::Sample => "samples",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_arrive_as_they_were_sent() {
        let outcome = Outcome::without_measurement(Status::Oom, "4 GB");
        let sent = [
            Event::Working {
                number: 3,
                stage: Stage::Check,
            },
            Event::Finished { number: 3, outcome },
            Event::BlockDone {
                running: Duration::from_millis(7),
            },
        ];
        let mut stream = Vec::new();
        for event in &sent {
            send(&mut stream, event).unwrap();
        }
        let mut reader = stream.as_slice();
        for event in &sent {
            assert_eq!(receive::<Event>(&mut reader).unwrap().as_ref(), Some(event));
        }
        assert_eq!(receive::<Event>(&mut reader).unwrap(), None);
    }

    #[test]
    fn a_torn_or_absurd_frame_is_an_error() {
        let mut stream = Vec::new();
        send(&mut stream, &Event::NotReady("no driver".to_owned())).unwrap();
        stream.pop();
        assert!(receive::<Event>(&mut stream.as_slice()).is_err());
        assert!(receive::<Event>(&mut [0xff; 8].as_slice()).is_err());
    }
}
