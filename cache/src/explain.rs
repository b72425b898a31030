//! Why a key isn't in the cache: the entry that comes nearest, and the fields in which it differs.

use std::{cmp::Reverse, collections::BTreeMap};

use serde::Serialize;

use crate::{
    cache::Cache,
    error::CacheError,
    key::{Digest, EntryName, FieldDigest, Key},
    listing::{self, Summary},
    scan,
};

/// Why a key is in the cache or isn't.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The name the key asks for.
    pub name: EntryName,
    /// Whether there is an entry of that name. It isn't read to the end here, so it may still be
    /// bad.
    pub present: bool,
    /// How many entries the key was compared with.
    pub compared: u64,
    /// The entry that differs least, the most recently used of several. `None` in an empty cache.
    pub nearest: Option<Nearest>,
}

/// The entry that is most like a key.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Nearest {
    /// The name of the entry.
    pub name: EntryName,
    /// The differences: fields in the order of the key, then fields that only the entry has, then
    /// the compiler.
    pub differences: Vec<Difference>,
}

/// One way in which a key and an entry differ.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "difference", content = "field", rename_all = "snake_case")]
pub enum Difference {
    /// Both have the field, with other values.
    Changed(String),
    /// Only the key has the field.
    OnlyInKey(String),
    /// Only the entry has the field.
    OnlyInEntry(String),
    /// The same fields with the same values, in another order.
    Order,
    /// Made by another compiler.
    Compiler,
}

impl Cache {
    /// Says whether `key` is there, and otherwise in which fields the nearest entry differs. Reads
    /// the metadata of every entry.
    ///
    /// # Errors
    ///
    /// When the directory can't be listed.
    pub fn explain(&self, key: &Key) -> Result<Explanation, CacheError> {
        let layout = &self.inner.store.layout;
        let (entries, _) = listing::list(layout, |_| true)?;
        let mut compared = 0;
        let mut best = None;
        for listed in entries {
            let Ok(summary) = listing::summary(layout, &listed.name) else {
                continue;
            };
            compared += 1;
            let differences = differences(key, &summary);
            let rank = (
                differences.len(),
                Reverse(scan::last_use_ns(&listed.metadata)),
                listed.name,
            );
            if best.as_ref().is_none_or(|(best_rank, _)| rank < *best_rank) {
                best = Some((rank, differences));
            }
        }
        let nearest = best.map(|((.., name), differences)| Nearest { name, differences });
        Ok(Explanation {
            name: key.name(),
            present: nearest
                .as_ref()
                .is_some_and(|nearest| nearest.name == key.name()),
            compared,
            nearest,
        })
    }
}

fn differences(key: &Key, entry: &Summary) -> Vec<Difference> {
    let mut differences = field_differences(key.fields(), &entry.metadata.key_fields);
    if differences.is_empty() && key.content() != entry.content {
        differences.push(Difference::Order);
    }
    if key.compiler() != entry.compiler {
        differences.push(Difference::Compiler);
    }
    differences
}

/// Compares field by field under the same tag. The values of a repeated tag are compared as a list.
fn field_differences(key: &[FieldDigest], entry: &[FieldDigest]) -> Vec<Difference> {
    let (in_key, mut in_entry) = (by_tag(key), by_tag(entry));
    let mut differences = Vec::new();
    for (position, field) in key.iter().enumerate() {
        if key[..position]
            .iter()
            .any(|earlier| earlier.tag == field.tag)
        {
            continue;
        }
        match in_entry.remove(field.tag.as_str()) {
            None => differences.push(Difference::OnlyInKey(field.tag.clone())),
            Some(values) if values != in_key[field.tag.as_str()] => {
                differences.push(Difference::Changed(field.tag.clone()));
            }
            Some(_) => {}
        }
    }
    differences.extend(
        in_entry
            .keys()
            .map(|&tag| Difference::OnlyInEntry(tag.to_owned())),
    );
    differences
}

fn by_tag(fields: &[FieldDigest]) -> BTreeMap<&str, Vec<Digest>> {
    let mut values = BTreeMap::<_, Vec<_>>::new();
    for field in fields {
        values
            .entry(field.tag.as_str())
            .or_default()
            .push(field.digest);
    }
    values
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::key::KeyBuilder;

    fn compare(key: KeyBuilder, entry: KeyBuilder) -> Vec<Difference> {
        field_differences(key.finish().fields(), entry.finish().fields())
    }

    #[test]
    fn differences_are_named_by_field() {
        let base = || {
            KeyBuilder::new("s")
                .field("source", "a")
                .field("arch", "sm_90")
        };
        assert_eq!(compare(base(), base()), []);
        let found = compare(
            base()
                .field("define", "X")
                .field("define", "Y")
                .field("new", ""),
            KeyBuilder::new("s")
                .field("arch", "sm_90a")
                .field("source", "a")
                .field("define", "X")
                .field("old", ""),
        );
        assert_eq!(
            found,
            [
                Difference::Changed("arch".into()),
                Difference::Changed("define".into()),
                Difference::OnlyInKey("new".into()),
                Difference::OnlyInEntry("old".into()),
            ]
        );
    }
}
