//! The order in which kernels run.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Plan, Side, TaskId};

/// Kernels by launch, in an order in which they can run: kernels of one part of the program
/// together, and within a part the kernels with the earliest nodes first, but for those that only
/// update given tensors: they run as soon as they can, while what they read is in the cache, and
/// its memory is free then. Kernels that are fused horizontally, and the two of a single-pass
/// reduction, share a launch.
pub(super) fn launches(plan: &Plan) -> Vec<Vec<usize>> {
    let first = |&at: &usize| match only_updates(plan, at) {
        true => None,
        false => plan.clusters[at].tasks.first().copied(),
    };
    // A horizontal group is as late as its last kernel alone would be.
    let key = |launch: &[usize]| (side_of(plan, launch), launch.iter().filter_map(first).max());
    let groups = plan.horizontal.iter().map(|group| group.kernels.clone());
    let pairs = plan.single_passes.iter().map(|pair| pair.to_vec());
    let mut all: Vec<Vec<usize>> = groups.chain(pairs).collect();
    let together: BTreeSet<usize> = all.iter().flatten().copied().collect();
    let alone = plan.kernels().into_iter();
    all.extend(alone.filter(|at| !together.contains(at)).map(|at| vec![at]));
    let mut waits = vec![0; all.len()];
    // For each kernel, the launches that wait for it.
    let mut waiting: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    let mut ready = BTreeSet::new();
    for (position, launch) in all.iter().enumerate() {
        let mut before: BTreeSet<usize> = launch.iter().flat_map(|&at| before(plan, at)).collect();
        // The second kernel of a single-pass reduction has its partials.
        before.retain(|at| !launch.contains(at));
        waits[position] = before.len();
        if before.is_empty() {
            ready.insert((key(launch), position));
        }
        for at in before {
            waiting.entry(at).or_default().push(position);
        }
    }
    let mut order = Vec::new();
    while let Some((_, position)) = ready.pop_first() {
        for waiting in all[position].iter().filter_map(|at| waiting.get(at)) {
            for &later in waiting {
                waits[later] -= 1;
                if waits[later] == 0 {
                    ready.insert((key(&all[later]), later));
                }
            }
        }
        order.push(all[position].clone());
    }
    order
}

/// Whether all that a kernel stores are results in the memory of given tensors.
pub(super) fn only_updates(plan: &Plan, at: usize) -> bool {
    let stored = plan.outputs(&plan.clusters[at].tasks, &[at]);
    let is_update = |task: &TaskId| plan.in_place.contains_key(&plan.tasks[*task].node);
    !plan.in_place.is_empty() && stored.iter().all(is_update)
}

/// When a launch runs: with its last node.
pub(super) fn side_of(plan: &Plan, launch: &[usize]) -> Side {
    let sides = launch.iter().map(|&at| side(plan, at));
    sides.max().unwrap_or(Side::Forward)
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
    let sources = sources.copied();
    sources.filter(|task| !members.contains(task)).collect()
}

/// Kernels that run before a kernel: those whose results it reads or that a barrier names, and
/// those that read a given tensor in whose memory it stores a result.
pub(super) fn before(plan: &Plan, at: usize) -> BTreeSet<usize> {
    let members = plan.clusters[at].members();
    let awaited = members.iter().flat_map(|&task| &plan.awaited[task]);
    let made = read(plan, at).into_iter().chain(awaited.copied());
    let homes = made.filter_map(|task| plan.home(task));
    let stored = plan.clusters[at].tasks.iter();
    let stored = stored.filter(|&&task| !plan.stores_partials(task));
    let updated = stored.filter_map(|&task| plan.in_place.get(&plan.tasks[task].node));
    let readers = updated.flat_map(|&given| plan.kernels_that_read(given));
    let mut before: BTreeSet<usize> = homes.chain(readers).collect();
    before.remove(&at);
    before
}
