//! Why a key isn't in the cache: the entry that comes nearest, and the fields in which it differs.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use serde::Serialize;

use crate::{
    cache::Cache,
    error::CacheError,
    key::{Digest, EntryName, FieldDigest, Key},
    queue::Candidate,
    scan,
    summary::{self, Summary},
    sys,
};

/// A key is compared with this many entries at most, those that were used last.
const MOST_COMPARED: usize = 10_000;

/// Why a key is in the cache or isn't.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The name the key asks for.
    pub name: EntryName,
    /// Whether there is an entry of that name. It isn't read to the end here, so it may still be
    /// bad.
    pub present: bool,
    /// How many other entries the key was compared with.
    pub compared: usize,
    /// The other entry that differs least, the most recently used of several. `None` where there
    /// is no other.
    pub nearest: Option<Nearest>,
}

/// The entry that is most like a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nearest {
    /// The name of the entry.
    pub name: EntryName,
    /// When it was last used, in nanoseconds since 1970.
    pub last_use_ns: u64,
    /// The differences: fields in the order of the key, then fields that only the entry has, then
    /// the compiler.
    pub differences: Vec<Difference>,
}

/// One field in which a key and an entry differ. Values are there as far as they are short.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Difference {
    /// The name of the field; `compiler` for the compiler.
    pub field: String,
    /// The kind of difference.
    pub change: Change,
    /// The entry's value. Of a field with several values, those that the key lacks.
    pub was: Option<String>,
    /// The key's value. Of a field with several values, those that the entry lacks.
    pub now: Option<String>,
}

/// The way in which a field differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Both have the field, with other values.
    Changed,
    /// Only the key has the field.
    OnlyInKey,
    /// Only the entry has the field.
    OnlyInEntry,
    /// The order of the values alone differs.
    Order,
}

/// The field and both values: `compiler: nvrtc 13.0.88 -> nvrtc 13.0.102`.
impl fmt::Display for Difference {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { field, change, .. } = self;
        write!(out, "{field}: ")?;
        match (change, &self.was, &self.now) {
            (Change::Changed, Some(was), Some(now)) => write!(out, "{was} -> {now}"),
            (Change::Changed, Some(was), None) => write!(out, "another one than {was}"),
            (Change::Changed, None, Some(now)) => write!(out, "another one, now {now}"),
            (Change::Changed, None, None) => write!(out, "changed"),
            (Change::OnlyInKey, _, Some(now)) => write!(out, "none -> {now}"),
            (Change::OnlyInKey, ..) => write!(out, "new"),
            (Change::OnlyInEntry, Some(was), _) => write!(out, "{was} -> none"),
            (Change::OnlyInEntry, ..) => write!(out, "gone"),
            (Change::Order, ..) => write!(out, "another order"),
        }
    }
}

/// Summaries of entries, with which keys are compared.
#[derive(Debug)]
pub struct Catalog {
    entries: Vec<(Candidate, Summary)>,
}

/// One side of a comparison.
struct Subject<'a> {
    name: EntryName,
    fields: &'a [FieldDigest],
    compiler: Digest,
    compiler_text: &'a str,
}

impl<'a> Subject<'a> {
    fn of_entry(name: EntryName, entry: &'a Summary) -> Self {
        Self {
            name,
            fields: &entry.metadata.key_fields,
            compiler: entry.compiler,
            compiler_text: &entry.metadata.compiler,
        }
    }
}

impl Cache {
    /// Reads summaries of the entries of this cache and of its upstreams, to explain keys
    /// by them; of those that were used last, if there are more than ten thousand.
    ///
    /// # Errors
    ///
    /// When the directory can't be listed.
    pub fn catalog(&self) -> Result<Catalog, CacheError> {
        let layout = &self.inner.store.layout;
        let (mut listed, _) = summary::list(layout, |_| true)?;
        listed.sort_by_key(|listed| Reverse(scan::last_use_ns(&listed.metadata)));
        listed.truncate(MOST_COMPARED);
        let own = listed.iter().filter_map(|listed| {
            let name = listed.name;
            let last_use_ns = scan::last_use_ns(&listed.metadata);
            let summary = summary::of_file(layout, &name, sys::user()).ok()?;
            Some((Candidate { last_use_ns, name }, summary))
        });
        let mut entries: Vec<_> = own.collect();
        let left = MOST_COMPARED - entries.len();
        let mut names: BTreeSet<_> = entries.iter().map(|(entry, _)| entry.name).collect();
        let others = self.inner.upstreams.summaries().take(left);
        entries.extend(others.filter(|(entry, _)| names.insert(entry.name)));
        Ok(Catalog { entries })
    }
}

impl Catalog {
    /// Says whether `key` is there, and in which fields the nearest other entry differs.
    /// `compiler` describes the compiler of the key as the entries' metadata do theirs.
    #[must_use]
    pub fn explain(&self, key: &Key, compiler: &str) -> Explanation {
        self.explain_subject(&Subject {
            name: key.name(),
            fields: key.fields(),
            compiler: key.compiler(),
            compiler_text: compiler,
        })
    }

    /// Says in which fields the nearest other entry differs from this one. `None` if it isn't
    /// there.
    #[must_use]
    pub fn explain_entry(&self, name: &EntryName) -> Option<Explanation> {
        let mut all = self.entries.iter();
        let (_, entry) = all.find(|(candidate, _)| candidate.name == *name)?;
        Some(self.explain_subject(&Subject::of_entry(*name, entry)))
    }

