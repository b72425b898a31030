//! Amounts of disk space, and the record of how much a cache holds.

use std::ops::{Add, AddAssign};

use serde::Serialize;

/// An amount of disk space and the number of entries that take it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Space in bytes: whole allocation units, and 512 bytes for each inode and name.
    pub bytes: u64,
    /// How many files.
    pub entries: u64,
}

impl Usage {
    pub(crate) fn saturating_sub(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_sub(other.bytes),
            entries: self.entries.saturating_sub(other.entries),
        }
    }
}

impl Add for Usage {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            bytes: self.bytes.saturating_add(other.bytes),
            entries: self.entries.saturating_add(other.entries),
        }
    }
}

impl AddAssign for Usage {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

/// The record. `reserved` and `released` only grow; they record changes during a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) sequence: u64,
    /// Allocation unit in bytes, equal for all processes and never changed.
    pub(crate) unit: u64,
    /// False until a scan has counted the files that are older than the record.
    pub(crate) known: bool,
    pub(crate) current: Usage,
    pub(crate) reserved: Usage,
    pub(crate) released: Usage,
}

impl Record {
    /// The record of a cache of unknown size.
    pub(crate) const UNKNOWN: Self = Self {
        sequence: 0,
        unit: 4096,
        known: false,
        current: Usage {
            bytes: 0,
            entries: 0,
        },
        reserved: Usage {
            bytes: 0,
            entries: 0,
        },
        released: Usage {
            bytes: 0,
            entries: 0,
        },
    };

    /// The most space that the cache can hold, or `None` if a scan has to find it out.
    pub(crate) fn usage(&self) -> Option<Usage> {
        self.known.then_some(self.current)
    }

    pub(crate) fn encode(&self) -> [u64; 9] {
        let Self {
            sequence,
            unit,
            known,
            current,
            reserved,
            released,
        } = *self;
        let pair = |usage: Usage| [usage.bytes, usage.entries];
        let ([a, b], [c, d], [e, f]) = (pair(current), pair(reserved), pair(released));
        [sequence, unit, u64::from(known), a, b, c, d, e, f]
    }

    pub(crate) fn decode([sequence, unit, known, a, b, c, d, e, f]: [u64; 9]) -> Self {
        let usage = |bytes, entries| Usage { bytes, entries };
        Self {
            sequence,
            unit: unit.max(1),
            known: known != 0,
            current: usage(a, b),
            reserved: usage(c, d),
            released: usage(e, f),
        }
    }

    /// Sets the record by a scan that has `seen` files since the record was `before`.
    ///
    /// Every file that was there all the time was seen, so the truth lies between `seen` less all
    /// releases meanwhile, and `seen` and all reservations meanwhile.
    pub(crate) fn settle(&mut self, before: &Self, seen: Usage) {
        let most = seen + self.reserved.saturating_sub(before.reserved);
        let least = seen.saturating_sub(self.released.saturating_sub(before.released));
        let plausible = (least.bytes..=most.bytes).contains(&self.current.bytes)
            && (least.entries..=most.entries).contains(&self.current.entries);
        if !(self.known && plausible) {
            self.current = most;
        }
        self.known = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(bytes: u64, entries: u64) -> Usage {
        Usage { bytes, entries }
    }

    #[test]
    fn settling_believes_the_record_within_what_the_scan_can_vouch_for() {
        let before = Record {
            known: true,
            current: usage(500, 5),
            ..Record::UNKNOWN
        };
        let settled = |now: Record, seen| {
            let mut record = now;
            record.settle(&before, seen);
            record.usage().unwrap()
        };
        // Nothing happened: the scan is the truth, in both directions.
        assert_eq!(settled(before, usage(300, 3)), usage(300, 3));
        assert_eq!(settled(before, usage(700, 7)), usage(700, 7));
        // 100 were reserved meanwhile and may have been seen or not.
        let grown = Record {
            current: usage(600, 6),
            reserved: usage(100, 1),
            ..before
        };
        assert_eq!(settled(grown, usage(500, 5)), usage(600, 6));
        assert_eq!(settled(grown, usage(600, 6)), usage(600, 6));
        assert_eq!(settled(grown, usage(300, 3)), usage(400, 4));
        // 100 were released meanwhile and may have been seen before that or not.
        let shrunk = Record {
            current: usage(400, 4),
            released: usage(100, 1),
            ..before
        };
        assert_eq!(settled(shrunk, usage(500, 5)), usage(400, 4));
        assert_eq!(settled(shrunk, usage(400, 4)), usage(400, 4));
        // Nothing was known before.
        let unknown = Record {
            known: false,
            ..before
        };
        assert_eq!(settled(unknown, usage(700, 7)), usage(700, 7));
    }

    #[test]
    fn a_record_survives_encoding() {
        let record = Record {
            sequence: 1,
            unit: 2,
            known: true,
            current: usage(3, 4),
            reserved: usage(5, 6),
            released: usage(7, 8),
        };
        assert_eq!(Record::decode(record.encode()), record);
    }
}
