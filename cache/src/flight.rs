//! One build per key: the right to fill a missing entry, held by one thread of one process at a
//! time.
//!
//! It is a lock on one byte of a file that stays empty. The byte is picked by the name of the entry
//! out of 2^62, so two names that share one only wait for each other needlessly.

use std::{fs::File, path::PathBuf, time::Duration};

use crate::{
    key::{Digest, EntryName},
    lock::{self, Mode, RangeLock},
};

/// The right to fill one entry. Dropping it, or dying, gives it back.
#[derive(Debug)]
pub(crate) struct Right {
    _lock: RangeLock<File>,
}

/// The outcome of asking for the right to fill an entry.
#[derive(Debug)]
pub(crate) enum Claim {
    Mine(Right),
    /// Another thread or process is filling the entry.
    Theirs,
    /// There are no locks here. Work may be done twice.
    NoLocks,
}

/// Hands out rights.
#[derive(Debug)]
pub(crate) struct Flight {
    path: PathBuf,
}

impl Flight {
    pub(crate) fn new(path: PathBuf) -> Self {
        Self { path }
    }

    /// Asks for the right to fill `name`, without waiting.
    pub(crate) fn claim(&self, name: &EntryName) -> Claim {
        // Each right has an open file of its own, because threads that share one would share the
        // lock.
        match lock::lock_path(&self.path, offset(name), Mode::Exclusive, Duration::ZERO) {
            Ok(Some(lock)) => Claim::Mine(Right { _lock: lock }),
            Ok(None) => Claim::Theirs,
            Err(_) => Claim::NoLocks,
        }
    }
}

fn offset(name: &EntryName) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = Digest::of(&name.to_bytes()).0;
    u64::from_le_bytes([a, b, c, d, e, f, g, h]) >> 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyBuilder;

    #[test]
    fn one_right_per_name_at_a_time() {
        let dir = tempfile::tempdir().unwrap();
        let flight = Flight::new(dir.path().join("flight"));
        let name = |compiler: &str| KeyBuilder::new("test").compiler(compiler).finish().name();
        let Claim::Mine(right) = flight.claim(&name("a")) else {
            panic!("nobody else is there")
        };
        assert!(matches!(flight.claim(&name("a")), Claim::Theirs));
        assert!(matches!(flight.claim(&name("b")), Claim::Mine(_)));
        drop(right);
        assert!(matches!(flight.claim(&name("a")), Claim::Mine(_)));
        let nowhere = Flight::new(dir.path().join("missing/flight"));
        assert!(matches!(nowhere.claim(&name("a")), Claim::NoLocks));
    }
}
