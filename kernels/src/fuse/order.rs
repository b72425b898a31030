//! In which order kernels run.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Plan, Side, TaskId};

/// Kernels in an order in which they can run: what runs in one part of the program together, and there
/// the ones with the earliest nodes first.
pub(super) fn order(plan: &Plan) -> Vec<usize> {
    let key = |at: usize| (side(plan, at), plan.clusters[at].tasks.first().copied());
    let mut waits: BTreeMap<usize, BTreeSet<usize>> = BTreeMap::new();
    let mut ready = BTreeSet::new();
    for at in plan.kernels() {
        let before = before(plan, at);
        if before.is_empty() {
            ready.insert((key(at), at));
        } else {
            waits.insert(at, before);
        }
    }
    let mut order = Vec::new();
    while let Some((_, at)) = ready.pop_first() {
        order.push(at);
        waits.retain(|&waiting, before| {
            before.remove(&at);
            if before.is_empty() {
                ready.insert((key(waiting), waiting));
            }
            !before.is_empty()
        });
    }
    order
}

/// When a kernel runs: with its last node.
pub(super) fn side(plan: &Plan, at: usize) -> Side {
    let tasks = plan.clusters[at].tasks.iter();
    let sides = tasks.map(|&task| plan.tasks[task].side);
    sides.max().unwrap_or(Side::Forward)
}

/// Values that a kernel reads from memory.
pub(super) fn read(plan: &Plan, at: usize) -> BTreeSet<TaskId> {
    let cluster = &plan.clusters[at];
    let members = cluster.members();
    let sources = members.iter().flat_map(|&task| plan.sources(task));
    sources.filter(|task| !members.contains(task)).collect()
}

fn before(plan: &Plan, at: usize) -> BTreeSet<usize> {
    let homes = read(plan, at)
        .into_iter()
        .filter_map(|task| plan.home(task));
    homes.collect()
}
