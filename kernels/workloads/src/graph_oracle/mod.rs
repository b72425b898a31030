//! Problems whose right answer is the value of their graph in f64, with the tolerance of a
//! backend's results and the cost of evaluating the graph.
//!
//! The tolerance follows from the problem itself: the graph is evaluated several times more, with
//! every operation rounding as f32 arithmetic does ([`sweeper_compiler::graph::Rounding`]), and a
//! backend's error is held against the error of these evaluations ([`sweeper_program::spread`]). So
//! only a problem with cancellation allows larger errors.

pub mod precision;

use crate::graph_problem::{Built, Computation, expect};
use crate::showing::make_rows;
use sweeper_compiler::fuse::{self, Policy, Request};
use sweeper_compiler::graph::on_device::{self, Wanted};
use sweeper_compiler::graph::{self, GraphError, NodeId, Op, Output, Rounding};
use sweeper_program::check;
use sweeper_program::inputs::{InputKey, Stream};
use sweeper_program::spread::{Spread, name_of};
use sweeper_program::tensor::{Dtype, Tensor, Tensors};
use sweeper_program::workload::{DeviceOracle, Phase, Refusal, Target, TensorSpec};
use sweeper_program::{Kernel, Precision, Program};

/// Evaluations with rounding where all results have many elements.
const PROBES: u8 = 4;

/// Evaluations with rounding where a result has few elements, whose error in a few evaluations may
/// be small by chance.
const PROBES_OF_FEW: u8 = 16;

/// A result of fewer elements has few.
const FEW_ELEMENTS: usize = 256;

/// Operations of the answers up to which there are [`PROBES_OF_FEW`], as [`cost`] counts them; half
/// as many probes beyond.
const MOST_FOR_MANY_PROBES: f64 = 2e7;

/// The definition of a problem whose oracle is its graph: its remaining properties.
pub trait Evaluated: Clone + Send + Sync + 'static {
    /// As [`Computation::build`].
    ///
    /// # Errors
    /// Sizes that don't make a graph.
    fn build(&self) -> Result<Built, GraphError>;

    /// As [`Computation::extents`].
    fn extents(&self) -> Vec<(usize, &'static str)> {
        vec![]
    }

    /// As [`Computation::fixed_extents`].
    fn fixed_extents(&self) -> Vec<usize> {
        vec![]
    }

    /// As [`Computation::precision`].
    fn precision(&self) -> Precision {
        Precision::F32
    }

    /// As [`Computation::flops`].
    fn flops(&self, _phase: Phase) -> Option<f64> {
        None
    }

    /// The elements of an input of real numbers.
    fn elements(&self, spec: &TensorSpec, stream: &Stream) -> Vec<f32> {
        elements(spec, stream)
    }

    /// Number of classes that labels name.
    fn classes(&self) -> usize {
        1
    }

    /// The number of independent parts of the problem, such as rows of a batch, if it has any.
    fn parts(&mut self) -> Option<&mut usize> {
        None
    }

    /// Extents that may be smaller where the operations stay the same.
    fn shrinkable(&mut self) -> Vec<&mut usize> {
        vec![]
    }

    /// Makes the problem a step smaller, so that the same kernels still compute it; nothing if it
    /// can't be.
    fn reduce(&mut self) -> Option<()> {
        let parts = self.parts().filter(|parts| **parts > 1)?;
        *parts /= 2;
        Some(())
    }

    /// Makes the problem a step smaller, of the same operations; nothing if it can't be.
    fn shrink(&mut self) -> Option<()> {
        halve_greatest(self.shrinkable())
    }

    /// As [`Computation::begins_at_zero`].
    fn begins_at_zero(&self, _name: &str) -> bool {
        false
    }

    /// Inputs whose rows, along the last axis, are of all kinds in the inputs that show mistakes
    /// ([`crate::showing`]); none where there are no such inputs.
    fn shown_inputs(&self) -> &'static [&'static str] {
        &[]
    }

    /// Whether an input's elements must not be negative.
    fn is_never_negative(&self, _name: &str) -> bool {
        false
    }
}

impl<E: Evaluated> Computation for E {
    fn build(&self) -> Result<Built, GraphError> {
        Evaluated::build(self)
    }

    fn extents(&self) -> Vec<(usize, &'static str)> {
        Evaluated::extents(self)
    }

    fn fixed_extents(&self) -> Vec<usize> {
        Evaluated::fixed_extents(self)
    }

    fn precision(&self) -> Precision {
        Evaluated::precision(self)
    }

    fn flops(&self, phase: Phase) -> Option<f64> {
        Evaluated::flops(self, phase)
    }

