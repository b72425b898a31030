//! The pass that updates given tensors in place: a result that is the next value of a given tensor
//! ([`Graph::update`](crate::graph::Graph::update)) takes its memory.
//!
//! Nothing may read the tensor once the result is there. Kernels that read it run before the kernel
//! that stores the result, where they don't have to run after it; that kernel itself may read it
//! element by element, each in the iteration that stores it.

use std::collections::BTreeSet;

use super::body::Source;
use super::lower::{Loops, Memory};
use super::plan::{Origin, Plan, Side};
use super::waits::Waits;
use crate::codegen::may_fuse_horizontally;
use crate::graph::{NodeId, Op};
use crate::nest::Value;

/// Finds the results that may be where the tensors are that they update.
pub(super) fn in_place(plan: &mut Plan) {
    let wanted = plan.wanted.iter();
    let updates = wanted.filter_map(|&output| {
        let given = plan.graph.outputs()[output].updates?;
        match plan.origin(output) {
            Origin::Made(stored) => Some((stored, given)),
            Origin::Given(_) | Origin::Number(_) => None,
        }
    });
    let updates: Vec<(NodeId, NodeId)> = updates.collect();
    if updates.is_empty() {
        return;
    }
    let results_as_given = results_as_given(plan);
    let mut waits = Waits::new(plan);
    for (stored, given) in updates {
        let is_free = !results_as_given.contains(&given)
            && !plan.in_place.contains_key(&stored)
            && !plan.in_place.values().any(|&held| held == given);
        let Some(home) = home(plan, stored).filter(|_| is_free) else {
            continue;
        };
        let mut readers = plan.kernels_that_read(given);
        let reads_itself = readers.remove(&home);
        if is_same_memory(plan, stored, given)
            && (!reads_itself || reads_as_it_stores(plan, home, stored, given))
            && readers
                .iter()
                .all(|&reader| may_precede(plan, &waits, reader, home))
        {
            plan.in_place.insert(stored, given);
            for reader in readers {
                waits.put_after(home, reader);
            }
        }
    }
}

/// Given tensors that are results as they are.
fn results_as_given(plan: &Plan) -> BTreeSet<NodeId> {
    let origins = plan.wanted.iter().map(|&output| plan.origin(output));
    let given = origins.filter_map(|origin| match origin {
        Origin::Given(id) => Some(plan.base(id)),
        Origin::Made(_) | Origin::Number(_) => None,
    });
    given.collect()
}

/// The kernel that stores a node.
fn home(plan: &Plan, stored: NodeId) -> Option<usize> {
    plan.value(stored).and_then(|task| plan.home(task))
}

/// Whether a node fits the memory of a given tensor.
fn is_same_memory(plan: &Plan, stored: NodeId, given: NodeId) -> bool {
    let [stored, given] = [stored, given].map(|id| plan.graph.node(id));
    matches!(given.op, Op::Input(_))
        && stored.dtype == given.dtype
        && stored.elements() == given.elements()
}

/// Whether a kernel that reads a given tensor can run in a launch before the kernel that stores a
/// result in its memory. On a CPU a product may run panel by panel with its reader.
fn may_precede(plan: &Plan, waits: &Waits, reader: usize, home: usize) -> bool {
    let shares_launch = |pair: &[usize; 2]| pair.contains(&reader) && pair.contains(&home);
    let reads_call_of = || {
        let tasks = &plan.clusters[reader].tasks;
        let members = plan.clusters[home].members();
        let mut calls = tasks.iter().filter(|&&task| plan.is_call(task));
        calls.any(|&call| plan.users[call].iter().any(|user| members.contains(user)))
    };
    !waits.is_after(reader, home)
        && !plan.single_passes.iter().any(shares_launch)
        && !reads_call_of()
        && plan.clusters[reader]
            .tasks
            .iter()
            .all(|&task| plan.tasks[task].side != Side::Setup)
}

/// Whether a kernel reads each element of a given tensor in the iteration that stores the element
/// of the result, and in no other.
fn reads_as_it_stores(plan: &Plan, home: usize, stored: NodeId, given: NodeId) -> bool {
    let cluster = &plan.clusters[home];
    let outputs = plan.outputs(&cluster.tasks, &[home]);
    let Some(loops) = plan.loops(&cluster.members(), &outputs) else {
        return false;
    };
    let of = |id: NodeId| {
        let memory = loops.memory.iter();
        memory.filter(move |memory| memory.source == Source::Node(id))
    };
    let operands = loops.memory.iter().zip(&loops.nest.operands);
    let mut given_operands = operands.filter(|(memory, _)| memory.source == Source::Node(given));
    let swaps_pairs = given_operands.any(|(_, operand)| operand.swaps_pairs);
    let is_as = |one: &Memory, other: &Memory| {
        one.index_step == 0
            && one.start == other.start
            && one.rows == other.rows
            && one.columns == other.columns
    };
    let mut all_stored = of(stored);
    let is_stored_once = |memory: &Memory| is_stored_once(&loops, memory);
    may_fuse_horizontally(&loops.nest)
        && !swaps_pairs
        && all_stored.all(|to| is_stored_once(to) && of(given).all(|from| is_as(from, to)))
}

/// Whether each element is stored by one iteration: of all, or where rows are reduced in one block
/// of the columns, which are stored after all rows.
fn is_stored_once(loops: &Loops, memory: &Memory) -> bool {
    let values = &loops.nest.values;
    let reduces = values
        .iter()
        .any(|value| matches!(value, Value::Reduce { .. }));
    let iterations = match reduces {
        true => loops.extents.columns,
        false => loops.extents.row_count() * loops.extents.columns,
    };
    memory.len as u64 == iterations && memory.touched(&loops.extents) == memory.len
}
