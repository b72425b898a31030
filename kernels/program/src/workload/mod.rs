//! The contract between a workload and the engine.
//!
//! The engine knows workloads only through these types: what parameters they take, what a problem's
//! tensors are, what the right answer is, and which [`Program`] a backend yields for it.

mod dispatcher;
mod info;
mod presentation;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::check::{Check, Trial};
use crate::inputs::InputKey;
use crate::parameters::Parameters;
use crate::tensor::{Dtype, Tensor, Tensors};
use crate::{Foreign, Program};

pub use crate::target::{Capabilities, Target, generation};
pub use dispatcher::{Dispatch, Dispatcher, LoopId, Planner};
pub use info::{
    BackendInfo, DefaultValue, ParameterError, ParameterInfo, ParameterKind, TensorInfo,
    WorkloadInfo,
};
pub use info::{size, tensor, word};
pub use presentation::axis_flag;
pub use presentation::{
    Amount, ComparedWord, DerivedSize, FlagTarget, Formula, Presentation, PublishedSampling,
    ShorthandFlag,
};

/// Which part of a computation is timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Phase {
    /// The forward pass alone.
    Forward,
    /// The backward pass alone, after an untimed forward pass.
    Backward,
    /// Forward and backward in one timed span.
    Both,
    /// Forward, backward and an optimizer's step in one timed span.
    Step,
}

impl Phase {
    /// The phases of a computation that has gradients.
    pub const ALL: [Phase; 3] = [Phase::Forward, Phase::Backward, Phase::Both];

    /// Every phase that there is, in the order in which they are listed everywhere: those of a
    /// computation, and what only a model that is trained has.
    pub const EVERY: [Phase; 4] = [Phase::Forward, Phase::Backward, Phase::Both, Phase::Step];

    /// The word of manifests and files.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Forward => "forward",
            Phase::Backward => "backward",
            Phase::Both => "both",
            Phase::Step => "step",
        }
    }

    /// True where gradients are computed.
    pub const fn has_gradients(self) -> bool {
        !matches!(self, Phase::Forward)
    }

    /// True where forward and backward are one timed span.
    pub const fn is_one_span(self) -> bool {
        matches!(self, Phase::Both | Phase::Step)
    }

    /// The phase whose oracle's answer holds the answers for all of `phases`.
    pub fn covering(phases: impl IntoIterator<Item = Phase>) -> Phase {
        let of_one = |phase: Phase| match phase {
            Phase::Forward | Phase::Step => phase,
            Phase::Backward | Phase::Both => Phase::Both,
        };
        let rank = |phase: &Phase| *phase as u8;
        let covering = phases.into_iter().map(of_one).max_by_key(rank);
        covering.unwrap_or(Phase::Forward)
    }
}

/// Operations of an oracle that a thread does in a second, about. Measured with that of `semicrf`;
/// it only decides which problems are too large for their oracle, and how long a sweep may take.
pub const ORACLE_OPERATIONS_PER_SECOND: f64 = 7e7;

impl fmt::Display for Phase {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(self.name())
    }
}

/// The vector of bucket values of one problem: each at least as large as the problem's own value.
///
/// A dimension without a bucket is absent: kernels must then take it at run time, whatever it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CanonicalShape {
    bounds: Vec<(String, u64)>,
}

impl CanonicalShape {
    /// A shape from named bounds, sorted by name.
    pub fn new(bounds: impl IntoIterator<Item = (String, u64)>) -> Self {
        let mut bounds: Vec<_> = bounds.into_iter().collect();
        bounds.sort();
        CanonicalShape { bounds }
    }

    /// The bound of the dimension or derived value `name`, such as `T` or `KC`.
    pub fn bound(&self, name: &str) -> Option<u64> {
        let (_, bound) = self.bounds.iter().find(|(held, _)| held == name)?;
        Some(*bound)
    }

    /// All bounds, by name in ascending order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&str, u64)> {
        self.bounds
            .iter()
            .map(|(name, bound)| (name.as_str(), *bound))
    }
}

impl fmt::Display for CanonicalShape {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for (name, bound) in self.iter() {
            write!(out, "{separator}{name}<={bound}")?;
            separator = " ";
        }
        if self.bounds.is_empty() {
            out.write_str("any")?;
        }
        Ok(())
    }
}

