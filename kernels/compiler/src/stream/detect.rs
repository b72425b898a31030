//! Finding the period of a stream.
//!
//! A period `p` is a candidate where the last few operations look like those that came `p`
//! operations earlier: for several lengths, tables have the last place of each rolling hash (Karp
//! and Rabin, "Efficient randomized pattern-matching algorithms", 1987) of so many symbols.
//! Candidates are then compared operation by operation, exactly, as strings with parameters are
//! (Baker, "Parameterized pattern matching", 1996): two stretches of a stream are alike if their
//! kinds are, and if each value was last seen as many occurrences before in one as in the other, or
//! in both before the stretch. So names of values do not matter, nor their origin if that lies
//! before the stretch, and a collision of hashes can suggest a wrong period but not confirm it.
//!
//! The work an operation is bounded: a candidate costs one comparison an operation, there are a few
//! of them, and the comparisons with which one begins are paid from a budget that grows with each
//! operation.

use super::history::History;

/// Lengths whose hashes have tables. A body is found when some length that occurs in it once has
/// been seen again; a factor of four between lengths delays that by three bodies at most.
const LENGTHS: [u64; 6] = [1, 4, 16, 64, 256, 1024];

/// Hashes of a length that have a place in its table, of as many operations as the length.
const SAMPLES_A_LENGTH: u64 = 16;

/// Periods that are compared at one time.
const CANDIDATES: usize = 8;

/// Comparisons that each operation adds to the budget.
const COMPARISONS_AN_OPERATION: u64 = 4;

/// A period that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    /// Operations of an iteration.
    pub period: u64,
    /// The first operation that is like the one a period later, up to now.
    pub from: u64,
}

/// A period, with the first operation from which on all are like those a period before: of equal
/// kind, and before `checked` with equal distances as well. These are compared only where enough
/// kinds are equal.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    period: u64,
    start: u64,
    checked: u64,
    is_reported: bool,
}

impl Candidate {
    /// Compares the distances of the operations up to now.
    fn check(&mut self, history: &History, at: u64) {
        for operation in self.checked.max(self.start)..=at {
            is_like(history, operation, self.period, &mut self.start);
        }
        self.checked = at + 1;
    }
}

/// Where a hash of some length was last seen.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    tag: u32,
    /// The operation at its end and 1, in the lowest 32 bits; 0 if there is none.
    after: u32,
}

/// The rolling hash of the last operations.
#[derive(Debug)]
struct Gram {
    length: u64,
    /// The factor of a symbol that leaves.
    power: u64,
    /// Hashes with one of these bits have no place in the table: of long ones few are enough.
    skipped: u64,
    hash: u64,
    seen: Vec<Seen>,
}

/// The base of rolling hashes: odd, so that it has an inverse.
const BASE: u64 = 0x2545_f491_4f6c_dd1d;

impl Gram {
    fn new(length: u64, size: usize) -> Self {
        Gram {
            length,
            power: (0..length).fold(1, |power: u64, _| power.wrapping_mul(BASE)),
            skipped: (length / SAMPLES_A_LENGTH).max(1) - 1,
            hash: 0,
            seen: vec![Seen::default(); size],
        }
    }

    /// Takes in the symbol of operation `at`, and gives out the distance to the last place of the
    /// hash. `count` symbols were taken in before.
    #[inline]
    fn step(&mut self, history: &History, at: u64, count: u64) -> Option<u64> {
        self.hash = self.hash.wrapping_mul(BASE);
        self.hash = self.hash.wrapping_add(history.record(at).symbol.into());
        if count >= self.length {
            let left = u64::from(history.record(at - self.length).symbol);
            self.hash = self.hash.wrapping_sub(left.wrapping_mul(self.power));
        } else if count + 1 < self.length {
            return None;
        }
        let mixed = (self.hash ^ self.hash >> 29).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        if mixed >> 32 & self.skipped != 0 {
            return None;
        }
        let place = (mixed >> 40) as usize & (self.seen.len() - 1);
        let now = Seen {
            tag: mixed as u32,
            after: (at as u32).wrapping_add(1),
        };
        let before = std::mem::replace(&mut self.seen[place], now);
        let is_known = before.after != 0 && before.tag == now.tag;
        is_known.then(|| u64::from(now.after.wrapping_sub(before.after)))
    }
}

/// Finds periods. It is told of each operation once.
#[derive(Debug)]
pub(super) struct Detector {
    window: u64,
    least: u64,
    grams: Vec<Gram>,
    candidates: Vec<Candidate>,
    /// Operations since the start or the last reset.
    count: u64,
    budget: u64,
}

impl Detector {
    /// Finds periods up to `window` whose operations were like those a period before for at least
    /// `least` operations.
    pub(super) fn new(window: usize, least: usize) -> Self {
        let size = (2 * window).next_power_of_two().max(64);
        let window = window as u64;
        let lengths = LENGTHS.iter().filter(|length| **length <= window);
        Detector {
            window,
            least: least as u64,
            grams: lengths.map(|&length| Gram::new(length, size)).collect(),
            candidates: Vec::with_capacity(CANDIDATES),
            count: 0,
            budget: 0,
        }
    }

    /// Forgets the operations before the next one: the history is not indexed there, so that no
    /// period reaches back to them.
    pub(super) fn reset(&mut self) {
        self.candidates.clear();
        self.count = 0;
        for gram in &mut self.grams {
            gram.hash = 0;
        }
    }

