//! Following a path: is the next operation the one that comes next?
//!
//! This is what a stream does for each operation of a loop that it knows, so that it looks nothing
//! up: values that came through a slot in the iteration before, or that the iteration before made,
//! are expected there again. Only a value that is not expected is looked for among those that
//! there are, and then only where a small table of stamps does not tell that it is new.

use super::path::{Path, Reference};
use super::{Kind, Tensor};

/// An occurrence that is not the first of its value in an iteration has this source.
const AGAIN: u32 = u32::MAX;
/// The first occurrence of a value that the iteration makes.
const MADE: u32 = u32::MAX - 1;
/// The first occurrence of a value from outside that is not expected.
const FRESH: u32 = u32::MAX - 2;

/// An occurrence in a path.
#[derive(Clone, Copy, Debug)]
struct Name {
    /// The number of the value in the order in which values are first seen.
    id: u32,
    /// For the first occurrence of a slot's value, the name that had it in the iteration before;
    /// otherwise one of the above.
    source: u32,
}

/// An operation in a path.
#[derive(Clone, Copy, Debug)]
struct Step {
    kind: Kind,
    /// Position of its first occurrence in the names.
    first: u32,
}

/// A path, and the values of the iterations that were followed last.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) path: Path,
    steps: Vec<Step>,
    names: Vec<Name>,
    /// For each number of operations, the most operations at the end of them that begin the path,
    /// by kinds: fewer than they are.
    borders: Vec<u32>,
    /// Values of the iteration that is followed, by name.
    bound: Vec<u64>,
    /// Values of the iteration that was followed to its end last.
    previous: Vec<u64>,
    /// For each name, whether a slot expects its value of the iteration before.
    is_source: Vec<bool>,
    /// Values of the iteration that came through a slot and were not expected.
    unexpected: usize,
    /// By hashes of values, the number of the last time when values were stamped and such a value
    /// was among them.
    stamps: Vec<u32>,
    shift: u32,
    /// How often values were stamped.
    rounds: u32,
    /// Whether values of the iteration are stamped.
    is_stamping: bool,
    /// Whether a compiled program takes the place of its iterations.
    pub(super) is_adopted: bool,
    /// How often following ended within an iteration since one was followed to its end.
    pub(super) misses: u32,
    /// Number of the operation at which an iteration ended last.
    pub(super) last_used: u64,
}

const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// Unexpected values of an iteration that are looked for among all values, before these are
/// stamped.
const MOST_LOOKED_FOR: usize = 8;

/// Stamps for each name: one in so many values is looked for although it is new.
const STAMPS_A_NAME: usize = 16;

impl Known {
    /// A path, and the values of the iteration before those that will be followed.
    pub(super) fn new(path: Path, previous: Vec<u64>) -> Self {
        let mut steps = vec![];
        let mut names = vec![];
        let mut slots = vec![0; path.slots.len()];
        let mut made = vec![vec![]; path.operations.len()];
        for (id, name) in (0u32..).zip(&path.names) {
            match *name {
                Reference::Slot(slot) => slots[slot as usize] = id,
                // In the order of results, but for those that were there before.
                Reference::Made { operation, result } => {
                    made[operation as usize].push((result, id));
                }
            }
        }
        let id_of = |reference: &Reference| match *reference {
            Reference::Slot(slot) => slots[slot as usize],
            Reference::Made { operation, result } => {
                let mut held = made[operation as usize].iter();
                held.find(|held| held.0 == result).map_or(0, |held| held.1)
            }
        };
        let mut seen = 0;
        for operation in &path.operations {
            steps.push(Step {
                kind: operation.kind,
                first: names.len() as u32,
            });
            for reference in operation.operands.iter().chain(&operation.results) {
                let id = id_of(reference);
                let source = match (id == seen, reference) {
                    (false, _) => AGAIN,
                    (true, Reference::Made { .. }) => MADE,
                    (true, Reference::Slot(_)) => path.sources[id as usize].unwrap_or(FRESH),
                };
                seen += u32::from(id == seen);
                names.push(Name { id, source });
            }
        }
        let count = path.names.len();
        let mut is_source = vec![false; count];
        for source in path.sources.iter().flatten() {
            is_source[*source as usize] = true;
        }
        Known {
            borders: borders(&steps),
            steps,
            names,
            bound: vec![0; count],
            previous,
            is_source,
            unexpected: 0,
            stamps: vec![],
            shift: 0,
            rounds: 0,
            is_stamping: false,
            is_adopted: false,
            misses: 0,
            last_used: 0,
            path,
        }
    }

