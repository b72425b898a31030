//! Problems that are graphs: the parts that follow from the graph alone, for every workload that
//! has a graph.
//!
//! A [`Computation`] adds the parts that a graph lacks: the inputs, the right results and their
//! tolerance. Tensors, least work and programs follow from the graph.

use crate::dispatcher::GraphDispatcher;
use sweeper_compiler::fuse::{self, Policy, Request};
use sweeper_compiler::graph::{Graph, GraphError, Node, NodeId, Op, Output};
use sweeper_program::check::{self, Check};
use sweeper_program::inputs::InputKey;
use sweeper_program::spread;
use sweeper_program::tensor::{Dtype, Tensor, Tensors};
use sweeper_program::workload::{
    BackendInfo, CanonicalShape, DeviceOracle, Dispatcher, ParameterError, Phase, Problem, Refusal,
    Target, TensorSpec, Work, WorkloadInfo,
};
use sweeper_program::{Precision, Program};

/// The backends of every workload that is a graph, with `library` for the operations that a library
/// computes as a whole.
pub(crate) const BACKENDS: &[BackendInfo] = &[
    BackendInfo {
        name: "primitive",
        aliases: &[],
        about: "one generated kernel for each primitive operation",
        by_default: true,
    },
    BackendInfo {
        name: "eager",
        aliases: &[],
        about: "one generated kernel for each operation of an eager framework",
        by_default: true,
    },
    BackendInfo {
        name: "control",
        aliases: &[],
        about: "the program of `eager` once more, to know what a machine takes for a difference",
        by_default: false,
    },
    BackendInfo {
        name: "compiled",
        aliases: &["fused"],
        about: "fused across operations, generated for the canonical shape",
        by_default: true,
    },
    BackendInfo {
        name: AUTO,
        aliases: &[],
        about: "`eager` that finds its loop, compiles it in the background and keeps what is faster",
        by_default: false,
    },
    BackendInfo {
        name: "library",
        aliases: &[],
        about: "the whole operation from a library, where one has it",
        by_default: true,
    },
];

/// The backend whose loops decide themselves whether to compile.
const AUTO: &str = "auto";

/// The properties that all workloads with graphs share; each workload has names, sizes and tensors
/// of its own.
pub(crate) const PLAIN: WorkloadInfo = WorkloadInfo {
    name: "",
    about: "",
    formula: "",
    parameters: &[],
    backends: BACKENDS,
    phases: &Phase::ALL,
    dtypes: &[Dtype::F32],
    inputs: &[],
    outputs: &[],
    buckets: &[],
    presentation: None,
    published: None,
    flags: &[],
};

/// A graph with its results named.
#[derive(Clone, Debug)]
pub struct Built {
    /// The computation. Results of the forward pass are [`Role::Output`](sweeper_program::Role);
    /// all others belong to the backward pass, or to later steps.
    pub graph: Graph,
    /// The first node of the backward pass, where there is one.
    pub backward: Option<NodeId>,
}

