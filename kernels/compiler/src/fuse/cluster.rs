//! The passes that decide which operations share a kernel: `cluster` merges kernels, `duplicate`
//! computes cheap values again instead of reading them.
//!
//! Greedy, the most saved first, in an order that depends on nothing but the graph. A merge is
//! possible where there is a nest for it: nothing here knows softmax from layernorm.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};

use super::Policy;
use super::alike::Costs;
use super::cycles::Order;
use super::kernel::Cost;
use super::plan::{Cluster, Members, Plan, Side, TaskId};
use sweeper_program::workload::{Phase, Target};

/// Pointers of one kernel. Each is an address and its steps to keep in registers: past about this
/// many, the loops of a GPU's thread and of a CPU's core begin to spill.
const MOST_OPERANDS: usize = 16;

/// Values of one kernel. Of them a quarter may be alive at once in the worst of the known chains,
/// and a thread has 255 registers, a core 32 vectors.
const MOST_VALUES: usize = 96;

/// Operations that take as long as moving one byte: both kinds of machine do about so many
/// additions while they move a byte.
const OPERATIONS_PER_BYTE: i64 = 8;

/// The allowed merges, and their worth.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rules {
    /// The operations that may share a kernel.
    pub policy: Policy,
    /// The timed phase: forward and backward may share a kernel in one span only.
    pub phase: Phase,
    /// Bytes that are moved while a kernel is launched.
    launch_bytes: i64,
}

impl Rules {
    /// Rules for a target. Waking up threads takes some microseconds, at tens of bytes a
    /// nanosecond; a launch of a GPU about one, at thousands.
    pub(super) fn new(policy: Policy, phase: Phase, target: &Target) -> Self {
        let launch_bytes = match target {
            Target::Cpu => 64 << 10,
            Target::Cuda { .. } => 4 << 20,
        };
        Rules {
            policy,
            phase,
            launch_bytes,
        }
    }

    /// Whether a call may do a task that follows it.
    pub(super) fn may_follow(&self, plan: &Plan, call: TaskId, task: TaskId) -> bool {
        let [one, other] = [call, task].map(|task| plan.tasks[task]);
        let group = |node: crate::graph::NodeId| plan.graph.node(node).group;
        one.side == other.side
            && match self.policy {
                Policy::Primitive => false,
                Policy::Eager => {
                    let own = group(one.node);
                    own.is_some() && own == group(other.node)
                }
                Policy::Compiled => true,
            }
    }

    /// Whether a kernel may share a launch with any other one.
    fn may_merge(&self, plan: &Plan, tasks: &Members) -> bool {
        let group = |task: &TaskId| plan.graph.node(plan.tasks[*task].node).group;
        let is_alone = self.policy == Policy::Eager && tasks.first().and_then(group).is_none();
        !is_alone && !tasks.iter().any(|&task| plan.is_call(task))
    }

    /// Whether two kernels may share a launch.
    pub(super) fn may_share(&self, plan: &Plan, one: &Members, other: &Members) -> bool {
        let both = || one.iter().chain(other).map(|&task| plan.tasks[task]);
        let first = both().next().map(|task| task.side);
        let is_one_side = both().all(|task| Some(task.side) == first);
        let is_one_span = self.phase.is_one_span() && both().all(|task| task.side != Side::Setup);
        if !is_one_side && !is_one_span {
            return false;
        }
        let mut groups = both().map(|task| plan.graph.node(task.node).group);
        match self.policy {
            Policy::Primitive => false,
            Policy::Eager => {
                let first = groups.next().flatten();
                first.is_some() && groups.all(|group| group == first)
            }
            Policy::Compiled => true,
        }
    }

    /// The worth of a change of costs, in bytes.
    fn gain(&self, before: &[Cost], after: &[Cost], launches: i64) -> i64 {
        let bytes = |costs: &[Cost]| costs.iter().map(|cost| cost.bytes as i64).sum::<i64>();
        let operations =
            |costs: &[Cost]| costs.iter().map(|cost| cost.operations as i64).sum::<i64>();
        let more = operations(after) - operations(before);
        bytes(before) - bytes(after) - more / OPERATIONS_PER_BYTE + launches * self.launch_bytes
    }
}

/// Merges kernels while this improves the plan.
pub(super) fn cluster(plan: &mut Plan, rules: &Rules, costs: &mut Costs) {
    if rules.policy == Policy::Primitive {
        return;
    }
    copy_free(plan);
    let mut order = Order::new(plan);
    let mut gains = Gains::new(plan.clusters.len());
    let mut fresh: Vec<usize> = plan.kernels();
    loop {
        let may_merge = |at: &usize| rules.may_merge(plan, &plan.clusters[*at].tasks);
        let fresh_ones = fresh.iter().copied().filter(may_merge);
        let mut near: Vec<_> = fresh_ones.flat_map(|at| pairs(plan, at)).collect();
        near.sort_unstable();
        near.dedup();
        for pair in near {
            if gains.of(pair).is_some() {
                continue;
            }
            if let Some(gain) = merged_gain(plan, rules, pair, costs) {
                gains.insert(pair, gain);
            }
        }
        let Some((one, other)) = gains.best(|pair| !order.is_cyclic(plan, pair)) else {
            return;
        };
        order.merge(plan, (one, other));
        plan.merge(one, other);
        for at in [one, other] {
            gains.forget(at);
            costs.forget(at);
        }
        fresh = finishers(plan, one);
        fresh.push(one);
    }
}

