//! The pass that makes full reductions single-pass, on GPUs.
//!
//! A full reduction is two kernels: the first stores a partial for each of its blocks, the second
//! combines these few numbers, which takes less time than its launch. In a single-pass reduction
//! one block of the first launch combines them. All other inputs of the second kernel must exist
//! before the first one runs. Reductions over rows stay two kernels: their partials have columns,
//! and one block would take long to combine them.

use super::Policy;
use super::body::Source;
use super::cluster::Rules;
use super::lower::Loops;
use super::order::{launches, read};
use super::plan::{Plan, TaskId};
use super::reduce::Class;
use super::waits::Waits;
use crate::codegen::{Partials, may_reduce_in_single_pass};
use crate::nest::{Over, Stride, Value};
use sweeper_program::workload::Target;

/// Pairs kernels that store partials of full reductions with the kernels that combine them, a pair
/// to a launch.
pub(super) fn single_pass(plan: &mut Plan, rules: &Rules, target: &Target) {
    if rules.policy != Policy::Compiled || !matches!(target, Target::Cuda { .. }) {
        return;
    }
    let mut waits = Waits::new(plan);
    for first in launches(plan).into_iter().flatten() {
        let mut last = combining(plan, first).into_iter();
        if let Some(last) = last.find(|&last| fits(plan, rules, &waits, first, last)) {
            plan.single_passes.push([first, last]);
            waits.join(&[first, last]);
        }
    }
}

/// Kernels that combine partials of a kernel.
fn combining(plan: &Plan, first: usize) -> Vec<usize> {
    let tasks = plan.clusters[first].tasks.iter();
    let stored = tasks.filter(|&&task| plan.stores_partials(task));
    stored.filter_map(|&task| plan.home(task + 1)).collect()
}

/// Whether one block of `first` may compute all of `last`.
fn fits(plan: &Plan, rules: &Rules, waits: &Waits, first: usize, last: usize) -> bool {
    let [of_first, of_last] = [first, last].map(|at| &plan.clusters[at].tasks);
    let is_full = |task: TaskId| {
        let class = Class::of(&plan.graph, plan.tasks[task].node);
        class == Some(Class::All)
    };
    let mut stored = of_first.iter().filter(|&&task| plan.stores_partials(task));
    let mut combined = of_last.iter().filter(|&&task| plan.is_combine(task));
    let is_ready = |task: TaskId| match plan.home(task) {
        Some(home) if home == first => plan.stores_partials(task),
        Some(home) => !plan.stores_partials(task) && !waits.is_after(home, first),
        None => true,
    };
    rules.may_share(plan, of_first, of_last)
        && stored.all(|&task| is_full(task))
        && combined.all(|&task| is_full(task))
        && read(plan, last).into_iter().all(is_ready)
        && have_nests(plan, first, last)
}

/// Whether the two kernels can be generated as one.
fn have_nests(plan: &Plan, first: usize, last: usize) -> bool {
    let loops = |at: usize| {
        let cluster = &plan.clusters[at];
        let outputs = plan.outputs(&cluster.tasks, &[at]);
        plan.loops(&cluster.members(), &outputs)
    };
    let (Some(first), Some(last)) = (loops(first), loops(last)) else {
        return false;
    };
    in_one_row(&last).is_some_and(|last| may_reduce_in_single_pass(&first.nest, &last.nest))
}

/// This kernel with the partials that it combines in one row, so that loads are coalesced. None
/// where it has more columns than the single one of a full reduction.
pub(super) fn in_one_row(loops: &Loops) -> Option<Loops> {
    let is_counted = |value: &Value| matches!(value, Value::Row(_) | Value::Column);
    let is_one_column = loops.nest.row_dims == 1 && loops.extents.columns == 1;
    if !loops.combines_partials || !is_one_column || loops.nest.values.iter().any(is_counted) {
        return None;
    }
    let mut row = loops.clone();
    let operands = row.nest.operands.iter_mut().zip(&mut row.memory);
    for (operand, memory) in operands {
        let is_partial = matches!(memory.source, Source::Partials(_));
        if !is_partial && operand.rows != [Stride::Broadcast] {
            return None;
        }
        (operand.rows, memory.rows) = (vec![Stride::Broadcast], vec![0]);
        (operand.columns, memory.columns) = match is_partial {
            true => (Stride::Unit, 1),
            false => (Stride::Broadcast, 0),
        };
    }
    for value in &mut row.nest.values {
        if let Value::Reduce { over, .. } = value {
            *over = Over::All;
        }
    }
    row.extents.columns = row.extents.rows[0];
    row.extents.rows = vec![1];
    Some(row)
}

/// The partials that `first` stores and `last` loads, which [`in_one_row`] made.
pub(super) fn partials(first: &Loops, last: &Loops) -> Vec<Partials> {
    let of_loops = |loops: &Loops, is_written: bool| -> Vec<(usize, Source)> {
        let memory = loops.memory.iter().enumerate();
        let partials = memory.filter(|(_, memory)| {
            matches!(memory.source, Source::Partials(_)) && memory.is_written == is_written
        });
        partials.map(|(at, memory)| (at, memory.source)).collect()
    };
    let all_stored = of_loops(first, true);
    let loaded = of_loops(last, false).into_iter();
    let pairs = loaded.filter_map(|(loaded, source)| {
        let mut stored = all_stored.iter();
        let &(stored, _) = stored.find(|(_, stored)| *stored == source)?;
        Some(Partials { stored, loaded })
    });
    pairs.collect()
}
