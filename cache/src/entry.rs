//! An entry: an artifact, its metadata, and the bytes that hold both.

use std::{collections::BTreeMap, fs::File, ops::Range, path::Path};

use serde::{Deserialize, Serialize};
use serde_json::Number;

use crate::{
    format::{CHECKSUM_BYTES, Defect, HEAD_BYTES, Head, Kind, MAX_ENTRY_BYTES},
    key::{Digest, EntryName, FieldDigest, Key, digest_fields},
    sys::{self, ReadError},
};

/// Facts about an artifact besides its bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Metadata {
    /// Names of the sources that it was compiled from, for people.
    pub sources: Vec<String>,
    /// Compiler options in order.
    pub options: Vec<String>,
    /// The exact target: `sm_90a`, or the resolved ISA of a CPU.
    pub arch: String,
    /// The identity of the compiler as text.
    pub compiler: String,
    /// How long compiling took, in nanoseconds.
    pub compile_ns: u64,
    /// When the entry was made, in nanoseconds since 1970. Set by the cache.
    pub created_ns: u64,
    /// Registers, shared memory and the like, by name, with the unit in the name.
    pub resources: BTreeMap<String, Number>,
    /// The symbols of functions and variables that the compiler was asked for by other names.
    pub symbols: BTreeMap<String, String>,
    /// The end of the compiler's log.
    pub log_tail: String,
    /// The digest of each field of the key. Set by the cache.
    pub key_fields: Vec<FieldDigest>,
}

impl Metadata {
    /// Reads the metadata of the file with `head` out of `bytes`, which must reach to the start of
    /// the payload.
    pub(crate) fn read(head: &Head, bytes: &[u8]) -> Result<Self, Defect> {
        let json = bytes
            .get(HEAD_BYTES..head.payload_start())
            .ok_or(Defect::Lengths)?;
        let wire: WireMetadata =
            serde_json::from_slice(json).map_err(|error| Defect::Metadata(error.to_string()))?;
        Ok(wire.with_times(head.compile_ns, head.created_ns))
    }
}

/// [`Metadata`] as JSON in the file; the times are in the head.
#[derive(Serialize, Deserialize)]
struct WireMetadata {
    /// Entries that older versions made have names of functions instead.
    #[serde(alias = "entry_points")]
    sources: Vec<String>,
    options: Vec<String>,
    arch: String,
    compiler: String,
    resources: BTreeMap<String, Number>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    symbols: BTreeMap<String, String>,
    log_tail: String,
    key_fields: Vec<FieldDigest>,
}

impl From<Metadata> for WireMetadata {
    fn from(metadata: Metadata) -> Self {
        Self {
            sources: metadata.sources,
            options: metadata.options,
            arch: metadata.arch,
            compiler: metadata.compiler,
            resources: metadata.resources,
            symbols: metadata.symbols,
            log_tail: metadata.log_tail,
            key_fields: metadata.key_fields,
        }
    }
}

impl WireMetadata {
    fn with_times(self, compile_ns: u64, created_ns: u64) -> Metadata {
        Metadata {
            sources: self.sources,
            options: self.options,
            arch: self.arch,
            compiler: self.compiler,
            compile_ns,
            created_ns,
            resources: self.resources,
            symbols: self.symbols,
            log_tail: self.log_tail,
            key_fields: self.key_fields,
        }
    }
}

/// The result of a compile, for [`Slot::publish`](crate::Slot::publish).
#[derive(Clone, Debug)]
pub struct Artifact {
    /// The kind of the payload.
    pub kind: Kind,
    /// The bytes to keep.
    pub payload: Vec<u8>,
    /// Facts about the bytes.
    pub metadata: Metadata,
}

/// An artifact as the cache hands it out: its bytes were verified, or made a moment ago.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    head: Head,
    metadata: Metadata,
    bytes: Vec<u8>,
    payload: Range<usize>,
}

impl Entry {
    /// Makes the entry for `key`. Its creation time and key fields go into the metadata.
    pub(crate) fn new(key: &Key, artifact: Artifact, created_ns: u64) -> Self {
        let Artifact {
            kind,
            payload,
            metadata,
        } = artifact;
        let metadata = Metadata {
            created_ns,
            key_fields: key.fields().to_vec(),
            ..metadata
        };
        let head = Head {
            kind,
            metadata_bytes: 0,
            payload_bytes: payload.len() as u64,
            content: key.content(),
            compiler: key.compiler(),
            payload_digest: Digest::of(&payload),
            created_ns,
            compile_ns: metadata.compile_ns,
        };
        Self::assemble(head, metadata, &payload)
    }

