//! A graph as an eager framework runs it: operation by operation, with the loops that are found in
//! them.

mod names;

use std::ops::Range;

use sweeper_compiler::fuse::{self, Policy, Replay, Request};
use sweeper_compiler::graph::Op;
use sweeper_compiler::stream::{
    Answer, Call, Kind, Operation, Path, PathGraph, PathId, PathOperation, Reference, Stream,
    Tensor, Value,
};
use sweeper_program::workload::{Dispatch, Dispatcher, LoopId, Phase, Planner, Refusal, Target};
use sweeper_program::{Precision, Role};

use names::Names;

/// An operation of an iteration, as it is recorded.
#[derive(Clone, Copy)]
struct Recorded {
    kind: Kind,
    /// Positions in [`GraphDispatcher::nodes`]: of its first operand, of its first result, and
    /// behind its last one.
    spans: [u32; 3],
}

/// The operations of a graph, again and again, and the stream that they are recorded in.
pub(crate) struct GraphDispatcher {
    replay: Replay,
    target: Target,
    bounds: Vec<(usize, u64)>,
    precision: Precision,
    /// Names of given tensors, and of results of the phase, by node.
    given: Vec<(usize, String)>,
    results: Vec<(usize, String)>,
    /// Results that are next values of given tensors, by node.
    updates: Vec<(usize, usize)>,
    recorded: Vec<Recorded>,
    /// Nodes that operations read and make, with the roles of their values. All lie in a row:
    /// kernels take the caches, so that each line that recording reads costs an operation time.
    nodes: Vec<(u32, Role)>,
    stream: Stream,
    /// The value of each node.
    values: Vec<u64>,
    next_value: u64,
    /// The operation that comes next.
    at: usize,
    tensors: Vec<Tensor>,
}

impl GraphDispatcher {
    /// The dispatcher of a request's graph and phase.
    ///
    /// # Errors
    /// As [`fuse::replay`].
    pub(crate) fn new(request: &Request<'_>) -> Result<Self, Refusal> {
        let replay = fuse::replay(request)?;
        let graph = &replay.graph;
        let names = request.graph.given().iter().zip(graph.given());
        let given = names.map(|(named, given)| {
            let name = match &request.graph.node(named.node).op {
                Op::Input(name) => name.clone(),
                _ => String::new(),
            };
            (given.node.index(), name)
        });
        let given: Vec<_> = given.collect();
        let wanted: Vec<_> = graph.results(request.phase).collect();
        let results = wanted.iter();
        let results = results.map(|output| (output.node.index(), output.name.clone()));
        let updates = wanted.iter().filter_map(|output| {
            let given = output.updates?;
            Some((output.node.index(), given.index()))
        });
        let mut dispatcher = GraphDispatcher {
            target: request.target.clone(),
            bounds: request.canonical.to_vec(),
            precision: request.precision,
            given,
            results: results.collect(),
            updates: updates.collect(),
            recorded: vec![],
            nodes: vec![],
            stream: Stream::new(),
            values: vec![0; graph.nodes().len()],
            next_value: 0,
            at: 0,
            tensors: vec![],
            replay,
        };
        dispatcher.restart();
        Ok(dispatcher)
    }

    /// The extent for which kernels are compiled in place of another one.
    fn bound(&self, extent: usize) -> usize {
        let mut bounds = self.bounds.iter();
        let own = bounds.find(|(bounded, _)| *bounded == extent);
        own.map_or(extent, |(_, bound)| *bound as usize)
    }

    fn operands(&self, recorded: Recorded) -> &[(u32, Role)] {
        let [operands, results, _] = recorded.spans;
        &self.nodes[operands as usize..results as usize]
    }

    fn results(&self, recorded: Recorded) -> &[(u32, Role)] {
        let [_, results, end] = recorded.spans;
        &self.nodes[results as usize..end as usize]
    }

    fn role_of_given(&self, node: usize) -> Role {
        let mut given = self.replay.graph.given().iter();
        let own = given.find(|given| given.node.index() == node);
        own.map_or(Role::Workspace, |given| given.role)
    }

    fn role_of_result(&self, node: usize) -> Role {
        match self.results.iter().any(|(result, _)| *result == node) {
            true => Role::Output,
            false => Role::Workspace,
        }
    }

