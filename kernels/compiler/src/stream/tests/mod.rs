//! Tests of streams: a client that runs loops, and what it is told.

mod adversaries;
mod detecting;
mod follows;

use std::collections::BTreeMap;

use super::{Answer, Definition, Kind, Operation, Options, PathId, Stream, Tensor, Value};
use crate::graph::Graph;
use sweeper_program::Role;
use sweeper_program::tensor::Dtype;

/// Where an operand of a body comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum From {
    /// The result of an earlier operation of the body.
    Inside(usize),
    /// A state, of which some operation makes the next value.
    State(usize),
    /// A value that stays.
    Constant(usize),
    /// Another value in each iteration.
    Fresh,
}

/// One operation of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Step {
    pub word: usize,
    pub operands: Vec<From>,
}

/// The body of a loop.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Body {
    pub steps: Vec<Step>,
    /// For each state, the operation that makes its next value.
    pub next: Vec<usize>,
}

/// The state of a loop.
#[derive(Clone, Debug, Default)]
pub(super) struct State {
    pub states: Vec<u64>,
    pub constants: Vec<u64>,
}

/// A client of a stream.
pub(super) struct Client {
    pub stream: Stream,
    /// Kinds by word and number of operands.
    kinds: BTreeMap<(usize, usize), Kind>,
    count: u64,
    /// Names of values: what a count is multiplied by.
    naming: u64,
    pub answers: Vec<Answer>,
}

/// Elements of all tensors.
pub(super) const ELEMENTS: usize = 2;

/// A word as an operation: `(x1 / 2 + x2 / 3 + ..) (1 + word / 8) + word`.
fn definition(word: usize, operands: usize) -> Definition {
    let mut graph = Graph::new();
    let mut sum = graph.constant(word as f64);
    for at in 0..operands {
        let name = format!("x{at}");
        let x = graph
            .input(&name, &[ELEMENTS], Dtype::F32, Role::Input)
            .unwrap();
        let part = graph.scale(x, 1.0 / (2.0 + at as f64)).unwrap();
        sum = graph.add(part, sum).unwrap();
    }
    let sum = graph.broadcast(sum, &[ELEMENTS]).unwrap();
    let out = graph.scale(sum, 1.0 + word as f64 / 8.0).unwrap();
    graph.output("out", out, Role::Output);
    Definition::new(&graph)
}

impl Client {
    pub(super) fn new() -> Self {
        Client::with(Options::default(), 1)
    }

    pub(super) fn with(options: Options, naming: u64) -> Self {
        Client {
            stream: Stream::with(options),
            kinds: BTreeMap::new(),
            count: 0,
            naming: naming | 1,
            answers: vec![],
        }
    }

    /// A value that there was not before.
    pub(super) fn fresh(&mut self) -> u64 {
        self.count += 1;
        self.count.wrapping_mul(self.naming)
    }

    pub(super) fn kind(&mut self, word: usize, operands: usize) -> Kind {
        let stream = &mut self.stream;
        let key = (word, operands);
        let kind = self.kinds.entry(key);
        *kind.or_insert_with(|| stream.define(definition(word, operands)))
    }

    /// Records an operation, and returns its result and the answer.
    pub(super) fn record(&mut self, word: usize, operands: &[u64]) -> (u64, Answer) {
        let result = self.fresh();
        let kind = self.kind(word, operands.len());
        let tensor = |value: u64| Tensor::new(Value(value));
        let operands: Vec<Tensor> = operands.iter().map(|&value| tensor(value)).collect();
        let answer = self.stream.record(&Operation {
            kind,
            operands: &operands,
            results: &[tensor(result)],
        });
        self.answers.push(answer);
        (result, answer)
    }

    /// A state for a body, of values that nobody made.
    pub(super) fn state(&mut self, body: &Body) -> State {
        let sources = body.steps.iter().flat_map(|step| &step.operands);
        let constants = sources.filter_map(|from| match from {
            From::Constant(at) => Some(at + 1),
            _ => None,
        });
        let constants = constants.max().unwrap_or(0);
        State {
            states: body.next.iter().map(|_| self.fresh()).collect(),
            constants: (0..constants).map(|_| self.fresh()).collect(),
        }
    }

