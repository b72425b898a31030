//! A loop that was found: its operations, where their operands come from, and what is left of an
//! iteration.

use std::sync::Arc;

use super::definition::{Definition, Definitions};
use super::history::{History, Record};
use super::{Kind, Tensor, Value};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use sweeper_program::Role;
use sweeper_program::tensor::Dtype;

/// A path of one stream. No two paths of a stream have equal ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PathId(pub u32);

/// Where an operand of a path's operation comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Reference {
    /// From outside of the iteration: through a slot, by position in [`Path::slots`].
    Slot(u32),
    /// A result of an operation of the iteration.
    Made {
        /// Position in [`Path::operations`].
        operation: u32,
        /// Position among the results of the operation.
        result: u32,
    },
}

/// An operation of a path.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PathOperation {
    /// The number of its definition.
    pub kind: Kind,
    /// Its definition.
    pub definition: Arc<Definition>,
    /// The sources of its operands.
    pub operands: Vec<Reference>,
    /// The values of its results: its own, or an earlier one where it gave out a value that was
    /// there before.
    pub results: Vec<Reference>,
}

/// The value that came through a slot, in the iterations that were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Origin {
    /// Another one in each iteration, such as a batch of data.
    Fresh,
    /// The value of the iteration before.
    Kept,
    /// A result of the iteration before, by position in [`Path::results`], that nothing reads in
    /// the iteration after: the loop's state.
    Carried(u32),
}

/// A value that an iteration reads and does not make.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Slot {
    /// Extents.
    pub shape: Vec<usize>,
    /// Type of the elements.
    pub dtype: Dtype,
    /// The role that its reader gave it; of a carried value without one [`Role::Parameter`], of any
    /// other [`Role::Input`].
    pub role: Role,
    /// The value that came through it.
    pub origin: Origin,
}

/// A value that an iteration makes and that is there after it: one that nothing in the iteration
/// reads, that is read after the iteration, or whose role says that it is a result. A caller who
/// reads values after an iteration now and then says so by their role.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathResult {
    /// Position of the operation in [`Path::operations`].
    pub operation: u32,
    /// Position among the results of the operation.
    pub result: u32,
    /// The role that its operation gave it.
    pub role: Role,
    /// The slot whose next value it is.
    pub carried: Option<u32>,
}

/// The body of a loop, without names of values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Path {
    pub(super) id: PathId,
    pub(super) operations: Vec<PathOperation>,
    pub(super) slots: Vec<Slot>,
    pub(super) results: Vec<PathResult>,
    /// What has a value in an iteration, in the order in which the values are first seen.
    pub(super) names: Vec<Reference>,
    /// For each name that is a slot, the name whose value of the iteration before came through it.
    pub(super) sources: Vec<Option<u32>>,
}

impl Path {
    /// Its number.
    pub fn id(&self) -> PathId {
        self.id
    }

    /// Operations of an iteration.
    pub fn period(&self) -> usize {
        self.operations.len()
    }

    /// The operations of an iteration, in order.
    pub fn operations(&self) -> &[PathOperation] {
        &self.operations
    }

    /// The values that an iteration reads and does not make, in the order of their first use.
    pub fn slots(&self) -> &[Slot] {
        &self.slots
    }

    /// The values that are there after an iteration, in the order in which they are made.
    pub fn results(&self) -> &[PathResult] {
        &self.results
    }

    /// Whether a result has the shape and type of a slot.
    fn is_of_slot(&self, slot: usize, operation: u32, result: u32) -> bool {
        let definition = &self.operations[operation as usize].definition;
        let Slot { shape, dtype, .. } = &self.slots[slot];
        definition.result(result as usize) == (shape, *dtype)
    }

    /// A digest that equal paths have in all streams and runs; of paths that differ in extents,
    /// those whose canonical extents are equal. It is one of operations with their sources, of
    /// results, and of what is carried: of all that a program depends on.
    pub fn signature(&self, canonical: impl Fn(usize) -> usize) -> [u8; 32] {
        let mut digest = Sha256::new();
        for operation in &self.operations {
            digest.update(operation.definition.text(&canonical));
            digest.update(format!("{:?}", (&operation.operands, &operation.results)));
        }
        for slot in &self.slots {
            digest.update(format!("{:?}", (slot.role, slot.origin)));
        }
        for result in &self.results {
            digest.update(format!("{result:?}"));
        }
        digest.finalize().into()
    }

    /// Whether both have equal operations with equal sources.
    pub(super) fn is_alike(&self, other: &Path) -> bool {
        let mut pairs = self.operations.iter().zip(&other.operations);
        self.period() == other.period()
            && pairs.all(|(one, other)| {
                one.kind == other.kind
                    && one.operands == other.operands
                    && one.results == other.results
            })
    }
}

