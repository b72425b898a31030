//! Kernels that are alike: kernels of the layers of a model, which differ in their nodes alone.
//!
//! Whether a kernel has a nest, and what the nest costs, depends on the operations, the shapes and
//! the memory of its values, and on which of its operands are equal. A [`Likeness`] is all of that
//! without the numbers of nodes, so that the answer for one layer is the answer for all.

use std::collections::{BTreeMap, HashMap};
use std::mem::{Discriminant, discriminant};

use super::kernel::Cost;
use super::plan::{Kind, Plan, Task, TaskId};
use crate::graph::{Node, NodeId, Op};
use sweeper_program::tensor::Dtype;

/// A kernel without the numbers of its nodes.
pub(super) type Likeness = Vec<u32>;

/// Of each node of a plan, the number of its form: all that kernels depend on but its operands and
/// its name. It holds until the plan is renewed.
pub(super) struct Forms {
    of: Vec<u32>,
}

impl Forms {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut distinct: Vec<NodeId> = Vec::new();
        let mut by_hash: HashMap<Facts<'_>, Vec<u32>> = HashMap::new();
        let form = |id: NodeId| {
            let candidates = by_hash.entry(Facts::of(plan, id)).or_default();
            let op = &plan.graph.node(id).op;
            let is_same = |&&form: &&u32| {
                let held = distinct[form as usize];
                are_alike(&plan.graph.node(held).op, op)
            };
            if let Some(&form) = candidates.iter().find(is_same) {
                return form;
            }
            let form = distinct.len() as u32;
            distinct.push(id);
            candidates.push(form);
            form
        };
        Forms {
            of: plan.graph.ids().map(form).collect(),
        }
    }

    /// The likeness of a kernel that computes `members`, ascending, and writes `outputs`.
    pub(super) fn likeness(&self, plan: &Plan, members: &[TaskId], outputs: &[TaskId]) -> Likeness {
        let mut writer = Writer {
            plan,
            forms: self,
            members,
            outside: Vec::new(),
            likeness: Vec::with_capacity(8 * members.len() + outputs.len()),
        };
        writer.likeness.push(members.len() as u32);
        for &task in members {
            writer.task(task);
        }
        for output in outputs {
            let at = writer.member(*output);
            writer.likeness.extend(at);
        }
        writer.likeness
    }
}

/// What tells most nodes apart.
#[derive(PartialEq, Eq, Hash)]
struct Facts<'a> {
    op: Discriminant<Op>,
    shape: &'a [usize],
    dtype: Dtype,
    is_kept: bool,
    is_bf16: bool,
    /// The place in a concatenation: first element, elements of a run, and from run to run.
    part: Option<[usize; 3]>,
}

impl<'a> Facts<'a> {
    fn of(plan: &'a Plan, id: NodeId) -> Self {
        let Node {
            op, shape, dtype, ..
        } = plan.graph.node(id);
        let part = plan.parts.get(&id);
        Facts {
            op: discriminant(op),
            shape,
            dtype: *dtype,
            is_kept: plan.kept.contains(&id),
            is_bf16: plan.in_bf16.contains(&id),
            part: part.map(|part| [part.start, part.run, part.step]),
        }
    }
}

/// Whether operations differ in names of given tensors at most.
fn are_alike(a: &Op, b: &Op) -> bool {
    match (a, b) {
        (Op::Input(_), Op::Input(_)) => true,
        (Op::Constant(a), Op::Constant(b)) => a.to_bits() == b.to_bits(),
        (a, b) => a == b,
    }
}

struct Writer<'a> {
    plan: &'a Plan,
    forms: &'a Forms,
    /// Tasks of the kernel, ascending.
    members: &'a [TaskId],
    /// Nodes that are not computed here, in the order in which they are first met.
    outside: Vec<NodeId>,
    likeness: Likeness,
}

/// The lowest bits of a number say what it is.
const KINDS: u32 = 4;
const MEMBER: u32 = 0;
const FORM: u32 = 1;
const OUTSIDE: u32 = 2;
const COMBINE: u32 = 3;

