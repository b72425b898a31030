//! Right outputs that a backend of the manifest computes, once for a block, on the device that is
//! measured.

use std::borrow::Cow;

use sweeper_program::check::as_f64;
use sweeper_program::spread::{self, SliceSums};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{CanonicalShape, Data, Dtype, Phase, Program, Tensor, Tensors};

use super::block::Listener;
use super::block_context::{Artifacts, ContextError};
use super::foreign_oracle::UNMODELLED;
use super::protocol::{Block, Stage};
use super::refused::{failed, of_key, refused};
use super::text_in_f64::TextInF64;
use super::trespass;
use super::verify::ProblemInstance;
use crate::device::{Artifact, Device, DeviceError, Job};
use sweeper_model::row::outcome::{Outcome, Status};

/// The backend whose outputs are right.
pub(super) struct Peer<'a> {
    /// Its name.
    pub(super) name: &'a str,
    /// The same in the precision that is judged, where tolerances follow from its distance.
    pub(super) judged: Option<&'a str>,
}

impl Peer<'_> {
    /// The outputs of a block's problem, with how far honest ones may be where that is derived:
    /// what rounding is taken to do ([`TextInF64`]), or thrice what the same text in the judged
    /// precision is off.
    ///
    /// # Errors
    /// The outcome of all points of the block where the backend fails, or the loss of the device at
    /// the first of them.
    pub(super) fn answer(
        &self,
        block: &Block,
        whole: &ProblemInstance,
        artifacts: &Artifacts,
        device: &mut dyn Device,
        listener: &mut dyn Listener,
    ) -> Result<Tensors, ContextError> {
        let Some(first) = block.points.first() else {
            return Ok(Tensors::new());
        };
        listener.working(first.number, Stage::Reference);
        if let Some(outcome) = &block.oracle_failure {
            return Err(named(block, self.name, outcome.clone()).into());
        }
        let canonical = CanonicalShape::new(first.canonical.iter().cloned());
        let target = device.target();
        let program = |name| {
            let program = whole
                .problem
                .program(name, Phase::Forward, &canonical, &target);
            program.map_err(|refusal| named(block, name, refused(refusal)))
        };
        let program_of_answer = program(self.name)?;
        let keys = block.oracle_kernels.iter();
        let kernels: Vec<Artifact> = keys.filter_map(|key| artifacts.get(key).cloned()).collect();
        let in_answer = program_of_answer.sources().len().min(kernels.len());
        let (kernels, kernels_of_judged) = kernels.split_at(in_answer);
        let mut run = |program: &Program, kernels: &[Artifact], inputs: &Tensors| {
            let found = run(whole, program.clone(), kernels, inputs, device);
            found.map_err(
                |error| match of_key(block, "check.reference", &by(self.name), error) {
                    error @ DeviceError::Lost(_) => ContextError::LostAt(first.number, error),
                    error => failed(error).into(),
                },
            )
        };
        let mut answers = run(&program_of_answer, kernels, &whole.inputs)?;
        let Some(judged) = self.judged else {
            return Ok(answers);
        };
        let own = run(&program(judged)?, kernels_of_judged, &whole.inputs)?;
        let outputs = whole.problem.outputs(Phase::Forward);
        let mut text = TextInF64 {
            inputs: (&whole.problem.inputs(), &whole.inputs),
            run: |inputs: &Tensors| run(&program_of_answer, kernels, inputs),
        };
        text.add_spreads(&outputs, &mut answers)?;
        let operations = Data::U8(b"all".to_vec());
        answers.insert(UNMODELLED.to_owned(), Tensor::new([3], operations));
        for spec in outputs.iter().filter(|spec| spec.dtype.is_real()) {
            add_own_error(&mut answers, spec, &own);
        }
        Ok(answers)
    }
}

/// Runs a program once. Its real inputs have the types of its buffers.
fn run(
    whole: &ProblemInstance,
    program: Program,
    kernels: &[Artifact],
    inputs: &Tensors,
    device: &mut dyn Device,
) -> Result<Tensors, DeviceError> {
    let dtype_of = |name: &str| {
        let mut buffers = program.buffers.iter();
        let buffer = buffers.find(|buffer| buffer.name == name);
        buffer.map(|buffer| buffer.dtype)
    };
    let is_widened = |(name, tensor): (&String, &Tensor)| {
        dtype_of(name) == Some(Dtype::F64) && tensor.dtype() != Dtype::F64
    };
    // Large inputs are copied only where they change.
    let mut inputs = Cow::Borrowed(inputs);
    if inputs.iter().any(is_widened) {
        for (name, tensor) in inputs.to_mut() {
            if dtype_of(name) == Some(Dtype::F64) {
                *tensor = in_f64(tensor.clone());
            }
        }
    }
    let mut specs = whole.problem.outputs(Phase::Forward);
    for spec in &mut specs {
        spec.dtype = dtype_of(&spec.name).unwrap_or(spec.dtype);
    }
    device.bind(&inputs)?;
    let runner = program.runner();
    let job = Job {
        program,
        artifacts: kernels,
        script: None,
    };
    let prepared = match runner {
        Some(_) => device.prepare_apart(job, &inputs),
        None => device.prepare(job),
    }?;
    device.poison(prepared)?;
    device.sample(prepared, 1)?;
    let outputs = device.results(prepared, &specs)?;
    if let Some(reason) = trespass::complaint(prepared, &inputs, device)? {
        return Err(DeviceError::Foreign {
            status: Status::Error,
            reason,
        });
    }
    let outputs = outputs.into_iter();
    Ok(outputs.map(|(name, it)| (name, in_f64(it))).collect())
}

/// A tensor with elements in f64.
fn in_f64(tensor: Tensor) -> Tensor {
    match tensor.dtype() {
        Dtype::F64 => tensor,
        _ => Tensor::f64(tensor.shape(), as_f64(&tensor).into_owned()),
    }
}

/// Adds how far the text in the judged precision is off.
fn add_own_error(answers: &mut Tensors, spec: &TensorSpec, own: &Tensors) {
    let name = &spec.name;
    let (Some(answer), Some(own)) = (answers.get(name), own.get(name)) else {
        return;
    };
    let (exact, own) = (as_f64(answer), as_f64(own));
    let errors = SliceSums::from_elements(&spec.shape, |at| match own[at] - exact[at] {
        error if error.is_finite() => error * error,
        _ => 0.0,
    });
    let roots = errors.root_mean_squares();
    let own = Tensor::f64([roots.len()], roots);
    answers.insert(spread::name_of_own_error(name), own);
}

/// An outcome of a backend, as that of the points that it is the reference of.
pub(super) fn named(block: &Block, peer: &str, mut outcome: Outcome) -> Outcome {
    let key = format!("workload.{}.check.reference", block.workload);
    let reason = outcome.reason.unwrap_or_default();
    outcome.reason = Some(format!("`{key}`{}: {reason}", by(peer)));
    outcome
}

fn by(peer: &str) -> String {
    format!(", backend `{peer}`")
}
