//! Canonical shapes: the sizes that kernels are compiled for.
//!
//! The canonical shape of a point is the vector of the buckets of its values: a pure function of
//! the point and the bucket lists, independent of the rest of the sweep. It dominates the point:
//! every bound is at least the value. Beyond the last bucket it is the next power of two, never a
//! clamp.

use std::collections::BTreeMap;
use std::sync::Arc;

use sweeper_program::CanonicalShape;

use crate::grid::{Grid, Point, slot_of};
use crate::model::case::{Case, VARIANTS};
use crate::model::manifest::Manifest;
use sweeper_model::expression::{Kind, Operand};

/// The least bucket that is at least `value`; beyond the last one the next power of two.
///
/// `buckets` ascend. A value over 2^63 is its own bucket.
pub fn bucket(buckets: &[u64], value: u64) -> u64 {
    let index = buckets.partition_point(|bucket| *bucket < value);
    match buckets.get(index) {
        Some(bucket) => *bucket,
        None => value.checked_next_power_of_two().unwrap_or(value),
    }
}

/// The buckets of one case: by axis or derived value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Buckets {
    /// Name, slot and ascending buckets of each dimension of a canonical shape, by name.
    dimensions: Vec<(Arc<str>, usize, Vec<u64>)>,
}

impl Buckets {
    /// The buckets of a case: the manifest's, or the workload's where the manifest has none for any
    /// integer of the case.
    pub fn of(manifest: &Manifest, case: &Case) -> Self {
        let given = manifest.plan.buckets.iter();
        let mut dimensions: Vec<_> = given
            .filter_map(|(name, list)| {
                Some((name.clone(), integer_slot(case, name)?, list.clone()))
            })
            .collect();
        if dimensions.is_empty() {
            let defaults = case.workload.info.buckets.iter();
            dimensions = defaults
                .filter_map(|(name, list)| {
                    Some((Arc::from(*name), integer_slot(case, name)?, list.to_vec()))
                })
                .collect();
        }
        dimensions.sort();
        Buckets { dimensions }
    }

    /// Value and bound of each dimension.
    fn bounds(&self, slots: &[Operand<'_>], found: &mut Vec<(u64, u64)>) {
        found.clear();
        for (_, slot, list) in &self.dimensions {
            let value = match slots[*slot] {
                Operand::Int(value) => u64::try_from(value).unwrap_or(0),
                _ => 0,
            };
            found.push((value, bucket(list, value)));
        }
    }

    fn shape(&self, bounds: &[(u64, u64)]) -> CanonicalShape {
        let names = self.dimensions.iter().map(|(name, ..)| name.to_string());
        CanonicalShape::new(names.zip(bounds.iter().map(|(_, bound)| *bound)))
    }
}

/// The slot of an axis or derived value that is an integer.
fn integer_slot(case: &Case, name: &str) -> Option<usize> {
    let slot = slot_of(case, name)?;
    let kind = match case.variables.get(slot) {
        Some(variable) => Kind::of(&case.dimensions[variable.dimension].rows[0][variable.column]),
        None => case.derived[slot - case.variables.len()].expression.kind(),
    };
    (kind == Kind::Int).then_some(VARIANTS + slot)
}

/// The canonical shapes of all points of a grid.
#[derive(Clone, Debug, PartialEq)]
pub struct Canonical {
    shapes: Vec<CanonicalShape>,
    of_point: Vec<u32>,
    waste: Vec<Waste>,
}

/// The waste of padding to a bucket, over the points of a grid that have the dimension.
#[derive(Clone, Debug, PartialEq)]
pub struct Waste {
    /// The axis or derived value.
    pub name: Arc<str>,
    /// Mean of 1 - value / bound.
    pub mean: f64,
    /// Greatest 1 - value / bound.
    pub max: f64,
}

impl Canonical {
    /// Gives every point of `grid` its canonical shape.
    pub fn of(grid: &Grid<'_>) -> Self {
        let mut interner = Interner::default();
        let mut waste: BTreeMap<Arc<str>, (f64, f64, u64)> = BTreeMap::new();
        let mut of_point = Vec::with_capacity(grid.points().len());
        let points = grid.points();
        let mut start = 0;
        for (index, case) in grid.manifest().cases.iter().enumerate() {
            let buckets = Buckets::of(grid.manifest(), case);
            let count = points[start..].partition_point(|point| usize::from(point.case) == index);
            let mut sums = vec![(0.0, 0.0f64); buckets.dimensions.len()];
            assign(
                grid,
                index,
                &points[start..start + count],
                &buckets,
                |bounds| {
                    of_point.push(interner.number(&buckets, bounds));
                    for ((sum, max), (value, bound)) in sums.iter_mut().zip(bounds) {
                        let lost = 1.0 - *value as f64 / *bound as f64;
                        *sum += lost;
                        *max = max.max(lost);
                    }
                },
            );
            for ((name, ..), (sum, max)) in buckets.dimensions.iter().zip(sums) {
                let held = waste.entry(name.clone()).or_default();
                *held = (held.0 + sum, held.1.max(max), held.2 + count as u64);
            }
            start += count;
            interner.next_case();
        }
        let waste = waste.into_iter().filter(|(_, (_, _, count))| *count > 0);
        Canonical {
            shapes: interner.shapes,
            of_point,
            waste: waste
                .map(|(name, (sum, max, count))| Waste {
                    name,
                    mean: sum / count as f64,
                    max,
                })
                .collect(),
        }
    }