/// The gains of merging pairs of kernels.
struct Gains {
    /// Of each kernel, its gain with each other one.
    of: Vec<Vec<(usize, i64)>>,
    /// Pairs, the most gain first and then the lowest; pairs that were forgotten are among them.
    ranked: BinaryHeap<(i64, Reverse<(usize, usize)>)>,
}

impl Gains {
    fn new(kernels: usize) -> Self {
        Gains {
            of: vec![Vec::new(); kernels],
            ranked: BinaryHeap::new(),
        }
    }

    fn of(&self, (one, other): (usize, usize)) -> Option<i64> {
        let mut others = self.of[one].iter();
        let found = others.find(|(held, _)| *held == other);
        found.map(|&(_, gain)| gain)
    }

    fn insert(&mut self, (one, other): (usize, usize), gain: i64) {
        self.of[one].push((other, gain));
        self.of[other].push((one, gain));
        self.ranked.push((gain, Reverse((one, other))));
    }

    /// The possible pair with the most gain. An impossible pair stays impossible until one of the
    /// two changes.
    fn best(&mut self, is_possible: impl Fn((usize, usize)) -> bool) -> Option<(usize, usize)> {
        loop {
            let (gain, Reverse(pair)) = self.ranked.pop()?;
            if self.of(pair) == Some(gain) && is_possible(pair) {
                return Some(pair);
            }
        }
    }

    /// Forgets all pairs with a kernel.
    fn forget(&mut self, at: usize) {
        for (other, _) in std::mem::take(&mut self.of[at]) {
            self.of[other].retain(|(held, _)| *held != at);
        }
    }
}

/// Values that cost no memory are computed wherever they are used.
fn copy_free(plan: &mut Plan) {
    for task in 0..plan.tasks.len() {
        if plan.is_free(task) {
            for user in plan.users[task].clone() {
                if !plan.is_call(user) {
                    plan.copy(task, user);
                }
            }
        }
    }
    plan.drop_unread(0..plan.clusters.len());
}

/// Kernels that share memory with one: pairs, each ascending; some of them more than once.
fn pairs(plan: &Plan, at: usize) -> Vec<(usize, usize)> {
    let mut near = Vec::new();
    let home = |&task: &TaskId| plan.home(task);
    for &task in &plan.clusters[at].tasks {
        near.extend(plan.users[task].iter().filter_map(home));
        for source in plan.sources(task) {
            near.extend(home(source));
            let users = around(&plan.users[*source], task);
            near.extend(users.iter().filter_map(home));
        }
        near.extend(readers_of_inputs(plan, task).filter_map(home));
        near.extend(siblings_of_finish(plan, task));
    }
    let others = near.into_iter().filter(|&other| other != at);
    others.map(|other| (at.min(other), at.max(other))).collect()
}

/// The tasks next to one, of ascending tasks: where all layers of a model read one value, kernels
/// of distant layers would wait for each other.
fn around(tasks: &[TaskId], task: TaskId) -> &[TaskId] {
    const NEXT: usize = 16;
    let at = tasks.partition_point(|&held| held < task);
    let end = tasks.len().min(at + NEXT + 1);
    &tasks[at.saturating_sub(NEXT)..end]
}

/// Kernels that combine partials of the kernel whose partials this task combines.
fn siblings_of_finish(plan: &Plan, task: TaskId) -> Vec<usize> {
    let home = plan.is_combine(task).then(|| plan.home(task - 1)).flatten();
    home.map_or(vec![], |home| finishers(plan, home))
}

fn finishers(plan: &Plan, at: usize) -> Vec<usize> {
    let tasks = plan.clusters[at].tasks.iter();
    let stored = tasks.filter(|&&task| plan.stores_partials(task));
    stored.filter_map(|&task| plan.home(task + 1)).collect()
}

/// Tasks that read a given tensor that a task reads.
fn readers_of_inputs(plan: &Plan, task: TaskId) -> impl Iterator<Item = &TaskId> {
    let operands = plan.graph.node(plan.tasks[task].node).operands.iter();
    let bases = operands.map(|&operand| plan.base(operand));
    bases.flat_map(move |base| around(plan.readers_of_given(base), task))
}

