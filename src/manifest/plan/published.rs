//! The sampling of a published benchmark, reproduced exactly: that of the semi-CRF guide, whose
//! sizes and buckets its workload has
//! ([`PublishedSampling`](sweeper_program::workload::PublishedSampling)).
//!
//! A configuration (a, b, c) is mapped to a canonical shape: the first bucket of a and of b x c
//! that is at least the value, *else the last*; then the divisor pair (l, r) of the b x c bucket
//! that minimises |l - b| + 0.5 |r - c|, the least l among equals. Configurations are grouped by
//! shape, shapes ordered by a b c, some of them taken evenly, and some configurations of each,
//! ordered the same way. Everything else is dropped, and shapes can be smaller than their
//! configurations: both are why this is a named strategy, and not how plans are made otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use serde_json::Value as Json;

use crate::grid::walk::Walker;
use crate::grid::{Grid, Point};
use crate::model::case::VARIANTS;
use crate::model::manifest::Manifest;
use crate::model::settings::Canonical;
use sweeper_model::expression::Operand;

/// The three sizes of a point.
pub type Configuration = [u64; 3];

/// The three sizes of a canonical shape.
pub type Shape = [u64; 3];

/// The sizes by name.
fn names() -> [&'static str; 3] {
    Canonical::published_sampling().map_or([""; 3], |sampling| sampling.sizes)
}

/// A configuration or a shape in words.
pub fn in_words(sizes: &[u64; 3]) -> String {
    let named = names().into_iter().zip(sizes);
    let words: Vec<String> = named.map(|(name, size)| format!("{name}={size}")).collect();
    words.join(" ")
}

/// A configuration or a shape as JSON.
pub fn json(sizes: &[u64; 3]) -> Json {
    let named = names().into_iter().zip(sizes);
    Json::Object(
        named
            .map(|(name, size)| (name.to_owned(), Json::from(*size)))
            .collect(),
    )
}

/// The buckets of the first size and of the product of the two others, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets<'a> {
    /// Of the first size.
    pub first: &'a [u64],
    /// Of the product.
    pub product: &'a [u64],
}

impl<'a> Buckets<'a> {
    /// The manifest's buckets, or the published ones.
    pub fn of(manifest: &'a Manifest) -> Self {
        Buckets::chosen(|wanted| {
            let mut given = manifest.plan.buckets.iter();
            let found = given.find(|(name, _)| &**name == wanted);
            found.map(|(_, list)| list.as_slice())
        })
    }

    /// The published buckets, but for those of which `given` has others.
    fn chosen(given: impl Fn(&str) -> Option<&'a [u64]>) -> Self {
        let buckets = Canonical::published_sampling().map(|sampling| sampling.buckets);
        let buckets = buckets.unwrap_or_default();
        let [first, product] = buckets.map(|(name, default)| given(name).unwrap_or(default));
        Buckets { first, product }
    }

    /// The canonical shape of a configuration.
    pub fn shape(&self, [a, b, c]: Configuration) -> Shape {
        let product = clamped(self.product, b * c);
        let score = |left: &u64| 2 * left.abs_diff(b) + (product / left).abs_diff(c);
        let divisors = (1..=product).filter(|left| product.is_multiple_of(*left));
        // Of equal scores `min_by_key` keeps the first, as the published loop does.
        let best = divisors.min_by_key(score).unwrap_or(b);
        [clamped(self.first, a), best, product / best.max(1)]
    }
}

/// The first bucket that is at least `value`, else the last.
fn clamped(buckets: &[u64], value: u64) -> u64 {
    let found = buckets.iter().find(|bucket| **bucket >= value);
    found.or(buckets.last()).copied().unwrap_or(value)
}

/// A canonical shape with its configurations, ordered by the product of their sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The shape.
    pub shape: Shape,
    /// All configurations that are mapped to it.
    pub members: Vec<Configuration>,
    /// The configurations that are measured; none if the shape was not taken.
    pub chosen: Vec<Configuration>,
}

/// Groups configurations and takes at most `max_shapes` groups and `samples` members of each.
///
/// Groups are ordered by the product of their shape's sizes; of equal ones, by the first of their
/// configurations.
pub fn sample(
    configurations: &BTreeSet<Configuration>,
    buckets: Buckets<'_>,
    max_shapes: usize,
    samples: usize,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut index_of: BTreeMap<Shape, usize> = BTreeMap::new();
    for configuration in configurations {
        let shape = buckets.shape(*configuration);
        let index = *index_of.entry(shape).or_insert(groups.len());
        if index == groups.len() {
            groups.push(Group {
                shape,
                members: Vec::new(),
                chosen: Vec::new(),
            });
        }
        groups[index].members.push(*configuration);
    }
    groups.sort_by_key(|group| size(&group.shape));
    for index in evenly(groups.len(), max_shapes) {
        let group = &mut groups[index];
        group.members.sort_by_key(size);
        let members = &group.members;
        group.chosen = evenly(members.len(), samples)
            .map(|index| members[index])
            .collect();
    }
    groups
}

fn size(sizes: &[u64; 3]) -> u128 {
    sizes.iter().map(|size| u128::from(*size)).product()
}

/// `count` indices of `length` that are evenly spread: round(i (length - 1) / (count - 1)), halves
/// to even, as Python rounds. All of them if there are no more; the first if one is wanted.
pub(super) fn evenly(length: usize, count: usize) -> impl Iterator<Item = usize> {
    let taken = count.min(length);
    (0..taken).map(move |index| {
        if length <= count || count == 1 {
            return index;
        }
        let (numerator, denominator) = (index * (length - 1), count - 1);
        let (quotient, rest) = (numerator / denominator, numerator % denominator);
        let up = match (2 * rest).cmp(&denominator) {
            std::cmp::Ordering::Less => false,
            std::cmp::Ordering::Greater => true,
            std::cmp::Ordering::Equal => quotient % 2 == 1,
        };
        quotient + usize::from(up)
    })
}

