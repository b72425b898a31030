//! The last operations of a stream, each with the distances to where its values were before.

use super::values::LastSeen;
use super::{Kind, Tensor};
use sweeper_program::Role;

/// The distance of a value that was not seen before.
pub(super) const FAR: u32 = u32::MAX;

/// Distances that are part of an operation's symbol, in occurrences. Those across iterations are
/// as long in one iteration as in the next most of the time, but not always; symbols only have to
/// suggest a period, so that most of them may not depend on it.
const NEAR: u32 = 1024;

/// At most so many occurrences an operation are kept, on average.
const MOST_OCCURRENCES: usize = 16;

/// An operand or a result of a recorded operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Occurrence {
    pub value: u64,
    /// Occurrences since the value's last one, or [`FAR`].
    pub back: u32,
    pub role: Role,
    /// Whether an operation that was recorded had the value as its result.
    pub is_made: bool,
}

impl Occurrence {
    /// Where the value of the occurrence at a position was before, if at `origin` or later.
    pub(super) fn before(&self, position: u64, origin: u64) -> Option<u64> {
        let before = position.checked_sub(u64::from(self.back))?;
        Some(before).filter(|before| self.back != FAR && *before >= origin)
    }
}

/// A recorded operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Number of its first occurrence.
    pub first: u64,
    /// Equal for operations that are alike; those that are not alike differ almost always.
    pub symbol: u32,
    /// Its kind.
    pub kind: Kind,
    /// How many operands it has.
    pub operands: u16,
    /// How many results follow them.
    pub results: u16,
}

impl Record {
    /// Operands and results.
    pub(super) fn arity(&self) -> u64 {
        u64::from(self.operands) + u64::from(self.results)
    }
}

/// The symbol of an operation: its kind and the distances that are near.
struct Symbol(u64);

