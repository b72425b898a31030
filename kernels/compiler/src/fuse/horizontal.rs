//! Horizontal fusion: small independent kernels of any sizes share a launch.
//!
//! It saves launches alone, which dominate many small kernels: updates of a model's parameters, or
//! combinations of partials. A group of kernels runs where its last one can run first. Their inputs
//! stay live until then, so that a group reads no more than a cache holds. A kernel that another
//! one waits for joins only kernels that can run before that one, too.
//!
//! Groups of updates alone, which no layer bounds, are launches of equal updates with arguments for
//! as many as a launch takes. So their kernels do not depend on the number of layers: a model of
//! two layers has the kernels of one of fifty, and can be judged in its place.

use std::collections::BTreeMap;

use super::assemble::{nameless, placeless};
use super::body::Source;
use super::cluster::Rules;
use super::lower::{Loops, Memory};
use super::order::{launches, only_updates};
use super::panels;
use super::plan::{Horizontal, Plan};
use super::waits::Waits;
use super::{Policy, Request};
use crate::codegen::{known, may_fuse_horizontally, may_share_launch, sub_kernel_bytes};
use crate::graph::Op;
use crate::nest::{Bounds, Nest, Operand};
use sweeper_program::workload::Target;

/// Bytes of a group's arguments: half of the 4096 that every driver takes, enough for about 25
/// kernels. Each block compares its index with one end after the other, so that the last blocks of
/// a longer list would start late.
const MAX_ARGUMENT_BYTES: usize = 2048;

/// Bytes of intermediate results that a group reads on a GPU: they stay in the L2 cache of a data
/// center GPU (40 MB and more) until the group runs. Kernels that read more take so much longer
/// than a launch that fusion would gain little.
const MAX_LIVE_BYTES_GPU: usize = 32 << 20;

/// Most bytes that the kernels of one launch keep alive, on a CPU.
const MAX_LIVE_BYTES_CPU: usize = 8 << 20;

/// A kernel that may be fused.
struct Candidate {
    at: usize,
    argument_bytes: usize,
    live_bytes: usize,
    /// Of an update, its text: which of those that the plan's updates have.
    text: Option<usize>,
    /// Others have its text.
    is_one_of_several: bool,
}

/// Groups kernels, earlier ones first, each into the first group that it fits.
pub(super) fn horizontal(plan: &mut Plan, rules: &Rules, request: &Request<'_>) {
    if rules.policy != Policy::Compiled {
        return;
    }
    let max_live_bytes = match request.target {
        Target::Cpu => MAX_LIVE_BYTES_CPU,
        Target::Cuda { .. } => MAX_LIVE_BYTES_GPU,
    };
    let mut waits = Waits::new(plan);
    let mut groups: Vec<Vec<Candidate>> = Vec::new();
    for candidate in candidates(plan, request) {
        let fits = |group: &Vec<Candidate>| {
            let all = || group.iter().chain([&candidate]);
            let may_share = |other: &Candidate| {
                let [one, other] = [other, &candidate].map(|it| &plan.clusters[it.at].tasks);
                rules.may_share(plan, one, other)
            };
            all().map(|it| it.argument_bytes).sum::<usize>() <= MAX_ARGUMENT_BYTES
                && all().map(|it| it.live_bytes).sum::<usize>() <= max_live_bytes
                && !group
                    .iter()
                    .any(|it| waits.are_ordered(it.at, candidate.at))
                && group.iter().all(may_share)
        };
        match groups.iter().position(fits) {
            Some(position) => {
                groups[position].push(candidate);
                let kernels: Vec<usize> = groups[position].iter().map(|it| it.at).collect();
                waits.join(&kernels);
            }
            None => groups.push(vec![candidate]),
        }
    }
    // A kernel that no cache holds runs alone.
    groups.retain(|group| group.len() > 1 || group[0].live_bytes <= max_live_bytes);
    plan.horizontal = groups.into_iter().flat_map(launches_of).collect();
}

