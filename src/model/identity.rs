//! Identities: two problems, points, manifests or runs are equal where theirs are.
//!
//! All are SHA-256 over one encoding, version 1: a sequence of fields, each its tag (length as
//! `u32`, then bytes), a byte for the kind of value, and the value (texts and digests with their
//! length as `u64`; numbers as 8 bytes; all little-endian). The first field, tagged `sweeper`, says
//! the version and the second, tagged `of`, the kind of identity. Lists are their length followed
//! by their items.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};
use sweeper_program::{CanonicalShape, Dtype, Parameters, Phase, Value};

use crate::mode::Mode;

/// Version of the encoding.
pub const VERSION: u64 = 1;

/// A SHA-256 digest. Prints as its first 12 hex digits; `{:#}` and files have all 64.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Digest([u8; 32]);

impl Digest {
    /// A digest from its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Digest(bytes)
    }

    /// The bytes.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// All 64 hex digits.
    pub fn hex(&self) -> String {
        hex::encode(self.0)
    }

    /// True if the hex digits start with `prefix`, in either case; an empty prefix matches nothing.
    pub fn has_prefix(&self, prefix: &str) -> bool {
        !prefix.is_empty() && self.hex().starts_with(&prefix.to_ascii_lowercase())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hex = self.hex();
        out.write_str(if out.alternate() { &hex } else { &hex[..12] })
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, out)
    }
}

/// Text that is not 64 hex digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an identity is 64 hex digits")]
pub struct NotADigest;

impl FromStr for Digest {
    type Err = NotADigest;

    fn from_str(text: &str) -> Result<Self, NotADigest> {
        let mut bytes = [0; 32];
        hex::decode_to_slice(text, &mut bytes).map_err(|_| NotADigest)?;
        Ok(Digest(bytes))
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.hex())
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(de::Error::custom)
    }
}

macro_rules! identities {
    ($($(#[$about:meta])* $name:ident;)*) => {$(
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(transparent)]
        pub struct $name(pub Digest);

        impl $name {
            /// True if its hex digits start with `prefix`.
            pub fn has_prefix(&self, prefix: &str) -> bool {
                self.0.has_prefix(prefix)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(out)
            }
        }

        impl FromStr for $name {
            type Err = NotADigest;

            fn from_str(text: &str) -> Result<Self, NotADigest> {
                text.parse().map($name)
            }
        }
    )*};
}

identities! {
    /// A workload with parameters, type and inputs: everything that its inputs and its right answer
    /// depend on.
    ProblemId;
    /// A row of results: a problem, the way it was computed, and the timed phase.
    PointId;
    /// The keys of a manifest that change the meaning of rows.
    ManifestHash;
    /// A run of a manifest with an engine on a device.
    RunId;
}

/// Encodes fields for SHA-256.
pub struct Encoder {
    buffer: Vec<u8>,
}

impl Encoder {
    /// Starts the encoding of a thing called `of`.
    pub fn new(of: &str) -> Self {
        let mut encoder = Encoder {
            buffer: Vec::with_capacity(512),
        };
        encoder.start(of);
        encoder
    }

    fn start(&mut self, of: &str) {
        self.buffer.clear();
        self.unsigned("sweeper", VERSION).text("of", of);
    }

    fn tag(&mut self, tag: &str, kind: u8) {
        self.buffer.extend((tag.len() as u32).to_le_bytes());
        self.buffer.extend(tag.as_bytes());
        self.buffer.push(kind);
    }

    fn sized(&mut self, bytes: &[u8]) -> &mut Self {
        self.buffer.extend((bytes.len() as u64).to_le_bytes());
        self.buffer.extend(bytes);
        self
    }

    /// A text.
    pub fn text(&mut self, tag: &str, text: &str) -> &mut Self {
        self.tag(tag, b't');
        self.sized(text.as_bytes())
    }

    /// A whole number that is not negative.
    pub fn unsigned(&mut self, tag: &str, value: u64) -> &mut Self {
        self.tag(tag, b'u');
        self.buffer.extend(value.to_le_bytes());
        self
    }

    /// A parameter's value. The two zeros are one.
    pub fn value(&mut self, tag: &str, value: &Value) -> &mut Self {
        match value {
            Value::Bool(value) => {
                self.tag(tag, b'b');
                self.buffer.extend(u64::from(*value).to_le_bytes());
            }
            Value::Int(value) => {
                self.tag(tag, b'i');
                self.buffer.extend(value.to_le_bytes());
            }
            Value::Float(value) => {
                self.tag(tag, b'f');
                self.buffer.extend((value + 0.0).to_bits().to_le_bytes());
            }
            Value::Text(value) => {
                self.text(tag, value);
            }
        }
        self
    }

