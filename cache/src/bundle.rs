//! A bundle: many entries in one file, in place of a folder, for nodes without a network or with
//! one that is slow at opening files.
//!
//! All integers little-endian:
//!
//! ```text
//! head    8 magic "SWPBUNDL", 8 format version
//!         the entries, one behind another, each the bytes of its file
//! index   for each entry, by name: 32 content digest, 8 of the compiler's digest,
//!         8 time of last use in ns since 1970, 8 offset, 8 length
//! foot    8 offset of the index, 8 number of entries, 32 SHA-256 of the index and these two,
//!         8 magic "SWPBNEND"
//! ```
//!
//! The checksum covers the index alone: each entry has one of its own, which is checked when it is
//! read.

use std::{
    fs::File,
    io::{self, Write},
    ops::Range,
};

use crate::{
    entry::Entry,
    format::{Defect, MAX_ENTRY_BYTES},
    key::{Digest, EntryName},
    queue::Candidate,
    summary::{self, Summary},
    sys::{self, ReadError},
};

const HEAD_MAGIC: [u8; 8] = *b"SWPBUNDL";
const FOOT_MAGIC: [u8; 8] = *b"SWPBNEND";
const FORMAT: u64 = 1;
const HEAD_BYTES: u64 = 16;
const FOOT_BYTES: u64 = 56;
const RECORD_BYTES: usize = EntryName::BYTES + 24;

/// Where an entry is in the file.
#[derive(Clone, Copy, Debug)]
struct Record {
    candidate: Candidate,
    offset: u64,
    length: u64,
}

/// A bundle that is open for reading.
#[derive(Debug)]
pub(crate) struct Bundle {
    file: File,
    /// By name.
    records: Vec<Record>,
}

impl Bundle {
    /// Whether a file begins as a bundle does.
    pub(crate) fn is_one(file: &File) -> bool {
        sys::read_at(file, 0, HEAD_BYTES).is_ok_and(|head| head.starts_with(&HEAD_MAGIC))
    }

    /// Reads the index of a bundle.
    pub(crate) fn open(file: File) -> Result<Self, ReadError> {
        let length = file.metadata().map_err(ReadError::Unavailable)?.len();
        let head = sys::read_at(&file, 0, HEAD_BYTES)?;
        if !head.starts_with(&HEAD_MAGIC) {
            return Err(ReadError::Bad(Defect::Magic));
        }
        let format = int(&head, 8);
        if format != FORMAT {
            let format = u16::try_from(format).unwrap_or(u16::MAX);
            return Err(ReadError::Bad(Defect::Format(format)));
        }
        let entries = HEAD_BYTES..index_start(&file, length)?;
        let index = sys::read_at(&file, entries.end, length - entries.end)?;
        let (records, foot) = index
            .split_last_chunk::<{ FOOT_BYTES as usize }>()
            .map(|(records, foot)| (records, &foot[16..48]))
            .ok_or(ReadError::Bad(Defect::Lengths))?;
        if Digest::of(&index[..records.len() + 16]).0 != *foot {
            return Err(ReadError::Bad(Defect::Checksum));
        }
        let records: Vec<Record> = records.as_chunks().0.iter().map(Record::decode).collect();
        let is_sound = records.is_sorted_by_key(|record| record.candidate.name)
            && records.iter().all(|record| record.lies_within(&entries));
        if !is_sound {
            return Err(ReadError::Bad(Defect::Lengths));
        }
        Ok(Self { file, records })
    }

    /// Reads and verifies an entry.
    pub(crate) fn read(&self, name: &EntryName) -> Result<Entry, ReadError> {
        let record = self.find(name).ok_or(ReadError::Absent)?;
        let bytes = sys::read_at(&self.file, record.offset, record.length)?;
        Entry::decode(name, bytes).map_err(ReadError::Bad)
    }

