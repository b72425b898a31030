//! What an operation is, and one at given sizes.

use super::oracle::Asked;
use super::sizes::{AXES, Sizes};
use crate::graph_builder::{Added, Builder};
use crate::graph_problem::{Built, Computation, expect};
use crate::graph_workload::Given;
use crate::showing::{edges, kind_of_row, make_kinds};
use sweeper_compiler::graph::{GraphError, NodeId};
use sweeper_program::Program;
use sweeper_program::inputs::{InputKey, Stream};
use sweeper_program::tensor::{Dtype, Tensor, Tensors};
use sweeper_program::workload::{Phase, Refusal, Target, TensorSpec};

/// An operation: its graph, and its oracle, which shares no code with it.
pub(crate) trait Operation: Sync {
    /// Adds the operation on `x` to a graph, with its other inputs but for `grad_out`. Inputs are
    /// called as in files.
    fn graph(&self, builder: &mut Builder, x: NodeId, sizes: &Sizes) -> Added;

    /// The elements of `x`.
    fn draw_x(&self, len: usize, stream: &Stream) -> Vec<f32> {
        stream.normal(len, 1.0)
    }

    /// Changes generated inputs into those that show mistakes ([`crate::showing`]): rows of `x` of
    /// all kinds, and gradients that are large where rows bound blocks, so that sums over rows show
    /// each of these.
    fn make_showing(&self, inputs: &mut Tensors, sizes: &Sizes, key: &InputKey) {
        let kind = |row: usize| kind_of_row(row, sizes.batch, sizes.sequence);
        let stream = key.stream("showing");
        if let Some(x) = inputs.get_mut("x").and_then(Tensor::as_f32_mut) {
            make_kinds(x, sizes.dimension, kind, &stream);
        }
        let rows = sizes.rows();
        let grad = inputs.get_mut("grad_out").and_then(Tensor::as_f32_mut);
        if let Some(grad) = grad.filter(|grad| grad.len() == sizes.elements()) {
            let edges = edges(rows, &stream);
            let factor = (rows / edges.len()).max(1) as f32;
            for row in edges {
                let row = &mut grad[row * sizes.dimension..][..sizes.dimension];
                row.iter_mut().for_each(|x| *x *= factor);
            }
        }
    }

    /// Answers, with variances of what f32 makes of them, from which tolerances follow.
    fn oracle(&self, asked: &mut Asked<'_>);

    /// What the oracle spends on an element, forward and backward, in exponentials. Measured;
    /// memory is most of it.
    fn oracle_cost(&self) -> [f64; 2];
}

/// An operation and its sizes.
#[derive(Clone, Copy)]
pub(crate) struct SizedOperation {
    operation: &'static dyn Operation,
    pub(super) sizes: Sizes,
}

impl SizedOperation {
    /// An operation at the sizes of the workload's parameters.
    pub(super) fn new(operation: &'static dyn Operation, given: &Given) -> Self {
        let [batch, sequence, dimension] = AXES.map(|axis| given.size(axis));
        let sizes = Sizes {
            batch,
            sequence,
            dimension,
        };
        SizedOperation { operation, sizes }
    }

    fn element_cost(&self, phase: Phase) -> f64 {
        let [forward, backward] = self.operation.oracle_cost();
        match phase {
            Phase::Forward => forward,
            Phase::Backward => backward,
            Phase::Both | Phase::Step => forward + backward,
        }
    }
}

impl Computation for SizedOperation {
    /// Inputs are `x`, those of the operation, then `grad_out`. Results are `out` and a gradient
    /// for everything that has one.
    fn build(&self) -> Result<Built, GraphError> {
        let mut builder = Builder::default();
        let x = builder.operand("x", &self.sizes.shape())?;
        let out = self.operation.graph(&mut builder, x, &self.sizes)?;
        builder.with_gradients(out)
    }

    fn extents(&self) -> Vec<(usize, &'static str)> {
        self.sizes.shape().into_iter().zip(AXES).collect()
    }

    /// Gains lie around 1; a loss has a gradient that is not near 0.
    fn generate(&self, spec: &TensorSpec, key: &InputKey) -> Tensor {
        let len = spec.shape.iter().product();
        let stream = key.stream(&spec.name);
        if spec.dtype == Dtype::I64 {
            let last = self.sizes.dimension as i64 - 1;
            return Tensor::i64(spec.shape.clone(), stream.integers(len, 0, last));
        }
        let values = match spec.name.as_str() {
            "x" => self.operation.draw_x(len, &stream),
            "gamma" => stream.uniform(len, 0.5, 1.5),
            "grad_out" if spec.shape.is_empty() => stream.uniform(len, 0.5, 1.5),
            _ => stream.normal(len, 1.0),
        };
        Tensor::f32(spec.shape.clone(), values)
    }

    fn showing(&self, mut inputs: Tensors, key: &InputKey) -> Option<Tensors> {
        self.operation.make_showing(&mut inputs, &self.sizes, key);
        Some(inputs)
    }

    fn validate(&self, inputs: &Tensors) -> Result<(), String> {
        for (name, tensor) in inputs {
            expect(name, tensor, &f64::is_finite, "not a finite number")?;
        }
        let classes = self.sizes.dimension as f64;
        let what = format!("but there are {classes} classes, from 0 on");
        let is_class = |label| (0.0..classes).contains(&label);
        match inputs.get("labels") {
            Some(labels) => expect("labels", labels, &is_class, &what),
            None => Ok(()),
        }
    }

    fn oracle(&self, inputs: &Tensors, phase: Phase) -> Tensors {
        let mut asked = Asked::new(inputs, self.sizes, phase);
        self.operation.oracle(&mut asked);
        asked.answers
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
        (rows > 0).then_some(SizedOperation {
            sizes: Sizes {
                batch,
                sequence,
                ..sizes
            },
            ..*self
        })
    }

    fn by_library(&self, name: &str, _: Phase, _: &Target) -> Result<Program, Refusal> {
        let reason = format!("no library that is linked here has `{name}`");
        Err(Refusal::Unavailable(reason))
    }
}
