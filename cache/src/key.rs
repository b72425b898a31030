//! The name of an entry: a digest of everything that can change the stored bytes, field by field.
//!
//! The encoding is version 1 and never changes under that number:
//!
//! ```text
//! content  = SHA-256( "sweeper-cache key 1\0"      || field* )
//! field    = u64le(length of tag) || tag || SHA-256(value)
//! compiler = SHA-256( "sweeper-cache compiler 1\0" || 0x00 )  if there is none
//!            SHA-256( "sweeper-cache compiler 1\0" || 0x01 || u64le(length) || identity )
//! ```
//!
//! The first field is always `schema`. A value enters by its digest, so an entry that keeps the
//! digest of each field can be checked against its own name, and `explain` can say which field
//! differs.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use sha2::{Digest as _, Sha256};

const CONTENT_DOMAIN: &[u8] = b"sweeper-cache key 1\0";
const COMPILER_DOMAIN: &[u8] = b"sweeper-cache compiler 1\0";

/// How many bytes of the compiler's digest are part of a file name.
const COMPILER_PREFIX: usize = 8;

/// A SHA-256 digest, written as 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub [u8; 32]);

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(self.0))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Digest {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let mut digest = [0; 32];
        hex::decode_to_slice(&text, &mut digest).map_err(de::Error::custom)?;
        Ok(Self(digest))
    }
}

/// Longest value of a field that is kept beside its digest, in bytes.
const SHORT_VALUE_BYTES: usize = 64;

/// The digest of one field of a key, and its value if that is a short text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldDigest {
    /// The name of the field, as given to [`KeyBuilder::field`].
    pub tag: String,
    /// SHA-256 of its value.
    pub digest: Digest,
    /// The value, for people. It is not part of the key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

impl FieldDigest {
    fn of(tag: &str, value: &[u8]) -> Self {
        let text = str::from_utf8(value).ok();
        let short = text
            .filter(|text| text.len() <= SHORT_VALUE_BYTES && !text.chars().any(char::is_control));
        Self {
            tag: tag.to_owned(),
            digest: Digest::of(value),
            value: short.map(str::to_owned),
        }
    }
}

/// Identifies stored bytes by everything that went into making them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Key {
    content: Digest,
    compiler: Digest,
    fields: Vec<FieldDigest>,
}

impl Key {
    /// The digest of all fields but the compiler.
    #[must_use]
    pub fn content(&self) -> Digest {
        self.content
    }

    /// The digest of the compiler's identity, or of its absence.
    #[must_use]
    pub fn compiler(&self) -> Digest {
        self.compiler
    }

    /// The fields in the order they were given, `schema` first, without the compiler.
    #[must_use]
    pub fn fields(&self) -> &[FieldDigest] {
        &self.fields
    }

    /// The name of the entry this key asks for. Its `Display` is the full hexadecimal form.
    #[must_use]
    pub fn name(&self) -> EntryName {
        EntryName::new(self.content, self.compiler)
    }
}

/// The first 12 hex digits, for people.
impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode(&self.content.0[..6]))
    }
}

/// Collects the fields of a [`Key`]. Order, tags and boundaries all count.
#[derive(Clone, Debug)]
pub struct KeyBuilder {
    compiler: Option<Vec<u8>>,
    fields: Vec<FieldDigest>,
}

impl KeyBuilder {
    /// Starts a key under `schema`, the caller's own version of its fields' meaning.
    #[must_use]
    pub fn new(schema: &str) -> Self {
        let builder = Self {
            compiler: None,
            fields: Vec::new(),
        };
        builder.field("schema", schema)
    }

    /// Adds a field. A tag may repeat, but `explain` reads better if it doesn't.
    #[must_use]
    pub fn field(mut self, tag: &str, value: impl AsRef<[u8]>) -> Self {
        self.fields.push(FieldDigest::of(tag, value.as_ref()));
        self
    }

    /// Sets the identity of the compiler, apart from the other fields, so that a machine without a
    /// compiler can still find entries that were compiled elsewhere. A second call replaces the
    /// first.
    #[must_use]
    pub fn compiler(mut self, identity: impl AsRef<[u8]>) -> Self {
        self.compiler = Some(identity.as_ref().to_vec());
        self
    }

    /// Digests the fields into a key.
    #[must_use]
    pub fn finish(self) -> Key {
        Key {
            content: digest_fields(&self.fields),
            compiler: digest_compiler(self.compiler.as_deref()),
            fields: self.fields,
        }
    }
}