    /// The path of a loop, if its iterations are whole ones.
    fn whole(&self, id: LoopId) -> Option<&Path> {
        let path = self.stream.path(PathId(id.0))?;
        self.has_whole_iterations(path).then_some(path)
    }

    /// Whether an iteration of a path is one of the computation: the operations from the first to
    /// the last, with state that is carried as the graph says, and with all results.
    fn has_whole_iterations(&self, path: &Path) -> bool {
        let operations = path.operations();
        let mut pairs = operations.iter().zip(&self.recorded);
        let has_calls = operations.len() == self.recorded.len()
            && pairs.all(|(operation, recorded)| operation.kind == recorded.kind);
        if !has_calls {
            return false;
        }
        let slots = self.slots(path);
        let has_given = slots.iter().all(|node| {
            let mut given = self.given.iter();
            given.any(|(held, _)| held == node)
        });
        let mut left: Vec<usize> = self.results.iter().map(|(node, _)| *node).collect();
        let carries = path.results().iter().all(|result| {
            let node = self.result(result.operation, result.result);
            left.retain(|held| *held != node);
            let given = result.carried.map(|slot| slots[slot as usize]);
            let update = self.updates.iter().find(|(made, _)| *made == node);
            given == update.map(|(_, given)| *given)
        });
        has_given && carries && left.is_empty()
    }

    /// The node whose value comes through each slot of a path of the computation.
    fn slots(&self, path: &Path) -> Vec<usize> {
        let mut nodes = vec![usize::MAX; path.slots().len()];
        for (operation, recorded) in path.operations().iter().zip(&self.recorded) {
            let read = self.operands(*recorded);
            for (reference, (node, _)) in operation.operands.iter().zip(read) {
                if let Reference::Slot(slot) = reference {
                    nodes[*slot as usize] = *node as usize;
                }
            }
        }
        nodes
    }

    fn result(&self, operation: u32, result: u32) -> usize {
        let made = self.results(self.recorded[operation as usize]);
        made[result as usize].0 as usize
    }

    /// Makes the program of a path of the computation, as a graph.
    fn planner_of(&self, path: &Path, policy: Policy, graph: impl GraphOfPath) -> Planner {
        let slots = self.slots(path).into_iter().map(|node| {
            let mut given = self.given.iter();
            given
                .find(|(held, _)| *held == node)
                .map(|(_, name)| name.clone())
        });
        let results = path.results().iter().map(|result| {
            let node = self.result(result.operation, result.result);
            let mut named = self.results.iter();
            named
                .find(|(held, _)| *held == node)
                .map(|(_, name)| name.clone())
        });
        let names = Names {
            slots: slots.map(Option::unwrap_or_default).collect(),
            results: results.collect(),
        };
        let (target, bounds) = (self.target.clone(), self.bounds.clone());
        let (precision, path) = (self.precision, path.clone());
        Box::new(move || {
            let made = graph(&path)?;
            let program = fuse::program(&Request {
                graph: &made.graph,
                backward: made.backward,
                phase: match made.backward {
                    Some(_) => Phase::Both,
                    None => Phase::Forward,
                },
                policy,
                target: &target,
                canonical: &bounds,
                precision,
                by_library: false,
            })?;
            Ok(names.renamed(program, &made))
        })
    }
}

/// Makes a graph of a path, on another thread.
trait GraphOfPath: FnOnce(&Path) -> Result<PathGraph, Refusal> + Send + 'static {}

impl<F: FnOnce(&Path) -> Result<PathGraph, Refusal> + Send + 'static> GraphOfPath for F {}

impl Dispatcher for GraphDispatcher {
    fn steps(&self) -> &[Range<usize>] {
        &self.replay.steps
    }

    fn first_operation(&self) -> [u8; 32] {
        let first = self.replay.calls.first();
        first.map_or([0; 32], |call| call.definition.digest())
    }

    fn first_family(&self) -> [u8; 32] {
        let first = self.replay.calls.first();
        let digest = |call: &Call| call.definition.family_digest(|extent| self.bound(extent));
        first.map_or([0; 32], digest)
    }

    fn signature(&self, id: LoopId) -> Option<[u8; 32]> {
        Some(self.whole(id)?.signature(|extent| self.bound(extent)))
    }

