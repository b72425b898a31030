//! The pass that finds views that must be copied, as no kernel can read them by strides.

use std::collections::{BTreeSet, HashMap};

use super::alike::{Forms, Likeness};
use super::body::{Source, body};
use super::library;
use super::lower::lower;
use super::plan::{Members, Plan, TaskId};
use crate::graph::{NodeId, Op};
use sweeper_program::workload::Refusal;

/// Keeps views until each task alone is a kernel or a call.
///
/// # Errors
/// A node that is neither, even with all views copied.
pub(super) fn layout(plan: &mut Plan) -> Result<(), Refusal> {
    refuse_empty(plan)?;
    let mut kept = BTreeSet::new();
    loop {
        let misfits = misfits(plan);
        if misfits.is_empty() {
            return Ok(());
        }
        for task in misfits {
            let views = unkept_views(plan, task);
            if views.is_empty() {
                let id = plan.tasks[task].node;
                let op = plan.graph.node(id).op.name();
                let reason = format!("no kernel has the loops of {id} {op}");
                return Err(Refusal::Undefined(reason));
            }
            kept.extend(views);
        }
        plan.kept.append(&mut kept);
        plan.renew();
    }
}

fn refuse_empty(plan: &Plan) -> Result<(), Refusal> {
    for task in &plan.tasks {
        let node = plan.graph.node(task.node);
        let mut operands = node.operands.iter();
        let is_empty = |id: &NodeId| plan.graph.node(*id).elements() == 0;
        if node.elements() == 0 || operands.any(is_empty) {
            let (id, op) = (task.node, node.op.name());
            let reason = format!("{id} {op} has no elements: nothing is to be computed");
            return Err(Refusal::Undefined(reason));
        }
    }
    Ok(())
}

/// The tasks that are neither a kernel nor a call.
fn misfits(plan: &Plan) -> Vec<TaskId> {
    let forms = Forms::new(plan);
    let mut alike: HashMap<Likeness, bool> = HashMap::new();
    let mut fits = |task: TaskId| {
        if plan.is_call(task) {
            return library::fits(plan, plan.tasks[task].node);
        }
        let likeness = forms.likeness(plan, &[task], &[task]);
        let fits = *alike
            .entry(likeness)
            .or_insert_with(|| self::fits(plan, task));
        debug_assert_eq!(fits, self::fits(plan, task));
        fits
    };
    (0..plan.tasks.len()).filter(|&task| !fits(task)).collect()
}

/// Whether a task alone has a nest.
fn fits(plan: &Plan, task: TaskId) -> bool {
    let body = body(plan, &Members::from([task]), &[task]);
    let Ok(body) = body else { return false };
    let reads_itself = |operand: &super::body::Operand| {
        !operand.is_written && operand.source == Source::Node(plan.tasks[task].node)
    };
    lower(&body, &[]).is_some() && !body.operands.iter().any(reads_itself)
}

/// The view that another one transposes, or the view itself: a call reads a copy of either, and one
/// copy serves all that read it in some order.
fn untransposed(plan: &Plan, view: NodeId) -> NodeId {
    let node = plan.graph.node(view);
    let inner = match node.op {
        Op::Transpose { .. } => node.operands[0],
        _ => return view,
    };
    let is_view = plan.graph.node(inner).op.is_view() && !plan.kept.contains(&inner);
    match is_view {
        true => untransposed(plan, inner),
        false => view,
    }
}

/// Operands of a task that are views without memory of their own: for a call what makes operands
/// such that it can't read them in their layout, for a kernel the first operand, after which the
/// kernel is tried again.
fn unkept_views(plan: &Plan, task: TaskId) -> Vec<NodeId> {
    let id = plan.tasks[task].node;
    let operands = plan.graph.node(id).operands.iter();
    let is_view = |id: &NodeId| plan.graph.node(*id).op.is_view() && !plan.kept.contains(id);
    let views = operands.copied().filter(is_view);
    match plan.is_call(task) {
        true => views
            .filter(|&operand| !library::takes(plan, id, operand))
            .map(|operand| untransposed(plan, operand))
            .collect(),
        false => views.take(1).collect(),
    }
}