/// The parts of a problem that its graph lacks.
pub trait Computation: Send + Sync + Sized + 'static {
    /// The graph. Inputs are called as in files.
    ///
    /// # Errors
    /// Sizes that don't make one: too many elements.
    fn build(&self) -> Result<Built, GraphError>;

    /// Extents for which a canonical shape has bounds, with the names of the bounds.
    fn extents(&self) -> Vec<(usize, &'static str)>;

    /// Extents that are the same in all problems that share kernels: they are their own bounds.
    fn fixed_extents(&self) -> Vec<usize> {
        vec![]
    }

    /// The precision in which products are computed.
    fn precision(&self) -> Precision {
        Precision::F32
    }

    /// Useful operations of a phase, where they differ from the operations of the graph.
    fn flops(&self, _phase: Phase) -> Option<f64> {
        None
    }

    /// An input made from `key`.
    fn generate(&self, spec: &TensorSpec, key: &InputKey) -> Tensor;

    /// As [`Problem::showing`], from inputs like those that are generated.
    fn showing(&self, _inputs: Tensors, _key: &InputKey) -> Option<Tensors> {
        None
    }

    /// Whether an input is state that begins at zero: a file of tensors may leave it out.
    fn begins_at_zero(&self, _name: &str) -> bool {
        false
    }

    /// Checks inputs as [`Problem::validate`] does.
    ///
    /// # Errors
    /// A sentence that says which value of which tensor is not allowed.
    fn validate(&self, inputs: &Tensors) -> Result<(), String>;

    /// The answers of [`Problem::oracle`], with the spread of each beside it.
    fn oracle(&self, inputs: &Tensors, phase: Phase) -> Tensors;

    /// As [`Problem::oracle_operations`], of all threads together.
    fn oracle_operations(&self, phase: Phase) -> f64;

    /// The most bytes that evaluating the graph for the answers holds at one time; none for oracles
    /// written by hand.
    fn evaluation_bytes(&self, _phase: Phase) -> Option<u64> {
        None
    }

    /// As [`Problem::reduced`], for so many operations of all threads together.
    fn reduced(&self, phase: Phase, operations: f64) -> Option<Self>;

    /// As [`Problem::device_oracle`], for a CUDA device.
    fn cuda_oracle(&self, _phase: Phase) -> Option<DeviceOracle> {
        None
    }

    /// As [`Problem::smaller`], for so many operations of all threads together.
    fn smaller(&self, phase: Phase, operations: f64) -> Option<Self> {
        self.reduced(phase, operations)
    }

    /// The program of the backend `library` for the workload called `name`.
    ///
    /// # Errors
    /// A sentence that says that no library has it.
    fn by_library(&self, name: &str, phase: Phase, target: &Target) -> Result<Program, Refusal>;
}

/// A problem that is a graph.
#[derive(Clone, Debug)]
pub struct GraphProblem<C> {
    /// The workload's name.
    name: &'static str,
    computation: C,
    built: Built,
}

impl<C: Computation> GraphProblem<C> {
    /// The problem of a computation, by the name of its workload.
    ///
    /// # Errors
    /// If the sizes do not make a graph, with the graph's message.
    pub fn new(name: &'static str, computation: C) -> Result<Self, ParameterError> {
        let built = computation
            .build()
            .map_err(|error| ParameterError::Together {
                reason: error.to_string(),
            })?;
        Ok(GraphProblem {
            name,
            computation,
            built,
        })
    }

    /// The graph, and the beginning of its backward pass.
    pub fn built(&self) -> &Built {
        &self.built
    }

    /// Bounds of extents that a canonical shape has.
    fn bounds(&self, canonical: &CanonicalShape) -> Vec<(usize, u64)> {
        let extents = self.computation.extents().into_iter();
        let bounded = extents.filter_map(|(extent, name)| Some((extent, canonical.bound(name)?)));
        let fixed = self.computation.fixed_extents().into_iter();
        bounded
            .chain(fixed.map(|extent| (extent, extent as u64)))
            .collect()
    }

    fn request<'a>(
        &'a self,
        policy: Policy,
        phase: Phase,
        canonical: &'a [(usize, u64)],
        target: &'a Target,
    ) -> Request<'a> {
        Request {
            graph: &self.built.graph,
            backward: self.built.backward,
            phase,
            policy,
            target,
            canonical,
            precision: self.computation.precision(),
            by_library: false,
        }
    }

    /// The nodes that are results of a phase.
    fn wanted(&self, phase: Phase) -> Vec<NodeId> {
        let results = self.built.graph.results(phase);
        results.map(|result| result.node).collect()
    }
}

/// Arithmetic operations of a graph's nodes that depend on inputs. The backward pass alone doesn't
/// count what the forward pass has computed.
pub(crate) fn flops(built: &Built, phase: Phase) -> f64 {
    let graph = &built.graph;
    let needed = graph.needed_for(graph.results(phase).map(|result| result.node));
    let first = match phase {
        Phase::Backward => built.backward.map_or(0, NodeId::index),
        Phase::Forward | Phase::Both | Phase::Step => 0,
    };
    let mut varies = vec![false; graph.nodes().len()];
    let mut flops = 0.0;
    for id in graph.ids() {
        let node = graph.node(id);
        let mut operands = node.operands.iter();
        varies[id.index()] =
            matches!(node.op, Op::Input(_)) || operands.any(|operand| varies[operand.index()]);
        if needed[id.index()] && varies[id.index()] && id.index() >= first {
            flops += flops_of(graph, id);
        }
    }
    flops
}