/// Why a backend yields no program for a problem.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The mathematics does not allow it: the point is `skipped`.
    #[error("{0}")]
    Undefined(String),
    /// It can't run on this target: the point is `unavailable`.
    #[error("{0}")]
    Unavailable(String),
    /// What is given for the problem contradicts it: the point is an `error`.
    #[error("{0}")]
    Invalid(String),
}

/// Where the right outputs of a problem come from, if not from its [`oracle`](Problem::oracle).
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerSource {
    /// One run of a backend for the problem's inputs, on the device that is measured.
    Backend {
        /// The backend. Real inputs and outputs have the types that its program's buffers have.
        name: String,
        /// The backend that computes the same in the precision that is judged: tolerances follow
        /// from how far it is from the answer. None where tolerances are stated.
        judged: Option<String>,
    },
    /// The tensors of a file, by the names of the outputs.
    File {
        /// Its path.
        path: String,
        /// SHA-256 of its contents in hex digits, as the problem's identity has it.
        sha256: String,
    },
}

/// Name, type and shape of a tensor of a problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TensorSpec {
    /// Name, as in files.
    pub name: String,
    /// Type of the elements.
    pub dtype: Dtype,
    /// Extents, outermost first.
    pub shape: Vec<usize>,
}

impl TensorSpec {
    /// Number of elements.
    pub fn elements(&self) -> u64 {
        self.shape.iter().map(|&extent| extent as u64).product()
    }

    /// Size in bytes.
    pub fn size_bytes(&self) -> u64 {
        self.elements() * self.dtype.size_bytes() as u64
    }
}

/// The least work that any implementation of a phase must do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Work {
    /// Useful floating-point operations, an exponential counted as one.
    pub flops: f64,
    /// Each input read once, each output written once, in bytes.
    pub compulsory_bytes: f64,
}

/// [`Problem::oracle`] as a program for a device.
#[derive(Clone, Debug)]
pub struct DeviceOracle {
    /// Plain f64 kernels, which share no code with any backend; sizes are arguments, so that the
    /// same kernels answer a smaller problem.
    pub program: Program,
    /// Its results: names, types and shapes of the tensors that [`Problem::oracle`] gives.
    pub answers: Vec<TensorSpec>,
}

/// A workload: makes problems from parameters.
pub trait Workload: Sync {
    /// Its description without a problem.
    fn info(&self) -> &'static WorkloadInfo;

    /// The problem of these parameters. Parameters that are not given have their defaults.
    ///
    /// # Errors
    /// The first parameter that is unknown, missing or out of bounds.
    fn problem(
        &self,
        parameters: &Parameters,
        dtype: Dtype,
    ) -> Result<Box<dyn Problem>, ParameterError>;
}

/// One problem: a workload with all its parameters given.
pub trait Problem: Send + Sync {
    /// The tensors it reads.
    fn inputs(&self) -> Vec<TensorSpec>;

    /// The tensors that `phase` yields: outputs, and gradients where it has them.
    fn outputs(&self, phase: Phase) -> Vec<TensorSpec>;

    /// Input tensors made from `key`: the same bytes for every backend, phase and device.
    fn generate(&self, key: &InputKey) -> Tensors;

    /// Further inputs, on which mistakes show that those of [`generate`](Problem::generate) hide: a
    /// program is right if its outputs are right for both. None where there are none.
    fn showing(&self, _key: &InputKey) -> Option<Tensors> {
        None
    }

    /// The call in another process that makes the inputs from a seed, in place of
    /// [`generate`](Problem::generate).
    fn foreign_inputs(&self, _seed: u32) -> Option<Foreign> {
        None
    }

    /// The value of an input that a file of tensors may leave out: state that begins at zero.
    fn absent_input(&self, _spec: &TensorSpec) -> Option<Tensor> {
        None
    }

    /// Checks inputs that were read from a file, beyond names, shapes and types.
    ///
    /// # Errors
    /// A sentence that says which value of which tensor is not allowed.
    fn validate(&self, inputs: &Tensors) -> Result<(), String>;

    /// The right answer for `phase` in f64, by code that shares nothing with any backend.
    ///
    /// The answer for [`Phase::Both`] holds those for [`Phase::Forward`] and [`Phase::Backward`],
    /// that for [`Phase::Step`] all of them; one is evaluated for all phases of a problem that are
    /// measured.
    fn oracle(&self, inputs: &Tensors, phase: Phase) -> Tensors;