    /// All canonical shapes, each once, in order of appearance.
    pub fn shapes(&self) -> &[CanonicalShape] {
        &self.shapes
    }

    /// The canonical shape of `grid.points()[index]`.
    pub fn shape(&self, index: usize) -> &CanonicalShape {
        &self.shapes[self.number(index)]
    }

    /// The canonical shape of `grid.points()[index]`, as an index into [`Canonical::shapes`].
    pub fn number(&self, index: usize) -> usize {
        self.of_point[index] as usize
    }

    /// The waste of padding, by dimension.
    pub fn waste(&self) -> &[Waste] {
        &self.waste
    }
}

/// Calls `each` with the values and bounds of every point of one case.
fn assign(
    grid: &Grid<'_>,
    case: usize,
    points: &[Point],
    buckets: &Buckets,
    mut each: impl FnMut(&[(u64, u64)]),
) {
    let mut reader = grid.reader(case);
    let mut bounds = Vec::new();
    for point in points {
        match reader.of(*point) {
            Ok(slots) => buckets.bounds(slots, &mut bounds),
            Err(_) => bounds.clear(),
        }
        each(&bounds);
    }
}

/// Numbers shapes in order of appearance.
#[derive(Default)]
struct Interner {
    shapes: Vec<CanonicalShape>,
    numbers: BTreeMap<Vec<u64>, u32>,
    scratch: Vec<u64>,
}

impl Interner {
    /// Bounds mean nothing in another case, which may have other names.
    fn next_case(&mut self) {
        self.numbers.clear();
    }

    fn number(&mut self, buckets: &Buckets, bounds: &[(u64, u64)]) -> u32 {
        self.scratch.clear();
        self.scratch.extend(bounds.iter().map(|(_, bound)| *bound));
        if let Some(number) = self.numbers.get(&self.scratch) {
            return *number;
        }
        let shape = buckets.shape(bounds);
        let held = self.shapes.iter().position(|held| *held == shape);
        let number = held.unwrap_or(self.shapes.len()) as u32;
        if held.is_none() {
            self.shapes.push(shape);
        }
        self.numbers.insert(self.scratch.clone(), number);
        number
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn ascending() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::btree_set(1u64..5000, 1..12)
            .prop_map(|buckets| buckets.into_iter().collect())
    }

    proptest! {
        #[test]
        fn a_bucket_dominates_and_is_tight(buckets in ascending(), value in 0u64..20_000) {
            let bound = bucket(&buckets, value);
            prop_assert!(bound >= value);
            prop_assert!(bound < 2 * value.max(1) || buckets.contains(&bound));
            prop_assert!(!buckets.iter().any(|held| *held >= value && *held < bound));
        }

        #[test]
        fn buckets_are_monotone_and_idempotent(
            buckets in ascending(), a in 0u64..20_000, b in 0u64..20_000,
        ) {
            let (low, high) = (a.min(b), a.max(b));
            prop_assert!(bucket(&buckets, low) <= bucket(&buckets, high));
            let bound = bucket(&buckets, a);
            prop_assert_eq!(bucket(&buckets, bound), bound);
        }
    }

    #[test]
    fn beyond_the_last_bucket_is_the_next_power_of_two() {
        assert_eq!(bucket(&[12, 288], 289), 512);
        assert_eq!(bucket(&[12, 288], 512), 512);
        assert_eq!(bucket(&[], u64::MAX), u64::MAX);
    }
}