/// Operations of one node: one for each function of an element, each element that is reduced, and
/// the product and the sum of each term of an inner product.
fn flops_of(graph: &Graph, id: NodeId) -> f64 {
    let node = graph.node(id);
    let shape = |operand: usize| &graph.node(node.operands[operand]).shape;
    let product = |shape: &[usize]| shape.iter().product::<usize>() as f64;
    match &node.op {
        Op::Unary(_) | Op::Binary(_) | Op::Select => node.elements() as f64,
        Op::Reduce { .. } => product(shape(0)),
        Op::Matmul => 2.0 * node.elements() as f64 * shape(0).last().copied().unwrap_or(1) as f64,
        // Each element of the result is an inner product with one kernel; both gradients have as
        // many terms.
        Op::Conv2d(_) => 2.0 * node.elements() as f64 * product(&shape(1)[1..]),
        Op::Conv2dGradX(_) => 2.0 * product(shape(0)) * product(&shape(1)[1..]),
        Op::Conv2dGradW(_) => 2.0 * product(shape(0)) * product(&node.shape[1..]),
        Op::ScatterAdd => product(shape(0)),
        _ => 0.0,
    }
}

impl<C: Computation> Problem for GraphProblem<C> {
    fn inputs(&self) -> Vec<TensorSpec> {
        let graph = &self.built.graph;
        let given = graph.given().iter().map(|given| graph.node(given.node));
        let spec = |node: &Node| match &node.op {
            Op::Input(name) => Some(TensorSpec {
                name: name.clone(),
                dtype: node.dtype,
                shape: node.shape.clone(),
            }),
            _ => None,
        };
        given.filter_map(spec).collect()
    }

    fn outputs(&self, phase: Phase) -> Vec<TensorSpec> {
        let graph = &self.built.graph;
        let spec = |result: &Output| {
            let node = graph.node(result.node);
            TensorSpec {
                name: result.name.clone(),
                dtype: node.dtype,
                shape: node.shape.clone(),
            }
        };
        graph.results(phase).map(spec).collect()
    }

    fn generate(&self, key: &InputKey) -> Tensors {
        let made = |spec: TensorSpec| {
            let tensor = self.computation.generate(&spec, key);
            (spec.name, tensor)
        };
        self.inputs().into_iter().map(made).collect()
    }

    fn showing(&self, key: &InputKey) -> Option<Tensors> {
        let inputs = Problem::generate(self, &key.other("showing"));
        self.computation.showing(inputs, key)
    }

    fn absent_input(&self, spec: &TensorSpec) -> Option<Tensor> {
        let zeros = || Tensor::f32(spec.shape.clone(), vec![0.0; spec.shape.iter().product()]);
        self.computation.begins_at_zero(&spec.name).then(zeros)
    }

    fn validate(&self, inputs: &Tensors) -> Result<(), String> {
        self.computation.validate(inputs)
    }

    fn oracle(&self, inputs: &Tensors, phase: Phase) -> Tensors {
        self.computation.oracle(inputs, phase)
    }

    fn oracle_operations(&self, phase: Phase, threads: usize) -> f64 {
        self.computation.oracle_operations(phase) / threads as f64
    }

    fn oracle_bytes(&self, phase: Phase) -> u64 {
        let specs = self.inputs().into_iter().chain(self.outputs(phase));
        let elements: u64 = specs.map(|spec| spec.elements()).sum();
        match self.computation.evaluation_bytes(phase) {
            // Inputs and a backend's results, in f32.
            Some(bytes) => 4 * elements + bytes,
            None => 24 * elements,
        }
    }

