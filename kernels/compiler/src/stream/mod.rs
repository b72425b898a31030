//! Loops in a stream of operations: what an eager framework's dispatcher tells a compiler.
//!
//! A framework that runs operation after operation tells a [`Stream`] of each, with the identities
//! of the values that it reads and makes. Loops of any period up to a window are found without
//! marks of iterations: those within others, those with work before them, and those that other work
//! interrupts now and then. A loop is a [`Path`]: a list of operations whose operands are results
//! of earlier ones or come through numbered slots, so that names of values, and where they lie, do
//! not matter. [`Path::graph`] makes a graph of it that [`crate::fuse`] compiles. Once a program is
//! loaded, the framework adopts the path, and the stream says which operations to hold back, and
//! when the program takes their place: each iteration runs once, by one of the two.
//!
//! Nothing here has clocks, files or threads. Whether to compile is the caller's decision.
//!
//! ```
//! use sweeper_compiler::graph::{Graph, Unary};
//! use sweeper_compiler::stream::{Answer, Definition, Operation, Stream, Tensor, Value};
//! use sweeper_program::{Dtype, Role};
//!
//! // An operation of the framework, as a graph: x' = tanh(x + w).
//! let mut graph = Graph::new();
//! let x = graph.input("x", &[8], Dtype::F32, Role::Input)?;
//! let w = graph.input("w", &[8], Dtype::F32, Role::Input)?;
//! let sum = graph.add(x, w)?;
//! graph.output("sum", sum, Role::Output);
//! let add = Definition::new(&graph);
//! let mut graph = Graph::new();
//! let x = graph.input("x", &[8], Dtype::F32, Role::Input)?;
//! let tanh = graph.unary(Unary::Tanh, x)?;
//! graph.output("tanh", tanh, Role::Output);
//! let tanh = Definition::new(&graph);
//!
//! let mut stream = Stream::new();
//! let [add, tanh] = [add, tanh].map(|definition| stream.define(definition));
//! let w = Tensor::new(Value(0));
//! let mut x = Tensor::new(Value(1));
//! let mut values = 2..;
//! let mut replaced = 0;
//! for _iteration in 0..100 {
//!     for (kind, weight) in [(add, Some(w)), (tanh, None)] {
//!         let result = Tensor::new(Value(values.next().unwrap()));
//!         let operands: Vec<Tensor> = [x].into_iter().chain(weight).collect();
//!         let operation = Operation { kind, operands: &operands, results: &[result] };
//!         match stream.record(&operation) {
//!             // The operation is run, or waits to be.
//!             Answer::Run | Answer::Boundary(_) | Answer::Hold => {}
//!             // The held operations are run, and this one.
//!             Answer::Flush { .. } => {}
//!             // The operation is run. Here the program would be compiled, meanwhile the framework
//!             // goes on; and adopted when it is loaded.
//!             Answer::Found(path) => {
//!                 let graph = stream.path(path).unwrap().graph();
//!                 assert_eq!(graph.inputs.len(), 2);
//!                 stream.adopt(path);
//!             }
//!             // The program is run in place of the iteration, with the values of slots and for
//!             // results that `values` has.
//!             Answer::Replace(path) => {
//!                 let values = stream.values(path).unwrap();
//!                 assert_eq!(values.results().last(), Some(result.value));
//!                 replaced += 1;
//!             }
//!         }
//!         x = result;
//!     }
//! }
//! assert!(replaced > 70);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod boundary;
mod definition;
mod detect;
mod follow;
mod history;
mod path;
mod rebuild;
mod repeats;
mod trace;
mod tracks;
mod values;

use std::collections::VecDeque;

use sweeper_program::Role;

pub use definition::{Definition, Kind};
pub use path::{Origin, Path, PathId, PathOperation, PathResult, Reference, Slot};
pub use rebuild::PathGraph;
pub use repeats::Repeat;
pub(crate) use trace::trace_in_order;
pub use trace::{Call, trace};

use definition::Definitions;
use detect::{Detector, Found};
use history::History;
use path::Seen;
use tracks::{Track, Tracks};

/// The identity of a tensor's value: each write makes another value, and none is used again, also
/// where memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u64);

/// An operand or a result of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tensor {
    /// Its identity.
    pub value: Value,
    /// What its memory is for, where the framework knows that: [`Role::Parameter`] or
    /// [`Role::Optimizer`] of an operand; of a result also [`Role::Output`] for one that is looked
    /// at after the iteration. [`Role::Workspace`] otherwise. It plays no part in finding loops.
    pub role: Role,
}

impl Tensor {
    /// A tensor without a known role.
    pub const fn new(value: Value) -> Self {
        Tensor {
            value,
            role: Role::Workspace,
        }
    }

    /// A tensor with a role.
    pub const fn with_role(value: Value, role: Role) -> Self {
        Tensor { value, role }
    }
}

