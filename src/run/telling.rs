//! The order of blocks where time may not suffice: those that tell the most come first.
//!
//! Along each axis of numbers the ends come first, then the middle, then the middles of the halves.
//! A block has the sum of its axes' levels: first the corners of a grid, then between them, so that
//! whatever is measured covers the grid evenly. Words are equally telling.

use std::collections::{BTreeMap, HashMap};

use sweeper_program::Value;

use sweeper_manifest::plan::{Plan, PlannedBlock};

/// Puts blocks into the order in which they tell the most; among equals the plan's order stays.
pub(super) fn sort(plan: &Plan<'_>, blocks: &mut [&PlannedBlock]) {
    let mut values: BTreeMap<(u16, &str), Vec<f64>> = BTreeMap::new();
    let axes = |block: &PlannedBlock| {
        let first = block
            .points
            .first()
            .map(|&point| plan.points[point as usize].point);
        first.into_iter().flat_map(|point| {
            let axes = plan.grid.axes(point);
            axes.filter_map(move |(name, value)| Some(((point.case, &**name), number(value)?)))
        })
    };
    for block in plan.blocks.iter() {
        for (axis, value) in axes(block) {
            values.entry(axis).or_default().push(value);
        }
    }
    for held in values.values_mut() {
        held.sort_by(f64::total_cmp);
        held.dedup();
    }
    let level_of = |block: &PlannedBlock| -> u32 {
        let levels = axes(block).map(|(axis, value)| {
            let held = &values[&axis];
            let place = held.partition_point(|other| *other < value);
            level(place, held.len())
        });
        levels.sum()
    };
    let levels: HashMap<*const PlannedBlock, u32> = blocks
        .iter()
        .map(|block| (std::ptr::from_ref(*block), level_of(block)))
        .collect();
    blocks.sort_by_key(|block| levels[&std::ptr::from_ref(*block)]);
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::Int(value) => Some(*value as f64),
        Value::Float(value) => Some(*value),
        Value::Bool(_) | Value::Text(_) => None,
    }
}

/// How late a value comes, by its place among so many: 0 for the ends.
fn level(place: usize, count: usize) -> u32 {
    let (mut low, mut high, mut level) = (0, count.saturating_sub(1), 0);
    while place > low && place < high {
        level += 1;
        let middle = usize::midpoint(low, high);
        match place.cmp(&middle) {
            std::cmp::Ordering::Less => high = middle,
            std::cmp::Ordering::Equal => return level,
            std::cmp::Ordering::Greater => low = middle,
        }
    }
    level
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_come_before_middles() {
        let levels = |count| {
            (0..count)
                .map(|place| level(place, count))
                .collect::<Vec<_>>()
        };
        assert_eq!(levels(1), [0]);
        assert_eq!(levels(2), [0, 0]);
        assert_eq!(levels(3), [0, 1, 0]);
        assert_eq!(levels(5), [0, 2, 1, 2, 0]);
        assert_eq!(levels(9), [0, 3, 2, 3, 1, 3, 2, 3, 0]);
    }
}