    pub(crate) fn summary(&self, name: &EntryName) -> Result<Summary, ReadError> {
        let record = self.find(name).ok_or(ReadError::Absent)?;
        summary::summary(name, |limit| {
            let bytes = sys::read_at(&self.file, record.offset, limit.min(record.length))?;
            Ok((bytes, record.length))
        })
    }

    fn find(&self, name: &EntryName) -> Option<&Record> {
        let place = self
            .records
            .binary_search_by_key(name, |record| record.candidate.name);
        place.ok().map(|place| &self.records[place])
    }

    /// All entries, by name.
    pub(crate) fn candidates(&self) -> impl Iterator<Item = Candidate> {
        self.records.iter().map(|record| record.candidate)
    }
}

/// The offset of the index, by the foot of a file of `length` bytes.
fn index_start(file: &File, length: u64) -> Result<u64, ReadError> {
    let foot_start = length.saturating_sub(FOOT_BYTES);
    let foot = sys::read_at(file, foot_start, FOOT_BYTES)?;
    if !foot.ends_with(&FOOT_MAGIC) {
        return Err(ReadError::Bad(Defect::Magic));
    }
    let [start, count] = [0, 8].map(|at| int(&foot, at));
    let index_bytes = count.checked_mul(RECORD_BYTES as u64);
    let adds_up = index_bytes.and_then(|bytes| start.checked_add(bytes)) == Some(foot_start);
    match adds_up && start >= HEAD_BYTES {
        true => Ok(start),
        false => Err(ReadError::Bad(Defect::Lengths)),
    }
}

/// The integer at an offset; 0 where the bytes end before.
fn int(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(|rest| rest.first_chunk());
    found.map_or(0, |int| u64::from_le_bytes(*int))
}

impl Record {
    fn encode(&self, out: &mut Vec<u8>) {
        out.extend(self.candidate.name.to_bytes());
        for value in [self.candidate.last_use_ns, self.offset, self.length] {
            out.extend(value.to_le_bytes());
        }
    }

    fn decode(bytes: &[u8; RECORD_BYTES]) -> Self {
        let mut name = [0; EntryName::BYTES];
        name.copy_from_slice(&bytes[..EntryName::BYTES]);
        let value = |number: usize| int(bytes, EntryName::BYTES + 8 * number);
        Self {
            candidate: Candidate {
                last_use_ns: value(0),
                name: EntryName::from_bytes(name),
            },
            offset: value(1),
            length: value(2),
        }
    }

    fn lies_within(&self, entries: &Range<u64>) -> bool {
        let end = self.offset.checked_add(self.length);
        self.length <= MAX_ENTRY_BYTES
            && entries.start <= self.offset
            && end.is_some_and(|end| end <= entries.end)
    }
}

/// Writes a bundle, entry by entry.
pub(crate) struct Writer<W> {
    out: W,
    offset: u64,
    index: Vec<u8>,
}

impl<W: Write> Writer<W> {
    pub(crate) fn begin(mut out: W) -> io::Result<Self> {
        out.write_all(&HEAD_MAGIC)?;
        out.write_all(&FORMAT.to_le_bytes())?;
        Ok(Self {
            out,
            offset: HEAD_BYTES,
            index: Vec::new(),
        })
    }

    /// Adds an entry. Names have to come in order.
    pub(crate) fn add(&mut self, entry: &Entry, last_use_ns: u64) -> io::Result<()> {
        let name = entry.name();
        let record = Record {
            candidate: Candidate { last_use_ns, name },
            offset: self.offset,
            length: entry.bytes().len() as u64,
        };
        self.out.write_all(entry.bytes())?;
        self.offset += record.length;
        record.encode(&mut self.index);
        Ok(())
    }

