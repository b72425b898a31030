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
    let first = mixed as f64 / f64::from(1 << 24) - 0.5;
    vec![first, -first / 3.0]
}

impl Engine {
    fn new(window: usize) -> Self {
        let options = Options {
            window,
            least_operations: 12,
        };
        Engine {
            client: Client::with(options, 1),
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

/// A client whose paths are adopted and given up at random, and which has held operations run.
struct Changing {
    engine: Engine,
    random: Random,
    known: Vec<PathId>,
    adopts: bool,
}

impl Changing {
    fn record(&mut self, word: usize, operands: Vec<u64>) -> u64 {
        let (result, answer) = self.engine.client.record(word, &operands);
        if let Answer::Found(path) = answer {
            self.known.push(path);
        }
        self.engine.answer((word, operands, result), answer);
        result
    }

    /// Adopts a path, gives one up, or has all run that is held.
    fn change(&mut self) {
        if !self.adopts || self.known.is_empty() {
            return;
        }
        let (random, stream) = (&mut self.random, &mut self.engine.client.stream);
        let path = self.known[random.below(self.known.len())];
        if random.is_one_of(20) {
            stream.adopt(path);
        }
        let mut held = 0;
        if random.is_one_of(60) {
            held += stream.abandon(path);
        }
        if random.is_one_of(25) {
            held += stream.flush();
        }
        if held > 0 {
            self.engine.run_held(held);
        }
    }

    fn iterate(&mut self, body: &Body, state: &mut State) {
        let mut results = vec![];
        for step in &body.steps {
            let operands = step.operands.iter().map(|from| match *from {
                From::Inside(at) => results[at],
                From::State(at) => state.states[at],
                From::Constant(at) => state.constants[at],
                From::Fresh => {
                    let value = self.engine.client.fresh();
                    self.engine.memory.insert(value, given(value));
                    value
                }
            });
            let operands = operands.collect();
            results.push(self.record(step.word, operands));
            self.change();
        }
        state.states = body.next.iter().map(|&at| results[at]).collect();
    }
}

/// Runs loops of random bodies in turns, between other work. Returns the states at each switch of
/// bodies, and the engine.
fn run(seed: u64, adopts: bool) -> (Vec<Vec<f64>>, Engine) {
    let mut random = Random(seed);
    let mut client = Changing {
        engine: Engine::new([1, 5, 40, 256][random.below(4)]),
        random: Random(seed ^ 1),
        known: vec![],
        adopts,
    };
    let bodies = (0..1 + random.below(3)).map(|_| {
        let size = 2 + random.below(20);
        random.body(size)
    });
    let bodies: Vec<Body> = bodies.collect();
    let states = bodies.iter().map(|body| client.engine.client.state(body));
    let mut states: Vec<State> = states.collect();
    let mut seen = vec![];
    for _ in 0..8 {
        let at = random.below(bodies.len());
        let (body, state) = (&bodies[at], &mut states[at]);
        for value in state.states.iter().chain(&state.constants) {
            let memory = client.engine.memory.entry(*value);
            memory.or_insert_with(|| given(*value));
        }
        for _ in 0..random.below(30) {
            client.iterate(body, state);
        }
        let held = client.engine.client.stream.flush();
        client.engine.run_held(held);
        // Others are not there after an iteration, if something in it reads them.
        let read = (0..state.states.len()).filter(|at| {
            let mut sources = body.steps.iter().flat_map(|step| &step.operands);
            sources.any(|from| *from == From::State(*at))
        });
        let read: Vec<u64> = read.map(|at| state.states[at]).collect();
        seen.extend(read.iter().map(|value| client.engine.memory[value].clone()));
        for word in 0..random.below(3) {
            if !read.is_empty() {
                client.record(40 + word, read.clone());
            }
        }
    }
    (seen, client.engine)
}

/// Each iteration is run once, by one of the two; a value that is looked at is there.
#[test]
fn iterations_are_held_and_replaced() {
    let body = training(25);
    let mut engine = Engine::new(256);
    let mut state = engine.client.state(&body);
    for value in state.states.iter().chain(&state.constants) {
        engine.memory.insert(*value, given(*value));
    }
    let mut client = Changing {
        engine,
        random: Random(0),
        known: vec![],
        adopts: false,
    };
    for _ in 0..5 {
        client.iterate(&body, &mut state);
    }
    let path = client.known[0];
    assert!(client.engine.client.stream.adopt(path));
    for _ in 0..3 {
        client.iterate(&body, &mut state);
    }
    assert_eq!((client.engine.replaced, client.engine.ran), (3, 5 * 25));
    let answers = &client.engine.client.answers[7 * 25..];
    assert!(answers[..24].iter().all(|answer| *answer == Answer::Hold));
    assert_eq!(answers[24], Answer::Replace(path));
    // In the middle of an iteration: what is held runs, and then the rest of it.
    let mut half = body.clone();
    half.steps.truncate(10);
    half.next.clear();
    let states = state.states.clone();
    client.iterate(&half, &mut state);
    let looked_at = client.engine.held[4].2;
    assert_eq!(client.engine.client.stream.flush(), 10);
    client.engine.run_held(10);
    assert!(client.engine.memory.contains_key(&looked_at));
    assert_eq!(client.engine.client.stream.flush(), 0);
    // Another operation than the next one.
    client.record(11, vec![states[0]]);
    let mut state = State { states, ..state };
    client.iterate(&body, &mut state);
    assert_eq!(client.engine.replaced, 4);
    // Given up, and asked again.
    client.iterate(&half, &mut state.clone());
    let held = client.engine.client.stream.abandon(path);
    assert_eq!(held, 10);
    client.engine.run_held(10);
    client.iterate(&body, &mut state);
    assert_eq!(client.engine.replaced, 4);
    assert_eq!(client.engine.client.stream.flush(), 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn adopted_paths_compute_what_operations_do(seed: u64) {
        let (expected, plain) = run(seed, false);
        let (found, adopted) = run(seed, true);
        prop_assert_eq!(plain.replaced, 0);
        prop_assert!(adopted.ran <= plain.ran);
        prop_assert_eq!(found, expected);
    }
}