    fn reduced(&self, phase: Phase, operations: f64, threads: usize) -> Option<Box<dyn Problem>> {
        let reduced = self
            .computation
            .reduced(phase, operations * threads as f64)?;
        Some(Box::new(GraphProblem::new(self.name, reduced).ok()?))
    }

    fn device_oracle(&self, phase: Phase, target: &Target) -> Option<DeviceOracle> {
        match target {
            Target::Cpu => None,
            Target::Cuda { .. } => self.computation.cuda_oracle(phase),
        }
    }

    fn smaller(&self, phase: Phase, operations: f64, threads: usize) -> Option<Box<dyn Problem>> {
        let smaller = self
            .computation
            .smaller(phase, operations * threads as f64)?;
        Some(Box::new(GraphProblem::new(self.name, smaller).ok()?))
    }

    fn check(
        &self,
        _inputs: &Tensors,
        outputs: &Tensors,
        expected: &Tensors,
        phase: Phase,
    ) -> Check {
        let judge =
            |spec: &TensorSpec| spread::judge(&spec.name, outputs.get(&spec.name), expected);
        Check {
            tensors: self.outputs(phase).iter().map(judge).collect(),
        }
    }

    /// Bytes of the inputs on which the results depend, and of the results. Tensors that a forward
    /// pass keeps for the backward pass are not compulsory.
    fn work(&self, phase: Phase) -> Work {
        let graph = &self.built.graph;
        let needed = graph.needed_for(self.wanted(phase));
        let given = graph.given().iter().map(|given| given.node);
        let read = given.filter(|node| needed[node.index()]);
        // The factors of a product in bf16 are that in memory.
        let given_dtype = |dtype: Dtype| match self.computation.precision() {
            Precision::Bf16 if dtype == Dtype::F32 => Dtype::Bf16,
            _ => dtype,
        };
        let bytes = |node: NodeId, dtype: &dyn Fn(Dtype) -> Dtype| {
            let node = graph.node(node);
            node.elements() as f64 * dtype(node.dtype).size_bytes() as f64
        };
        let read = read.map(|node| bytes(node, &given_dtype));
        let written = self.wanted(phase).into_iter();
        let written = written.map(|node| bytes(node, &|dtype| dtype));
        Work {
            flops: self
                .computation
                .flops(phase)
                .unwrap_or_else(|| flops(&self.built, phase)),
            compulsory_bytes: read.chain(written).sum(),
        }
    }

    fn program(
        &self,
        backend: &str,
        phase: Phase,
        canonical: &CanonicalShape,
        target: &Target,
    ) -> Result<Program, Refusal> {
        match policy(backend) {
            Some(policy) => {
                let bounds = self.bounds(canonical);
                fuse::program(&self.request(policy, phase, &bounds, target))
            }
            None if backend == "library" => self.computation.by_library(self.name, phase, target),
            None => {
                let reason = format!("`{backend}` is not part of this build");
                Err(Refusal::Unavailable(reason))
            }
        }
    }

    fn dispatcher(
        &self,
        backend: &str,
        phase: Phase,
        canonical: &CanonicalShape,
        target: &Target,
    ) -> Result<Option<Box<dyn Dispatcher>>, Refusal> {
        if backend != AUTO {
            return Ok(None);
        }
        let bounds = self.bounds(canonical);
        let request = self.request(Policy::Eager, phase, &bounds, target);
        Ok(Some(Box::new(GraphDispatcher::new(&request)?)))
    }

    fn explain(
        &self,
        backend: &str,
        phase: Phase,
        canonical: &CanonicalShape,
        target: &Target,
    ) -> Option<String> {
        let bounds = self.bounds(canonical);
        let request = self.request(policy(backend)?, phase, &bounds, target);
        let explained = fuse::explain(&request).ok()?;
        Some(explained.to_string())
    }
}