    fn assemble(mut head: Head, metadata: Metadata, payload: &[u8]) -> Self {
        let wire = WireMetadata::from(metadata);
        let json = serde_json::to_vec(&wire)
            .unwrap_or_else(|error| unreachable!("strings and numbers: {error}"));
        head.metadata_bytes = json.len() as u64;
        let mut bytes =
            Vec::with_capacity(HEAD_BYTES + json.len() + payload.len() + CHECKSUM_BYTES);
        head.write(&mut bytes);
        bytes.extend_from_slice(&json);
        let start = bytes.len();
        bytes.extend_from_slice(payload);
        let payload = start..bytes.len();
        bytes.extend_from_slice(&Digest::of(&bytes).0);
        Self {
            metadata: wire.with_times(head.compile_ns, head.created_ns),
            head,
            bytes,
            payload,
        }
    }

    /// Reads and verifies the entry in a file that has to belong to `owner`.
    pub(crate) fn read(
        path: &Path,
        name: &EntryName,
        owner: u32,
    ) -> Result<(File, Self), ReadError> {
        let (file, bytes, length) = sys::read(path, MAX_ENTRY_BYTES, owner)?;
        if bytes.len() as u64 != length {
            return Err(ReadError::Bad(Defect::Lengths));
        }
        let entry = Self::decode(name, bytes).map_err(ReadError::Bad)?;
        Ok((file, entry))
    }

    /// Takes the bytes of a file for an entry, if they are one and it belongs under `name`.
    pub(crate) fn decode(name: &EntryName, bytes: Vec<u8>) -> Result<Self, Defect> {
        let head = Head::parse(&bytes, bytes.len() as u64)?;
        let body = bytes.len() - CHECKSUM_BYTES;
        if Digest::of(&bytes[..body]).0 != bytes[body..] {
            return Err(Defect::Checksum);
        }
        if head.name() != *name {
            return Err(Defect::WrongKey);
        }
        let metadata = Metadata::read(&head, &bytes)?;
        let payload = head.payload_start()..body;
        Ok(Self {
            head,
            metadata,
            bytes,
            payload,
        })
    }

    /// A check that [`decode`](Self::decode) may leave out because the checksum covers the bytes:
    /// the writer's digests of payload and key are right.
    pub(crate) fn check_writer(&self) -> Result<(), Defect> {
        if Digest::of(self.payload()) != self.head.payload_digest {
            return Err(Defect::Checksum);
        }
        if digest_fields(&self.metadata.key_fields) != self.head.content {
            return Err(Defect::WrongKey);
        }
        Ok(())
    }

    /// The kind of the payload.
    #[must_use]
    pub fn kind(&self) -> Kind {
        self.head.kind
    }