    fn explain_subject(&self, subject: &Subject<'_>) -> Explanation {
        let is_other = |(candidate, _): &&(Candidate, Summary)| candidate.name != subject.name;
        let others = || self.entries.iter().filter(is_other);
        let nearest = others().min_by_key(|(candidate, entry)| {
            let distance = distance(subject, &Subject::of_entry(candidate.name, entry));
            (distance, Reverse(*candidate))
        });
        let compared = others().count();
        Explanation {
            name: subject.name,
            present: compared < self.entries.len(),
            compared,
            nearest: nearest.map(|(candidate, entry)| Nearest {
                name: candidate.name,
                last_use_ns: candidate.last_use_ns,
                differences: differences(subject, &Subject::of_entry(candidate.name, entry)),
            }),
        }
    }
}

/// How many values differ. An entry of another compiler alone is nearest: its kernel is this one.
fn distance(key: &Subject<'_>, entry: &Subject<'_>) -> (usize, bool) {
    let lacking = |from: &[FieldDigest], to: &[FieldDigest]| {
        let has = |field: &&FieldDigest| {
            let mut others = to.iter();
            !others.any(|other| other.digest == field.digest && other.tag == field.tag)
        };
        from.iter().filter(has).count()
    };
    let fields = lacking(key.fields, entry.fields) + lacking(entry.fields, key.fields);
    (fields, key.compiler != entry.compiler)
}

fn differences(key: &Subject<'_>, entry: &Subject<'_>) -> Vec<Difference> {
    let mut differences = field_differences(key.fields, entry.fields);
    if differences.is_empty() && !key.name.same_content(&entry.name) {
        differences.push(Difference {
            field: "fields".to_owned(),
            change: Change::Order,
            was: None,
            now: None,
        });
    }
    if key.compiler != entry.compiler {
        let text = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        differences.push(Difference {
            field: "compiler".to_owned(),
            change: Change::Changed,
            was: text(entry.compiler_text),
            now: text(key.compiler_text),
        });
    }
    differences
}

/// Compares field by field under the same tag. The values of a repeated tag are compared as a list.
fn field_differences(key: &[FieldDigest], entry: &[FieldDigest]) -> Vec<Difference> {
    let (in_key, in_entry) = (by_tag(key), by_tag(entry));
    let tags = key.iter().chain(entry).map(|field| field.tag.as_str());
    let mut seen = BTreeSet::new();
    let mut differences = Vec::new();
    for tag in tags.filter(|tag| seen.insert(*tag)) {
        let (now, was) = (in_key.get(tag), in_entry.get(tag));
        let change = match (now, was) {
            (Some(_), None) => Change::OnlyInKey,
            (None, _) => Change::OnlyInEntry,
            (Some(now), Some(was)) if digests(now) == digests(was) => continue,
            (Some(now), Some(was)) if is_reordered(now, was) => Change::Order,
            _ => Change::Changed,
        };
        let [now, was] = [now, was].map(|values| values.map_or(&[][..], Vec::as_slice));
        differences.push(Difference {
            field: tag.to_owned(),
            change,
            was: values_without(was, now),
            now: values_without(now, was),
        });
    }
    differences
}

fn by_tag(fields: &[FieldDigest]) -> BTreeMap<&str, Vec<&FieldDigest>> {
    let mut values = BTreeMap::<_, Vec<_>>::new();
    for field in fields {
        values.entry(field.tag.as_str()).or_default().push(field);
    }
    values
}

fn digests(fields: &[&FieldDigest]) -> Vec<Digest> {
    fields.iter().map(|field| field.digest).collect()
}

fn is_reordered(a: &[&FieldDigest], b: &[&FieldDigest]) -> bool {
    let sorted = |fields| {
        let mut digests = digests(fields);
        digests.sort_unstable();
        digests
    };
    sorted(a) == sorted(b)
}

/// The values that the other list lacks, if all of them are known.
fn values_without(values: &[&FieldDigest], others: &[&FieldDigest]) -> Option<String> {
    let others = digests(others);
    let own = values
        .iter()
        .filter(|field| !others.contains(&field.digest))
        .map(|field| field.value.as_deref());
    let texts: Vec<&str> = own.collect::<Option<_>>()?;
    (!texts.is_empty()).then(|| texts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyBuilder;

    fn compare(key: KeyBuilder, entry: KeyBuilder) -> Vec<String> {
        let differences = field_differences(key.finish().fields(), entry.finish().fields());
        differences.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn differences_are_named_by_field_and_value() {
        let base = || {
            KeyBuilder::new("s")
                .field("source", "long ".repeat(20))
                .field("arch", "sm_90")
                .field("option", "-O3")
                .field("option", "-g")
        };
        assert_eq!(compare(base(), base()), [""; 0]);
        let found = compare(
            base()
                .field("define", "X")
                .field("define", "Y")
                .field("new", "1")
                .field("file a", "\n"),
            KeyBuilder::new("s")
                .field("arch", "sm_90a")
                .field("source", "short")
                .field("option", "-g")
                .field("option", "-O3")
                .field("define", "X")
                .field("define", "Z")
                .field("old", "2"),
        );
        assert_eq!(
            found,
            [
                "source: another one than short",
                "arch: sm_90a -> sm_90",
                "option: another order",
                "define: Z -> Y",
                "new: none -> 1",
                "file a: new",
                "old: 2 -> none",
            ]
        );
    }
}
