//! The working set of one open cache: entries that it used or stored, and entries that weren't
//! admitted.

use std::collections::BTreeMap;

use crate::key::EntryName;

/// Names with their sizes on disk, in bytes, and the sum of these.
#[derive(Debug, Default)]
struct Sized {
    bytes: BTreeMap<EntryName, u64>,
    sum: u64,
}

impl Sized {
    fn insert(&mut self, name: EntryName, bytes: u64) {
        self.remove(&name);
        self.bytes.insert(name, bytes);
        self.sum += bytes;
    }

    fn remove(&mut self, name: &EntryName) {
        self.sum -= self.bytes.remove(name).unwrap_or(0);
    }
}

#[derive(Debug, Default)]
pub(crate) struct Pins {
    held: Sized,
    refused: Sized,
}

impl Pins {
    pub(crate) fn hold(&mut self, name: EntryName, bytes: u64) {
        self.refused.remove(&name);
        self.held.insert(name, bytes);
    }

    pub(crate) fn let_go(&mut self, name: &EntryName) {
        self.held.remove(name);
    }

    pub(crate) fn holds(&self, name: &EntryName) -> bool {
        self.held.bytes.contains_key(name)
    }

    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.sum
    }

    /// Notes an entry that wasn't admitted, and yields the whole working set in bytes.
    pub(crate) fn refuse(&mut self, name: EntryName, bytes: u64) -> u64 {
        self.refused.insert(name, bytes);
        self.held.sum + self.refused.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyBuilder;

    #[test]
    fn the_working_set_counts_every_name_once() {
        let name = |n: u8| KeyBuilder::new("test").field("n", [n]).finish().name();
        let mut pins = Pins::default();
        pins.hold(name(1), 10);
        pins.hold(name(1), 12);
        assert_eq!(pins.refuse(name(2), 100), 112);
        assert_eq!(pins.refuse(name(2), 100), 112);
        pins.hold(name(2), 100);
        assert_eq!((pins.held_bytes(), pins.holds(&name(2))), (112, true));
        pins.let_go(&name(2));
        assert_eq!((pins.held_bytes(), pins.holds(&name(2))), (12, false));
        assert_eq!(pins.refuse(name(3), 1), 13);
    }
}
