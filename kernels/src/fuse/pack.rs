//! The pass that packs small kernels into one launch: kernels that need nothing of each other, of whatever sizes.
//!
//! Nothing is saved but launches, which is what many small kernels take: the updates of a model's parameters, or what
//! adds up the parts of its sums. All kernels of a pack run where the last one could run first. What they read stays
//! in use until then, which is why a pack reads no more than a cache holds. One that another kernel waits for is packed
//! only with what can run before that one, too.

use super::body::Source;
use super::cluster::Rules;
use super::lower::{Loops, Memory};
use super::order::launches;
use super::panels;
use super::plan::Plan;
use super::waits::Waits;
use super::{Policy, Request};
use crate::codegen::{may_be_packed, packed_bytes};
use crate::graph::Op;
use crate::nest::Operand;
use crate::workload::Target;

/// Bytes of the arguments of a pack: half of the 4096 that every driver takes, and about 25 kernels. Each block
/// compares its index with one end after the other, so that the last ones of a longer list would begin late.
const MOST_ARGUMENT_BYTES: usize = 2048;

/// Bytes that a pack reads of what other kernels made: what waits in the last-level cache of a data center's GPU (40 MB
/// and more) is not read from memory because of that. Kernels that read more take so much longer than a launch that a
/// pack would gain little.
const MOST_WAITING_BYTES_GPU: usize = 32 << 20;

/// The same on a CPU.
const MOST_WAITING_BYTES_CPU: usize = 8 << 20;

/// A kernel that may be packed.
struct Candidate {
    at: usize,
    argument_bytes: usize,
    waiting_bytes: usize,
}

/// Packs kernels, earlier ones first, each into the first pack that it can be in.
pub(super) fn pack(plan: &mut Plan, rules: &Rules, request: &Request<'_>) {
    if rules.policy != Policy::Compiled {
        return;
    }
    let most_waiting = match request.target {
        Target::Cpu => MOST_WAITING_BYTES_CPU,
        Target::Cuda { .. } => MOST_WAITING_BYTES_GPU,
    };
    let mut waits = Waits::new(plan);
    let mut packs: Vec<Vec<Candidate>> = Vec::new();
    for candidate in candidates(plan, request) {
        let fits = |pack: &Vec<Candidate>| {
            let all = || pack.iter().chain([&candidate]);
            let may_share = |other: &Candidate| {
                let [one, other] = [other, &candidate].map(|it| &plan.clusters[it.at].tasks);
                rules.may_share(plan, one, other)
            };
            all().map(|it| it.argument_bytes).sum::<usize>() <= MOST_ARGUMENT_BYTES
                && all().map(|it| it.waiting_bytes).sum::<usize>() <= most_waiting
                && pack.iter().all(may_share)
                && !pack.iter().any(|it| waits.are_ordered(it.at, candidate.at))
        };
        match packs.iter().position(fits) {
            Some(position) => {
                packs[position].push(candidate);
                let kernels: Vec<usize> = packs[position].iter().map(|it| it.at).collect();
                waits.join(&kernels);
            }
            None => packs.push(vec![candidate]),
        }
    }
    let packs = packs.iter().filter(|pack| pack.len() > 1);
    let kernels = packs.map(|pack| pack.iter().map(|it| it.at).collect());
    plan.packs = kernels.collect();
}

/// Kernels that may be packed, in the order in which they would run alone.
fn candidates(plan: &Plan, request: &Request<'_>) -> Vec<Candidate> {
    let by_panel = panels::find(plan, request);
    let mut candidates = Vec::new();
    for at in launches(plan).into_iter().flatten() {
        let cluster = &plan.clusters[at];
        let is_in_total = plan.totals.iter().flatten().any(|&held| held == at);
        if is_in_total || cluster.tasks.iter().any(|&task| plan.is_call(task)) {
            continue;
        }
        let outputs = plan.outputs(&cluster.tasks, &[at]);
        let Some(loops) = plan.loops(&cluster.members(), &outputs) else {
            continue;
        };
        let panels = by_panel.get(&at);
        let is_by_panel =
            panels.is_some_and(|(_, task)| panels::panels(plan, *task, &loops).is_some());
        if may_be_packed(&loops.nest) && !is_by_panel {
            candidates.push(Candidate {
                at,
                argument_bytes: packed_bytes(&loops.nest),
                waiting_bytes: waiting_bytes(plan, &loops),
            });
        }
    }
    candidates
}

/// Bytes that a kernel reads of what others made.
fn waiting_bytes(plan: &Plan, loops: &Loops) -> usize {
    let memory = loops.memory.iter().zip(&loops.nest.operands);
    let made = memory.filter(|(memory, operand)| {
        let is_given = match memory.source {
            Source::Node(id) => matches!(plan.graph.node(id).op, Op::Input(_)),
            Source::Parts(_) => false,
        };
        !operand.is_written && !is_given
    });
    let bytes = |(memory, operand): (&Memory, &Operand)| {
        memory.touched(&loops.extents) * operand.dtype.size_bytes()
    };
    made.map(bytes).sum()
}