    fn restart(&mut self) {
        self.stream = Stream::new();
        self.at = 0;
        for (value, (node, _)) in (0..).zip(&self.given) {
            self.values[*node] = value;
        }
        self.next_value = self.given.len() as u64;
        let mut recorded = Vec::with_capacity(self.replay.calls.len());
        let mut nodes = vec![];
        for at in 0..self.replay.calls.len() {
            let call = &self.replay.calls[at];
            let first = nodes.len() as u32;
            let operands = call.operands.iter().map(|node| node.index());
            nodes.extend(operands.map(|node| (node as u32, self.role_of_given(node))));
            let middle = nodes.len() as u32;
            let results = call.results.iter().map(|node| node.index());
            nodes.extend(results.map(|node| (node as u32, self.role_of_result(node))));
            recorded.push(Recorded {
                kind: self.stream.define(call.definition.clone()),
                spans: [first, middle, nodes.len() as u32],
            });
        }
        (self.recorded, self.nodes) = (recorded, nodes);
    }

    fn skip_to(&mut self, at: usize) {
        for recorded in &self.recorded {
            let [_, first, end] = recorded.spans;
            for (node, _) in &self.nodes[first as usize..end as usize] {
                self.values[*node as usize] = self.next_value;
                self.next_value += 1;
            }
        }
        for &(_, given) in &self.updates {
            self.values[given] = self.next_value;
            self.next_value += 1;
        }
        self.at = at;
    }

    fn record(&mut self) -> Dispatch {
        let Recorded { kind, spans } = self.recorded[self.at];
        let [first, middle, end] = spans.map(|position| position as usize);
        self.tensors.clear();
        for &(node, role) in &self.nodes[first..middle] {
            let value = Value(self.values[node as usize]);
            self.tensors.push(Tensor::with_role(value, role));
        }
        for &(node, role) in &self.nodes[middle..end] {
            self.values[node as usize] = self.next_value;
            let value = Value(self.next_value);
            self.tensors.push(Tensor::with_role(value, role));
            self.next_value += 1;
        }
        let (operands, results) = self.tensors.split_at(middle - first);
        let answer = self.stream.record(&Operation {
            kind,
            operands,
            results,
        });
        self.at += 1;
        if self.at == self.recorded.len() {
            self.at = 0;
            for &(result, given) in &self.updates {
                self.values[given] = self.values[result];
            }
        }
        match answer {
            Answer::Run => Dispatch::Run,
            Answer::Found(id) => Dispatch::Found(LoopId(id.0)),
            Answer::Boundary(id) => Dispatch::Boundary(LoopId(id.0)),
            Answer::Hold => Dispatch::Hold,
            Answer::Replace(id) => Dispatch::Replace(LoopId(id.0)),
            Answer::Flush { held } => Dispatch::Flush { held },
        }
    }

    fn is_whole(&self, id: LoopId) -> bool {
        self.whole(id).is_some()
    }

    fn planner(&self, id: LoopId) -> Option<Planner> {
        let path = self.whole(id)?;
        Some(self.planner_of(path, Policy::Compiled, |path| Ok(path.graph())))
    }

    fn planner_by_parts(&self, id: LoopId) -> Option<Planner> {
        let by_parts = |path: &Path| match path.repeats() {
            repeats if repeats.is_empty() => Err(Refusal::Undefined("no part repeats".to_owned())),
            repeats => Ok(path.graph_by_parts(&repeats)),
        };
        Some(self.planner_of(self.whole(id)?, Policy::Eager, by_parts))
    }

    fn bytes(&self, id: LoopId) -> Option<Vec<u8>> {
        postcard::to_stdvec(self.whole(id)?).ok()
    }

    fn know(&mut self, bytes: &[u8]) -> Option<LoopId> {
        let path: Path = postcard::from_bytes(bytes).ok()?;
        let mut pairs = path.operations().iter().zip(&self.replay.calls);
        // A definition that was read lacks what helps to add nodes to its graph.
        let is_own = |(operation, call): (&PathOperation, &Call)| {
            operation.definition.digest() == call.definition.digest()
        };
        if !pairs.all(is_own) {
            return None;
        }
        let id = self.stream.know(&path);
        let id = LoopId(id.0);
        self.is_whole(id).then_some(id)
    }

    fn adopt(&mut self, id: LoopId) -> bool {
        self.stream.adopt(PathId(id.0))
    }

