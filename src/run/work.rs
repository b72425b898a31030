//! The points that this process measures: all of a plan's, or those of a shard.

use std::collections::HashSet;

use sweeper_manifest::plan::deal::Deal;
use sweeper_manifest::plan::{Outline, Plan};
use sweeper_model::identity::{Digest, PointId};
use sweeper_model::shard::{Part, Shard};

/// The work of this process.
pub(super) struct Work<'m> {
    filled: Filled<'m>,
    /// The points, in the order of the grid.
    pub(super) points: Vec<PointId>,
    /// Points of the whole run.
    pub(super) run_points: usize,
}

/// A plan as far as it was needed. The points of a shard follow from costs, which take a whole
/// plan.
enum Filled<'m> {
    Outline(Outline<'m>),
    Dealt(Plan<'m>, Shard, Deal),
}

impl<'m> Work<'m> {
    pub(super) fn of(outline: Outline<'m>, part: Part) -> Self {
        let shard = match part {
            Part::Whole => {
                let points = outline.points();
                return Work {
                    run_points: points.len(),
                    points,
                    filled: Filled::Outline(outline),
                };
            }
            Part::Shard(shard) => shard,
        };
        let plan = outline.fill();
        let deal = plan.deal(shard.count);
        let mut numbers: Vec<u32> = own_blocks(&plan, &deal, shard)
            .flat_map(|block| plan.blocks[block].points.iter().copied())
            .collect();
        numbers.sort_unstable();
        let points = numbers.iter();
        Work {
            points: points
                .map(|&point| plan.points[point as usize].id)
                .collect(),
            run_points: plan.points.len(),
            filled: Filled::Dealt(plan, shard, deal),
        }
    }

    /// Digest of the plan that was dealt out.
    pub(super) fn digest(&self) -> Option<Digest> {
        match &self.filled {
            Filled::Outline(_) => None,
            Filled::Dealt(_, _, deal) => Some(deal.digest),
        }
    }

    /// The whole plan, and the part of it that this process measures.
    pub(super) fn plan(self) -> (Plan<'m>, Own) {
        match self.filled {
            Filled::Outline(outline) => (outline.fill(), Own::All),
            Filled::Dealt(plan, shard, deal) => {
                let blocks = own_blocks(&plan, &deal, shard).collect();
                (plan, Own::Blocks { shard, blocks })
            }
        }
    }
}

fn own_blocks(plan: &Plan<'_>, deal: &Deal, shard: Shard) -> impl Iterator<Item = usize> {
    (0..plan.blocks.len()).filter(move |&block| deal.has(shard, block))
}

/// The part of a plan that this process measures.
pub(super) enum Own {
    All,
    /// Positions in [`Plan::blocks`].
    Blocks {
        shard: Shard,
        blocks: Vec<usize>,
    },
}

impl Own {
    /// Leaves only these blocks in a plan. Returns the points of the others.
    pub(super) fn keep(&self, plan: &mut Plan<'_>) -> HashSet<PointId> {
        let Own::Blocks { blocks, .. } = self else {
            return HashSet::new();
        };
        let mut own = blocks.iter().copied().peekable();
        let (mut position, mut elsewhere) = (0, Vec::new());
        plan.blocks.retain(|block| {
            let is_own = own.next_if_eq(&position).is_some();
            position += 1;
            if !is_own {
                elsewhere.extend_from_slice(&block.points);
            }
            is_own
        });
        let points = elsewhere.into_iter();
        points.map(|point| plan.points[point as usize].id).collect()
    }

    /// True if this process writes the rows of points that the manifest leaves out: one of all
    /// does.
    pub(super) fn has_skips(&self) -> bool {
        match self {
            Own::All => true,
            Own::Blocks { shard, .. } => shard.index == 1,
        }
    }
}