impl Writer<'_> {
    fn write(&mut self, kind: u32, number: u32) {
        self.likeness.push(number * KINDS + kind);
    }

    fn member(&self, task: TaskId) -> Option<u32> {
        let at = self.members.binary_search(&task).ok()?;
        Some(at as u32)
    }

    fn task(&mut self, task: TaskId) {
        let Task { node, kind, .. } = self.plan.tasks[task];
        self.write(FORM, self.forms.of[node.index()]);
        match kind {
            Kind::Compute => {
                for &operand in self.plan.graph.node(node).sources() {
                    self.operand(operand);
                }
            }
            Kind::Combine => {
                let partials = self.member(task - 1).map_or(0, |at| at + 1);
                self.write(COMBINE, partials);
            }
        }
    }

    /// The views of an operand, and whose memory they are of.
    fn operand(&mut self, mut id: NodeId) {
        loop {
            let task = self.plan.value(id);
            if let Some(at) = task.and_then(|task| self.member(task)) {
                return self.write(MEMBER, at);
            }
            self.write(FORM, self.forms.of[id.index()]);
            let node = self.plan.graph.node(id);
            if task.is_some() || !node.op.is_view() {
                break;
            }
            id = node.operands[0];
        }
        let held = self.outside.iter().position(|&held| held == id);
        let at = held.unwrap_or_else(|| {
            self.outside.push(id);
            self.outside.len() - 1
        });
        self.write(OUTSIDE, at as u32);
    }
}

/// Costs of kernels, computed once for kernels that are alike.
pub(super) struct Costs {
    forms: Forms,
    alike: HashMap<Likeness, Option<Cost>>,
    /// Costs of the plan's kernels.
    kernels: BTreeMap<usize, Cost>,
}

impl Costs {
    pub(super) fn new(plan: &Plan) -> Self {
        Costs {
            forms: Forms::new(plan),
            alike: HashMap::new(),
            kernels: BTreeMap::new(),
        }
    }

    /// The cost of a kernel of the plan; none if it can't be a kernel. It is kept until
    /// [`Costs::forget`].
    pub(super) fn of_kernel(&mut self, plan: &Plan, at: usize) -> Option<Cost> {
        if let Some(&cost) = self.kernels.get(&at) {
            return Some(cost);
        }
        let cost = self.of_changed(plan, at)?;
        self.kernels.insert(at, cost);
        Some(cost)
    }

    /// As [`Costs::of_kernel`], of a kernel that may have changed.
    pub(super) fn of_changed(&mut self, plan: &Plan, at: usize) -> Option<Cost> {
        let cluster = &plan.clusters[at];
        match cluster.tasks.iter().any(|&task| plan.is_call(task)) {
            true => plan.cost(&cluster.members(), &cluster.tasks, &[at]),
            false => self.of_loops(plan, &[at]),
        }
    }

    /// The cost of generated kernels as one kernel; none if they can't be one.
    pub(super) fn of_loops(&mut self, plan: &Plan, kernels: &[usize]) -> Option<Cost> {
        let clusters = || kernels.iter().map(|&at| &plan.clusters[at]);
        let mut tasks: Vec<TaskId> = clusters()
            .flat_map(|cluster| &cluster.tasks)
            .copied()
            .collect();
        tasks.sort_unstable();
        let outputs = plan.outputs(&tasks, kernels);
        if outputs.is_empty() {
            return Some(Cost::default());
        }
        let mut members = tasks;
        members.extend(clusters().flat_map(|cluster| &cluster.copies));
        members.sort_unstable();
        members.dedup();
        let likeness = self.forms.likeness(plan, &members, &outputs);
        let cost = || plan.cost_of_loops(&members.iter().copied().collect(), &outputs);
        let known = *self.alike.entry(likeness).or_insert_with(cost);
        debug_assert_eq!(known, cost());
        known
    }

    /// Forgets the cost of a kernel that changes.
    pub(super) fn forget(&mut self, at: usize) {
        self.kernels.remove(&at);
    }
}