/// The launches of a group: one or, where all of it are updates, one for each text that several
/// updates have.
fn launches_of(group: Vec<Candidate>) -> Vec<Horizontal> {
    let mut alike: BTreeMap<usize, Vec<Candidate>> = BTreeMap::new();
    let mut others = Vec::new();
    let are_updates = group.iter().all(|it| it.text.is_some());
    for candidate in group {
        match candidate.text {
            Some(text) if are_updates && candidate.is_one_of_several => {
                alike.entry(text).or_default().push(candidate);
            }
            _ => others.push(candidate),
        }
    }
    let most = |group: &[Candidate]| MAX_ARGUMENT_BYTES / group[0].argument_bytes;
    let alike = alike.into_values().map(|group| (most(&group), group));
    let launches = alike.chain([(others.len(), others)]);
    let launches = launches.filter(|(places, _)| *places > 1);
    let launch = |(places, group): (usize, Vec<Candidate>)| Horizontal {
        kernels: group.iter().map(|it| it.at).collect(),
        places,
    };
    launches.map(launch).collect()
}

/// Kernels that may be fused, in the order in which they would run alone.
fn candidates(plan: &Plan, request: &Request<'_>) -> Vec<Candidate> {
    let by_panel = panels::find(plan, request);
    let mut candidates = Vec::new();
    let mut texts = Vec::new();
    for at in launches(plan).into_iter().flatten() {
        let cluster = &plan.clusters[at];
        let is_in_pair = plan.single_passes.iter().flatten().any(|&held| held == at);
        if is_in_pair || cluster.tasks.iter().any(|&task| plan.is_call(task)) {
            continue;
        }
        let outputs = plan.outputs(&cluster.tasks, &[at]);
        let Some(loops) = plan.loops(&cluster.members(), &outputs) else {
            continue;
        };
        let panels = by_panel.get(&at);
        let is_by_panel =
            panels.is_some_and(|(_, task)| panels::panels(plan, *task, &loops).is_some());
        if may_fuse_horizontally(&loops.nest) && may_share_launch(&loops.extents) && !is_by_panel {
            candidates.push(Candidate {
                at,
                argument_bytes: sub_kernel_bytes(&loops.nest),
                live_bytes: live_bytes(plan, &loops),
                text: only_updates(plan, at).then(|| number(&mut texts, text(&loops, request))),
                is_one_of_several: false,
            });
        }
    }
    let mut counts = vec![0; texts.len()];
    let own = |candidate: &Candidate| candidate.text;
    candidates
        .iter()
        .filter_map(own)
        .for_each(|text| counts[text] += 1);
    for candidate in &mut candidates {
        candidate.is_one_of_several = candidate.text.is_some_and(|text| counts[text] > 1);
    }
    candidates
}

/// The number of a value among those that were met: equal values have equal numbers.
fn number<T: PartialEq>(met: &mut Vec<T>, value: T) -> usize {
    let held = met.iter().position(|held| *held == value);
    held.unwrap_or_else(|| {
        met.push(value);
        met.len() - 1
    })
}

/// The nest of an update, and the properties of its launch that its kernel relies on.
fn text(loops: &Loops, request: &Request<'_>) -> (Nest, Bounds) {
    let bounds = Bounds {
        is_in_place: true,
        ..Bounds::default()
    };
    let nest = nameless(&loops.nest);
    let bounds = known(&nest, bounds, &placeless(loops), request.target);
    (nest, bounds)
}

/// Bytes of intermediate results that a kernel reads.
fn live_bytes(plan: &Plan, loops: &Loops) -> usize {
    let memory = loops.memory.iter().zip(&loops.nest.operands);
    let made = memory.filter(|(memory, operand)| {
        let is_given = match memory.source {
            Source::Node(id) => matches!(plan.graph.node(id).op, Op::Input(_)),
            Source::Rounded(_) | Source::Partials(_) => false,
        };
        !operand.is_written && !is_given
    });
    let bytes = |(memory, operand): (&Memory, &Operand)| {
        memory.touched(&loops.extents) * operand.dtype.size_bytes()
    };
    made.map(bytes).sum()
}