    pub(super) fn period(&self) -> usize {
        self.steps.len()
    }

    pub(super) fn first_kind(&self) -> Kind {
        self.steps[0].kind
    }

    pub(super) fn kind(&self, at: usize) -> Kind {
        self.steps[at].kind
    }

    /// The most operations at the end of the first `count` that begin the path, by kinds.
    pub(super) fn border(&self, count: usize) -> usize {
        self.borders[count] as usize
    }

    /// Whether an operation is the one at a place of the path. All before it were.
    #[inline(always)]
    pub(super) fn advance(&mut self, at: usize, kind: Kind, tensors: [&[Tensor]; 2]) -> bool {
        let step = self.steps[at];
        let [operands, results] = tensors;
        let first = step.first as usize;
        let middle = first + operands.len();
        if at == 0 {
            self.unexpected = 0;
            self.is_stamping = false;
        }
        // Operations of one kind have as many operands and results.
        step.kind == kind && self.bind(first, operands) && self.bind(middle, results)
    }

    /// Whether tensors are those whose names begin at a position.
    #[inline(always)]
    fn bind(&mut self, first: usize, tensors: &[Tensor]) -> bool {
        for (index, tensor) in (first..).zip(tensors) {
            let Name { id, source } = self.names[index];
            let value = tensor.value.0;
            if source == AGAIN {
                if self.bound[id as usize] != value {
                    return false;
                }
                continue;
            }
            let is_expected =
                source == MADE || source < FRESH && self.previous[source as usize] == value;
            if !is_expected && !self.may_bind(id, value) {
                return false;
            }
            self.bound[id as usize] = value;
            if self.is_stamping {
                self.stamp(value);
            }
        }
        true
    }

    /// Whether a value that is not expected may come through a slot: it is none that the iteration
    /// has already, and none that another slot expects.
    fn may_bind(&mut self, id: u32, value: u64) -> bool {
        self.unexpected += 1;
        if !self.is_stamping && self.unexpected > MOST_LOOKED_FOR {
            self.stamp_all(id);
        }
        let is_stamped = !self.is_stamping || self.stamps[self.place(value)] == self.rounds;
        !is_stamped || self.is_new(id, value)
    }

    fn place(&self, value: u64) -> usize {
        (value.wrapping_mul(MULTIPLIER) >> self.shift) as usize
    }

    fn stamp(&mut self, value: u64) {
        let place = self.place(value);
        self.stamps[place] = self.rounds;
    }

    /// Stamps the values of the iteration before, and those of this one before a name; from now on
    /// each value is stamped.
    #[cold]
    fn stamp_all(&mut self, id: u32) {
        self.is_stamping = true;
        self.rounds = self.rounds.wrapping_add(1);
        if self.stamps.is_empty() || self.rounds == 0 {
            let size = STAMPS_A_NAME * self.bound.len();
            let size = size.next_power_of_two();
            self.stamps = vec![0; size];
            self.shift = 64 - size.trailing_zeros();
            self.rounds = 1;
        }
        for at in 0..self.previous.len() {
            self.stamp(self.previous[at]);
        }
        for at in 0..id as usize {
            self.stamp(self.bound[at]);
        }
    }

    #[cold]
    fn is_new(&self, id: u32, value: u64) -> bool {
        let is_bound = self.bound[..id as usize].contains(&value);
        let position = self.previous.iter().position(|held| *held == value);
        !is_bound && !position.is_some_and(|name| self.is_source[name])
    }

    /// Ends an iteration all of whose operations were followed.
    #[inline(always)]
    pub(super) fn complete(&mut self, next: u64) {
        std::mem::swap(&mut self.bound, &mut self.previous);
        self.misses = 0;
        self.last_used = next;
    }

    /// The values of the iteration that was followed to its end last, by name.
    pub(super) fn values(&self) -> &[u64] {
        &self.previous
    }
}

/// The failure function of Knuth, Morris and Pratt, of kinds.
fn borders(steps: &[Step]) -> Vec<u32> {
    let mut borders = vec![0u32; steps.len() + 1];
    let mut length = 0usize;
    for at in 1..steps.len() {
        while length > 0 && steps[at].kind != steps[length].kind {
            length = borders[length] as usize;
        }
        length += usize::from(steps[at].kind == steps[length].kind);
        borders[at + 1] = length as u32;
    }
    borders
}
