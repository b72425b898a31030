//! Tests: graphs of workloads as streams of operations, found as loops and rebuilt.

use std::collections::BTreeMap;

use crate::economics::{
    attention_block::AttentionBlock,
    matmul_chain::MatmulChain,
    mixed::Mixed,
    mlp::{Loss, Mlp},
};
use crate::graph_problem::{Built, Computation, GraphProblem};
use crate::transformer;
use sweeper_compiler::fuse::{self, Policy, Request};
use sweeper_compiler::graph::{Graph, NodeId, evaluate, evaluate_nodes};
use sweeper_compiler::stream::{
    Answer, Call, Kind, Operation, Path, PathId, Stream, Tensor as Operand, Value, trace,
};
use sweeper_program::check::{Metric, compare};
use sweeper_program::inputs::InputKey;
use sweeper_program::tensor::{Tensor, Tensors};
use sweeper_program::workload::{Phase, Problem, Refusal, Target};
use sweeper_program::{Precision, Role};

/// A client that runs the operations of a graph again and again.
struct Client<'a> {
    graph: &'a Graph,
    wanted: Vec<NodeId>,
    calls: Vec<Call>,
    kinds: Vec<Kind>,
    stream: Stream,
    values: BTreeMap<NodeId, Value>,
    next: u64,
}

impl<'a> Client<'a> {
    fn new(built: &'a Built, phase: Phase) -> Self {
        let graph = &built.graph;
        let wanted: Vec<NodeId> = graph.results(phase).map(|output| output.node).collect();
        let backward = built.backward.filter(|_| phase != Phase::Forward);
        let calls = trace(graph, &wanted, backward);
        let mut stream = Stream::new();
        let kinds = calls
            .iter()
            .map(|call| stream.define(call.definition.clone()));
        let kinds = kinds.collect();
        let given = graph.given().iter().zip(0..);
        Client {
            graph,
            kinds,
            stream,
            wanted,
            calls,
            next: graph.given().len() as u64,
            values: given.map(|(given, at)| (given.node, Value(at))).collect(),
        }
    }

    fn operand(&self, node: NodeId) -> Operand {
        let given = self.graph.given().iter();
        let role = given
            .filter(|given| given.node == node)
            .map(|given| given.role)
            .next();
        Operand::with_role(self.values[&node], role.unwrap_or(Role::Workspace))
    }

    fn result(&mut self, node: NodeId) -> Operand {
        self.values.insert(node, Value(self.next));
        self.next += 1;
        let role = match self.wanted.contains(&node) {
            true => Role::Output,
            false => Role::Workspace,
        };
        Operand::with_role(self.values[&node], role)
    }

    /// Runs an iteration; returns the paths that were found.
    fn iterate(&mut self) -> Vec<PathId> {
        let mut found = vec![];
        for at in 0..self.calls.len() {
            let Call {
                operands, results, ..
            } = self.calls[at].clone();
            let operands: Vec<Operand> = operands.iter().map(|&node| self.operand(node)).collect();
            let results: Vec<Operand> = results.iter().map(|&node| self.result(node)).collect();
            let answer = self.stream.record(&Operation {
                kind: self.kinds[at],
                operands: &operands,
                results: &results,
            });
            if let Answer::Found(path) = answer {
                found.push(path);
            }
        }
        found
    }

    /// Results of the iteration that are next values of given tensors become these.
    fn update(&mut self) {
        for output in self.graph.outputs() {
            if let (Some(given), Some(&value)) = (output.updates, self.values.get(&output.node)) {
                self.values.insert(given, value);
            }
        }
    }

    /// Finds the loop. Returns its path, and the nodes whose values slots and results had.
    fn find(&mut self) -> (Path, [Vec<NodeId>; 2]) {
        let period = self.calls.len();
        let iterations = 4.max(34 / period + 3);
        let mut given: BTreeMap<Value, NodeId> = BTreeMap::new();
        let mut found = vec![];
        for at in 0..iterations {
            let nodes = self.graph.given().iter().map(|given| given.node);
            given = nodes.map(|node| (self.values[&node], node)).collect();
            found.extend(self.iterate());
            if at + 1 < iterations {
                self.update();
            }
        }
        assert_eq!(found.len(), 1, "{period}: {found:?}");
        let path = self.stream.path(found[0]).unwrap();
        let kinds: Vec<Kind> = path.operations().iter().map(|held| held.kind).collect();
        assert_eq!(kinds, self.kinds);
        let values = self.stream.values(found[0]).unwrap();
        let nodes = self.calls.iter().flat_map(|call| &call.results);
        let made: BTreeMap<Value, NodeId> = nodes.map(|node| (self.values[node], *node)).collect();
        let slots = values.slots().map(|value| given[&value]).collect();
        let results = values.results().map(|value| made[&value]).collect();
        (path.clone(), [slots, results])
    }
}