/// The content digest that `fields` amount to.
pub(crate) fn digest_fields(fields: &[FieldDigest]) -> Digest {
    let mut hasher = Sha256::new_with_prefix(CONTENT_DOMAIN);
    for field in fields {
        hasher.update((field.tag.len() as u64).to_le_bytes());
        hasher.update(field.tag.as_bytes());
        hasher.update(field.digest.0);
    }
    Digest(hasher.finalize().into())
}

fn digest_compiler(identity: Option<&[u8]>) -> Digest {
    let mut hasher = Sha256::new_with_prefix(COMPILER_DOMAIN);
    match identity {
        None => hasher.update([0]),
        Some(identity) => {
            hasher.update([1]);
            hasher.update((identity.len() as u64).to_le_bytes());
            hasher.update(identity);
        }
    }
    Digest(hasher.finalize().into())
}

/// The name of an entry on disk: 64 hex digits of the content digest, a dot, and 16 of the
/// compiler's.
///
/// Ordered as its text is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EntryName {
    content: [u8; 32],
    compiler: [u8; COMPILER_PREFIX],
}

impl EntryName {
    pub(crate) const BYTES: usize = 32 + COMPILER_PREFIX;

    pub(crate) fn new(content: Digest, compiler: Digest) -> Self {
        let mut prefix = [0; COMPILER_PREFIX];
        prefix.copy_from_slice(&compiler.0[..COMPILER_PREFIX]);
        Self {
            content: content.0,
            compiler: prefix,
        }
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..32].copy_from_slice(&self.content);
        bytes[32..].copy_from_slice(&self.compiler);
        bytes
    }

    pub(crate) fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let (mut content, mut compiler) = ([0; 32], [0; COMPILER_PREFIX]);
        content.copy_from_slice(&bytes[..32]);
        compiler.copy_from_slice(&bytes[32..]);
        Self { content, compiler }
    }

    /// The whole name in hexadecimal digits: the content, then the compiler.
    #[must_use]
    pub fn hex(&self) -> String {
        hex::encode(self.to_bytes())
    }

    /// The folder under `o/` that holds it: the first two hex digits.
    pub(crate) fn shard(&self) -> String {
        hex::encode(&self.content[..1])
    }

    /// The file name inside the shard: the other 62 hex digits, a dot, the compiler.
    pub(crate) fn file(&self) -> String {
        format!(
            "{}.{}",
            hex::encode(&self.content[1..]),
            hex::encode(self.compiler)
        )
    }

    /// The inverse of [`shard`](Self::shard) and [`file`](Self::file). Anything they wouldn't write
    /// is `None`.
    pub(crate) fn parse(shard: &str, file: &str) -> Option<Self> {
        let (rest, compiler) = file.split_once('.')?;
        let mut name = Self {
            content: [0; 32],
            compiler: [0; COMPILER_PREFIX],
        };
        hex::decode_to_slice(shard, &mut name.content[..1]).ok()?;
        hex::decode_to_slice(rest, &mut name.content[1..]).ok()?;
        hex::decode_to_slice(compiler, &mut name.compiler).ok()?;
        // Upper-case digits decode too, but name another file.
        (name.shard() == shard && name.file() == file).then_some(name)
    }

    /// Whether both names have equal content (source, options, target), whichever compiler made it.
    pub(crate) fn same_content(&self, other: &Self) -> bool {
        self.content == other.content
    }
}

impl fmt::Display for EntryName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}.{}",
            hex::encode(self.content),
            hex::encode(self.compiler)
        )
    }
}