    /// A digest of something else.
    pub fn digest(&mut self, tag: &str, digest: &Digest) -> &mut Self {
        self.tag(tag, b'd');
        self.sized(&digest.0)
    }

    /// The length of a list whose items follow.
    pub fn list(&mut self, tag: &str, length: usize) -> &mut Self {
        self.tag(tag, b'l');
        self.buffer.extend((length as u64).to_le_bytes());
        self
    }

    /// Digests in an order of their own, so that the order they were given in does not matter.
    pub fn set(&mut self, tag: &str, mut digests: Vec<Digest>) -> &mut Self {
        digests.sort_unstable();
        self.list(tag, digests.len());
        for digest in &digests {
            self.digest("item", digest);
        }
        self
    }

    /// The digest of the encoded fields.
    pub fn finish(&self) -> Digest {
        Digest(Sha256::digest(&self.buffer).into())
    }
}

/// The source of a problem's inputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputSource {
    /// Generated from this seed.
    Seed(u64),
    /// Read from a file with this SHA-256.
    File(Digest),
}

/// The identity of a problem, with every parameter of the workload given.
pub fn problem_id(
    workload: &str,
    parameters: &Parameters,
    dtype: Dtype,
    inputs: InputSource,
) -> ProblemId {
    let entries = parameters
        .iter()
        .map(|(name, value)| (name.as_ref(), value));
    problem_id_of(
        &mut Encoder::new("problem"),
        workload,
        entries,
        dtype,
        inputs,
    )
}

/// [`problem_id`] of parameters sorted by name, in a buffer that is used again and again.
pub fn problem_id_of<'a>(
    encoder: &mut Encoder,
    workload: &str,
    parameters: impl ExactSizeIterator<Item = (&'a str, &'a Value)>,
    dtype: Dtype,
    inputs: InputSource,
) -> ProblemId {
    encoder.start("problem");
    encoder
        .text("workload", workload)
        .text("dtype", dtype.name());
    encoder.list("parameters", parameters.len());
    for (name, value) in parameters {
        encoder.value(name, value);
    }
    match inputs {
        InputSource::Seed(seed) => encoder.unsigned("seed", seed),
        InputSource::File(digest) => encoder.digest("file", &digest),
    };
    ProblemId(encoder.finish())
}

/// The content of the second-level cache when a sample begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CacheState {
    /// Whatever earlier work left in it.
    Hot,
    /// Other memory, which was written: its lines have yet to reach memory, and a program that
    /// needs their place waits for that.
    Cold,
    /// Other memory, which was only read: its lines can be dropped.
    Clean,
}

impl CacheState {
    /// The word of manifests and rows.
    pub const fn word(self) -> &'static str {
        match self {
            CacheState::Hot => "hot",
            CacheState::Cold => "cold",
            CacheState::Clean => "clean",
        }
    }
}

/// The settings of a measurement that change the meaning of its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Conditions {
    /// The second-level cache before each sample.
    pub cache: CacheState,
    /// How the program is run.
    pub mode: Mode,
    /// CPU threads of the program.
    pub threads: u32,
}

/// The identity of a row.
pub fn point_id(
    problem: ProblemId,
    backend: &str,
    phase: Phase,
    canonical: &CanonicalShape,
    conditions: Conditions,
) -> PointId {
    let mut encoder = Encoder::new("point");
    encoder
        .digest("problem", &problem.0)
        .text("backend", backend)
        .text("phase", phase.name())
        .list("canonical", canonical.iter().len());
    for (name, bound) in canonical.iter() {
        encoder.unsigned(name, bound);
    }
    encoder
        .text("l2", conditions.cache.word())
        .text("mode", &conditions.mode.to_string())
        .unsigned("threads", u64::from(conditions.threads));
    PointId(encoder.finish())
}

/// The identity of a run: manifest, program, devices, compilers, and interpreters if it has any.
pub fn run_id(
    manifest: ManifestHash,
    engine: &Digest,
    kernels: &Digest,
    device: &str,
    toolchain: &str,
    interpreters: &str,
) -> RunId {
    let mut encoder = Encoder::new("run");
    encoder
        .digest("manifest", &manifest.0)
        .digest("engine", engine)
        .digest("kernels", kernels)
        .text("device", device)
        .text("toolchain", toolchain);
    if !interpreters.is_empty() {
        encoder.text("interpreters", interpreters);
    }
    RunId(encoder.finish())
}