/// The gain of merging a pair, if it is possible and there is one.
fn merged_gain(
    plan: &Plan,
    rules: &Rules,
    (one, other): (usize, usize),
    costs: &mut Costs,
) -> Option<i64> {
    let (a, b) = (&plan.clusters[one], &plan.clusters[other]);
    let is_call = |&task: &TaskId| plan.is_call(task);
    if a.tasks.iter().chain(&b.tasks).any(is_call) {
        return None;
    }
    if !rules.may_share(plan, &a.tasks, &b.tasks) {
        return None;
    }
    let mut before = [Cost::default(); 2];
    for (slot, at) in before.iter_mut().zip([one, other]) {
        *slot = costs.of_kernel(plan, at)?;
    }
    // Partials are combined by another kernel than the kernel that stores them.
    let finishes = |stored: &Members, other: &Members| {
        let mut stored = stored.iter().filter(|&&task| plan.stores_partials(task));
        stored.any(|&task| other.contains(&(task + 1)))
    };
    if finishes(&a.tasks, &b.tasks)
        || finishes(&b.tasks, &a.tasks)
        || !parts_come_together(plan, [a, b])
    {
        return None;
    }
    let after = costs.of_loops(plan, &[one, other])?;
    if after.operands > MOST_OPERANDS || after.values > MOST_VALUES {
        return None;
    }
    let gain = rules.gain(&before, &[after], 1);
    (gain > 0).then_some(gain)
}

/// Whether one kernel stores all partials that are combined in two, so that all reductions have
/// equally many.
fn parts_come_together(plan: &Plan, both: [&Cluster; 2]) -> bool {
    let tasks = both.into_iter().flat_map(|cluster| &cluster.tasks);
    let finished = tasks.filter(|&&task| plan.is_combine(task));
    let mut homes = finished.map(|&task| plan.home(task - 1));
    let first = homes.next();
    homes.all(|home| Some(home) == first)
}

/// Computes values again in the kernels that read them, where this improves the plan.
pub(super) fn duplicate(plan: &mut Plan, rules: &Rules, costs: &mut Costs) {
    if rules.policy != Policy::Compiled {
        return;
    }
    for task in 0..plan.tasks.len() {
        let Some(home) = plan.home(task) else {
            continue;
        };
        let mut readers = plan.readers(task);
        readers.remove(&home);
        if readers.is_empty() || plan.is_result[task] || plan.stores_partials(task) {
            continue;
        }
        // A value that is made in many places comes before nothing.
        if plan.is_awaited(home) {
            continue;
        }
        duplicate_into(plan, rules, (task, home), &readers, costs);
    }
}

/// Makes all readers of a value compute it themselves, if the plan is better then.
fn duplicate_into(
    plan: &mut Plan,
    rules: &Rules,
    (task, home): (TaskId, usize),
    readers: &BTreeSet<usize>,
    costs: &mut Costs,
) {
    let Some(copies) = elementwise_before(plan, task, home) else {
        return;
    };
    let may_compute = |&reader: &usize| {
        let tasks = &plan.clusters[reader].tasks;
        !tasks.iter().any(|&task| plan.is_call(task)) && rules.may_share(plan, &copies, tasks)
    };
    if !readers.iter().all(may_compute) {
        return;
    }
    let mut costs = |plan: &Plan| -> Option<Vec<Cost>> {
        let all = readers.iter().copied().chain([home]);
        all.map(|at| costs.of_changed(plan, at)).collect()
    };
    let Some(before) = costs(plan) else {
        return;
    };
    let pairs = readers
        .iter()
        .flat_map(|&reader| copies.iter().map(move |&copied| (copied, reader)));
    let copied: Vec<(TaskId, usize)> = pairs
        .filter(|&(task, reader)| plan.copy(task, reader))
        .collect();
    let dropped = plan.drop_unread([home]);
    let fits = |cost: &Cost| cost.operands <= MOST_OPERANDS && cost.values <= MOST_VALUES;
    let is_better = costs(plan).is_some_and(|after| {
        after.iter().all(fits) && rules.gain(&before, &after, dropped.len() as i64) > 0
    });
    if !is_better {
        plan.restore(dropped);
        copied
            .into_iter()
            .for_each(|(task, reader)| plan.uncopy(task, reader));
    }
}

/// A value and the values that it is computed from in its kernel, if all are elementwise.
fn elementwise_before(plan: &Plan, task: TaskId, home: usize) -> Option<Members> {
    let mut before = Members::new();
    let mut open = vec![task];
    while let Some(task) = open.pop() {
        let op = &plan.graph.node(plan.tasks[task].node).op;
        if plan.is_combine(task) || !(op.is_elementwise() || plan.is_free(task)) {
            return None;
        }
        if before.insert(task) {
            let here = &plan.clusters[home];
            let sources = plan.sources(task).iter().copied();
            open.extend(sources.filter(|held| {
                (here.tasks.contains(held) && !plan.outputs(&here.tasks, &[home]).contains(held))
                    || here.copies.contains(held)
            }));
        }
    }
    Some(before)
}