    fn abandon(&mut self, id: LoopId) -> usize {
        self.stream.abandon(PathId(id.0))
    }

    fn flush(&mut self) -> usize {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    use crate::economics::{matmul_chain::MatmulChain, mixed::Mixed, mlp::Loss, mlp::Mlp};
    use crate::graph_problem::{Computation, GraphProblem};
    use crate::transformer;
    use sweeper_program::workload::{CanonicalShape, Problem};
    use sweeper_program::{KernelSource, Program};

    fn dispatcher(problem: &dyn Problem, phase: Phase) -> Box<dyn Dispatcher> {
        let made = problem.dispatcher("auto", phase, &CanonicalShape::default(), &Target::Cpu);
        made.unwrap().unwrap()
    }

    /// Runs iterations until a whole loop is found.
    fn find(dispatcher: &mut dyn Dispatcher, iterations: usize) -> Option<LoopId> {
        let operations = dispatcher.steps().len();
        let mut whole = None;
        for _ in 0..operations * iterations {
            if let Dispatch::Found(id) = dispatcher.record()
                && dispatcher.is_whole(id)
            {
                whole = Some(id);
            }
        }
        whole
    }

    /// The loop is found, its program has the problem's tensors, and a later run knows it at once.
    fn assert_is_found(problem: &dyn Problem, phase: Phase) {
        let mut first = dispatcher(problem, phase);
        let program = problem.program("auto", phase, &CanonicalShape::default(), &Target::Cpu);
        let steps = first.steps().to_vec();
        let mut ends = steps.iter().map(|span| span.end);
        assert!(steps.iter().zip(&steps[1..]).all(|(a, b)| a.end == b.start));
        assert_eq!(ends.next_back(), Some(program.unwrap().steps.len()));
        let id = find(first.as_mut(), 4.max(34 / steps.len() + 3)).expect("a loop");
        let program = first.planner(id).unwrap()().unwrap();
        let bytes = first.bytes(id).unwrap();
        let given = program.buffers.iter().filter(|buffer| buffer.is_given());
        let given: BTreeSet<&str> = given.map(|buffer| &*buffer.name).collect();
        let inputs = problem.inputs();
        assert!(
            given
                .iter()
                .all(|name| inputs.iter().any(|spec| spec.name == *name))
        );
        let results = program.buffers.iter().filter_map(|buffer| buffer.result());
        let results: BTreeSet<String> = results.map(str::to_owned).collect();
        let outputs = problem.outputs(phase).into_iter().map(|spec| spec.name);
        assert_eq!(results, outputs.collect());

        let mut second = dispatcher(problem, phase);
        let known = second.know(&bytes).expect("the loop is known");
        assert_eq!(second.bytes(known), Some(bytes));
        assert!(second.adopt(known));
        for iteration in 0..3 {
            for at in 0..steps.len() {
                let expected = match at + 1 == steps.len() {
                    true => Dispatch::Replace(known),
                    false => Dispatch::Hold,
                };
                assert_eq!(second.record(), expected, "{iteration} {at}");
            }
        }
        second.restart();
        assert!(!second.is_whole(known));
    }

    fn problem<C: Computation + 'static>(computation: C) -> Box<dyn Problem> {
        Box::new(GraphProblem::new("body", computation).unwrap())
    }

    /// A loop whose first operations are not recorded is found, and one that was not recorded for a
    /// while is known at once, also where it carries state.
    #[test]
    fn operations_need_not_be_recorded() {
        let tiny = transformer::tests::tiny(" loss=cross_entropy");
        let mixed = problem(Mixed { size: 32 });
        for (problem, phase) in [
            (&tiny as &dyn Problem, Phase::Step),
            (&*mixed, Phase::Forward),
        ] {
            let mut dispatcher = dispatcher(problem, phase);
            let operations = dispatcher.steps().len();
            dispatcher.skip_to(operations / 2);
            (operations / 2..operations).for_each(|_| _ = dispatcher.record());
            let id = find(dispatcher.as_mut(), 8).expect("a loop");
            for _ in 0..3 {
                dispatcher.skip_to(0);
                (1..operations).for_each(|_| _ = dispatcher.record());
                assert_eq!(dispatcher.record(), Dispatch::Boundary(id));
            }
            assert!(dispatcher.adopt(id));
            let mut answers = vec![];
            (0..2 * operations).for_each(|_| answers.push(dispatcher.record()));
            assert_eq!(answers.last(), Some(&Dispatch::Replace(id)));
        }
    }