    /// Runs an iteration. `see` is shown each operation with its result and the answer.
    pub(super) fn iterate(
        &mut self,
        body: &Body,
        state: &mut State,
        mut see: impl FnMut(&mut Client, (&Step, &[u64], u64), Answer),
    ) {
        let mut results = vec![];
        for step in &body.steps {
            let operands = step.operands.iter().map(|from| match *from {
                From::Inside(at) => results[at],
                From::State(at) => state.states[at],
                From::Constant(at) => state.constants[at],
                From::Fresh => self.fresh(),
            });
            let operands: Vec<u64> = operands.collect();
            let (result, answer) = self.record(step.word, &operands);
            results.push(result);
            see(self, (step, &operands, result), answer);
        }
        state.states = body.next.iter().map(|&at| results[at]).collect();
    }

    /// Runs some iterations.
    pub(super) fn run(&mut self, body: &Body, state: &mut State, iterations: usize) {
        for _ in 0..iterations {
            self.iterate(body, state, |_, _, _| ());
        }
    }

    /// Records operations without connections, one a word.
    pub(super) fn words(&mut self, words: impl IntoIterator<Item = usize>) {
        for word in words {
            let operand = self.fresh();
            self.record(word, &[operand]);
        }
    }

    /// The paths that were found, with the number of the operation at which each was.
    pub(super) fn found(&self) -> Vec<(usize, PathId)> {
        let answers = self.answers.iter().enumerate();
        let found = answers.filter_map(|(at, answer)| match answer {
            Answer::Found(path) => Some((at, *path)),
            _ => None,
        });
        found.collect()
    }

    /// Periods of the paths that were found, in order.
    pub(super) fn periods(&self) -> Vec<usize> {
        let paths = self.found().into_iter();
        paths
            .map(|(_, path)| self.stream.path(path).unwrap().period())
            .collect()
    }
}

/// A training step of `size` operations: a chain from a batch over constants and states, back over
/// half of it, and a new value of each state. One word is there once.
pub(super) fn training(size: usize) -> Body {
    let states = size / 5;
    let forward = (size - states) / 2;
    let mut steps: Vec<Step> = vec![];
    for at in 0..size - states {
        let before = match at {
            0 => From::Fresh,
            _ => From::Inside(at - 1),
        };
        let other = match at {
            _ if at > forward => From::Inside(2 * forward - at),
            _ if states > 0 && at % 2 == 0 => From::State(at / 2 % states),
            _ => From::Constant(at % 3),
        };
        steps.push(Step {
            word: if at == forward { 9 } else { at % 3 },
            operands: vec![before, other],
        });
    }
    let mut next = vec![];
    for state in 0..states {
        next.push(steps.len());
        let gradient = forward + state % (size - states - forward);
        steps.push(Step {
            word: 4,
            operands: vec![From::State(state), From::Inside(gradient)],
        });
    }
    Body { steps, next }
}

/// Numbers from a seed.
pub(super) struct Random(pub u64);

impl Random {
    pub(super) fn below(&mut self, count: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        let mixed = (self.0 >> 33 ^ self.0).wrapping_mul(0xff51_afd7_ed55_8ccd);
        ((mixed >> 20) % count as u64) as usize
    }

    pub(super) fn is_one_of(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    /// A body of `size` operations of few words, one of which is there once, so that no lesser
    /// period fits.
    pub(super) fn body(&mut self, size: usize) -> Body {
        let states = self.below(4.min(size));
        let unique = self.below(size);
        let steps = (0..size).map(|at| {
            let count = 1 + self.below(3);
            let operands = (0..count).map(|_| match self.below(6) {
                0 => From::Fresh,
                1 => From::Constant(self.below(3)),
                2 if states > 0 => From::State(self.below(states)),
                _ if at > 0 => From::Inside(self.below(at)),
                _ => From::Constant(3),
            });
            Step {
                operands: operands.collect(),
                word: if at == unique { 7 } else { self.below(4) },
            }
        });
        let steps: Vec<Step> = steps.collect();
        let next = (0..states).map(|_| self.below(size)).collect();
        Body { steps, next }
    }
}
