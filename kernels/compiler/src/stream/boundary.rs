//! Where an iteration of a loop ends.

use super::history::History;

/// The end of an iteration: of the operations after which one may end, the first since the loop
/// began over which the fewest values pass that were made in the loop. Between two iterations of a
/// training step these are parameters alone. `next` is the operation after the last one of which
/// the loop is known.
pub(super) fn end(history: &History, period: u64, from: u64, next: u64) -> u64 {
    let mut changes = vec![0i64; period as usize + 1];
    let oldest = history.oldest();
    let makers = Makers::new(history, oldest.max(next.saturating_sub(2 * period)), next);
    for at in next - period..next {
        for (position, occurrence) in history.occurrences(at) {
            let before = position.saturating_sub(u64::from(occurrence.back));
            if !occurrence.is_made || before < history.record(oldest).first {
                continue;
            }
            // It passes over all places behind `before` up to `at`; rounds count for all alike.
            let before = makers.operation_of(before, oldest);
            let first = ((before + 1) % period) as usize;
            let last = first + ((at - before) % period) as usize;
            changes[first] += 1;
            changes[last.min(period as usize)] -= 1;
            if last > period as usize {
                changes[0] += 1;
                changes[last - period as usize] -= 1;
            }
        }
    }
    let mut passing = 0;
    let crossing: Vec<i64> = changes
        .iter()
        .map(|change| {
            passing += change;
            passing
        })
        .collect();
    let places = from..from + period;
    let best = places.min_by_key(|place| crossing[(place % period) as usize]);
    let best = best.unwrap_or(from);
    best + (next - best) / period * period
}

/// The operations that occurrences are of, as a table for the last ones: a search for each would be
/// a third of making a long path.
struct Makers<'h> {
    history: &'h History,
    /// The first operation in the table, and its first occurrence.
    from: u64,
    origin: u64,
    /// By occurrence from `origin` on: its operation, counted from `from`.
    operations: Vec<u32>,
}

impl<'h> Makers<'h> {
    fn new(history: &'h History, from: u64, next: u64) -> Self {
        let origin = history.record(from).first;
        let last = history.record(next - 1);
        let all = last.first + last.arity() - origin;
        let mut operations = Vec::with_capacity(all as usize);
        for at in from..next {
            let arity = history.record(at).arity() as usize;
            operations.extend(std::iter::repeat_n((at - from) as u32, arity));
        }
        Makers {
            history,
            from,
            origin,
            operations,
        }
    }

    /// The operation of an occurrence, from `oldest` on.
    fn operation_of(&self, position: u64, oldest: u64) -> u64 {
        match position.checked_sub(self.origin) {
            Some(at) => self.from + u64::from(self.operations[at as usize]),
            None => self.history.operation_of(position, oldest, self.from),
        }
    }
}
