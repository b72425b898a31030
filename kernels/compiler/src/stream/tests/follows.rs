//! Outputs of a client that adopts paths are those of one that runs each operation.

use proptest::prelude::*;

use super::*;
use crate::graph::evaluate;
use sweeper_program::tensor::Tensors;

/// A client that keeps numbers.
struct Engine {
    client: Client,
    memory: BTreeMap<u64, Vec<f64>>,
    held: Vec<(usize, Vec<u64>, u64)>,
    replaced: usize,
    /// Operations that were run one by one.
    ran: usize,
}

/// A number for a value that nobody made.
fn given(value: u64) -> Vec<f64> {
    let mixed = value.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40;
    let first = mixed as f64 / (1 << 24) as f64 - 0.5;
    vec![first, -first / 3.0]
}

impl Engine {
    fn new(naming: u64) -> Self {
        let options = Options {
            window: 256,
            least_operations: 12,
        };
        Engine {
            client: Client::with(options, naming),
            memory: BTreeMap::new(),
            held: vec![],
            replaced: 0,
            ran: 0,
        }
    }

    fn tensor(&self, value: u64) -> sweeper_program::tensor::Tensor {
        let numbers = self.memory.get(&value);
        let numbers = numbers.unwrap_or_else(|| panic!("{value} is not there"));
        sweeper_program::tensor::Tensor::f64(vec![ELEMENTS], numbers.clone())
    }

    fn run_one(&mut self, (word, operands, result): (usize, Vec<u64>, u64)) {
        let kind = self.client.kind(word, operands.len());
        let inputs: Tensors = operands
            .iter()
            .enumerate()
            .map(|(at, &value)| (at.to_string(), self.tensor(value)))
            .collect();
        let graph = self.client.stream.definition(kind).graph();
        let outputs = evaluate(graph, &inputs).unwrap();
        let numbers = outputs["0"].as_f64().unwrap().to_vec();
        self.memory.insert(result, numbers);
        self.ran += 1;
    }

    fn run_held(&mut self, count: usize) {
        assert_eq!(self.held.len(), count);
        for held in std::mem::take(&mut self.held) {
            self.run_one(held);
        }
    }

    fn replace(&mut self, path: PathId) {
        self.held.clear();
        self.replaced += 1;
        let path = self.client.stream.path(path).unwrap();
        let values = self.client.stream.values(path.id()).unwrap();
        let graph = path.graph();
        let slots = graph.inputs.iter().zip(values.slots());
        let inputs: Tensors = slots
            .map(|(name, value)| (name.clone(), self.tensor(value.0)))
            .collect();
        let outputs = evaluate(&graph.graph, &inputs).unwrap();
        let made: Vec<(u64, Vec<f64>)> = graph
            .outputs
            .iter()
            .zip(values.results())
            .map(|(name, value)| (value.0, outputs[name].as_f64().unwrap().to_vec()))
            .collect();
        // Their memory is that of the next values.
        for (slot, value) in path.slots().iter().zip(values.slots()) {
            if let crate::stream::Origin::Carried(_) = slot.origin {
                self.memory.remove(&value.0);
            }
        }
        self.memory.extend(made);
    }

    fn answer(&mut self, operation: (usize, Vec<u64>, u64), answer: Answer) {
        match answer {
            Answer::Run | Answer::Boundary(_) | Answer::Found(_) => {
                assert!(self.held.is_empty());
                self.run_one(operation);
            }
            Answer::Hold => self.held.push(operation),
            Answer::Replace(path) => self.replace(path),
            Answer::Flush { held } => {
                self.run_held(held);
                self.run_one(operation);
            }
        }
    }
}

/// Runs loops of random bodies in turns, between other work, with paths adopted and given up at
/// random where `adopts`. Returns the states at each switch of bodies, and the engine.
fn run(seed: u64, naming: u64, adopts: bool) -> (Vec<Vec<f64>>, Engine) {
    let mut random = Random(seed);
    let mut other = Random(seed ^ 1);
    let mut engine = Engine::new(naming);
    let bodies: Vec<Body> = (0..1 + random.below(3))
        .map(|_| {
            let size = 2 + random.below(20);
            random.body(size)
        })
        .collect();
    let mut states: Vec<State> = bodies
        .iter()
        .map(|body| engine.client.state(body))
        .collect();
    let mut known: Vec<PathId> = vec![];
    let mut seen = vec![];
    for _ in 0..8 {
        let at = random.below(bodies.len());
        let (body, mut state) = (bodies[at].clone(), std::mem::take(&mut states[at]));
        for value in state.states.iter().chain(&state.constants) {
            engine.memory.entry(*value).or_insert_with(|| given(*value));
        }
        for _ in 0..random.below(30) {
            let mut results = vec![];
            for step in &body.steps {
                let operands = step.operands.iter().map(|from| match *from {
                    From::Inside(at) => results[at],
                    From::State(at) => state.states[at],
                    From::Constant(at) => state.constants[at],
                    From::Fresh => {
                        let value = engine.client.fresh();
                        engine.memory.insert(value, given(value));
                        value
                    }
                });
                let operands: Vec<u64> = operands.collect();
                let (result, answer) = engine.client.record(step.word, &operands);
                results.push(result);
                if let Answer::Found(path) = answer {
                    known.push(path);
                }
                engine.answer((step.word, operands, result), answer);
                if adopts && !known.is_empty() {
                    let path = known[other.below(known.len())];
                    if other.is_one_of(20) {
                        engine.client.stream.adopt(path);
                    }
                    if other.is_one_of(60) {
                        let held = engine.client.stream.abandon(path);
                        if held > 0 {
                            engine.run_held(held);
                        }
                    }
                    if other.is_one_of(25) {
                        let value = results[other.below(results.len())];
                        if let Some(held) = engine.client.stream.observe(Value(value)) {
                            engine.run_held(held);
                            assert!(engine.memory.contains_key(&value));
                        }
                    }
                }
            }
            state.states = body.next.iter().map(|&at| results[at]).collect();
        }
        let held = engine.client.stream.flush();
        engine.run_held(held);
        // Others are not there after an iteration, if something in it reads them.
        let read = (0..state.states.len()).filter(|at| {
            let mut sources = body.steps.iter().flat_map(|step| &step.operands);
            sources.any(|from| *from == From::State(*at))
        });
        let read: Vec<u64> = read.map(|at| state.states[at]).collect();
        seen.extend(read.iter().map(|value| engine.memory[value].clone()));
        states[at] = state;
        for word in 0..random.below(3) {
            let operands = read.clone();
            if !operands.is_empty() {
                let (result, answer) = engine.client.record(40 + word, &operands);
                engine.answer((40 + word, operands, result), answer);
            }
        }
    }
    (seen, engine)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn adopted_paths_compute_what_operations_do(seed: u64) {
        let (expected, plain) = run(seed, 1, false);
        let (found, adopted) = run(seed, 1, true);
        prop_assert_eq!(plain.replaced, 0);
        prop_assert!(adopted.ran <= plain.ran);
        prop_assert_eq!(found, expected);
    }
}
