//! The bytes of an entry, which are written once, and all checks that a reader makes before it
//! believes them.
//!
//! Format 1, all integers little-endian:
//!
//! ```text
//! offset  bytes
//!      0      8  magic "SWPCACHE"
//!      8      2  format version
//!     10      1  kind: 1 cubin, 2 ptx, 3 shared object, 4 failure
//!     11      1  codec: 0 stored as it is
//!     12      4  zero
//!     16      8  length of the metadata
//!     24      8  length of the payload as stored
//!     32      8  length of the payload when decoded
//!     40     32  key echo: content digest
//!     72     32  key echo: compiler digest
//!    104     32  SHA-256 of the decoded payload
//!    136      8  creation time, ns since 1970
//!    144      8  compile time, ns
//!    152         metadata, JSON
//!                payload
//!            32  SHA-256 of everything before
//! ```

use serde::Serialize;

use crate::key::{Digest, EntryName};

const MAGIC: [u8; 8] = *b"SWPCACHE";
const FORMAT: u16 = 1;
const CODEC_STORED: u8 = 0;
pub(crate) const HEAD_BYTES: usize = 152;
pub(crate) const CHECKSUM_BYTES: usize = 32;

/// Longest entry that is written or read: 256 MiB, far beyond any kernel, and little enough to read
/// at once.
pub const MAX_ENTRY_BYTES: u64 = 256 << 20;

/// Longest metadata that is written or read: 4 MiB.
pub const MAX_METADATA_BYTES: u64 = 4 << 20;

/// The kind of an entry's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Machine code for one GPU architecture.
    Cubin,
    /// GPU code that the driver still has to compile.
    Ptx,
    /// A shared object for the CPU.
    SharedObject,
    /// A compile that fails every time. The payload says how.
    Failure,
    /// Tensors that are costly to compute and equal each time.
    Answer,
    /// What was found out about a loop.
    Loop,
}

impl Kind {
    fn code(self) -> u8 {
        match self {
            Self::Cubin => 1,
            Self::Ptx => 2,
            Self::SharedObject => 3,
            Self::Failure => 4,
            Self::Answer => 5,
            Self::Loop => 6,
        }
    }

    fn from_code(code: u8) -> Option<Self> {
        [
            Self::Cubin,
            Self::Ptx,
            Self::SharedObject,
            Self::Failure,
            Self::Answer,
            Self::Loop,
        ]
        .into_iter()
        .find(|kind| kind.code() == code)
    }
}

/// Why a file isn't the entry that its name promises.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Defect {
    /// Less than a head and a checksum, or more than any entry may have.
    #[error("a length of {0} bytes, which no entry has")]
    Length(u64),
    /// Not written by this crate.
    #[error("no magic number")]
    Magic,
    /// A format that this version doesn't read.
    #[error("format version {0}")]
    Format(u16),
    /// A kind that this version doesn't know.
    #[error("kind {0}")]
    Kind(u8),
    /// A codec that this version doesn't know.
    #[error("codec {0}")]
    Codec(u8),
    /// The lengths in the head don't add up to the length of the file.
    #[error("lengths that disagree with the file")]
    Lengths,
    /// Something was changed after writing.
    #[error("a wrong checksum")]
    Checksum,
    /// A sound entry under the name of another.
    #[error("the key of another entry")]
    WrongKey,
    /// Sound bytes that aren't the expected metadata.
    #[error("metadata that can't be read: {0}")]
    Metadata(String),
    /// A folder, symbolic link, pipe or device where an entry belongs.
    #[error("not a regular file")]
    NotAFile,
    /// Another user made the file, or others than its owner may write to it.
    #[error("a file of user {owner} with mode {mode:o}, which others could have written")]
    Untrusted {
        /// Numeric id of the file's owner.
        owner: u32,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file can't be opened or read.
    #[error("unreadable: {0}")]
    Unreadable(String),
}

/// The fixed part of an entry.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Head {
    pub(crate) kind: Kind,
    pub(crate) metadata_bytes: u64,
    pub(crate) payload_bytes: u64,
    pub(crate) content: Digest,
    pub(crate) compiler: Digest,
    pub(crate) payload_digest: Digest,
    pub(crate) created_ns: u64,
    pub(crate) compile_ns: u64,
}

impl Head {
    /// Reads the head of a file of `file_bytes` bytes and checks its lengths against that.
    pub(crate) fn parse(bytes: &[u8], file_bytes: u64) -> Result<Self, Defect> {
        if !(HEAD_BYTES as u64 + CHECKSUM_BYTES as u64..=MAX_ENTRY_BYTES).contains(&file_bytes) {
            return Err(Defect::Length(file_bytes));
        }
        let mut fields = Fields(bytes.get(..HEAD_BYTES).ok_or(Defect::Length(file_bytes))?);
        if fields.take() != MAGIC {
            return Err(Defect::Magic);
        }
        let format = u16::from_le_bytes(fields.take());
        if format != FORMAT {
            return Err(Defect::Format(format));
        }
        let [kind, codec, ..]: [u8; 6] = fields.take();
        if codec != CODEC_STORED {
            return Err(Defect::Codec(codec));
        }
        let kind = Kind::from_code(kind).ok_or(Defect::Kind(kind))?;
        let (metadata_bytes, stored, decoded) = (fields.int(), fields.int(), fields.int());
        let sum = [
            HEAD_BYTES as u64,
            metadata_bytes,
            stored,
            CHECKSUM_BYTES as u64,
        ]
        .iter()
        .try_fold(0_u64, |sum, &length| sum.checked_add(length));
        if sum != Some(file_bytes) || stored != decoded || metadata_bytes > MAX_METADATA_BYTES {
            return Err(Defect::Lengths);
        }
        Ok(Self {
            kind,
            metadata_bytes,
            payload_bytes: decoded,
            content: Digest(fields.take()),
            compiler: Digest(fields.take()),
            payload_digest: Digest(fields.take()),
            created_ns: fields.int(),
            compile_ns: fields.int(),
        })
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        out.extend(MAGIC);
        out.extend(FORMAT.to_le_bytes());
        out.extend([self.kind.code(), CODEC_STORED, 0, 0, 0, 0]);
        for length in [self.metadata_bytes, self.payload_bytes, self.payload_bytes] {
            out.extend(length.to_le_bytes());
        }
        for digest in [self.content, self.compiler, self.payload_digest] {
            out.extend(digest.0);
        }
        out.extend(self.created_ns.to_le_bytes());
        out.extend(self.compile_ns.to_le_bytes());
    }

    pub(crate) fn name(&self) -> EntryName {
        EntryName::new(self.content, self.compiler)
    }

    /// Where the payload begins, in bytes from the start of the file. Checked by `parse` to lie
    /// within it.
    pub(crate) fn payload_start(&self) -> usize {
        HEAD_BYTES + usize::try_from(self.metadata_bytes).unwrap_or(usize::MAX)
    }
}

/// Takes fixed-size fields off a head that is known to be long enough.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        let Some((field, rest)) = self.0.split_first_chunk() else {
            unreachable!("the fields add up to the head")
        };
        self.0 = rest;
        *field
    }

    fn int(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}