/// What a path is made from.
pub(super) struct Seen<'a> {
    pub history: &'a History,
    pub definitions: &'a Definitions,
    /// The first operation of the loop.
    pub from: u64,
    /// Operations of an iteration.
    pub period: u64,
    /// The operation after the iteration that is looked at.
    pub end: u64,
}

/// For each occurrence of an iteration, its name: the number of its value in the order in which
/// values are first seen.
struct Names {
    of_occurrences: Vec<u32>,
    /// For each name, its first occurrence, counted within the iteration.
    first: Vec<u64>,
    /// For each name, whether an operand is the first occurrence.
    is_slot: Vec<bool>,
    /// For each name, whether an operation of the iteration reads it.
    is_read: Vec<bool>,
}

/// The maker of a value: its name, and the iteration, counted from the first that is looked at.
#[derive(Clone, Copy)]
struct Maker {
    name: u32,
    iteration: u32,
}

impl Seen<'_> {
    fn begin(&self) -> u64 {
        self.end - self.period
    }

    /// The first occurrence of an operation, and the one after its last.
    fn span(&self, begin: u64, end: u64) -> std::ops::Range<u64> {
        let Record { first, .. } = *self.history.record(begin);
        let last = self.history.record(end - 1);
        first..last.first + last.arity()
    }

    /// Occurrences of an iteration.
    fn occurrences(&self) -> usize {
        let span = self.span(self.begin(), self.end);
        (span.end - span.start) as usize
    }

    fn names(&self) -> Names {
        let all = self.occurrences();
        let mut names = Names {
            of_occurrences: Vec::with_capacity(all),
            first: Vec::with_capacity(all),
            is_slot: Vec::with_capacity(all),
            is_read: Vec::with_capacity(all),
        };
        let origin = self.history.record(self.begin()).first;
        for at in self.begin()..self.end {
            let record = self.history.record(at);
            let first_result = record.first + u64::from(record.operands);
            for (position, occurrence) in self.history.occurrences(at) {
                let is_operand = position < first_result;
                let name = match occurrence.before(position, origin) {
                    Some(before) => names.of_occurrences[(before - origin) as usize],
                    None => {
                        names.first.push(position - origin);
                        names.is_slot.push(is_operand);
                        names.is_read.push(false);
                        names.first.len() as u32 - 1
                    }
                };
                names.is_read[name as usize] |= is_operand;
                names.of_occurrences.push(name);
            }
        }
        names
    }

    /// The values of all names in the iteration that begins at an operation.
    fn values(&self, names: &Names, begin: u64) -> Vec<u64> {
        let origin = self.history.record(begin).first;
        let value = |first: &u64| self.history.occurrence(origin + first).value;
        names.first.iter().map(value).collect()
    }

    /// For each name of an iteration, whether its value is read after it, and after the iteration
    /// that follows, too, as far as was seen.
    fn read_after(&self, names: &Names) -> [Vec<bool>; 2] {
        let mut read = [(); 2].map(|()| vec![false; names.first.len()]);
        let mut first = self.begin();
        while first >= self.from + self.period && first + 3 * self.period > self.end {
            first -= self.period;
        }
        let origin = self.history.record(first).first;
        // For each occurrence, the name of the value and the iteration that made it.
        let iterations = (self.history.indexed() - first).div_ceil(self.period) as usize;
        let mut made: Vec<Option<Maker>> = Vec::with_capacity(iterations * self.occurrences());
        for at in first..self.history.indexed() {
            let iteration = (at - first) / self.period;
            let own = self.history.record(first + iteration * self.period).first;
            for (position, occurrence) in self.history.occurrences(at) {
                let before = occurrence.before(position, origin);
                let maker = match before {
                    Some(before) => made[(before - origin) as usize],
                    None if at < self.end => {
                        let name = names.of_occurrences[(position - own) as usize];
                        let is_first = names.first[name as usize] == position - own;
                        let is_made = is_first && !names.is_slot[name as usize];
                        let iteration = iteration as u32;
                        is_made.then_some(Maker { name, iteration })
                    }
                    None => None,
                };
                made.push(maker);
                if let Some(Maker {
                    name,
                    iteration: of_maker,
                }) = maker.filter(|_| before.is_some())
                {
                    let later = iteration - u64::from(of_maker);
                    read[0][name as usize] |= later >= 1;
                    read[1][name as usize] |= later >= 2;
                }
            }
        }
        read
    }

    /// For each slot's name, the name that had its value in the iteration before.
    fn sources(&self, names: &Names) -> Vec<Option<u32>> {
        let begin = self.begin();
        let origin = self.history.record(begin).first;
        let before = self.history.record(begin - self.period).first;
        let source = |(first, is_slot): (&u64, &bool)| {
            let position = origin + first;
            let occurrence = self.history.occurrence(position);
            let earlier = occurrence.before(position, before).filter(|_| *is_slot)?;
            Some(names.of_occurrences[(earlier - before) as usize])
        };
        names.first.iter().zip(&names.is_slot).map(source).collect()
    }

    /// The path of the iteration, and the values of its names in the iteration before.
    pub(super) fn path(&self, id: PathId) -> (Path, Vec<u64>) {
        let names = self.names();
        let now = self.begin();
        let previous = self.values(&names, now - self.period);
        let [after, late] = self.read_after(&names);
        let mut path = self.operations(id, &names);
        path.sources = self.sources(&names);
        for (name, reference) in (0u32..).zip(path.names.clone()) {
            let Reference::Made { operation, result } = reference else {
                continue;
            };
            let role = self.role(&names, name);
            let is_kept = matches!(
                role,
                Role::Output | Role::Gradient | Role::Parameter | Role::Optimizer
            );
            let is_left = !names.is_read[name as usize];
            if is_kept || is_left || after[name as usize] {
                path.results.push(PathResult {
                    operation,
                    result,
                    role,
                    carried: None,
                });
            }
        }
        self.fill_slots(&names, &mut path, &late);
        (path, previous)
    }

    fn role(&self, names: &Names, name: u32) -> Role {
        let origin = self.history.record(self.begin()).first;
        let first = names.first[name as usize];
        self.history.occurrence(origin + first).role
    }

    /// The operations of the iteration, and what its names are.
    fn operations(&self, id: PathId, names: &Names) -> Path {
        let mut path = Path {
            id,
            operations: Vec::with_capacity(self.period as usize),
            slots: vec![],
            results: vec![],
            names: Vec::with_capacity(names.first.len()),
            sources: vec![],
        };
        let origin = self.history.record(self.begin()).first;
        for at in self.begin()..self.end {
            let record = *self.history.record(at);
            let definition = Arc::clone(self.definitions.get(record.kind));
            let first_result = record.first + u64::from(record.operands);
            let mut references = Vec::with_capacity(record.operands as usize);
            let mut results = Vec::with_capacity(record.results as usize);
            for position in self.span(at, at + 1) {
                let name = names.of_occurrences[(position - origin) as usize] as usize;
                if name == path.names.len() {
                    path.names.push(match names.is_slot[name] {
                        true => {
                            let (shape, dtype) =
                                definition.operand((position - record.first) as usize);
                            path.slots.push(Slot {
                                shape: shape.to_vec(),
                                dtype,
                                role: self.role(names, name as u32),
                                origin: Origin::Fresh,
                            });
                            Reference::Slot(path.slots.len() as u32 - 1)
                        }
                        false => Reference::Made {
                            operation: path.operations.len() as u32,
                            result: (position - first_result) as u32,
                        },
                    });
                }
                let of_side = match position < first_result {
                    true => &mut references,
                    false => &mut results,
                };
                of_side.push(path.names[name]);
            }
            path.operations.push(PathOperation {
                kind: record.kind,
                definition,
                operands: references,
                results,
            });
        }
        path
    }

    /// Origins and roles of slots, and the results that are their next values.
    fn fill_slots(&self, names: &Names, path: &mut Path, late: &[bool]) {
        let slots = (0..path.names.len()).filter(|name| names.is_slot[*name]);
        for (slot, name) in slots.enumerate() {
            let source = path.sources[name];
            let origin = match source.map(|source| (source, path.names[source as usize])) {
                Some((source, _)) if source as usize == name => Origin::Kept,
                // The value of the iteration before has to be gone by now.
                Some((source, Reference::Made { operation, result }))
                    if path.is_of_slot(slot, operation, result) && !late[source as usize] =>
                {
                    let is_it =
                        |held: &PathResult| (held.operation, held.result) == (operation, result);
                    let position = path.results.iter().position(is_it);
                    position.map_or(Origin::Fresh, |at| Origin::Carried(at as u32))
                }
                _ => Origin::Fresh,
            };
            let held = &mut path.slots[slot];
            held.origin = origin;
            held.role = match (held.role, origin) {
                (role @ (Role::Parameter | Role::Optimizer), _) => role,
                (_, Origin::Carried(_)) => Role::Parameter,
                _ => Role::Input,
            };
            if let Origin::Carried(result) = origin {
                path.results[result as usize].carried = Some(slot as u32);
            }
        }
    }
}

/// The tensors of a recorded operation: operands, then results.
pub(super) fn tensors(history: &History, at: u64, into: &mut Vec<Tensor>) {
    into.clear();
    let tensors = history.occurrences(at);
    into.extend(tensors.map(|(_, occurrence)| Tensor {
        value: Value(occurrence.value),
        role: occurrence.role,
    }));
}