    #[test]
    fn loops_of_the_compilation_guide_are_found_and_known() {
        let chain = problem(MatmulChain { size: 64, depth: 3 });
        assert_is_found(chain.as_ref(), Phase::Forward);
        let mixed = problem(Mixed { size: 32 });
        assert_is_found(mixed.as_ref(), Phase::Forward);
        let mlp = problem(Mlp {
            batch: 16,
            widths: [32, 64, 32, 10],
            loss: Loss::CrossEntropy,
            rate: 0.01,
        });
        assert_is_found(mlp.as_ref(), Phase::Both);
    }

    #[test]
    fn a_training_step_carries_its_state() {
        let tiny = transformer::tests::tiny(" loss=cross_entropy");
        assert_is_found(&tiny, Phase::Step);
        let mut other = dispatcher(&tiny, Phase::Step);
        let chain = problem(MatmulChain { size: 64, depth: 3 });
        let mut of_chain = dispatcher(chain.as_ref(), Phase::Forward);
        let id = find(of_chain.as_mut(), 20).unwrap();
        let bytes = of_chain.bytes(id).unwrap();
        assert!(
            other.know(&bytes).is_none(),
            "a loop of another computation"
        );
        assert!(other.know(&bytes[..bytes.len() / 2]).is_none());
    }

    /// Half of the kernels that are not there yet bring more than half of the gain.
    #[test]
    fn equal_layers_are_compiled_as_parts() {
        let of_layers = |layers: usize| {
            let text = format!(" loss=cross_entropy layers={layers}");
            let tiny = transformer::tests::tiny(&text);
            let mut dispatcher = dispatcher(&tiny, Phase::Step);
            let id = find(dispatcher.as_mut(), 5).expect("a loop");
            let canonical = CanonicalShape::default();
            let eager = tiny.program("auto", Phase::Step, &canonical, &Target::Cpu);
            let eager = eager.unwrap();
            let [whole, parts] = [
                dispatcher.planner(id).unwrap()().unwrap(),
                dispatcher.planner_by_parts(id).unwrap()().unwrap(),
            ];
            let results = |program: &Program| -> BTreeSet<String> {
                let results = program.buffers.iter().filter_map(|buffer| buffer.result());
                results.map(str::to_owned).collect()
            };
            assert_eq!(results(&parts), results(&whole));
            let running = eager.sources();
            let is_new =
                |source: &&&KernelSource| !running.iter().any(|own| own.same_source(source));
            let new = |program: &Program| program.sources().iter().filter(is_new).count();
            assert!(
                2 * new(&parts) < 3 * new(&whole) / 2,
                "{} of {}",
                new(&parts),
                new(&whole)
            );
            let launches = |program: &Program| program.totals().launches;
            let saved = [&whole, &parts].map(|program| launches(&eager) - launches(program));
            assert!(2 * saved[1] > saved[0], "{saved:?}");
            new(&parts)
        };
        assert_eq!(
            of_layers(2),
            of_layers(5),
            "all layers have the kernels of one"
        );
    }

    #[test]
    fn where_nothing_repeats_there_are_no_parts() {
        let mixed = problem(Mixed { size: 32 });
        let mut dispatcher = dispatcher(mixed.as_ref(), Phase::Forward);
        let id = find(dispatcher.as_mut(), 8).expect("a loop");
        let refused = dispatcher.planner_by_parts(id).unwrap()();
        assert!(matches!(refused, Err(Refusal::Undefined(_))));
    }

    #[test]
    fn a_backward_pass_alone_has_no_loop() {
        let mlp = problem(Mlp {
            batch: 4,
            widths: [8, 8, 8, 4],
            loss: Loss::SquaredError,
            rate: 0.01,
        });
        let canonical = CanonicalShape::default();
        let refused = mlp.dispatcher("auto", Phase::Backward, &canonical, &Target::Cpu);
        assert!(matches!(refused, Err(Refusal::Undefined(_))));
        let others = mlp.dispatcher("eager", Phase::Both, &canonical, &Target::Cpu);
        assert!(others.unwrap().is_none());
    }
}
