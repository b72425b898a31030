//! The sampling of the published semi-Markov CRF benchmark (the semi-CRF guide), reproduced
//! exactly.
//!
//! A configuration (T, K, C) is mapped to a canonical shape: the first bucket of T and of K x C
//! that is at least the value, *else the last*; then the divisor pair (k, c) of the K x C bucket
//! that minimises |k - K| + 0.5 |c - C|, the least k among equals. Configurations are grouped by
//! shape, shapes ordered by T K C, some of them taken evenly, and some configurations of each,
//! ordered the same way. Everything else is dropped, and shapes can be smaller than their
//! configurations: both are why this is a named strategy, and not how plans are made otherwise.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::grid::walk::Walker;
use crate::grid::{Grid, Point};
use crate::manifest::Manifest;
use crate::manifest::expression::Operand;
use crate::manifest::rules::VARIANTS;

/// The published buckets of T.
pub const T_BUCKETS: &[u64] = &[64, 128, 256, 512, 1024, 2048];

/// The published buckets of K x C.
pub const KC_BUCKETS: &[u64] = &[12, 24, 48, 72, 96, 144, 192, 288];

/// T, K and C of a point.
pub type Configuration = [u64; 3];

/// T, K and C of a canonical shape.
pub type Shape = [u64; 3];

/// The buckets of T and of K x C, ascending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buckets<'a> {
    /// Of T.
    pub t: &'a [u64],
    /// Of K x C.
    pub kc: &'a [u64],
}

impl Buckets<'static> {
    /// The published ones.
    pub const PUBLISHED: Self = Buckets {
        t: T_BUCKETS,
        kc: KC_BUCKETS,
    };
}

impl<'a> Buckets<'a> {
    /// The manifest's buckets of T and KC, or the published ones.
    pub fn of(manifest: &'a Manifest) -> Self {
        let list = |wanted: &str, default: &'static [u64]| {
            let found = manifest
                .plan
                .buckets
                .iter()
                .find(|(name, _)| &**name == wanted);
            found.map_or(default, |(_, list)| list.as_slice())
        };
        Buckets {
            t: list("T", T_BUCKETS),
            kc: list("KC", KC_BUCKETS),
        }
    }

    /// The canonical shape of a configuration.
    pub fn shape(&self, [t, k, c]: Configuration) -> Shape {
        let kc = clamped(self.kc, k * c);
        let score = |divisor: &u64| 2 * divisor.abs_diff(k) + (kc / divisor).abs_diff(c);
        let divisors = (1..=kc).filter(|divisor| kc.is_multiple_of(*divisor));
        // Of equal scores `min_by_key` keeps the first, as the published loop does.
        let best = divisors.min_by_key(score).unwrap_or(k);
        [clamped(self.t, t), best, kc / best.max(1)]
    }
}

/// The first bucket that is at least `value`, else the last.
fn clamped(buckets: &[u64], value: u64) -> u64 {
    let found = buckets.iter().find(|bucket| **bucket >= value);
    found.or(buckets.last()).copied().unwrap_or(value)
}

/// A canonical shape with its configurations, ordered by T K C.
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
/// Groups are ordered by T K C of their shape; of equal ones, by the first of their configurations.
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

fn size([t, k, c]: &[u64; 3]) -> u128 {
    u128::from(*t) * u128::from(*k) * u128::from(*c)
}

/// `count` indices of `length` that are evenly spread: round(i (length - 1) / (count - 1)), halves
/// to even, as Python rounds. All of them if there are no more; the first if one is wanted.
fn evenly(length: usize, count: usize) -> impl Iterator<Item = usize> {
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

/// T, K and C of the points of a case; `None` where one is no positive integer.
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
    ["T", "K", "C"].map(|name| crate::grid::slot_of(held, name))
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
        let groups = sample(&all, Buckets::PUBLISHED, 8, 2);
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
            let shape = Buckets::PUBLISHED.shape(**configuration);
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
        assert_eq!(Buckets::PUBLISHED.shape([4096, 48, 12])[0], 2048);
        let [_, k, c] = Buckets::PUBLISHED.shape([4096, 48, 12]);
        assert_eq!(k * c, 288);
    }
}
