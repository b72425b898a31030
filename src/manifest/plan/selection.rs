//! The points of a grid that are measured: those that sampling and the budget leave.

use std::collections::{BTreeMap, BTreeSet};

use super::published::{Group, Sampling, evenly};
use crate::grid::Grid;
use crate::model::settings::Canonical;

/// The points of a grid that are measured, and how the others were left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Positions in [`Grid::points`], ascending.
    pub chosen: Vec<u32>,
    /// The published sampling, where the manifest asks for it.
    pub published: Option<Sampling>,
    /// For each point of the grid whether sampling leaves it.
    kept: Vec<bool>,
    /// How many points sampling left out.
    pub sampled_out: u64,
    /// How many `limits.max_points` cut off after that.
    pub over_budget: u64,
}

impl Selection {
    /// Selects by a manifest's `[plan]` and `[limits]`.
    pub fn of(grid: &Grid<'_>) -> Self {
        let all = 0..grid.points().len() as u32;
        let published = match grid.manifest().plan.canonical {
            Canonical::Dominating => None,
            Canonical::Published {
                max_canonical_shapes,
                samples_per_shape,
            } => Some(Sampling::of(grid, max_canonical_shapes, samples_per_shape)),
        };
        let kept = published.as_ref().map(|sampling| sampling.kept.clone());
        let mut kept = kept.unwrap_or_else(|| vec![true; grid.points().len()]);
        if let Some(count) = grid.manifest().limits.sample_configs {
            let count = usize::try_from(count).unwrap_or(usize::MAX);
            keep_some(grid, count, &mut kept);
        }
        let mut chosen: Vec<u32> = all.filter(|index| kept[*index as usize]).collect();
        let sampled = chosen.len();
        if let Some(budget) = grid.manifest().limits.max_points {
            chosen.truncate(usize::try_from(budget).unwrap_or(usize::MAX));
        }
        Selection {
            sampled_out: (grid.points().len() - sampled) as u64,
            over_budget: (sampled - chosen.len()) as u64,
            chosen,
            published,
            kept,
        }
    }

    /// True if `grid.points()[index]` is measured.
    pub fn has(&self, index: usize) -> bool {
        let index = u32::try_from(index);
        index.is_ok_and(|index| self.chosen.binary_search(&index).is_ok())
    }

    /// True if sampling leaves `grid.points()[index]` out.
    pub fn is_sampled_out(&self, index: usize) -> bool {
        !self.kept[index]
    }

    /// How many points of a case sampling leaves, and how many of these the budget does.
    pub fn left(&self, grid: &Grid<'_>, case: usize) -> [u64; 2] {
        let is_its = |index: usize| usize::from(grid.points()[index].case) == case;
        let of_case = 0..grid.points().len();
        let sampled = of_case.filter(|&index| is_its(index) && !self.is_sampled_out(index));
        let chosen = self.chosen.iter().filter(|&&index| is_its(index as usize));
        [sampled.count() as u64, chosen.count() as u64]
    }
}

/// Keeps so many configurations of each case that are left, spread over its grid from end to end,
/// with all their backends and phases.
fn keep_some(grid: &Grid<'_>, count: usize, kept: &mut [bool]) {
    let mut left: BTreeMap<u16, BTreeSet<u64>> = BTreeMap::new();
    let points = grid.points().iter().zip(kept.iter_mut());
    for (point, _) in points.filter(|(_, kept)| **kept) {
        left.entry(point.case).or_default().insert(point.code);
    }
    for codes in left.values_mut() {
        let all: Vec<u64> = codes.iter().copied().collect();
        *codes = evenly(all.len(), count).map(|at| all[at]).collect();
    }
    for (point, kept) in grid.points().iter().zip(kept) {
        let codes = left.get(&point.case);
        *kept &= codes.is_some_and(|codes| codes.contains(&point.code));
    }
}

/// How many shapes and configurations the published sampling takes of a case's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Taken {
    /// Canonical shapes that are measured.
    pub shapes: usize,
    /// All canonical shapes.
    pub of_shapes: usize,
    /// Configurations that are measured.
    pub configurations: usize,
    /// All configurations.
    pub of_configurations: usize,
}

impl Taken {
    /// Counts.
    pub fn of(groups: &[Group]) -> Self {
        let taken = groups.iter().filter(|group| !group.chosen.is_empty());
        Taken {
            shapes: taken.count(),
            of_shapes: groups.len(),
            configurations: groups.iter().map(|group| group.chosen.len()).sum(),
            of_configurations: groups.iter().map(|group| group.members.len()).sum(),
        }
    }
}