    /// The bytes that were published.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        &self.bytes[self.payload.clone()]
    }

    /// SHA-256 of the payload.
    #[must_use]
    pub fn payload_digest(&self) -> Digest {
        self.head.payload_digest
    }

    /// Facts about the payload.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.metadata
    }

    /// The name it has on disk, or would have.
    #[must_use]
    pub fn name(&self) -> EntryName {
        self.head.name()
    }

    /// The whole file.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn metadata_bytes(&self) -> u64 {
        self.head.metadata_bytes
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::key::KeyBuilder;

    fn key(n: u8) -> Key {
        KeyBuilder::new("test")
            .field("source", [n])
            .compiler("cc")
            .finish()
    }

    fn metadata() -> Metadata {
        Metadata {
            sources: vec!["scan_forward.cu".into()],
            options: vec!["-O3".into(), "--use_fast_math".into()],
            arch: "sm_90a".into(),
            compiler: "nvrtc 12.9".into(),
            compile_ns: 1_234,
            resources: [("registers".to_owned(), 42.into())].into(),
            symbols: [("f<float>".to_owned(), "_Z1fIfE".to_owned())].into(),
            log_tail: "warning: \u{fb01}\n".into(),
            ..Metadata::default()
        }
    }

    fn entry(n: u8, payload: &[u8]) -> Entry {
        let artifact = Artifact {
            kind: Kind::Cubin,
            payload: payload.to_vec(),
            metadata: metadata(),
        };
        Entry::new(&key(n), artifact, 99)
    }

    #[test]
    fn what_is_written_is_read() {
        let written = entry(1, b"machine code");
        let read = Entry::decode(&key(1).name(), written.bytes().to_vec()).unwrap();
        assert_eq!(read, written);
        assert_eq!(read.payload(), b"machine code");
        assert_eq!(read.payload_digest(), Digest::of(b"machine code"));
        assert_eq!(read.metadata().created_ns, 99);
        assert_eq!(read.metadata().compile_ns, 1_234);
        assert_eq!(read.metadata().resources["registers"], 42.into());
        assert_eq!(read.metadata().key_fields, key(1).fields());
        read.check_writer().unwrap();
    }

    #[test]
    fn every_truncation_is_a_defect() {
        let bytes = entry(1, b"machine code").bytes().to_vec();
        for length in 0..bytes.len() {
            assert!(
                Entry::decode(&key(1).name(), bytes[..length].to_vec()).is_err(),
                "{length}"
            );
        }
        let longer = [&bytes[..], &[0]].concat();
        assert_eq!(Entry::decode(&key(1).name(), longer), Err(Defect::Lengths));
    }

    #[test]
    fn every_flipped_bit_is_a_defect() {
        let bytes = entry(1, b"machine code").bytes().to_vec();
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(Entry::decode(&key(1).name(), flipped).is_err(), "bit {bit}");
        }
    }

    #[test]
    fn an_entry_under_another_name_is_a_defect() {
        let bytes = entry(1, b"x").bytes().to_vec();
        assert_eq!(Entry::decode(&key(2).name(), bytes), Err(Defect::WrongKey));
    }

    /// Rewrites the eight bytes at `at` and makes the checksum right again.
    fn forge(at: usize, value: u64) -> Result<Entry, Defect> {
        let mut bytes = entry(1, b"machine code").bytes().to_vec();
        bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        let body = bytes.len() - CHECKSUM_BYTES;
        let checksum = Digest::of(&bytes[..body]);
        bytes[body..].copy_from_slice(&checksum.0);
        Entry::decode(&key(1).name(), bytes)
    }

    #[test]
    fn absurd_lengths_are_defects_even_with_a_right_checksum() {
        for absurd in [
            0,
            1,
            11,
            13,
            1 << 32,
            u64::MAX - 183,
            u64::MAX - 1,
            u64::MAX,
        ] {
            for at in [16, 24, 32] {
                assert_eq!(forge(at, absurd), Err(Defect::Lengths), "{absurd} at {at}");
            }
        }
        assert_eq!(
            Head::parse(&[0; 8], u64::MAX),
            Err(Defect::Length(u64::MAX))
        );
    }

    #[test]
    fn what_this_version_does_not_know_is_a_defect() {
        let head = |format: u16, kind: u8, codec: u8| {
            u64::from_le_bytes([
                format.to_le_bytes()[0],
                format.to_le_bytes()[1],
                kind,
                codec,
                0,
                0,
                0,
                0,
            ])
        };
        assert_eq!(forge(8, head(2, 1, 0)), Err(Defect::Format(2)));
        assert_eq!(forge(8, head(1, 9, 0)), Err(Defect::Kind(9)));
        assert_eq!(forge(8, head(1, 1, 7)), Err(Defect::Codec(7)));
        assert_eq!(forge(0, 0), Err(Defect::Magic));
        assert!(matches!(forge(HEAD_BYTES, 0), Err(Defect::Metadata(_))));
    }

    #[test]
    fn a_writer_that_was_wrong_is_found_out() {
        let wrong_payload = forge(104, 0).unwrap();
        assert_eq!(wrong_payload.check_writer(), Err(Defect::Checksum));
        let mut wrong_fields = entry(1, b"x");
        wrong_fields.metadata.key_fields.pop();
        assert_eq!(wrong_fields.check_writer(), Err(Defect::WrongKey));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            prop_assert!(Entry::decode(&key(1).name(), bytes).is_err());
        }

        /// Bytes behind a valid prefix and with a right checksum, where more of the parser is
        /// reached.
        #[test]
        fn forged_bytes_never_panic(at in 0..HEAD_BYTES, patch in any::<u64>()) {
            let _ = forge(at, patch);
        }
    }
}