/// Launches and bytes of a compiled program, where the target has one.
fn compiled(
    graph: &Graph,
    backward: Option<NodeId>,
    phase: Phase,
    (target, precision): (&Target, Precision),
) -> Result<(u64, u64), Refusal> {
    let program = fuse::program(&Request {
        graph,
        backward,
        phase,
        policy: Policy::Compiled,
        target,
        canonical: &[],
        precision,
        by_library: false,
    });
    let totals = program?.totals();
    Ok((totals.launches, totals.read_bytes + totals.written_bytes))
}

/// Checks that the loop over a graph is found with exactly its operations, and that the graph of
/// the path has equal results and as good a program.
fn assert_is_rebuilt<C: Computation>(
    problem: &GraphProblem<C>,
    phase: Phase,
    precision: Precision,
) {
    let built = problem.built();
    let mut client = Client::new(built, phase);
    let (path, [slots, results]) = client.find();
    let rebuilt = path.graph();
    let inputs = problem.generate(&InputKey([3; 32]));
    let specs = problem.inputs();
    let tensor = |node: &NodeId| -> Tensor {
        let mut given = built.graph.given().iter().zip(&specs);
        let (_, spec) = given.find(|(given, _)| given.node == *node).unwrap();
        inputs[&spec.name].clone()
    };
    let named = rebuilt.inputs.iter().zip(&slots);
    let own: Tensors = named
        .map(|(name, node)| (name.clone(), tensor(node)))
        .collect();
    let outputs = evaluate(&rebuilt.graph, &own).unwrap();
    let expected = evaluate_nodes(&built.graph, &inputs, &results).unwrap();
    for (name, expected) in rebuilt.outputs.iter().zip(&expected) {
        let check = compare(
            name,
            Some(&outputs[name]),
            expected,
            Metric::RelativeL2,
            1e-12,
        );
        assert!(check.passed(), "{name}");
    }
    let mut wanted = client.wanted.clone();
    let mut found = results;
    found.sort_unstable();
    wanted.sort_unstable();
    wanted.dedup();
    assert_eq!(found, wanted);
    let cuda = Target::Cuda {
        arch: "sm_90a".to_owned(),
    };
    let own_phase = match rebuilt.backward {
        Some(_) => Phase::Both,
        None => Phase::Forward,
    };
    for target in [Target::Cpu, cuda] {
        let made = compiled(
            &rebuilt.graph,
            rebuilt.backward,
            own_phase,
            (&target, precision),
        );
        let original = compiled(&built.graph, built.backward, phase, (&target, precision));
        match (&made, &original) {
            // The graph's results of other phases are f32 in memory; the path does not know them.
            // So one gradient's type differs, and its update shares a launch or doesn't.
            (Ok((launches, bytes)), Ok(original)) if precision == Precision::Bf16 => {
                assert!(launches.abs_diff(original.0) <= 1, "{target:?} {phase}");
                assert!(*bytes <= original.1, "{target:?} {phase}");
            }
            _ => assert_eq!(made, original, "{target:?} {phase}"),
        }
        let has_program = target != Target::Cpu || precision == Precision::F32;
        assert_eq!(made.is_ok(), has_program);
    }
}

#[test]
fn bodies_of_the_compilation_guide_are_rebuilt() {
    fn both<C: Computation>(computation: C) {
        let problem = GraphProblem::new("body", computation).unwrap();
        for phase in [Phase::Forward, Phase::Both] {
            assert_is_rebuilt(&problem, phase, Precision::F32);
        }
    }
    both(MatmulChain { size: 64, depth: 3 });
    both(Mixed { size: 32 });
    both(AttentionBlock {
        sequence: 64,
        dimension: 64,
    });
    for loss in [Loss::SquaredError, Loss::CrossEntropy] {
        both(Mlp {
            batch: 16,
            widths: [32, 64, 32, 10],
            loss,
            rate: 0.01,
        });
    }
}

/// With parameters and moments as state, and with layers that are computed twice.
#[test]
fn training_steps_are_rebuilt() {
    for checkpoint in ["none", "layer"] {
        let problem =
            transformer::tests::tiny(&format!(" loss=cross_entropy checkpoint={checkpoint}"));
        for phase in [Phase::Forward, Phase::Step] {
            assert_is_rebuilt(&problem, phase, Precision::F32);
        }
        assert_is_rebuilt(&problem, Phase::Step, Precision::Bf16);
    }
}
