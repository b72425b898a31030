//! One operation of one size.

use super::sizes::{Kind, Sizes};
use super::{build, judge, oracle};
use crate::graph_problem::{Built, Computation};
use sweeper_compiler::graph::GraphError;
use sweeper_program::Program;
use sweeper_program::check::{self, Check};
use sweeper_program::inputs::InputKey;
use sweeper_program::tensor::{Dtype, Tensor, Tensors};
use sweeper_program::workload::{Phase, Refusal, Target, TensorSpec};

/// An operation and its sizes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operation {
    /// The workload's name.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) sizes: Sizes,
}

impl Operation {
    /// What the oracle spends on an element, forward and backward, in exponentials. Measured;
    /// memory is most of it.
    fn cost(&self) -> [f64; 2] {
        match self.kind {
            Kind::LayerNorm | Kind::RmsNorm => [1.5, 2.5],
            Kind::Softmax => [1.2, 2.2],
            Kind::GeluErf => [1.9, 2.2],
            Kind::GeluTanh => [1.5, 6.0],
            Kind::Swish => [1.4, 1.8],
            Kind::Mse => [0.7, 1.1],
            Kind::CrossEntropy => [0.9, 1.5],
        }
    }

    fn element_cost(&self, phase: Phase) -> f64 {
        let [forward, backward] = self.cost();
        match phase {
            Phase::Forward => forward,
            Phase::Backward => backward,
            Phase::Both => forward + backward,
        }
    }
}

impl Computation for Operation {
    fn build(&self) -> Result<Built, GraphError> {
        build::build(self.kind, &self.sizes)
    }

    fn extents(&self) -> Vec<(usize, &'static str)> {
        let [batch, sequence, dimension] = self.sizes.shape();
        vec![
            (batch, "batch"),
            (sequence, "sequence"),
            (dimension, "dimension"),
        ]
    }

    /// Logits are spread so that some weights are large and some vanish; gains lie around 1; a loss
    /// has a gradient that is not near 0.
    fn generate(&self, spec: &TensorSpec, key: &InputKey) -> Tensor {
        let len = spec.shape.iter().product();
        let stream = key.stream(&spec.name);
        if spec.dtype == Dtype::I64 {
            let last = self.sizes.dimension as i64 - 1;
            return Tensor::i64(spec.shape.clone(), stream.integers(len, 0, last));
        }
        let values = match (spec.name.as_str(), self.kind) {
            ("gamma", _) => stream.uniform(len, 0.5, 1.5),
            ("grad_out", kind) if kind.is_loss() => stream.uniform(len, 0.5, 1.5),
            ("x", Kind::Softmax | Kind::CrossEntropy) => stream.normal(len, 3.0),
            _ => stream.normal(len, 1.0),
        };
        Tensor::f32(spec.shape.clone(), values)
    }

    fn validate(&self, inputs: &Tensors) -> Result<(), String> {
        for (name, tensor) in inputs {
            let values = check::as_f64(tensor);
            if let Some(at) = values.iter().position(|value| !value.is_finite()) {
                let value = values[at];
                return Err(format!(
                    "element {at} of `{name}` is {value}, not a finite number"
                ));
            }
        }
        let classes = self.sizes.dimension as f64;
        let Some(labels) = inputs.get("labels") else {
            return Ok(());
        };
        let labels = check::as_f64(labels);
        match labels
            .iter()
            .position(|label| !(0.0..classes).contains(label))
        {
            None => Ok(()),
            Some(at) => Err(format!(
                "element {at} of `labels` is {}, but there are {classes} classes, from 0 on",
                labels[at]
            )),
        }
    }

    fn oracle(&self, inputs: &Tensors, phase: Phase) -> Tensors {
        oracle::oracle(self.kind, &self.sizes, inputs, phase)
    }

    fn oracle_operations(&self, phase: Phase) -> f64 {
        self.element_cost(phase) * self.sizes.elements() as f64
    }

    /// Fewer sequences; where one is too many, a shorter one.
    fn reduced(&self, phase: Phase, operations: f64) -> Option<Self> {
        let row = self.element_cost(phase) * self.sizes.dimension as f64;
        let rows = (operations / row) as usize;
        let sizes = self.sizes;
        let (batch, sequence) = match rows / sizes.sequence {
            0 => (1, rows),
            batch => (batch.min(sizes.batch), sizes.sequence),
        };
        (rows > 0).then_some(Operation {
            sizes: Sizes {
                batch,
                sequence,
                ..sizes
            },
            ..*self
        })
    }

    fn check(
        &self,
        _inputs: &Tensors,
        outputs: &Tensors,
        expected: &Tensors,
        specs: &[TensorSpec],
    ) -> Check {
        judge::check(outputs, expected, specs)
    }

    fn by_library(&self, _phase: Phase, _target: &Target) -> Result<Program, Refusal> {
        let reason = format!("no library that is linked here has `{}`", self.name);
        Err(Refusal::Unavailable(reason))
    }
}