/// Checks that all elements of an input are right.
///
/// # Errors
/// The first wrong element, and `what` is wrong with it.
pub(crate) fn expect(
    name: &str,
    tensor: &Tensor,
    is_right: &dyn Fn(f64) -> bool,
    what: &str,
) -> Result<(), String> {
    let values = check::as_f64(tensor);
    match values.iter().position(|&value| !is_right(value)) {
        Some(at) => Err(format!(
            "element {at} of `{name}` is {}, {what}",
            values[at]
        )),
        None => Ok(()),
    }
}

/// The policy of a backend for sharing kernels, if this is how the backend differs.
fn policy(backend: &str) -> Option<Policy> {
    match backend {
        "primitive" => Some(Policy::Primitive),
        "eager" | "control" | AUTO => Some(Policy::Eager),
        "compiled" => Some(Policy::Compiled),
        _ => None,
    }
}

/// Checks, for tests of workloads, that a judge finds every fault of the graph, and accepts the
/// graph without a fault.
#[cfg(test)]
pub(crate) mod judging {
    use super::*;
    use sweeper_compiler::graph::{evaluate, mutate};
    use sweeper_program::check::{as_f64, compare};

    /// The tensors in f32.
    fn stored(tensors: &Tensors) -> Tensors {
        let one = |(name, tensor): (&String, &Tensor)| {
            let values = as_f64(tensor).iter().map(|&value| value as f32).collect();
            (name.clone(), Tensor::f32(tensor.shape(), values))
        };
        tensors.iter().map(one).collect()
    }

    /// Whether all of `names` are equal in both, up to roundings of f64.
    fn are_same(found: &Tensors, exact: &Tensors, names: &[String]) -> bool {
        let mut names = names.iter();
        names.all(|name| {
            let metric = sweeper_program::check::Metric::RelativeL2;
            compare(name, Some(&found[name]), &exact[name], metric, 1e-12).passed()
        })
    }

    /// The wrong judgements of each phase, as lines: graphs with a fault that are judged right, and
    /// the right graph in f32 if it is judged wrong. A fault that changes no result of these inputs
    /// does not count.
    ///
    /// # Panics
    /// If fewer than `least` faults are found.
    pub(crate) fn misjudged<C: Computation>(
        problem: &GraphProblem<C>,
        phases: &[Phase],
        least: usize,
    ) -> Vec<String> {
        let key = InputKey([6; 32]);
        let all = std::iter::once(Problem::generate(problem, &key));
        let covering = Phase::covering(phases.iter().copied());
        let all = all.chain(Problem::showing(problem, &key)).map(|inputs| {
            let expected = Problem::oracle(problem, &inputs, covering);
            let exact = evaluate(&problem.built.graph, &inputs).unwrap();
            (inputs, expected, exact)
        });
        let all: Vec<_> = all.collect();
        let graph = &problem.built.graph;
        let (mut lines, mut found) = (vec![], 0);
        for &phase in phases {
            for (inputs, expected, _) in &all {
                let check = problem.check(inputs, &mutate::in_f32(graph, inputs), expected, phase);
                if !check.passed() {
                    lines.push(format!("{phase}: right, but {:?}", check.worst()));
                }
            }
            let specs = problem.outputs(phase).into_iter();
            let names: Vec<String> = specs.map(|spec| spec.name).collect();
            for (at, fault) in mutate::faults(graph, &problem.wanted(phase)) {
                let faulty = mutate::with(graph, (at, fault));
                let judged = all.iter().map(|(inputs, expected, exact)| {
                    let wrong = evaluate(&faulty, inputs).unwrap();
                    let check = problem.check(inputs, &stored(&wrong), expected, phase);
                    (check, are_same(&wrong, exact, &names))
                });
                let judged: Vec<_> = judged.collect();
                let is_found = judged.iter().any(|(check, _)| !check.passed());
                found += usize::from(is_found);
                if !is_found && judged.iter().any(|(_, same)| !same) {
                    let worst = judged.iter().map(|(check, _)| check.worst());
                    let worst: Vec<_> = worst.collect();
                    let op = &graph.node(at).op;
                    lines.push(format!("{phase}: {at} {op:?} {fault:?}: {worst:?}"));
                }
            }
        }
        assert!(found >= least, "{found} faults");
        lines
    }
}