/// One operation that is about to run.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// Its definition, which has dtypes and shapes of operands and results.
    pub kind: Kind,
    /// The values that it reads.
    pub operands: &'a [Tensor],
    /// The values that it makes. One that writes to an operand makes another value.
    pub results: &'a [Tensor],
}

/// What the caller does with the operation that it recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Answer {
    /// Runs it.
    Run,
    /// Runs it. A loop was found.
    Found(PathId),
    /// Runs it: the last operation of an iteration of a path that is not replaced. Other work
    /// between two iterations comes after it.
    Boundary(PathId),
    /// Keeps it for later.
    Hold,
    /// Runs the path's program in place of all that is held, and of this operation. Of the values
    /// that they would have made, those of [`Path::results`] alone are there afterwards.
    Replace(PathId),
    /// Runs all that is held, in order, and then this operation: they are not an iteration.
    Flush {
        /// Operations that are held.
        held: usize,
    },
}

/// What a stream takes for a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Options {
    /// The longest period, in operations.
    pub window: usize,
    /// Operations that have to be like those a period before at least, however short the period
    /// is: chance makes short loops of few iterations.
    pub least_operations: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            window: 4096,
            least_operations: 32,
        }
    }
}

/// Following that led to no other path for so many windows is not looked at any more when it ends.
const UNPRODUCTIVE_WINDOWS: u64 = 16;

/// Operations in the order in which a client runs them, and the loops in them. Several clients have
/// a stream each.
#[derive(Debug)]
pub struct Stream {
    definitions: Definitions,
    /// Of each kind, how many operands and results there are.
    arities: Vec<[usize; 2]>,
    history: History,
    detector: Detector,
    tracks: Tracks,
    /// Paths that were found and of which the caller was not told.
    found: VecDeque<PathId>,
    window: u64,
    /// Operations of known paths that were looked at in vain since a path was found.
    unproductive: u64,
}

impl Default for Stream {
    fn default() -> Self {
        Stream::new()
    }
}

impl Stream {
    /// A stream without operations.
    pub fn new() -> Self {
        Stream::with(Options::default())
    }

    /// A stream with other bounds for loops.
    pub fn with(options: Options) -> Self {
        let window = options.window.max(1);
        Stream {
            definitions: Definitions::default(),
            arities: vec![],
            // A body is seen 3.62 times until its loop is found.
            history: History::new((4 * window).max(window + options.least_operations).max(64)),
            detector: Detector::new(window, options.least_operations),
            tracks: Tracks::default(),
            found: VecDeque::new(),
            window: window as u64,
            unproductive: 0,
        }
    }

    /// The kind of an operation: equal definitions have one kind. A framework keeps it beside the
    /// key of its own cache of kernels.
    ///
    /// # Panics
    /// If there are 65,536 operands or more.
    pub fn define(&mut self, definition: Definition) -> Kind {
        let arity = [definition.operands(), definition.results()];
        assert!(
            arity.iter().all(|count| *count <= usize::from(u16::MAX)),
            "an operation has fewer operands"
        );
        let kind = self.definitions.intern(&definition);
        if kind.index() == self.arities.len() {
            self.arities.push(arity);
        }
        kind
    }

    /// The definition of a kind.
    ///
    /// # Panics
    /// If the kind is one of another stream.
    pub fn definition(&self, kind: Kind) -> &Definition {
        self.definitions.get(kind)
    }

    /// Takes in the next operation, before it runs.
    ///
    /// # Panics
    /// If the operation has another number of operands or results than its definition.
    #[inline]
    pub fn record(&mut self, operation: &Operation<'_>) -> Answer {
        let &Operation {
            kind,
            operands,
            results,
        } = operation;
        assert!(
            self.arities[kind.index()] == [operands.len(), results.len()],
            "an operation has the operands and results of its definition"
        );
        let tensors = [operands, results];
        self.history.push(kind, tensors);
        match self.tracks.go_on(self.history.next(), kind, tensors) {
            Some(answer) if self.found.is_empty() => answer,
            Some(answer) => self.with_news(answer),
            None => self.turn(kind, tensors),
        }
    }

    /// Answers where a path is not just followed by one more operation.
    fn turn(&mut self, kind: Kind, tensors: [&[Tensor]; 2]) -> Answer {
        let adopted = self
            .tracks
            .step(Track::Adopted, &self.history, kind, tensors);
        let watched = self
            .tracks
            .step(Track::Watched, &self.history, kind, tensors);
        let is_of_none = adopted.answer.is_none() && watched.answer.is_none();
        if is_of_none || adopted.has_ended || watched.has_ended {
            self.catch_up();
        }
        let answer = match (adopted.answer, watched.answer) {
            _ if adopted.flushed > 0 => Answer::Flush {
                held: adopted.flushed,
            },
            (Some(answer), _) if answer != Answer::Run => answer,
            (_, Some(answer)) => answer,
            (Some(answer), None) => answer,
            (None, None) => Answer::Run,
        };
        self.with_news(answer)
    }