impl Symbol {
    fn new(kind: Kind) -> Self {
        Symbol((u64::from(kind.0) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn add(&mut self, back: u32) {
        let near = if back <= NEAR { u64::from(back) } else { 0 };
        self.0 = (self.0.rotate_left(23) ^ near).wrapping_mul(0xff51_afd7_ed55_8ccd);
    }

    fn finish(self) -> u32 {
        (self.0 ^ self.0 >> 32) as u32
    }
}

/// The last operations of a stream. Those that are not indexed yet have no distances.
#[derive(Debug)]
pub(super) struct History {
    records: Vec<Record>,
    occurrences: Vec<Occurrence>,
    last_seen: LastSeen,
    /// Number of the next operation.
    next: u64,
    next_occurrence: u64,
    /// The oldest operation that is kept.
    oldest: u64,
    /// The first operation without distances.
    indexed: u64,
    /// Operations before it have no distances and never will.
    first_indexed: u64,
    /// A function of symbols, for tests of collisions.
    #[cfg(test)]
    pub signature: fn(u32) -> u32,
}

impl History {
    /// For at least so many operations.
    pub(super) fn new(operations: usize) -> Self {
        let size = operations.next_power_of_two();
        let record = Record {
            first: 0,
            symbol: 0,
            kind: Kind(0),
            operands: 0,
            results: 0,
        };
        let occurrence = Occurrence {
            value: 0,
            back: 0,
            role: Role::Input,
            is_made: false,
        };
        History {
            records: vec![record; size],
            occurrences: vec![occurrence; 4 * size],
            last_seen: LastSeen::new(),
            next: 0,
            next_occurrence: 1,
            oldest: 0,
            indexed: 0,
            first_indexed: 0,
            #[cfg(test)]
            signature: |symbol| symbol,
        }
    }

    pub(super) fn next(&self) -> u64 {
        self.next
    }

    pub(super) fn indexed(&self) -> u64 {
        self.indexed
    }

    /// The oldest operation that has distances.
    pub(super) fn oldest(&self) -> u64 {
        self.oldest.max(self.first_indexed)
    }

    #[inline]
    pub(super) fn record(&self, at: u64) -> &Record {
        &self.records[at as usize & (self.records.len() - 1)]
    }

    #[inline]
    pub(super) fn occurrence(&self, position: u64) -> &Occurrence {
        &self.occurrences[position as usize & (self.occurrences.len() - 1)]
    }

    /// The occurrences of an operation: operands, then results.
    pub(super) fn occurrences(&self, at: u64) -> impl Iterator<Item = (u64, &Occurrence)> {
        let record = self.record(at);
        let positions = record.first..record.first + record.arity();
        positions.map(|position| (position, self.occurrence(position)))
    }

    /// The operation that an occurrence is of: one from `from` to `to`.
    pub(super) fn operation_of(&self, position: u64, from: u64, to: u64) -> u64 {
        // Most are near the last one.
        let (mut low, mut high, mut step) = (to, to + 1, 1);
        while low > from && self.record(low).first > position {
            high = low;
            low = low.saturating_sub(step).max(from);
            step *= 2;
        }
        while high - low > 1 {
            let middle = low.midpoint(high);
            match self.record(middle).first <= position {
                true => low = middle,
                false => high = middle,
            }
        }
        low
    }

    /// Adds an operation.
    #[inline]
    pub(super) fn push(&mut self, kind: Kind, [operands, results]: [&[Tensor]; 2]) {
        let arity = operands.len() + results.len();
        let is_full = self.next - self.oldest == self.records.len() as u64;
        self.oldest += u64::from(is_full);
        let end = self.next_occurrence + arity as u64;
        if end - self.record(self.oldest).first > self.occurrences.len() as u64 {
            self.make_room(arity);
        }
        let mask = self.records.len() - 1;
        self.records[self.next as usize & mask] = Record {
            first: self.next_occurrence,
            symbol: 0,
            kind,
            operands: operands.len() as u16,
            results: results.len() as u16,
        };
        let occurrences = &mut self.occurrences[..];
        let mask = occurrences.len() - 1;
        let mut position = self.next_occurrence as usize;
        let mut put = |tensors: &[Tensor]| {
            for tensor in tensors {
                occurrences[position & mask] = Occurrence {
                    value: tensor.value.0,
                    back: FAR,
                    role: tensor.role,
                    is_made: false,
                };
                position += 1;
            }
        };
        put(operands);
        put(results);
        self.next_occurrence = end;
        self.next += 1;
    }

    /// Makes room for the occurrences of an operation: in a larger ring, or in the place of old
    /// ones.
    #[cold]
    fn make_room(&mut self, arity: usize) {
        let is_held = |history: &Self| history.oldest < history.next;
        let held = |history: &Self| match is_held(history) {
            true => history.next_occurrence - history.record(history.oldest).first,
            false => 0,
        };
        while held(self) as usize + arity > self.occurrences.len() {
            let most = MOST_OCCURRENCES * self.records.len();
            match self.occurrences.len() < most || !is_held(self) {
                true => self.grow(),
                false => self.oldest += 1,
            }
        }
    }

    #[cold]
    fn grow(&mut self) {
        let old = &self.occurrences;
        let mut new = vec![old[0]; 2 * old.len()];
        let count = (old.len() as u64).min(self.next_occurrence);
        for position in self.next_occurrence - count..self.next_occurrence {
            let mask = new.len() - 1;
            new[position as usize & mask] = old[position as usize & (old.len() - 1)];
        }
        self.occurrences = new;
    }

    /// Finds the distances of the next operation without, and returns its number.
    pub(super) fn index_next(&mut self) -> u64 {
        let at = self.indexed;
        let record = *self.record(at);
        let floor = self.record(self.oldest()).first;
        let first_result = record.first + u64::from(record.operands);
        let mask = self.occurrences.len() - 1;
        let mut symbol = Symbol::new(record.kind);
        for position in record.first..record.first + record.arity() {
            let is_result = position >= first_result;
            let occurrence = &mut self.occurrences[position as usize & mask];
            let before = self
                .last_seen
                .see(occurrence.value, position, is_result, floor);
            occurrence.back = before.map_or(FAR, |(before, _)| (position - before) as u32);
            occurrence.is_made = before.map_or(is_result, |(_, is_made)| is_made);
            symbol.add(occurrence.back);
        }
        let symbol = symbol.finish();
        #[cfg(test)]
        let symbol = (self.signature)(symbol);
        let mask = self.records.len() - 1;
        self.records[at as usize & mask].symbol = symbol;
        self.indexed += 1;
        at
    }

    /// Gives up finding distances of operations up to here; later ones see no value before them.
    pub(super) fn skip(&mut self) {
        self.indexed = self.next;
        self.first_indexed = self.next;
    }
}
