//! The oldest entries in order, kept between processes so that few of them ever have to scan.
//!
//! The file is advice: a record counts only while the entry it names still has the time of last use
//! it had, so a stale or damaged queue costs a scan at worst. It is changed only by the process
//! that has the right to evict.
//!
//! ```text
//! head    8 magic "SWPQUEU1", 8 stamp unlike that of any other, 8 number of records, 8 used up
//! record  8 time of last use in ns since 1970, 32 content digest, 8 of the compiler's digest
//! ```

use std::{collections::VecDeque, fs, io, os::unix::fs::FileExt as _};

use crate::{
    clock,
    format::MAX_ENTRY_BYTES,
    key::EntryName,
    layout::{Layout, absent_is_none},
    sys,
};

const MAGIC: [u8; 8] = *b"SWPQUEU1";
const HEAD_BYTES: usize = 32;
const USED_OFFSET: u64 = 24;
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
    stamp: u64,
}

impl Queue {
    /// A queue of `candidates`, which must be sorted, stored if that works.
    pub(crate) fn replace(layout: &Layout, candidates: Vec<Candidate>) -> Self {
        let queue = Self {
            ahead: candidates.into(),
            used: 0,
            stamp: clock::now_ns(),
        };
        // Where this fails, the next process scans itself.
        let _ = queue.store(layout);
        queue
    }

    /// The queue that another process left, empty if there is none.
    pub(crate) fn load(layout: &Layout) -> Self {
        match sys::read(&layout.queue(), MAX_ENTRY_BYTES, sys::user()) {
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

    /// Notes in the file how far it is used up, unless another process has used up more or put
    /// another queue there.
    pub(crate) fn note(&self, layout: &Layout) {
        // Records that aren't noted are looked at once more.
        let _ = self.try_note(layout);
    }

    fn try_note(&self, layout: &Layout) -> io::Result<()> {
        let file = sys::open_existing(&layout.queue())?;
        let mut head = [0; HEAD_BYTES];
        file.read_exact_at(&mut head, 0)?;
        match Head::decode(&head) {
            Some(head) if head.stamp == self.stamp && head.used < self.used => {
                file.write_all_at(&self.used.to_le_bytes(), USED_OFFSET)
            }
            _ => Ok(()),
        }
    }

    fn store(&self, layout: &Layout) -> io::Result<()> {
        // Not in `tmp/`, where everything has reserved its room.
        let draft = layout.queue().with_extension("draft");
        absent_is_none(fs::remove_file(&draft))?;
        // Not synced: it is advice, and syncing takes a loaded disk longer than a scan.
        drop(sys::write_draft(&draft, &self.encode())?);
        fs::rename(&draft, layout.queue())
    }

    fn encode(&self) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        for value in [self.stamp, self.ahead.len() as u64, self.used] {
            bytes.extend(value.to_le_bytes());
        }
        for candidate in &self.ahead {
            bytes.extend(candidate.last_use_ns.to_le_bytes());
            bytes.extend(candidate.name.to_bytes());
        }
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let (head, records) = bytes.split_at_checked(HEAD_BYTES)?;
        let head = Head::decode(head)?;
        let (records, rest) = records.as_chunks::<RECORD_BYTES>();
        if head.count != records.len() as u64 || !rest.is_empty() {
            return None;
        }
        let used = usize::try_from(head.used).ok()?;
        Some(Self {
            ahead: records.iter().skip(used).map(decode_record).collect(),
            used: head.used,
            stamp: head.stamp,
        })
    }
}

struct Head {
    stamp: u64,
    count: u64,
    used: u64,
}

impl Head {
    fn decode(bytes: &[u8]) -> Option<Self> {
        let [magic, stamp, count, used] = *bytes.as_chunks().0 else {
            return None;
        };
        (magic == MAGIC).then_some(Self {
            stamp: u64::from_le_bytes(stamp),
            count: u64::from_le_bytes(count),
            used: u64::from_le_bytes(used),
        })
    }
}

fn decode_record(record: &[u8; RECORD_BYTES]) -> Candidate {
    let (mut last_use, mut name) = ([0; 8], [0; EntryName::BYTES]);
    last_use.copy_from_slice(&record[..8]);
    name.copy_from_slice(&record[8..]);
    Candidate {
        last_use_ns: u64::from_le_bytes(last_use),
        name: EntryName::from_bytes(name),
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
        later.note(&layout);
        // The first queue has used up fewer records of the file, and changes no note of another
        // queue.
        queue.note(&layout);
        assert_eq!(Queue::load(&layout).pop(), Some(candidates[3]));
        let mut newer = Queue::replace(&layout, candidates.clone());
        queue.note(&layout);
        assert_eq!(newer.pop(), Some(candidates[0]));
        assert_eq!(Queue::load(&layout).pop(), Some(candidates[0]));

        let whole = fs::read(layout.queue()).unwrap();
        for length in 0..whole.len() {
            fs::write(layout.queue(), &whole[..length]).unwrap();
            assert!(Queue::load(&layout).is_empty(), "{length}");
        }
    }
}