    fn generate(&self, spec: &TensorSpec, key: &InputKey) -> Tensor {
        let stream = key.stream(&spec.name);
        match spec.dtype {
            Dtype::I64 => {
                let len = spec.shape.iter().product();
                let last = self.classes() as i64 - 1;
                Tensor::i64(spec.shape.clone(), stream.integers(len, 0, last))
            }
            _ => Tensor::f32(spec.shape.clone(), self.elements(spec, &stream)),
        }
    }

    fn showing(&self, mut inputs: Tensors, key: &InputKey) -> Option<Tensors> {
        let shown = self.shown_inputs();
        for name in shown {
            let tensor = inputs.get_mut(*name)?;
            let shape = tensor.shape().to_vec();
            make_rows(tensor.as_f32_mut()?, &shape, &key.stream("showing"));
        }
        (!shown.is_empty()).then_some(inputs)
    }

    fn begins_at_zero(&self, name: &str) -> bool {
        Evaluated::begins_at_zero(self, name)
    }

    fn validate(&self, inputs: &Tensors) -> Result<(), String> {
        for (name, tensor) in inputs {
            expect(name, tensor, &f64::is_finite, "not a finite number")?;
            if self.is_never_negative(name) {
                expect(name, tensor, &|value| value >= 0.0, "less than 0")?;
            }
            if tensor.dtype() == Dtype::I64 || tensor.dtype() == Dtype::I32 {
                let classes = self.classes() as f64;
                let what = format!("but there are {classes} classes, from 0 on");
                expect(
                    name,
                    tensor,
                    &|value| (0.0..classes).contains(&value),
                    &what,
                )?;
            }
        }
        Ok(())
    }

    /// # Panics
    /// If the inputs do not belong to the problem, or have not been validated.
    fn oracle(&self, inputs: &Tensors, phase: Phase) -> Tensors {
        match answers(self, inputs, phase) {
            Ok(answers) => answers,
            Err(error) => panic!("{error}"),
        }
    }

    fn oracle_operations(&self, phase: Phase) -> f64 {
        Evaluated::build(self).map_or(f64::INFINITY, |built| cost(&built, phase))
    }

    /// The exact answers are held while others with rounding are computed.
    fn evaluation_bytes(&self, phase: Phase) -> Option<u64> {
        // A graph that can't be built is refused elsewhere.
        let built = Evaluated::build(self).ok()?;
        let (_, nodes) = wanted(&built, phase);
        let elements = |&node: &NodeId| built.graph.node(node).elements() as u64;
        let answers: u64 = nodes.iter().map(elements).sum();
        Some(8 * answers + graph::peak_bytes(&built.graph, &nodes))
    }

    fn reduced(&self, phase: Phase, operations: f64) -> Option<Self> {
        let mut smaller = self.clone();
        while Computation::oracle_operations(&smaller, phase) > operations {
            smaller.reduce()?;
        }
        Some(smaller)
    }

    fn cuda_oracle(&self, phase: Phase) -> Option<DeviceOracle> {
        let built = Evaluated::build(self).ok()?;
        let (names, nodes) = wanted(&built, phase);
        let wanted = names.into_iter().zip(nodes);
        let wanted: Vec<Wanted> = wanted.map(|(name, node)| Wanted { name, node }).collect();
        let precision = Evaluated::precision(self);
        let probes = probes(&built, phase);
        let (program, answers) = on_device::program(&built.graph, &wanted, precision, probes)?;
        Some(DeviceOracle { program, answers })
    }

    fn smaller(&self, phase: Phase, operations: f64) -> Option<Self> {
        let mut smaller = self.clone();
        while Computation::oracle_operations(&smaller, phase) > operations {
            smaller.shrink()?;
        }
        Some(smaller)
    }

    /// The program of library calls alone: a library has the problem if no code is left to generate
    /// except copies of operands and results in the number formats that it takes and yields.
    fn by_library(&self, name: &str, phase: Phase, target: &Target) -> Result<Program, Refusal> {
        let built =
            Evaluated::build(self).map_err(|error| Refusal::Undefined(error.to_string()))?;
        let program = fuse::program(&Request {
            graph: &built.graph,
            backward: built.backward,
            phase,
            policy: Policy::Compiled,
            target,
            canonical: &[],
            precision: Evaluated::precision(self),
            by_library: true,
        })?;
        let is_copy =
            |kernel: &Kernel| fuse::rounds_factors(kernel) || fuse::widens_results(kernel);
        let is_call = |kernel: &Kernel| matches!(kernel, Kernel::Library(_)) || is_copy(kernel);
        if program.kernels.iter().all(is_call) {
            return Ok(program);
        }
        let reason = format!("no library that is linked here has the whole of `{name}`");
        Err(Refusal::Unavailable(reason))
    }
}