/// The published sampling of a grid.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sampling {
    /// Groups of all cases; a case's follow those of the case before.
    pub groups: Vec<Group>,
    /// The places in `groups` of each case's.
    pub of_case: Vec<Range<usize>>,
    /// For each point of the grid whether it is measured.
    pub kept: Vec<bool>,
}

impl Sampling {
    /// Samples each case by itself. Every variant of a chosen configuration is measured.
    pub fn of(grid: &Grid<'_>, max_shapes: u32, samples: u32) -> Self {
        let buckets = Buckets::of(grid.manifest());
        let mut sampling = Sampling {
            groups: Vec::new(),
            of_case: Vec::new(),
            kept: Vec::with_capacity(grid.points().len()),
        };
        for case in 0..grid.manifest().cases.len() {
            let configurations = configurations(grid, case);
            let all: BTreeSet<Configuration> = configurations.iter().flatten().copied().collect();
            let groups = sample(&all, buckets, max_shapes as usize, samples as usize);
            let chosen: BTreeSet<Configuration> = groups
                .iter()
                .flat_map(|group| &group.chosen)
                .copied()
                .collect();
            let kept = configurations
                .iter()
                .map(|held| held.is_none_or(|configuration| chosen.contains(&configuration)));
            sampling.kept.extend(kept);
            let first = sampling.groups.len();
            sampling.groups.extend(groups);
            sampling.of_case.push(first..sampling.groups.len());
        }
        sampling
    }

    /// The groups of a case.
    pub fn groups_of(&self, case: usize) -> &[Group] {
        let places = self.of_case.get(case).cloned();
        &self.groups[places.unwrap_or_default()]
    }

    /// The group of a point of the grid, and its configuration.
    pub fn group(&self, grid: &Grid<'_>, point: Point) -> Option<(&Group, Configuration)> {
        let case = usize::from(point.case);
        let configuration = configuration(&mut grid.reader(case), slots(grid, case), point)?;
        let shape = Buckets::of(grid.manifest()).shape(configuration);
        let mut groups = self.groups_of(case).iter();
        let group = groups.find(|group| group.shape == shape)?;
        Some((group, configuration))
    }
}

/// The configurations of the points of a case; `None` where a size is not a positive integer.
fn configurations(grid: &Grid<'_>, case: usize) -> Vec<Option<Configuration>> {
    let slots = slots(grid, case);
    let mut reader = grid.reader(case);
    let points = grid.points().iter();
    points
        .filter(|point| usize::from(point.case) == case)
        .map(|point| configuration(&mut reader, slots, *point))
        .collect()
}

fn slots(grid: &Grid<'_>, case: usize) -> [Option<usize>; 3] {
    let held = &grid.manifest().cases[case];
    names().map(|name| crate::grid::slot_of(held, name))
}

fn configuration(
    reader: &mut Walker<'_, '_>,
    slots: [Option<usize>; 3],
    point: Point,
) -> Option<Configuration> {
    let values = reader.of(point).ok()?;
    let mut found = [0; 3];
    for (value, slot) in found.iter_mut().zip(slots) {
        let Operand::Int(held) = values[VARIANTS + slot?] else {
            return None;
        };
        *value = u64::try_from(held).ok().filter(|held| *held > 0)?;
    }
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn published() -> Buckets<'static> {
        Buckets::chosen(|_| None)
    }

    fn grid(k: &[u64]) -> BTreeSet<Configuration> {
        let mut found = BTreeSet::new();
        for t in [128, 256, 512, 1024] {
            for k in k {
                for c in [3, 6, 9, 12] {
                    found.insert([t, *k, c]);
                }
            }
        }
        found
    }

    #[test]
    fn the_default_grid_has_84_shapes_of_which_8_are_taken_and_11_configurations_measured() {
        let all = grid(&[4, 8, 12, 16, 20, 24]);
        assert_eq!(all.len(), 96);
        let groups = sample(&all, published(), 8, 2);
        assert_eq!(groups.len(), 84);
        assert_eq!(
            groups
                .iter()
                .filter(|group| !group.chosen.is_empty())
                .count(),
            8
        );
        assert_eq!(
            groups.iter().map(|group| group.chosen.len()).sum::<usize>(),
            11
        );
    }

    #[test]
    fn sixteen_configurations_are_larger_than_their_shape() {
        let smaller = |configuration: &&Configuration| {
            let shape = published().shape(**configuration);
            shape
                .iter()
                .zip(configuration.iter())
                .any(|(bound, value)| bound < value)
        };
        let all = grid(&[4, 8, 12, 16, 20, 24]);
        assert_eq!(all.iter().filter(smaller).count(), 16);
    }

    #[test]
    fn evenly_rounds_halves_to_even() {
        let taken = |length, count| evenly(length, count).collect::<Vec<_>>();
        assert_eq!(taken(84, 8), [0, 12, 24, 36, 47, 59, 71, 83]);
        assert_eq!(taken(6, 3), [0, 2, 5]);
        assert_eq!(taken(4, 3), [0, 2, 3]);
        assert_eq!(taken(3, 2), [0, 2]);
        assert_eq!(taken(3, 1), [0]);
        assert_eq!(taken(2, 5), [0, 1]);
        assert_eq!(taken(0, 5), [0; 0]);
    }

    #[test]
    fn values_beyond_the_last_bucket_are_clamped() {
        assert_eq!(published().shape([4096, 48, 12])[0], 2048);
        let [_, k, c] = published().shape([4096, 48, 12]);
        assert_eq!(k * c, 288);
    }
}