    /// Operations that have to be like those a period before: 2.62 bodies. A body is seen 3.62
    /// times then, more often than any word is repeated in a Fibonacci word, the least periodic of
    /// the streams whose words all come again (Mignosi and Pirillo, "Repetitions in the Fibonacci
    /// infinite word", 1992).
    fn needed(&self, period: u64) -> u64 {
        (period * 262 / 100 + 1).max(self.least)
    }

    /// Takes in operation `at`; returns a period that is certain with it.
    pub(super) fn step(&mut self, history: &History, at: u64) -> Option<Found> {
        let most = self.window * COMPARISONS_AN_OPERATION;
        self.budget = (self.budget + COMPARISONS_AN_OPERATION).min(most);
        self.extend(history, at);
        let mut proposed = [0; LENGTHS.len()];
        for (gram, proposed) in self.grams.iter_mut().zip(&mut proposed) {
            *proposed = gram.step(history, at, self.count).unwrap_or(0);
        }
        self.count += 1;
        // The longest first: of them fewer are by chance.
        for &period in proposed.iter().rev() {
            if (1..=self.window).contains(&period)
                && self.candidates.iter().all(|held| held.period != period)
            {
                self.propose(history, period, at);
            }
        }
        self.confirmed(history, at)
    }

    /// Compares the kind of an operation with those a period before.
    fn extend(&mut self, history: &History, at: u64) {
        let oldest = history.oldest();
        let kind = history.record(at).kind;
        self.candidates.retain_mut(|candidate| {
            candidate.start = candidate.start.max(oldest + candidate.period);
            kind == history.record(at - candidate.period).kind && candidate.start <= at
        });
    }

    /// Begins to compare with the operations a period before, from the first one of equal kinds on
    /// up to now.
    fn propose(&mut self, history: &History, period: u64, at: u64) {
        let oldest = history.oldest() + period;
        let most = self.needed(period).min(self.budget);
        let mut start = at + 1;
        let is_alike = |at: u64| history.record(at).kind == history.record(at - period).kind;
        while start > oldest && at + 1 - start < most && is_alike(start - 1) {
            start -= 1;
        }
        self.budget -= (at + 1 - start).min(self.budget);
        let candidate = Candidate {
            period,
            start,
            checked: start,
            is_reported: false,
        };
        if start > at {
            return;
        }
        if self.candidates.len() < CANDIDATES {
            self.candidates.push(candidate);
            return;
        }
        let shortest = self.candidates.iter_mut().max_by_key(|held| held.start);
        if let Some(shortest) = shortest.filter(|held| held.start >= start) {
            *shortest = candidate;
        }
    }

    /// A period for which enough operations are alike, and that is the least of its kind.
    fn confirmed(&mut self, history: &History, at: u64) -> Option<Found> {
        let mut found = None;
        for position in 0..self.candidates.len() {
            let needed = self.needed(self.candidates[position].period);
            let held = &mut self.candidates[position];
            if !held.is_reported && at + 1 - held.start >= needed {
                held.check(history, at);
                if at + 1 - held.start >= needed {
                    held.is_reported = true;
                    found = found.or(Some((held.period, held.start)));
                }
            }
        }
        let (mut period, mut start) = found?;
        while let Some((divided, from)) = divided(history, period, start, at) {
            (period, start) = (divided, from);
        }
        // Otherwise the lesser period is reported when it is certain itself.
        (at + 1 - start >= self.needed(period)).then_some(Found {
            period,
            from: start - period,
        })
    }
}

/// A lesser period of which a period is a multiple, with the first operation that is like the one
/// before it.
fn divided(history: &History, period: u64, start: u64, at: u64) -> Option<(u64, u64)> {
    let mut rest = period;
    let mut divisor = 2;
    while rest > 1 {
        if divisor * divisor > rest {
            divisor = rest;
        }
        if rest.is_multiple_of(divisor) {
            let lesser = period / divisor;
            let earliest = (start + lesser - period).max(history.oldest() + lesser);
            let from = matched(history, lesser, earliest, at);
            if at + 1 - from >= period {
                return Some((lesser, from));
            }
            while rest.is_multiple_of(divisor) {
                rest /= divisor;
            }
        }
        divisor += 1;
    }
    None
}

/// The first operation at or after `from` such that it and all up to `to` are like those a period
/// before.
fn matched(history: &History, period: u64, from: u64, to: u64) -> u64 {
    let mut start = from;
    for at in from..=to {
        if !is_like(history, at, period, &mut start) {
            start = at + 1;
        }
    }
    start
}

/// Whether an operation has the kind of the one a period before. Where a value of the two was seen
/// at different distances, `start` is moved behind the nearer of these.
#[inline]
fn is_like(history: &History, at: u64, period: u64, start: &mut u64) -> bool {
    let (now, before) = (history.record(at), history.record(at - period));
    if now.kind != before.kind {
        return false;
    }
    if *start > at {
        return true;
    }
    let count = u64::from(now.operands) + u64::from(now.results);
    let mut first = history.record(*start).first;
    for index in 0..count {
        let position = now.first + index;
        let distance = history.occurrence(position).back;
        let other = history.occurrence(before.first + index).back;
        let nearer = u64::from(distance.min(other));
        if distance != other && nearer <= position - first {
            *start = history.operation_of(position - nearer, *start, at) + 1;
            if *start > at {
                return true;
            }
            first = history.record(*start).first;
        }
    }
    true
}
