//! The passes that decide which operations share a kernel: `cluster` merges kernels, `duplicate`
//! computes cheap values again instead of reading them.
//!
//! Greedy, the most saved first, in an order that depends on nothing but the graph. A merge is
//! possible where there is a nest for it: nothing here knows softmax from layernorm.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use super::Policy;
use super::cycles::Order;
use super::kernel::Cost;
use super::plan::{Members, Plan, Side, TaskId};
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

    /// Whether two kernels may share a launch.
    pub(super) fn may_share(&self, plan: &Plan, one: &Members, other: &Members) -> bool {
        let side = |tasks: &Members| -> BTreeSet<Side> {
            tasks.iter().map(|&task| plan.tasks[task].side).collect()
        };
        let sides: BTreeSet<Side> = side(one).union(&side(other)).copied().collect();
        let is_one_span = self.phase.is_one_span() && !sides.contains(&Side::Setup);
        if sides.len() > 1 && !is_one_span {
            return false;
        }
        let group = |&task: &TaskId| plan.graph.node(plan.tasks[task].node).group;
        match self.policy {
            Policy::Primitive => false,
            Policy::Eager => {
                let groups: BTreeSet<_> = one.iter().chain(other).map(group).collect();
                groups.len() == 1 && !groups.contains(&None)
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
pub(super) fn cluster(plan: &mut Plan, rules: &Rules) {
    if rules.policy == Policy::Primitive {
        return;
    }
    copy_free(plan);
    let mut order = Order::new(plan);
    let mut gains = Gains::default();
    let mut costs: BTreeMap<usize, Cost> = BTreeMap::new();
    let mut fresh: Vec<usize> = plan.kernels();
    loop {
        for pair in fresh.iter().flat_map(|&at| pairs(plan, at)) {
            if gains.knows(pair) {
                continue;
            }
            if let Some(gain) = merged_gain(plan, rules, pair, &mut costs) {
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
            costs.remove(&at);
        }
        fresh = finishers(plan, one);
        fresh.push(one);
    }
}

/// The gains of merging pairs of kernels.
#[derive(Default)]
struct Gains {
    /// Of each kernel, its gain with each other one.
    of: BTreeMap<usize, BTreeMap<usize, i64>>,
    /// Pairs, the most gain first.
    ranked: BTreeSet<(Reverse<i64>, (usize, usize))>,
}

impl Gains {
    fn knows(&self, (one, other): (usize, usize)) -> bool {
        self.of.get(&one).is_some_and(|of| of.contains_key(&other))
    }

    fn insert(&mut self, (one, other): (usize, usize), gain: i64) {
        self.of.entry(one).or_default().insert(other, gain);
        self.of.entry(other).or_default().insert(one, gain);
        self.ranked.insert((Reverse(gain), (one, other)));
    }

    /// The possible pair with the most gain. An impossible pair stays impossible until one of the
    /// two changes.
    fn best(&mut self, is_possible: impl Fn((usize, usize)) -> bool) -> Option<(usize, usize)> {
        loop {
            let (_, pair) = self.ranked.pop_first()?;
            if is_possible(pair) {
                return Some(pair);
            }
        }
    }

    /// Forgets all pairs with a kernel.
    fn forget(&mut self, at: usize) {
        for (other, gain) in self.of.remove(&at).unwrap_or_default() {
            let pair = (at.min(other), at.max(other));
            self.ranked.remove(&(Reverse(gain), pair));
            if let Some(of) = self.of.get_mut(&other) {
                of.remove(&at);
            }
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

/// Kernels that share memory with one: pairs, each ascending.
fn pairs(plan: &Plan, at: usize) -> Vec<(usize, usize)> {
    let mut near = BTreeSet::new();
    let cluster = &plan.clusters[at];
    for &task in &cluster.tasks {
        near.extend(plan.users[task].iter().filter_map(|&user| plan.home(user)));
        for source in plan.sources(task) {
            near.extend(plan.home(source));
            let users = around(&plan.users[source], task);
            near.extend(users.iter().filter_map(|&user| plan.home(user)));
        }
        near.extend(readers_of_inputs(plan, task));
        near.extend(siblings_of_finish(plan, task));
    }
    near.remove(&at);
    let pair = |other: usize| (at.min(other), at.max(other));
    near.into_iter().map(pair).collect()
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

/// Kernels that read a given tensor that a task reads.
fn readers_of_inputs(plan: &Plan, task: TaskId) -> BTreeSet<usize> {
    let operands = plan.graph.node(plan.tasks[task].node).operands.iter();
    let bases = operands.map(|&operand| plan.base(operand));
    let others = bases.flat_map(|base| around(plan.readers_of_given(base), task));
    others.filter_map(|&other| plan.home(other)).collect()
}

/// The gain of merging a pair, if it is possible and there is one.
fn merged_gain(
    plan: &Plan,
    rules: &Rules,
    (one, other): (usize, usize),
    costs: &mut BTreeMap<usize, Cost>,
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
        *slot = match costs.get(&at) {
            Some(&cost) => cost,
            None => *costs.entry(at).or_insert(cost_of(plan, at)?),
        };
    }
    let tasks: Members = a.tasks.union(&b.tasks).copied().collect();
    // Partials are combined by another kernel than the kernel that stores them.
    let is_own_finish = |&task: &TaskId| plan.stores_partials(task) && tasks.contains(&(task + 1));
    if tasks.iter().any(is_own_finish) || !parts_come_together(plan, &tasks) {
        return None;
    }
    let members = a.members().union(&b.members()).copied().collect();
    let after = plan.cost(&members, &tasks, &[one, other])?;
    if after.operands > MOST_OPERANDS || after.values > MOST_VALUES {
        return None;
    }
    let gain = rules.gain(&before, &[after], 1);
    (gain > 0).then_some(gain)
}

/// Whether one kernel stores all partials that are combined here, so that all reductions have
/// equally many.
fn parts_come_together(plan: &Plan, tasks: &Members) -> bool {
    let finished = tasks.iter().filter(|&&task| plan.is_combine(task));
    let homes: BTreeSet<_> = finished.map(|&task| plan.home(task - 1)).collect();
    homes.len() <= 1
}

fn cost_of(plan: &Plan, at: usize) -> Option<Cost> {
    let cluster = &plan.clusters[at];
    plan.cost(&cluster.members(), &cluster.tasks, &[at])
}

/// Computes values again in the kernels that read them, where this improves the plan.
pub(super) fn duplicate(plan: &mut Plan, rules: &Rules) {
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
        duplicate_into(plan, rules, task, home, &readers);
    }
}

/// Makes all readers of a value compute it themselves, if the plan is better then.
fn duplicate_into(
    plan: &mut Plan,
    rules: &Rules,
    task: TaskId,
    home: usize,
    readers: &BTreeSet<usize>,
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
    let costs = |plan: &Plan| -> Option<Vec<Cost>> {
        let all = readers.iter().copied().chain([home]);
        all.map(|at| cost_of(plan, at)).collect()
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
            let sources = plan.sources(task).into_iter();
            open.extend(sources.filter(|held| {
                (here.tasks.contains(held) && !plan.outputs(&here.tasks, &[home]).contains(held))
                    || here.copies.contains(held)
            }));
        }
    }
    Some(before)
}
