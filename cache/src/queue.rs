//! The oldest entries in order, kept between processes so that few of them ever have to scan.
//!
//! The file is advice: a record counts only while the entry it names still has the time of last use it had, so a
//! stale or damaged queue costs a scan at worst. Head: magic, number of records, records already used up. Records:
//! time of last use in ns since 1970, 32 bytes content digest, 8 bytes of the compiler's digest.

use std::{collections::VecDeque, fs, io, os::unix::fs::FileExt as _};

use crate::{clock, entry::MAX_ENTRY_BYTES, key::EntryName, layout::Layout, sys};

const MAGIC: [u8; 8] = *b"SWPQUEU1";
const HEAD_BYTES: usize = 24;
const USED_OFFSET: u64 = 16;
const RECORD_BYTES: usize = 8 + EntryName::BYTES;

/// An entry as a scan saw it. Ordered by age, ties by name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Candidate {
    pub(crate) last_use_ns: u64,
    pub(crate) name: EntryName,
}

/// Candidates in memory, oldest first, and how far the file behind them is used up.
#[derive(Debug, Default)]
pub(crate) struct Queue {
    ahead: VecDeque<Candidate>,
    used: u64,
}

impl Queue {
    /// A queue of `candidates`, which must be sorted, stored if that works.
    pub(crate) fn replace(layout: &Layout, candidates: Vec<Candidate>) -> Self {
        let queue = Self {
            ahead: candidates.into(),
            used: 0,
        };
        // Only the next process misses it.
        let _ = queue.store(layout);
        queue
    }

    /// The queue that another process left, empty if there is none.
    pub(crate) fn load(layout: &Layout) -> Self {
        match sys::read(&layout.queue(), MAX_ENTRY_BYTES) {
            Ok((_, bytes, _)) => Self::decode(&bytes).unwrap_or_default(),
            Err(_) => Self::default(),
        }
    }

    /// Takes the oldest candidate.
    pub(crate) fn pop(&mut self) -> Option<Candidate> {
        self.used += 1;
        self.ahead.pop_front()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ahead.is_empty()
    }

    /// Notes in the file how far it is used up.
    pub(crate) fn note(&self, layout: &Layout) {
        if let Ok(file) = fs::OpenOptions::new().write(true).open(layout.queue()) {
            let _ = file.write_all_at(&self.used.to_le_bytes(), USED_OFFSET);
        }
    }

    fn store(&self, layout: &Layout) -> io::Result<()> {
        let tmp = layout.fresh_tmp();
        let stored = sys::write_new(&tmp, &self.encode(), clock::now_ns())
            .and_then(|()| fs::rename(&tmp, layout.queue()));
        if stored.is_err() {
            let _ = fs::remove_file(&tmp);
        }
        stored
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend((self.ahead.len() as u64).to_le_bytes());
        bytes.extend(0_u64.to_le_bytes());
        for candidate in &self.ahead {
            bytes.extend(candidate.last_use_ns.to_le_bytes());
            bytes.extend(candidate.name.to_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, records) = bytes.split_at_checked(HEAD_BYTES)?;
        let [magic, count, used] = *head.as_chunks().0 else {
            return None;
        };
        let (records, rest) = records.as_chunks::<RECORD_BYTES>();
        let used = u64::from_le_bytes(used);
        if magic != MAGIC || u64::from_le_bytes(count) != records.len() as u64 || !rest.is_empty() {
            return None;
        }
        let ahead = records
            .iter()
            .skip(usize::try_from(used).ok()?)
            .map(|record| {
                let (mut last_use, mut name) = ([0; 8], [0; EntryName::BYTES]);
                last_use.copy_from_slice(&record[..8]);
                name.copy_from_slice(&record[8..]);
                Candidate {
                    last_use_ns: u64::from_le_bytes(last_use),
                    name: EntryName::from_bytes(name),
                }
            });
        Some(Self {
            ahead: ahead.collect(),
            used,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyBuilder;

    #[test]
    fn another_process_goes_on_where_this_one_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::new(dir.path());
        layout.prepare().unwrap();
        layout.complete().unwrap();
        assert!(Queue::load(&layout).is_empty());
        let candidates: Vec<Candidate> = (0..5)
            .map(|n: u64| Candidate {
                last_use_ns: n,
                name: KeyBuilder::new("test")
                    .field("n", n.to_le_bytes())
                    .finish()
                    .name(),
            })
            .collect();
        let mut queue = Queue::replace(&layout, candidates.clone());
        assert_eq!(
            (queue.pop(), queue.pop()),
            (Some(candidates[0]), Some(candidates[1]))
        );
        queue.note(&layout);
        let mut later = Queue::load(&layout);
        assert_eq!(later.pop(), Some(candidates[2]));

        let whole = fs::read(layout.queue()).unwrap();
        for length in 0..whole.len() {
            fs::write(layout.queue(), &whole[..length]).unwrap();
            assert!(Queue::load(&layout).is_empty(), "{length}");
        }
    }
}
