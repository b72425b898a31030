//! The configurations of a backend: combinations of tuned values that its conditions allow.

use std::collections::BTreeSet;

use sha2::{Digest as _, Sha256};
use sweeper_program::Value;

use sweeper_model::expression::{Expression, Operand};

/// The most combinations of tuned values that are looked at.
const MOST_COMBINATIONS: usize = 1_000_000;

/// Every combination of tuned values that conditions over these alone allow, the last name
/// fastest; one without values where nothing is tuned. Where a sample is wanted, so many of them:
/// the first, which is the default, and those whose names have the least digests, so that a sample
/// of a larger space has most of the same. Of a space that is too large to be looked at as a whole
/// they are drawn, each combination alike, always the same ones.
///
/// `None` where more than [`MOST_COMBINATIONS`] have to be looked at.
pub(crate) fn configurations(
    parameters: usize,
    tune: &[(String, Vec<Value>)],
    rules: &[Expression],
    sample: Option<u32>,
) -> Option<Vec<Vec<Value>>> {
    let space = Space::new(parameters, tune, rules);
    let sample = sample.map(|sample| sample as usize);
    match (space.all(), sample) {
        (Some(mut all), Some(sample)) if all.len() > sample => {
            let digest = |values: &Vec<Value>| Sha256::digest(format!("{values:?}"));
            let mut others = all.split_off(1);
            others.sort_by_cached_key(digest);
            all.extend(others.into_iter().take(sample.saturating_sub(1)));
            Some(all)
        }
        (Some(all), _) => Some(all),
        (None, Some(sample)) => space.drawn(sample),
        (None, None) => None,
    }
}

/// Axes with the conditions that are due once each has a value.
struct Space<'t> {
    /// Slots of expressions before those of the axes.
    parameters: usize,
    axes: Vec<&'t [Value]>,
    due: Vec<Vec<&'t Expression>>,
}

impl<'t> Space<'t> {
    fn new(parameters: usize, tune: &'t [(String, Vec<Value>)], rules: &'t [Expression]) -> Self {
        let due = (0..tune.len()).map(|at| {
            let (new, known) = (parameters + at, parameters..=parameters + at);
            let is_due = |rule: &&Expression| {
                let slots = rule.slots();
                slots.contains(&new) && slots.iter().all(|slot| known.contains(slot))
            };
            rules.iter().filter(is_due).collect()
        });
        Space {
            parameters,
            axes: tune.iter().map(|(_, values)| values.as_slice()).collect(),
            due: due.collect(),
        }
    }

    /// Whether the values of the first axes meet the conditions that the last of these makes due.
    fn allows(&self, values: &[&Value]) -> bool {
        let Some(due) = values.len().checked_sub(1).map(|at| &self.due[at]) else {
            return true;
        };
        if due.is_empty() {
            return true;
        }
        let mut slots = vec![Operand::Int(0); self.parameters];
        slots.extend(values.iter().copied().map(Operand::from));
        due.iter().all(|rule| rule.holds(&slots) != Ok(false))
    }

