//! The pass that has a total added up in the launch that leaves its parts, on GPUs: by one of the launch's blocks.
//!
//! A reduction over everything is two kernels: one leaves a part for each of its blocks, the other adds up these few
//! numbers, which takes less than launching it. What the second one reads otherwise has to be there before the first one
//! runs. Sums over rows stay two kernels: their parts have columns, and one block would be long adding them up.

use super::Policy;
use super::body::Source;
use super::cluster::Rules;
use super::lower::Loops;
use super::order::{launches, read};
use super::plan::{Plan, TaskId};
use super::reduce::Class;
use super::waits::Waits;
use crate::codegen::{Shared, may_total};
use crate::nest::{Over, Step, Value};
use crate::workload::Target;

/// Joins kernels that leave parts of totals and those that add them up, a pair to a launch.
pub(super) fn total(plan: &mut Plan, rules: &Rules, target: &Target) {
    if rules.policy != Policy::Compiled || !matches!(target, Target::Cuda { .. }) {
        return;
    }
    let mut waits = Waits::new(plan);
    for first in launches(plan).into_iter().flatten() {
        let mut last = finishers(plan, first).into_iter();
        if let Some(last) = last.find(|&last| fits(plan, rules, &waits, first, last)) {
            plan.totals.push([first, last]);
            waits.join(&[first, last]);
        }
    }
}

/// Kernels that add up parts that a kernel leaves.
fn finishers(plan: &Plan, first: usize) -> Vec<usize> {
    let tasks = plan.clusters[first].tasks.iter();
    let parts = tasks.filter(|&&task| plan.leaves_parts(task));
    parts.filter_map(|&task| plan.home(task + 1)).collect()
}

/// Whether one block of a kernel may do all of another one.
fn fits(plan: &Plan, rules: &Rules, waits: &Waits, first: usize, last: usize) -> bool {
    let [of_first, of_last] = [first, last].map(|at| &plan.clusters[at].tasks);
    let is_total = |task: TaskId| {
        let class = Class::of(&plan.graph, plan.tasks[task].node);
        class == Some(Class::All)
    };
    let mut left = of_first.iter().filter(|&&task| plan.leaves_parts(task));
    let mut added_up = of_last.iter().filter(|&&task| plan.is_finish(task));
    let is_ready = |task: TaskId| match plan.home(task) {
        Some(home) if home == first => plan.leaves_parts(task),
        Some(home) => !plan.leaves_parts(task) && !waits.is_after(home, first),
        None => true,
    };
    rules.may_share(plan, of_first, of_last)
        && left.all(|&task| is_total(task))
        && added_up.all(|&task| is_total(task))
        && read(plan, last).into_iter().all(is_ready)
        && have_nests(plan, first, last)
}

/// Whether the two can be generated as one kernel.
fn have_nests(plan: &Plan, first: usize, last: usize) -> bool {
    let loops = |at: usize| {
        let cluster = &plan.clusters[at];
        let outputs = plan.outputs(&cluster.tasks, &[at]);
        plan.loops(&cluster.members(), &outputs)
    };
    let (Some(first), Some(last)) = (loops(first), loops(last)) else {
        return false;
    };
    lay_across(&last).is_some_and(|last| may_total(&first.nest, &last.nest))
}

/// The same kernel with the parts of totals that it adds up in one row, so that threads load neighbours. None where it
/// has other columns than the one of a total.
pub(super) fn lay_across(loops: &Loops) -> Option<Loops> {
    let is_counted = |value: &Value| matches!(value, Value::Row(_) | Value::Column);
    let is_one_column = loops.nest.row_dims == 1 && loops.extents.columns == 1;
    if !loops.is_of_parts || !is_one_column || loops.nest.values.iter().any(is_counted) {
        return None;
    }
    let mut across = loops.clone();
    let operands = across.nest.operands.iter_mut().zip(&mut across.memory);
    for (operand, memory) in operands {
        let is_parts = matches!(memory.source, Source::Parts(_));
        if !is_parts && operand.rows != [Step::Zero] {
            return None;
        }
        (operand.rows, memory.rows) = (vec![Step::Zero], vec![0]);
        (operand.columns, memory.columns) = match is_parts {
            true => (Step::One, 1),
            false => (Step::Zero, 0),
        };
    }
    for value in &mut across.nest.values {
        if let Value::Reduce { over, .. } = value {
            *over = Over::All;
        }
    }
    across.extents.columns = across.extents.rows[0];
    across.extents.rows = vec![1];
    Some(across)
}

/// The memory of parts of two kernels, the second of which [`lay_across`] made.
pub(super) fn shared(first: &Loops, last: &Loops) -> Vec<Shared> {
    let of_parts = |loops: &Loops, is_written: bool| -> Vec<(usize, Source)> {
        let memory = loops.memory.iter().enumerate();
        let parts = memory.filter(|(_, memory)| {
            matches!(memory.source, Source::Parts(_)) && memory.is_written == is_written
        });
        parts.map(|(at, memory)| (at, memory.source)).collect()
    };
    let all_left = of_parts(first, true);
    let added_up = of_parts(last, false).into_iter();
    let shared = added_up.filter_map(|(added_up, source)| {
        let mut left = all_left.iter();
        let &(left, _) = left.find(|(_, left)| *left == source)?;
        Some(Shared { left, added_up })
    });
    shared.collect()
}