    /// About how many f64 exponentials (or operations of that cost) each of `threads` threads takes
    /// to evaluate [`Problem::oracle`]; infinite where that gives no answer.
    fn oracle_operations(&self, phase: Phase, threads: usize) -> f64;

    /// The call in another process that computes the right outputs of the forward pass, in place of
    /// [`oracle`](Problem::oracle), with real numbers of type f64.
    fn foreign_oracle(&self) -> Option<Foreign> {
        None
    }

    /// Where the right outputs come from, in place of [`oracle`](Problem::oracle).
    fn answer_source(&self) -> Option<AnswerSource> {
        None
    }

    /// The call in another process that judges outputs, in place of [`check`](Problem::check).
    fn judge(&self) -> Option<Foreign> {
        None
    }

    /// Whether a function is refused that calls kernels of libraries, if it is this backend.
    fn requires_own_kernels(&self, _backend: &str) -> bool {
        false
    }

    /// Outputs that are wrong, on which a check that people wrote is tried before it judges any
    /// others. None by default, where tolerances follow from the mathematics.
    fn trials(&self, _inputs: &Tensors, _expected: Option<&Tensors>) -> Vec<Trial> {
        Vec::new()
    }

    /// About how many bytes [`Problem::oracle`] and [`Problem::check`] take beside the inputs. By
    /// default three f64 for each element of an input or output: inputs in f64, the answer, and
    /// outputs in f64.
    fn oracle_bytes(&self, phase: Phase) -> u64 {
        let specs = self.inputs().into_iter().chain(self.outputs(phase));
        24 * specs.map(|spec| spec.elements()).sum::<u64>()
    }

    /// A problem like this one with a smaller batch or less depth, which the same kernels compute
    /// and whose oracle takes at most `operations` of each of `threads` threads. By default, none.
    fn reduced(
        &self,
        _phase: Phase,
        _operations: f64,
        _threads: usize,
    ) -> Option<Box<dyn Problem>> {
        None
    }

    /// The oracle as a program for `target`; `None` where there is none, and always on a CPU, which
    /// has the oracle itself.
    fn device_oracle(&self, _phase: Phase, _target: &Target) -> Option<DeviceOracle> {
        None
    }

    /// Adds the spreads that answers of [`device_oracle`](Problem::device_oracle) lack, from those
    /// of a problem that [`smaller`](Problem::smaller) gave, which the host has answered.
    fn add_spreads(&self, _answers: &mut Tensors, _smaller: (&dyn Problem, &Tensors)) {}

    /// A problem of the same operations in which any size may be smaller, and whose oracle takes at
    /// most `operations` of each of `threads` threads: where [`Problem::device_oracle`] is held
    /// against [`Problem::oracle`]. `None` if there is none.
    fn smaller(&self, phase: Phase, operations: f64, threads: usize) -> Option<Box<dyn Problem>> {
        self.reduced(phase, operations, threads)
    }

    /// Judges `outputs` of `phase` against the oracle's `expected`.
    fn check(&self, inputs: &Tensors, outputs: &Tensors, expected: &Tensors, phase: Phase)
    -> Check;

    /// The least work of `phase`.
    fn work(&self, phase: Phase) -> Work;

    /// The program by which `backend` computes `phase`, with kernels made for `canonical`.
    ///
    /// # Errors
    /// A [`Refusal`] where the mathematics or the target does not allow it.
    fn program(
        &self,
        backend: &str,
        phase: Phase,
        canonical: &CanonicalShape,
        target: &Target,
    ) -> Result<Program, Refusal>;

    /// The operations whose work the timed steps of a backend's program are, for loops that find
    /// out themselves whether to compile. None where a loop of the backend runs all of its program.
    ///
    /// # Errors
    /// As [`program`](Problem::program).
    fn dispatcher(
        &self,
        _backend: &str,
        _phase: Phase,
        _canonical: &CanonicalShape,
        _target: &Target,
    ) -> Result<Option<Box<dyn Dispatcher>>, Refusal> {
        Ok(None)
    }

    /// How that program came to be, pass by pass, for people; nothing where it was not made by
    /// passes.
    fn explain(
        &self,
        _backend: &str,
        _phase: Phase,
        _canonical: &CanonicalShape,
        _target: &Target,
    ) -> Option<String> {
        None
    }
}