/// Extents that are not halved any more.
const SMALL_EXTENT: usize = 8;

/// Halves the greatest of some extents, unless all are small.
fn halve_greatest(extents: Vec<&mut usize>) -> Option<()> {
    let greatest = extents.into_iter().max_by_key(|extent| **extent)?;
    let halved = greatest.div_ceil(2);
    (*greatest > SMALL_EXTENT).then(|| *greatest = halved)
}

/// Gains and variances lie around 1; results of weights are as large as what they are applied to.
pub(crate) fn elements(spec: &TensorSpec, stream: &Stream) -> Vec<f32> {
    let len = spec.shape.iter().product();
    match spec.name.as_str() {
        "gamma" | "var" => stream.uniform(len, 0.5, 1.5),
        name if name.starts_with('w') => {
            let terms: usize = spec.shape[1..].iter().product();
            stream.normal(len, 1.0 / (terms as f32).sqrt())
        }
        _ => stream.normal(len, 1.0),
    }
}

/// The number of evaluations with rounding. It follows from the problem alone, so that its answers
/// do.
fn probes(built: &Built, phase: Phase) -> u8 {
    let (_, nodes) = wanted(built, phase);
    let least = nodes.iter().map(|&node| built.graph.node(node).elements());
    match least.min() {
        Some(least) if least < FEW_ELEMENTS => match cost(built, phase) <= MOST_FOR_MANY_PROBES {
            true => PROBES_OF_FEW,
            false => PROBES_OF_FEW / 2,
        },
        _ => PROBES,
    }
}

/// The answers, each with its spread.
fn answers(
    problem: &impl Evaluated,
    inputs: &Tensors,
    phase: Phase,
) -> Result<Tensors, Box<dyn std::error::Error>> {
    let built = Evaluated::build(problem)?;
    let (names, nodes) = wanted(&built, phase);
    let exact = graph::evaluate_nodes(&built.graph, inputs, &nodes)?;
    let mut noisy: Vec<Vec<Vec<f64>>> = vec![Vec::new(); nodes.len()];
    for probe in 0..probes(&built, phase) {
        let rounding = Rounding {
            precision: Evaluated::precision(problem),
            probe,
        };
        let rounded = graph::evaluate_rounded(&built.graph, inputs, &nodes, rounding)?;
        for (noisy, rounded) in noisy.iter_mut().zip(rounded) {
            noisy.push(check::as_f64(&rounded).into_owned());
        }
    }
    let mut answers = Tensors::new();
    for ((name, exact), noisy) in names.into_iter().zip(exact).zip(noisy) {
        let spread = Spread::from_probes(Dtype::F32, exact.shape(), &check::as_f64(&exact), &noisy);
        answers.insert(name_of(&name), spread.into_tensor());
        answers.insert(name, exact);
    }
    Ok(answers)
}

/// Names and nodes of the results that the answer for a phase holds.
fn wanted(built: &Built, phase: Phase) -> (Vec<String>, Vec<NodeId>) {
    let named = |output: &Output| (output.name.clone(), output.node);
    match phase {
        Phase::Step => built.graph.outputs().iter().map(named).unzip(),
        _ => built.graph.results(phase).map(named).unzip(),
    }
}

/// Cost of the answers, in exponentials of one thread: estimates, for each element of a node, and
/// for each term of a product.
fn cost(built: &Built, phase: Phase) -> f64 {
    const ELEMENT: f64 = 12.0;
    const TERM: f64 = 0.35;
    let graph = &built.graph;
    let (_, nodes) = wanted(built, phase);
    let mut needed = vec![false; graph.nodes().len()];
    for node in nodes {
        needed[node.index()] = true;
    }
    let mut cost = 0.0;
    for id in graph.ids().rev() {
        let node = graph.node(id);
        if !needed[id.index()] {
            continue;
        }
        for operand in &node.operands {
            needed[operand.index()] = true;
        }
        let shape = |operand: usize| graph.node(node.operands[operand]).shape.as_slice();
        let product = |shape: &[usize]| shape.iter().product::<usize>() as f64;
        cost += match &node.op {
            op if op.is_view() => 0.0,
            Op::Matmul => {
                TERM * node.elements() as f64 * shape(0).last().map_or(1.0, |&k| k as f64)
            }
            Op::Conv2d(_) => TERM * node.elements() as f64 * product(&shape(1)[1..]),
            Op::Conv2dGradX(_) => TERM * product(shape(0)) * product(&shape(1)[1..]),
            Op::Conv2dGradW(_) => TERM * product(shape(0)) * product(&node.shape[1..]),
            Op::Reduce { .. } | Op::ScatterAdd => ELEMENT * product(shape(0)),
            _ => ELEMENT * node.elements() as f64,
        };
    }
    cost
}