    /// Calls `found` with each allowed combination until it says that it has enough. `None` where
    /// too many were looked at before.
    fn visit(&self, mut found: impl FnMut(&[&'t Value]) -> bool) -> Option<()> {
        let mut places = vec![0];
        let mut values: Vec<&Value> = Vec::new();
        let mut looked_at = vec![0; self.axes.len()];
        while let Some(place) = places.last_mut() {
            let at = values.len();
            if at == self.axes.len() {
                if found(&values) {
                    return Some(());
                }
            } else if let Some(value) = self.axes[at].get(*place) {
                *place += 1;
                looked_at[at] += 1;
                if looked_at[at] > MOST_COMBINATIONS {
                    return None;
                }
                values.push(value);
                if self.allows(&values) {
                    places.push(0);
                } else {
                    values.pop();
                }
                continue;
            }
            places.pop();
            values.pop();
        }
        Some(())
    }

    fn all(&self) -> Option<Vec<Vec<Value>>> {
        let mut all = Vec::new();
        self.visit(|values| {
            all.push(values.iter().map(|&value| value.clone()).collect());
            false
        })?;
        Some(all)
    }

    /// The first combination, and others by chance: fewer where few of those drawn are allowed.
    fn drawn(&self, count: usize) -> Option<Vec<Vec<Value>>> {
        let mut first = None;
        self.visit(|values| {
            first = Some(values.to_vec());
            true
        })?;
        let mut drawn = vec![first?];
        let mut seen: BTreeSet<String> = drawn.iter().map(|values| format!("{values:?}")).collect();
        for number in 0..MOST_COMBINATIONS as u64 {
            if drawn.len() >= count {
                break;
            }
            let values = self.combination(number);
            let is_allowed = (1..=values.len()).all(|held| self.allows(&values[..held]));
            if is_allowed && seen.insert(format!("{values:?}")) {
                drawn.push(values);
            }
        }
        let owned = drawn.into_iter().map(|values| values.into_iter().cloned());
        Some(owned.map(Iterator::collect).collect())
    }

    /// A combination by chance, the same for the same number.
    fn combination(&self, number: u64) -> Vec<&'t Value> {
        let axes = self.axes.iter().enumerate();
        let value = |(axis, values): (usize, &&'t [Value])| {
            let digest = Sha256::new()
                .chain_update(number.to_le_bytes())
                .chain_update(axis.to_le_bytes())
                .finalize();
            let mut word = [0; 8];
            word.copy_from_slice(&digest[..8]);
            &values[(u64::from_le_bytes(word) % values.len() as u64) as usize]
        };
        axes.map(value).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::user::scope::{compile, number};
    use sweeper_model::expression::{Kind, Scope};

    fn space(sizes: &[i64], rules: &[&str], sample: Option<u32>) -> Option<Vec<Vec<Value>>> {
        let names = ["a", "b", "c", "d"].into_iter();
        let tune: Vec<(String, Vec<Value>)> = names
            .zip(sizes)
            .map(|(name, &size)| (name.to_owned(), (0..size).map(Value::Int).collect()))
            .collect();
        let scope = Scope {
            names: tune
                .iter()
                .map(|(name, _)| number(name, Kind::Int))
                .collect(),
        };
        let rules = rules.iter().map(|rule| compile(rule, &scope).unwrap());
        configurations(0, &tune, &rules.collect::<Vec<_>>(), sample)
    }

    fn numbers(found: &[Vec<Value>]) -> Vec<Vec<i64>> {
        let number = |value: &Value| match value {
            Value::Int(value) => *value,
            other => panic!("{other:?}"),
        };
        found
            .iter()
            .map(|values| values.iter().map(number).collect())
            .collect()
    }

    #[test]
    fn all_are_in_order_and_meet_their_conditions() {
        let found = space(&[3, 2, 2], &["a + b < 3", "c == 0 or a == 1"], None).unwrap();
        let mut expected = Vec::new();
        for a in 0..3 {
            for b in 0..2 {
                for c in 0..2 {
                    if a + b < 3 && (c == 0 || a == 1) {
                        expected.push(vec![a, b, c]);
                    }
                }
            }
        }
        assert_eq!(numbers(&found), expected);
        assert_eq!(space(&[], &[], None).unwrap(), [Vec::new()]);
        assert!(space(&[2, 2], &["a > 5"], None).unwrap().is_empty());
    }

    #[test]
    fn a_space_too_large_to_be_looked_at_is_sampled() {
        let sizes = [2000, 2000, 2000, 2];
        assert!(space(&sizes, &[], None).is_none());
        let rule = ["a % 2 == 1 and b > a"];
        let found = numbers(&space(&sizes, &rule, Some(50)).unwrap());
        assert_eq!((found.len(), &found[0]), (50, &vec![1, 2, 0, 0]));
        assert!(
            found
                .iter()
                .all(|held| held[0] % 2 == 1 && held[1] > held[0])
        );
        let distinct: BTreeSet<_> = found.iter().collect();
        assert_eq!(distinct.len(), 50);
        assert_eq!(found, numbers(&space(&sizes, &rule, Some(50)).unwrap()));
        // The last axis has both of its values, and the first ones are spread over theirs.
        assert!(found.iter().any(|held| held[3] == 1) && found.iter().any(|held| held[3] == 0));
        assert!(found.iter().any(|held| held[0] > 500) && found.iter().any(|held| held[2] > 1500));
    }
}