    pub(crate) fn finish(mut self) -> io::Result<W> {
        let count = (self.index.len() / RECORD_BYTES) as u64;
        self.index.extend(self.offset.to_le_bytes());
        self.index.extend(count.to_le_bytes());
        let digest = Digest::of(&self.index);
        self.index.extend(digest.0);
        self.index.extend(FOOT_MAGIC);
        self.out.write_all(&self.index)?;
        Ok(self.out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        entry::{Artifact, Metadata},
        format::Kind,
        key::{Key, KeyBuilder},
    };

    fn key(n: u8) -> Key {
        KeyBuilder::new("test").field("n", [n]).finish()
    }

    fn entry(n: u8) -> Entry {
        let artifact = Artifact {
            kind: Kind::Cubin,
            payload: vec![n; 5],
            metadata: Metadata::default(),
        };
        Entry::new(&key(n), artifact, 7)
    }

    fn bundle() -> Vec<u8> {
        let mut entries: Vec<Entry> = (0..3).map(entry).collect();
        entries.sort_by_key(Entry::name);
        let mut writer = Writer::begin(Vec::new()).unwrap();
        for entry in &entries {
            writer.add(entry, 9).unwrap();
        }
        writer.finish().unwrap()
    }

    fn open(bytes: &[u8]) -> Result<Bundle, ReadError> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        Bundle::open(file)
    }

    /// The entries that a file yields, all of which must be right.
    fn found(bytes: &[u8]) -> usize {
        let Ok(bundle) = open(bytes) else { return 0 };
        let read = (0..3).filter(|&n| match bundle.read(&key(n).name()) {
            Ok(found) => {
                assert_eq!(found, entry(n));
                true
            }
            Err(_) => false,
        });
        read.count()
    }

    #[test]
    fn what_is_put_in_is_found() {
        let bundle = open(&bundle()).unwrap();
        for n in 0..3 {
            assert_eq!(bundle.read(&key(n).name()).unwrap(), entry(n));
            let summary = bundle.summary(&key(n).name()).unwrap();
            assert_eq!(summary.payload_digest, entry(n).payload_digest());
        }
        assert!(matches!(
            bundle.read(&key(3).name()),
            Err(ReadError::Absent)
        ));
        let listed: Vec<Candidate> = bundle.candidates().collect();
        assert!(listed.is_sorted_by_key(|candidate| candidate.name));
        assert!(listed.iter().all(|candidate| candidate.last_use_ns == 9));
        let empty = Writer::begin(Vec::new()).unwrap().finish().unwrap();
        assert_eq!(open(&empty).unwrap().candidates().count(), 0);
    }

    #[test]
    fn a_cut_bundle_is_none() {
        let whole = bundle();
        for length in 0..whole.len() {
            assert!(open(&whole[..length]).is_err(), "{length}");
        }
        assert!(open(&[&whole[..], &[0]].concat()).is_err());
    }

    #[test]
    fn a_flipped_bit_costs_one_entry_or_all_and_never_makes_a_wrong_one() {
        let whole = bundle();
        assert_eq!(found(&whole), 3);
        for bit in 0..whole.len() * 8 {
            let mut flipped = whole.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(found(&flipped), 0 | 2), "bit {bit}");
        }
    }

    /// Records and a foot that somebody wrote with a right checksum.
    #[test]
    fn absurd_places_are_refused() {
        let whole = bundle();
        let index = whole.len() - FOOT_BYTES as usize - 3 * RECORD_BYTES;
        for absurd in [0, 15, 1 << 40, u64::MAX, u64::MAX - 100] {
            for at in [index + 48, index + 56, whole.len() - 56, whole.len() - 48] {
                let mut forged = whole.clone();
                forged[at..at + 8].copy_from_slice(&absurd.to_le_bytes());
                let digest = Digest::of(&forged[index..whole.len() - 40]);
                forged[whole.len() - 40..whole.len() - 8].copy_from_slice(&digest.0);
                let is_small_length = at == index + 56 && absurd < 16;
                assert_eq!(open(&forged).is_ok(), is_small_length, "{absurd} at {at}");
                assert!(found(&forged) <= 2);
            }
        }
    }
}
