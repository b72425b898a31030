//! Where each value of a stream was last seen: a table that allocates only while it grows.

/// Odd, and far from any pattern in bits (2^64 divided by the golden ratio).
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;

/// An entry without a value has this position; positions begin at 1.
const EMPTY: u64 = 0;

#[derive(Clone, Copy, Debug, Default)]
struct Entry {
    value: u64,
    /// The position, and in the lowest bit whether the value was made in the stream.
    seen: u64,
}

/// Positions by value, with linear probing. Entries older than a floor are as good as absent, and
/// are left out when the table is full.
#[derive(Debug)]
pub(super) struct LastSeen {
    entries: Vec<Entry>,
    used: usize,
    shift: u32,
}

impl LastSeen {
    pub(super) fn new() -> Self {
        LastSeen::of_size(1 << 8)
    }

    fn of_size(size: usize) -> Self {
        LastSeen {
            entries: vec![Entry::default(); size],
            used: 0,
            shift: 64 - size.trailing_zeros(),
        }
    }

    /// Neighbours among values are neighbours in the table: frameworks count values upwards.
    fn home(&self, value: u64) -> usize {
        let line = (value >> 3).wrapping_mul(MULTIPLIER) >> self.shift;
        ((line & !7) | (value & 7)) as usize
    }

    fn place(&self, value: u64) -> usize {
        let mask = self.entries.len() - 1;
        let mut at = self.home(value);
        while self.entries[at].seen != EMPTY && self.entries[at].value != value {
            at = (at + 1) & mask;
        }
        at
    }

    /// Notes that a value is at a position, and returns where it was before and whether it was made
    /// in the stream, if that was at `floor` or later. A value that was not seen is made in the
    /// stream if it `is_result`.
    pub(super) fn see(
        &mut self,
        value: u64,
        position: u64,
        is_result: bool,
        floor: u64,
    ) -> Option<(u64, bool)> {
        if 2 * (self.used + 1) > self.entries.len() {
            self.renew(floor);
        }
        let at = self.place(value);
        let entry = &mut self.entries[at];
        let before = Some((entry.seen >> 1, entry.seen & 1 == 1))
            .filter(|(position, _)| entry.seen != EMPTY && *position >= floor);
        self.used += usize::from(entry.seen == EMPTY);
        let is_made = before.map_or(is_result, |(_, is_made)| is_made);
        *entry = Entry {
            value,
            seen: position << 1 | u64::from(is_made),
        };
        before
    }

    /// Leaves out old entries, in a table with room for four times as many as are left.
    fn renew(&mut self, floor: u64) {
        let is_live = |entry: &&Entry| entry.seen >> 1 >= floor.max(1);
        let live = self.entries.iter().filter(is_live).count();
        let size = (4 * live).next_power_of_two().max(1 << 8);
        let old = std::mem::replace(self, LastSeen::of_size(size));
        for entry in old.entries.iter().filter(is_live) {
            let at = self.place(entry.value);
            self.entries[at] = *entry;
        }
        self.used = live;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    /// Against a map, with values that collide.
    #[test]
    fn positions_are_those_of_a_map() {
        let mut table = LastSeen::new();
        let mut map: BTreeMap<u64, u64> = BTreeMap::new();
        let mut random = 1u64;
        for position in 1..20_000 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let value = (random >> 40) % 3000 * if position % 2 == 0 { 8 } else { 1 };
            let floor = (position / 4000 * 3000).max(1);
            let before = map.insert(value, position).filter(|at| *at >= floor);
            let found = table.see(value, position, false, floor);
            assert_eq!(found.map(|(at, _)| at), before, "{value} at {position}");
        }
        assert!(table.entries.len() <= 1 << 15);
    }
}