impl Serialize for EntryName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(schema: &str, fields: &[(String, Vec<u8>)], compiler: Option<&[u8]>) -> Key {
        let mut builder = KeyBuilder::new(schema);
        for (tag, value) in fields {
            builder = builder.field(tag, value);
        }
        if let Some(identity) = compiler {
            builder = builder.compiler(identity);
        }
        builder.finish()
    }

    #[test]
    fn digits_are_those_of_the_bytes() {
        let digest = Digest::of(b"int x;");
        assert_eq!(format!("{digest:?}"), hex::encode(digest.0));
        let name = EntryName::from_bytes(std::array::from_fn(|at| at as u8));
        assert_eq!(name.hex(), hex::encode(name.to_bytes()));
        assert!(name.hex().starts_with("000102") && name.hex().starts_with(&name.shard()));
    }

    #[test]
    fn encoding_is_pinned() {
        let key = KeyBuilder::new("k1")
            .field("source", "int x;")
            .compiler("cc 13")
            .finish();
        let field = |tag: &str, value: &str| {
            let mut bytes = (tag.len() as u64).to_le_bytes().to_vec();
            bytes.extend(tag.as_bytes());
            bytes.extend(Digest::of(value.as_bytes()).0);
            bytes
        };
        let mut content = CONTENT_DOMAIN.to_vec();
        content.extend(field("schema", "k1"));
        content.extend(field("source", "int x;"));
        assert_eq!(key.content(), Digest::of(&content));
        assert_eq!(
            key.name().to_string(),
            "eac6d1f8e7836631b0125d9687c9ab341063431f522f526c87bbc0d489d03acf.7d4d49a2ea0a6200"
        );
    }

    #[test]
    fn boundaries_count() {
        let split =
            |tag: &str, value: &str| KeyBuilder::new("s").field(tag, value).finish().content();
        assert_ne!(split("a", "bc"), split("ab", "c"));
        assert_ne!(split("", "abc"), split("abc", ""));
        let two = KeyBuilder::new("s")
            .field("a", "x")
            .field("b", "y")
            .finish()
            .content();
        let swapped = KeyBuilder::new("s")
            .field("b", "y")
            .field("a", "x")
            .finish()
            .content();
        assert_ne!(two, swapped);
    }

    #[test]
    fn the_compiler_changes_its_half_only() {
        let with = |identity: Option<&[u8]>| key("s", &[("a".into(), b"x".to_vec())], identity);
        let keys = [with(None), with(Some(b"")), with(Some(b"cc"))];
        assert!(keys.iter().all(|k| k.content() == keys[0].content()));
        assert_ne!(keys[0].name(), keys[1].name());
        assert_ne!(keys[1].name(), keys[2].name());
    }

    #[test]
    fn display_is_twelve_digits_of_the_full_name() {
        let key = KeyBuilder::new("s").finish();
        assert_eq!(key.to_string().len(), 12);
        assert!(key.name().to_string().starts_with(&key.to_string()));
    }

    fn fields() -> impl Strategy<Value = Vec<(String, Vec<u8>)>> {
        prop::collection::vec(("[a-c]{0,3}", prop::collection::vec(0..3_u8, 0..4)), 1..6)
    }

    proptest! {
        /// Two lists of fields give the same key exactly if they are the same list.
        #[test]
        fn equal_keys_mean_equal_fields(a in fields(), b in fields()) {
            prop_assert_eq!(key("s", &a, None).content() == key("s", &b, None).content(), a == b);
        }

        /// Any single change changes the key, and undoing it brings the key back.
        #[test]
        fn every_mutation_counts(
            original in fields(),
            at in any::<prop::sample::Index>(),
            how in 0..6,
        ) {
            let before = key("s", &original, Some(b"cc"));
            let at = at.index(original.len());
            let mut mutated = original.clone();
            let mut schema = "s";
            match how {
                0 => mutated[at].1.push(0),
                1 => mutated[at].0.push('a'),
                2 => { mutated.remove(at); }
                3 => mutated.insert(at, (String::new(), Vec::new())),
                4 => schema = "t",
                _ => { let copy = mutated[at].clone(); mutated.push(copy); }
            }
            prop_assert_ne!(key(schema, &mutated, Some(b"cc")).content(), before.content());
            prop_assert_eq!(key("s", &original, Some(b"cc")), before);
        }

        #[test]
        fn names_survive_the_way_to_disk(original in fields()) {
            let name = key("s", &original, Some(b"cc")).name();
            prop_assert_eq!(EntryName::parse(&name.shard(), &name.file()), Some(name));
            prop_assert_eq!(EntryName::from_bytes(name.to_bytes()), name);
        }
    }

    #[test]
    fn foreign_names_are_not_entries() {
        let name = KeyBuilder::new("s").finish().name();
        assert_eq!(
            EntryName::parse(&name.shard(), &name.file().to_uppercase()),
            None
        );
        assert_eq!(EntryName::parse(&name.shard(), "README"), None);
        assert_eq!(EntryName::parse("zz", &name.file()), None);
        assert_eq!(
            EntryName::parse(&name.shard(), &format!("{}0", name.file())),
            None
        );
    }
}