    /// An answer, or that a loop was found, if the operation is run as well.
    fn with_news(&mut self, answer: Answer) -> Answer {
        match answer {
            Answer::Run | Answer::Boundary(_) if !self.found.is_empty() => {
                self.found.pop_front().map_or(answer, Answer::Found)
            }
            _ => answer,
        }
    }

    /// Looks for loops in the operations that were not looked at yet.
    #[cold]
    fn catch_up(&mut self) {
        let behind = self.history.next() - self.history.indexed();
        let has_completed = self.tracks.take_completed();
        if has_completed {
            self.unproductive += behind;
        } else {
            self.unproductive = self.unproductive.saturating_sub(behind);
        }
        // Operations of known paths: either a longer loop does not fit the window, or those before
        // were no longer loop.
        let is_vain = self.unproductive > UNPRODUCTIVE_WINDOWS * self.window;
        if behind > self.window || has_completed && is_vain {
            self.history.skip();
            self.detector.reset();
            return;
        }
        while self.history.indexed() < self.history.next() {
            let at = self.history.index_next();
            if let Some(found) = self.detector.step(&self.history, at) {
                let end = boundary::end(&self.history, found.period, found.from, at + 1);
                self.add(found, end, at + 1);
            }
        }
    }

    /// Takes in a loop, in which an iteration ends before operation `end`; it is known up to before
    /// `next`.
    fn add(&mut self, found: Found, end: u64, next: u64) {
        if self.tracks.find(found.period, &self.history, next) {
            return;
        }
        let seen = Seen {
            history: &self.history,
            definitions: &self.definitions,
            from: found.from,
            period: found.period,
            end,
        };
        let (path, previous) = seen.path(self.tracks.next_id());
        let begin = end - found.period;
        if let Some(id) = self.tracks.add(path, previous, &self.history, begin) {
            self.unproductive = 0;
            self.found.push_back(id);
        }
    }

    /// Takes in a path that another stream found, such as in an earlier run: it is followed from
    /// its first iteration on. Returns its number in this stream.
    pub fn know(&mut self, path: &Path) -> PathId {
        let mut own = path.clone();
        for operation in &mut own.operations {
            operation.kind = self.define(Definition::clone(&operation.definition));
        }
        own.id = self.tracks.next_id();
        self.tracks.know(own)
    }

    /// A path that was found. Of very many, those that are not adopted and were not followed for
    /// the longest time are forgotten.
    pub fn path(&self, id: PathId) -> Option<&Path> {
        self.tracks.get(id).map(|known| &known.path)
    }

    /// The values of the iteration of a path that was last run to its end, by either.
    pub fn values(&self, id: PathId) -> Option<Values<'_>> {
        self.tracks.get(id).map(|known| Values {
            path: &known.path,
            by_name: known.values(),
        })
    }

    /// Says that a program is loaded that takes the place of a path's iterations: from the next
    /// one on, its operations are held and then replaced. Returns whether the path is known.
    pub fn adopt(&mut self, id: PathId) -> bool {
        self.tracks.adopt(id)
    }

    /// Takes [`Stream::adopt`] back. Returns how many operations are held, which the caller then
    /// runs; the rest of their iteration is run as well.
    pub fn abandon(&mut self, id: PathId) -> usize {
        self.tracks.abandon(id)
    }

    /// Says that the caller runs all that is held now, as at the end of a program. Returns how many
    /// operations these are.
    pub fn flush(&mut self) -> usize {
        self.tracks.flush()
    }
}

/// The values of one iteration of a path.
#[derive(Clone, Copy, Debug)]
pub struct Values<'a> {
    path: &'a Path,
    by_name: &'a [u64],
}

impl<'a> Values<'a> {
    fn of(self, is_it: impl Fn(&Reference) -> bool + 'a) -> impl Iterator<Item = Value> + 'a {
        let named = self.path.names.iter().zip(self.by_name);
        named
            .filter(move |(name, _)| is_it(name))
            .map(|(_, value)| Value(*value))
    }

    /// The values that came through [`Path::slots`], in order.
    pub fn slots(self) -> impl Iterator<Item = Value> + 'a {
        self.of(|name| matches!(name, Reference::Slot(_)))
    }

    /// The values of [`Path::results`], in order.
    pub fn results(self) -> impl Iterator<Item = Value> + 'a {
        let results = self.path.results();
        self.of(move |name| match *name {
            Reference::Slot(_) => false,
            Reference::Made { operation, result } => results
                .binary_search_by_key(&(operation, result), |held| (held.operation, held.result))
                .is_ok(),
        })
    }
}

#[cfg(test)]
mod tests;
