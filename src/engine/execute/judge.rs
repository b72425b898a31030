//! Outputs that a function of the user judges, in an interpreter of its own.

use std::cell::RefCell;

use sweeper_program::check::{Check, Metric, TensorCheck, as_f64};
use sweeper_program::{
    Dtype, Element, Foreign, Phase, Problem, Tensor, Tensors, with_element_type,
};

use super::foreign_oracle::{interpreter, with_limit};
use super::protocol::{Block, BlockPoint};
use super::refused::of_key;
use super::verify::{ProblemInstance, Verdict, on_host};
use crate::device::DeviceError;
use crate::device::foreign::python::{Judgement, Python};
use crate::device::outputs::Outputs;
use sweeper_model::row::outcome::Checked;

/// Judges the outputs of a point, by the judge of its block where there is one. The outputs of the
/// backend that is the reference are not judged by themselves.
///
/// # Errors
/// A judge that fails.
pub(super) fn verdict_on(
    instance: &ProblemInstance,
    judge: Option<&Judge<'_>>,
    point: &BlockPoint,
    outputs: &Outputs,
) -> Result<Verdict, DeviceError> {
    let checked = match &instance.peer {
        Some(peer) if *peer == point.backend => return Ok(Verdict::UNCHECKED),
        Some(_) => Checked::Peer,
        None => Checked::Full,
    };
    match judge {
        Some(judge) => {
            let expected = instance.expected.as_ref();
            judge.verdict(&instance.inputs, on_host(outputs)?, expected, checked)
        }
        None => instance.judge(outputs, point, checked),
    }
}

/// The judge of a block, and its interpreter, which stays from one judgement to the next.
pub(super) struct Judge<'a> {
    block: &'a Block,
    /// Names of the outputs.
    outputs: String,
    function: Foreign,
    interpreter: RefCell<Python>,
}

impl<'a> Judge<'a> {
    /// The judge of a problem that has one.
    pub(super) fn of(block: &'a Block, problem: &dyn Problem) -> Option<Self> {
        let outputs = problem.outputs(Phase::Forward);
        let outputs: Vec<&str> = outputs.iter().map(|spec| &*spec.name).collect();
        Some(Judge {
            block,
            outputs: outputs.join(" "),
            function: problem.judge()?,
            interpreter: RefCell::new(interpreter(block.settings.oracle_s)),
        })
    }

    /// Judges outputs, by the right ones if they are known.
    ///
    /// # Errors
    /// A judge that can't be called, fails, takes too long, or returns no judgement.
    pub(super) fn verdict(
        &self,
        inputs: &Tensors,
        outputs: &Tensors,
        expected: Option<&Tensors>,
        checked: Checked,
    ) -> Result<Verdict, DeviceError> {
        let mut given = Tensors::new();
        for (group, tensors) in [("inputs", inputs), ("outputs", outputs)] {
            let named = tensors
                .iter()
                .map(|(name, tensor)| (name, readable(tensor)));
            given.extend(named.map(|(name, tensor)| (format!("{group}/{name}"), tensor)));
        }
        for (name, tensor) in expected.into_iter().flatten() {
            // Beside right outputs there is the rounding error that comes with some.
            if let Some(output) = outputs.get(name) {
                let tensor = right(tensor, output.dtype());
                given.insert(format!("expected/{name}"), tensor);
            }
        }
        let mut python = self.interpreter.borrow_mut();
        let judgement = python.judge(&self.function, &given, expected.is_some());
        let judgement = judgement.map_err(|error| {
            with_limit(self.block, of_key(self.block, "check.judge", "", error))
        })?;
        Ok(self.verdict_of(judgement, checked))
    }

    fn verdict_of(&self, judgement: Judgement, checked: Checked) -> Verdict {
        match judgement {
            Judgement::Stated { is_right, reason } => Verdict {
                checked,
                check: None,
                complaint: (!is_right).then(|| match reason.as_str() {
                    "" => "the judge refuses the outputs".to_owned(),
                    reason => format!("the judge refuses the outputs: {reason}"),
                }),
            },
            Judgement::Distance { value, bound } => {
                // A distance that is not a number is not a right one.
                let error = if value.is_nan() { f64::INFINITY } else { value };
                let check = TensorCheck {
                    tensor: self.outputs.clone(),
                    metric: Metric::Custom,
                    error,
                    tolerance: bound,
                    spreads: None,
                    notices: None,
                    is_inexact: false,
                };
                let complaint = (!check.passed()).then(|| {
                    format!("the judge finds a distance of {value:.3e}, `bound` is {bound:.1e}")
                });
                Verdict {
                    checked,
                    check: Some(Check {
                        tensors: vec![check],
                    }),
                    complaint,
                }
            }
        }
    }
}

/// A tensor of a type that NumPy has: bf16 as f32.
fn readable(tensor: &Tensor) -> Tensor {
    match tensor.dtype() {
        Dtype::Bf16 => converted(tensor, Dtype::F32),
        _ => tensor.clone(),
    }
}

/// Right values of an output: real numbers as they are, others in the type of the output.
fn right(tensor: &Tensor, output: Dtype) -> Tensor {
    match output.is_real() {
        true => tensor.clone(),
        false => converted(tensor, output),
    }
}

fn converted(tensor: &Tensor, dtype: Dtype) -> Tensor {
    let values = as_f64(tensor);
    let data = with_element_type!(dtype, T => {
        let elements = values.iter().map(|&value| <T as Element>::from_f64(value));
        <T as Element>::data(elements.collect())
    });
    Tensor::new(tensor.shape().to_vec(), data)
}
