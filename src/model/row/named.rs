//! Short lists of values by name, of which a million rows may hold one each.

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use serde::{Serialize, Serializer};

/// Values by name, in the order of the names. Clones share one list: a map of one value would be
/// half a kilobyte a row.
#[derive(Clone, PartialEq)]
pub struct Named<K, V>(Arc<[(K, V)]>);

impl<K, V> Default for Named<K, V> {
    fn default() -> Self {
        Named(Arc::new([]))
    }
}

impl<K: fmt::Debug, V: fmt::Debug> fmt::Debug for Named<K, V> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_map().entries(self.iter()).finish()
    }
}

impl<K: Serialize, V: Serialize> Serialize for Named<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.iter())
    }
}

impl<K: Ord, V> FromIterator<(K, V)> for Named<K, V> {
    /// Of several values of a name, the last.
    fn from_iter<I: IntoIterator<Item = (K, V)>>(values: I) -> Self {
        let mut values: Vec<(K, V)> = values.into_iter().collect();
        values.sort_by(|(one, _), (other, _)| one.cmp(other));
        values.dedup_by(|later, earlier| {
            let is_again = later.0 == earlier.0;
            if is_again {
                std::mem::swap(later, earlier);
            }
            is_again
        });
        Named(values.into())
    }
}

impl<K, V> Named<K, V> {
    /// Names and values.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&K, &V)> + Clone {
        self.0.iter().map(|(name, value)| (name, value))
    }

    /// The names.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &K> + Clone {
        self.0.iter().map(|(name, _)| name)
    }

    /// The values, in the order of their names.
    pub fn values(&self) -> impl ExactSizeIterator<Item = &V> + Clone {
        self.0.iter().map(|(_, value)| value)
    }

    /// The number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True without values.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The value of a name.
    pub fn get<Q: Ord + ?Sized>(&self, name: &Q) -> Option<&V>
    where
        K: Borrow<Q>,
    {
        let place = self.0.binary_search_by(|(held, _)| held.borrow().cmp(name));
        Some(&self.0[place.ok()?].1)
    }
}

impl<K: Ord + Clone, V: Clone> Named<K, V> {
    /// Adds a value, or puts it in the place of the one that the name has.
    pub fn insert(&mut self, name: K, value: V) {
        self.extend([(name, value)]);
    }
}

impl<K: Ord + Clone, V: Clone> Extend<(K, V)> for Named<K, V> {
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, values: I) {
        let held = self.0.iter().cloned();
        *self = held.chain(values).collect();
    }
}

/// The last lists that differed: rows of one problem follow each other, and hold equal ones.
#[derive(Debug)]
pub(super) struct Recent<T>(VecDeque<T>);

impl<T> Default for Recent<T> {
    fn default() -> Self {
        Recent(VecDeque::with_capacity(Self::MOST))
    }
}

impl<T> Recent<T> {
    /// The number of lists: more than one, since rows of several phases and types may take turns.
    const MOST: usize = 4;
}

impl<T: Clone + PartialEq> Recent<T> {
    /// A clone of an equal list, if one of the last is.
    pub(super) fn shared(&mut self, list: T) -> T {
        if let Some(held) = self.0.iter().find(|held| **held == list) {
            return held.clone();
        }
        if self.0.len() == Self::MOST {
            self.0.pop_front();
        }
        self.0.push_back(list.clone());
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_the_order_of_their_names_and_the_last_of_a_name_counts() {
        let mut named: Named<Arc<str>, i64> = [("k", 1), ("a", 2), ("k", 3)]
            .map(|(name, value)| (name.into(), value))
            .into_iter()
            .collect();
        assert_eq!(format!("{named:?}"), r#"{"a": 2, "k": 3}"#);
        let before = named.clone();
        named.insert("b".into(), 4);
        named.insert("a".into(), 5);
        assert_eq!(format!("{named:?}"), r#"{"a": 5, "b": 4, "k": 3}"#);
        assert_eq!(before.get("a"), Some(&2));
        assert_eq!((before.get("b"), named.get("b")), (None, Some(&4)));
    }

    #[test]
    fn equal_lists_are_one_while_they_follow_each_other() {
        let list = |value: i64| Named::from_iter([("n", value)]);
        let mut recent = Recent::default();
        let first = recent.shared(list(1));
        for value in [2, 3, 4, 1] {
            recent.shared(list(value));
        }
        assert!(Arc::ptr_eq(&first.0, &recent.shared(list(1)).0));
        recent.shared(list(5));
        assert!(!Arc::ptr_eq(&first.0, &recent.shared(list(1)).0));
    }
}
