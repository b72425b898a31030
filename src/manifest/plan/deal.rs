//! A plan dealt out to several processes, by predicted cost.
//!
//! The longest problem first, each to the shard with the least to do so far. It follows from the
//! plan and the number of shards alone, so that processes that never heard of each other agree.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::Plan;
use sweeper_model::identity::{Digest, Encoder, ProblemId};
use sweeper_model::shard::Shard;

/// Cost of a row, even of one without a measurement, in nanoseconds.
const ROW_NS: u64 = 100_000;

/// The shards of a plan.
pub struct Deal {
    /// The shard of each block, from 1.
    of_block: Vec<u32>,
    /// Digest of the points of the plan, and of the shard of each.
    pub digest: Digest,
}

impl Deal {
    /// True if a block belongs to a shard.
    pub fn has(&self, shard: Shard, block: usize) -> bool {
        self.of_block[block] == shard.index
    }
}

impl Plan<'_> {
    /// Deals the problems out to `count` shards. All blocks of one problem are in one shard, which
    /// makes its inputs and asks its oracle.
    pub fn deal(&self, count: u32) -> Deal {
        // Not this machine's threads: all machines must agree.
        let guesses = self.guesses(1);
        let mut problems: HashMap<ProblemId, usize> = HashMap::new();
        let mut costs: Vec<u64> = Vec::new();
        let of_block: Vec<usize> = self
            .blocks
            .iter()
            .map(|block| {
                let problem = *problems.entry(block.problem).or_insert_with(|| {
                    costs.push(0);
                    costs.len() - 1
                });
                let points = block.points.iter();
                let guess = points.map(|&point| guesses[point as usize].all_ns() as u64 + ROW_NS);
                costs[problem] = costs[problem].saturating_add(guess.sum());
                problem
            })
            .collect();
        let shards = longest_first(&costs, count);
        let of_block: Vec<u32> = of_block.iter().map(|&problem| shards[problem]).collect();
        let digest = self.digest(count, &of_block);
        Deal { of_block, digest }
    }

    fn digest(&self, count: u32, of_block: &[u32]) -> Digest {
        let mut encoder = Encoder::new("deal");
        encoder.unsigned("shards", count.into());
        encoder.list("blocks", self.blocks.len());
        for (block, &shard) in self.blocks.iter().zip(of_block) {
            encoder.unsigned("shard", shard.into());
            encoder.list("points", block.points.len());
            for &point in &block.points {
                encoder.digest("point", &self.points[point as usize].id.0);
            }
        }
        encoder.finish()
    }
}

/// The shard of each problem, from 1.
fn longest_first(costs: &[u64], count: u32) -> Vec<u32> {
    let mut order: Vec<usize> = (0..costs.len()).collect();
    // Stable: equal costs keep the plan's order.
    order.sort_by_key(|&problem| Reverse(costs[problem]));
    let mut loads: BinaryHeap<Reverse<(u64, u32)>> =
        (1..=count).map(|it| Reverse((0, it))).collect();
    let mut shards = vec![1; costs.len()];
    for problem in order {
        if let Some(Reverse((load, shard))) = loads.pop() {
            shards[problem] = shard;
            loads.push(Reverse((load.saturating_add(costs[problem]), shard)));
        }
    }
    shards
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::sources::Sources;
    use crate::model::case::registry;
    use crate::model::manifest::Manifest;
    use crate::plan::PlanDevice;
    use crate::resolve::overrides::Overrides;
    use sweeper_model::hardware::DeviceKind;
    use sweeper_program::Target;

    #[test]
    fn the_longest_come_first_and_loads_are_even() {
        assert_eq!(longest_first(&[1, 5, 2, 4, 3, 3], 2), [1, 1, 2, 2, 2, 1]);
        assert_eq!(longest_first(&[7, 7, 7], 5), [1, 2, 3]);
        assert_eq!(longest_first(&[], 3), [0u32; 0]);
    }

    #[test]
    fn problems_stay_whole_and_each_is_dealt_once() {
        let text = "schema = 1\nname = \"a\"\nabout = \"b\"\n[device]\nuse = \"null\"\n\
                    [null]\ntime_ns = \"1\"\n[grid]\nelements = [1, 2, 3, 4, 5, 6, 7]\n\
                    [case.one]\nworkload = \"copy\"\n[case.two]\nworkload = \"copy\"\n";
        let sources = Sources::from_text("m.toml", text);
        let manifest = Manifest::resolve(&sources, &Overrides::new(), &registry()).unwrap();
        let device = || PlanDevice {
            kind: DeviceKind::Null,
            target: Target::Cpu,
        };
        let plan = Plan::new(&manifest, device());
        let deal = plan.deal(3);
        let mut shard_of: HashMap<ProblemId, u32> = HashMap::new();
        for (block, &shard) in plan.blocks.iter().zip(&deal.of_block) {
            let held = *shard_of.entry(block.problem).or_insert(shard);
            assert_eq!(held, shard, "both cases have the problem");
            assert!((1..=3).contains(&shard));
        }
        let again = Plan::new(&manifest, device()).deal(3);
        assert_eq!(again.of_block, deal.of_block);
        assert_eq!(again.digest, deal.digest);
        assert_ne!(plan.deal(4).digest, deal.digest);
        let of = |index| {
            let shard = Shard { count: 3, index };
            let blocks = 0..plan.blocks.len();
            blocks.filter(|&block| deal.has(shard, block)).count()
        };
        assert_eq!((1..=3).map(of).sum::<usize>(), plan.blocks.len());
    }
}
