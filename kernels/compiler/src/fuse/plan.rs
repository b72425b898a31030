//! Kernels-to-be: clusters of tasks over a graph, before they have loops or memory.
//!
//! A *task* yields the value of one node. A reduction over leading dimensions, or over all, is two
//! tasks: its kernel stores one partial for each block of rows, and another kernel combines them
//! ([`Kind::Combine`]). Views are not tasks unless they are *kept*: copied, since nothing can read
//! them as they lie.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::parts::Part;
use super::reduce::Class;
use super::rewrite::Whole;
use crate::graph::{Graph, NodeId, Op};
use sweeper_program::tensor::Dtype;

/// The work of a task for its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Computes it; of a cross-block reduction, its partials.
    Compute,
    /// Combines the partials of a cross-block reduction.
    Combine,
}

/// When a task runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Side {
    /// Once before anything is timed: it depends on parameters alone.
    Setup,
    /// In the forward pass.
    Forward,
    /// In the backward pass.
    Backward,
}

/// One value that is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Task {
    /// The node of the task.
    pub node: NodeId,
    /// The part of the node that the task computes.
    pub kind: Kind,
    /// The part of the program in which the task runs.
    pub side: Side,
}

/// A task, by position.
pub(super) type TaskId = usize;

/// A set of tasks.
pub(super) type Members = BTreeSet<TaskId>;

/// A kernel-to-be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cluster {
    /// Tasks of the kernel.
    pub tasks: Members,
    /// Tasks that it recomputes although another kernel computes them, too.
    pub copies: Members,
}

impl Cluster {
    /// All values that are computed here.
    pub(super) fn members(&self) -> Members {
        self.tasks.union(&self.copies).copied().collect()
    }
}

/// The origin of a result of the graph.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Origin {
    /// The memory of a node that a task makes.
    Made(NodeId),
    /// A given tensor, as it is.
    Given(NodeId),
    /// A number, everywhere.
    Number(f64),
}

/// A graph, and the kernels of its tasks.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The graph.
    pub graph: Arc<Graph>,
    /// First node of the backward pass.
    pub boundary: Option<NodeId>,
    /// Positions of the graph's outputs that are wanted.
    pub wanted: Vec<usize>,
    /// Views that are copied.
    pub kept: BTreeSet<NodeId>,
    /// Nodes whose memory is part of a concatenation.
    pub parts: BTreeMap<NodeId, Part>,
    /// Nodes that depend on parameters alone and are computed once.
    pub setup: BTreeSet<NodeId>,
    /// Nodes that are bf16 in memory.
    pub in_bf16: BTreeSet<NodeId>,
    /// All tasks, operands first.
    pub tasks: Vec<Task>,
    /// For each node, the task after which its value is in memory.
    value: Vec<Option<TaskId>>,
    /// For each task, the tasks whose values it reads, ascending.
    sources: Vec<Vec<TaskId>>,
    /// For each task, the tasks that read its value.
    pub users: Vec<Vec<TaskId>>,
    /// For each task, the tasks that it comes after without reading their values.
    pub awaited: Vec<BTreeSet<TaskId>>,
    /// For each task, the tasks that come after it without reading its value.
    waiting: Vec<Vec<TaskId>>,
    /// For each given tensor, the tasks that read it.
    given_users: BTreeMap<NodeId, Vec<TaskId>>,
    /// For each task, whether its value is a result.
    pub is_result: Vec<bool>,
    /// Kernels; kernels that were merged into others are empty.
    pub clusters: Vec<Cluster>,
    /// For each task, the kernels that compute it, ascending.
    holders: Vec<Vec<usize>>,
    /// For each task, the kernel that puts its value into memory.
    homes: Vec<Option<usize>>,
    /// Single-pass reductions: kernels that store partials, each with the kernel that combines them
    /// in the same launch.
    pub single_passes: Vec<[usize; 2]>,
    /// Results that take the memory of given tensors: for each stored node, the tensor.
    pub in_place: BTreeMap<NodeId, NodeId>,
    /// Horizontally fused kernels, each kernel in one group at most, and in no group if it is in a
    /// single-pass reduction.
    pub(super) horizontal: Vec<Horizontal>,
}

/// Kernels that share a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Horizontal {
    /// The kernels.
    pub(super) kernels: Vec<usize>,
    /// The kernels for which the launch has arguments: as many as there are or, of equal ones, as
    /// many as a launch takes.
    pub(super) places: usize,
}

impl Plan {
    /// A plan of the wanted outputs in which each task is a kernel.
    pub(super) fn new(whole: &Whole, wanted: &[usize]) -> Self {
        let mut plan = Plan {
            graph: Arc::clone(&whole.graph),
            boundary: whole.boundary,
            wanted: wanted.to_vec(),
            kept: BTreeSet::new(),
            parts: BTreeMap::new(),
            setup: whole.setup.clone(),
            in_bf16: BTreeSet::new(),
            tasks: vec![],
            value: vec![],
            sources: vec![],
            users: vec![],
            awaited: vec![],
            waiting: vec![],
            given_users: BTreeMap::new(),
            is_result: vec![],
            clusters: vec![],
            holders: vec![],
            homes: vec![],
            single_passes: vec![],
            in_place: BTreeMap::new(),
            horizontal: vec![],
        };
        plan.keep_results();
        plan.keep_parts();
        plan.renew();
        plan
    }

    /// Results that are views of other memory get memory of their own.
    fn keep_results(&mut self) {
        for &output in &self.wanted {
            let node = self.graph.outputs()[output].node;
            let base = self.unreshaped(node);
            let is_number = matches!(self.graph.node(self.base(base)).op, Op::Constant(_));
            if self.graph.node(base).op.is_view() && !is_number {
                self.kept.insert(base);
            }
        }
    }

    /// Makes one kernel of each task, for the nodes that are live now.
    pub(super) fn renew(&mut self) {
        let live = self.live();
        self.parts = self.find_parts();
        self.tasks.clear();
        self.value = vec![None; live.len()];
        for id in self.graph.ids() {
            if !live[id.index()] || !self.is_computed(id) {
                continue;
            }
            let side = self.side(id);
            let mut push = |kind| {
                self.tasks.push(Task {
                    node: id,
                    kind,
                    side,
                });
            };
            push(Kind::Compute);
            if Class::of(&self.graph, id).is_some_and(Class::is_cross_block) {
                push(Kind::Combine);
            }
            self.value[id.index()] = Some(self.tasks.len() - 1);
        }
        let tasks = 0..self.tasks.len();
        self.sources = tasks.map(|task| self.find_sources(task)).collect();
        self.users = vec![Vec::new(); self.tasks.len()];
        for (task, sources) in self.sources.iter().enumerate() {
            sources.iter().for_each(|&at| self.users[at].push(task));
        }
        let tasks = 0..self.tasks.len();
        self.awaited = tasks.map(|task| self.find_awaited(task)).collect();
        self.waiting = vec![Vec::new(); self.tasks.len()];
        for (task, awaited) in self.awaited.iter().enumerate() {
            awaited.iter().for_each(|&at| self.waiting[at].push(task));
        }
        self.given_users = self.find_given_users();
        self.is_result = vec![false; self.tasks.len()];
        for &output in &self.wanted {
            if let Origin::Made(node) = self.origin(output)
                && let Some(task) = self.value[node.index()]
            {
                self.is_result[task] = true;
            }
        }
        let alone = |task| Cluster {
            tasks: [task].into(),
            copies: Members::new(),
        };
        self.clusters = (0..self.tasks.len()).map(alone).collect();
        self.holders = (0..self.tasks.len()).map(|task| vec![task]).collect();
        self.homes = (0..self.tasks.len()).map(Some).collect();
    }

    /// Whether a node has a task, if it is needed.
    fn is_computed(&self, id: NodeId) -> bool {
        match &self.graph.node(id).op {
            Op::Input(_) | Op::Constant(_) | Op::Concat { .. } => false,
            op => !op.is_view() || self.kept.contains(&id),
        }
    }

    /// For each node, whether a wanted output depends on it.
    pub(super) fn live(&self) -> Vec<bool> {
        let mut live = vec![false; self.graph.nodes().len()];
        for &output in &self.wanted {
            live[self.graph.outputs()[output].node.index()] = true;
        }
        for id in self.graph.ids().rev() {
            if live[id.index()] {
                for operand in self.graph.node(id).sources() {
                    live[operand.index()] = true;
                }
            }
        }
        live
    }

    fn side(&self, id: NodeId) -> Side {
        if self.setup.contains(&id) {
            return Side::Setup;
        }
        match self.boundary {
            Some(boundary) if id >= boundary => Side::Backward,
            _ => Side::Forward,
        }
    }

    /// The node whose memory a node is read from: itself, or the node that it views.
    pub(super) fn base(&self, mut id: NodeId) -> NodeId {
        while self.graph.node(id).op.is_view() && !self.kept.contains(&id) {
            id = self.graph.node(id).operands[0];
        }
        id
    }

    /// The node of which this one is a reshape, with equal elements in equal order.
    pub(super) fn unreshaped(&self, mut id: NodeId) -> NodeId {
        while self.graph.node(id).op.is_in_order() && !self.kept.contains(&id) {
            id = self.graph.node(id).operands[0];
        }
        id
    }

    /// The type of a node's elements in memory.
    pub(super) fn dtype_in_memory(&self, id: NodeId) -> Dtype {
        match self.in_bf16.contains(&id) {
            true => Dtype::Bf16,
            false => self.graph.node(id).dtype,
        }
    }

    /// The origin of an output of the graph.
    pub(super) fn origin(&self, output: usize) -> Origin {
        let id = self.graph.outputs()[output].node;
        let id = self.unreshaped(id);
        match self.graph.node(self.base(id)).op {
            Op::Constant(number) => Origin::Number(number),
            Op::Input(_) => Origin::Given(id),
            _ => Origin::Made(id),
        }
    }

    /// The task after which a node's value is in memory.
    pub(super) fn value(&self, id: NodeId) -> Option<TaskId> {
        self.value[id.index()]
    }

    /// Whether a task stores partials that another task combines.
    pub(super) fn stores_partials(&self, task: TaskId) -> bool {
        self.value(self.tasks[task].node) != Some(task)
    }

    /// Tasks whose values a task reads, ascending.
    pub(super) fn sources(&self, task: TaskId) -> &[TaskId] {
        &self.sources[task]
    }

    fn find_sources(&self, task: TaskId) -> Vec<TaskId> {
        let Task { node, kind, .. } = self.tasks[task];
        if kind == Kind::Combine {
            return vec![task - 1];
        }
        let operands = self.graph.node(node).sources().iter();
        let bases = operands.flat_map(|&operand| self.bases(operand));
        let mut sources: Vec<TaskId> = bases.filter_map(|base| self.value(base)).collect();
        sources.sort_unstable();
        sources.dedup();
        sources
    }

    /// Tasks that a task comes after without reading their values: it reads through barriers.
    fn find_awaited(&self, task: TaskId) -> BTreeSet<TaskId> {
        let Task { node, kind, .. } = self.tasks[task];
        let mut awaited = BTreeSet::new();
        if kind == Kind::Combine {
            return awaited;
        }
        let mut open = self.graph.node(node).sources().to_vec();
        open.extend((self.graph.node(node).op == Op::Barrier).then_some(node));
        while let Some(id) = open.pop() {
            let view = self.graph.node(id);
            if let (Op::Barrier, &[_, after]) = (&view.op, &view.operands[..]) {
                awaited.extend(self.value(self.base(after)));
            }
            if view.op.is_view() && !self.kept.contains(&id) {
                open.push(view.operands[0]);
            }
            if let Op::Concat { .. } = view.op {
                open.extend(&view.operands);
            }
        }
        awaited
    }

    fn find_given_users(&self) -> BTreeMap<NodeId, Vec<TaskId>> {
        let mut users: BTreeMap<NodeId, Vec<TaskId>> = BTreeMap::new();
        for (at, task) in self.tasks.iter().enumerate() {
            let operands = self.graph.node(task.node).sources().iter();
            for base in operands.flat_map(|&operand| self.bases(operand)) {
                if matches!(self.graph.node(base).op, Op::Input(_)) {
                    users.entry(base).or_default().push(at);
                }
            }
        }
        users
    }

    /// The kernels that read a given tensor.
    pub(super) fn kernels_that_read(&self, given: NodeId) -> BTreeSet<usize> {
        let readers = self.readers_of_given(given).iter();
        readers
            .flat_map(|&task| self.holders[task].iter().copied())
            .collect()
    }

    /// Tasks that read a given tensor.
    pub(super) fn readers_of_given(&self, id: NodeId) -> &[TaskId] {
        self.given_users.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Whether a task is a call of a library or a kernel that is not generated.
    pub(super) fn is_call(&self, task: TaskId) -> bool {
        matches!(
            self.graph.node(self.tasks[task].node).op,
            Op::Matmul
                | Op::Conv2d(_)
                | Op::Conv2dGradX(_)
                | Op::Conv2dGradW(_)
                | Op::Attention(_)
                | Op::ScatterAdd
        )
    }

    /// Values of a cluster's tasks that must be in memory, where `own` are the positions of kernels
    /// that it stands for: results, partials, and values that another kernel reads and does not
    /// compute itself.
    pub(super) fn outputs<'t>(
        &self,
        tasks: impl IntoIterator<Item = &'t TaskId>,
        own: &[usize],
    ) -> Vec<TaskId> {
        let is_read = |task: TaskId, user: TaskId| {
            let mut readers = self.holders[user].iter().filter(|at| !own.contains(at));
            readers.any(|&at| {
                let cluster = &self.clusters[at];
                !cluster.tasks.contains(&task) && !cluster.copies.contains(&task)
            })
        };
        let is_needed = |&task: &TaskId| {
            self.is_result[task]
                || self.stores_partials(task)
                || self.users[task].iter().any(|&user| is_read(task, user))
        };
        tasks.into_iter().copied().filter(is_needed).collect()
    }

    /// The kernel that puts a task's value into memory.
    pub(super) fn home(&self, task: TaskId) -> Option<usize> {
        self.homes[task]
    }

    /// The kernels that read a task's value from memory, or compute values from it.
    pub(super) fn readers(&self, task: TaskId) -> BTreeSet<usize> {
        self.readers_of(task).collect()
    }

    /// As [`Plan::readers`]: some of them more than once, in no order.
    pub(super) fn readers_of(&self, task: TaskId) -> impl Iterator<Item = usize> {
        let users = self.users[task].iter();
        let readers = users.flat_map(|&user| self.holders[user].iter().copied());
        readers.filter(move |&at| !self.clusters[at].copies.contains(&task))
    }

    /// Whether a kernel computes a value that others come after without reading it.
    pub(super) fn is_awaited(&self, at: usize) -> bool {
        let mut tasks = self.clusters[at].tasks.iter();
        tasks.any(|&task| !self.waiting[task].is_empty())
    }

    /// The kernels that come after a task without reading its value.
    pub(super) fn waiters(&self, task: TaskId) -> impl Iterator<Item = usize> {
        let waiting = self.waiting[task].iter();
        waiting.flat_map(|&task| self.holders[task].iter().copied())
    }

    /// Whether a task combines partials.
    pub(super) fn is_combine(&self, task: TaskId) -> bool {
        self.tasks[task].kind == Kind::Combine
    }

    /// The kernels for which a launch has arguments.
    pub(super) fn places(&self, launch: &[usize]) -> usize {
        let mut groups = self.horizontal.iter();
        let group = groups.find(|group| group.kernels == *launch);
        group.map_or(launch.len(), |group| group.places)
    }

    /// Whether a launch is a single-pass reduction, not a horizontal group.
    pub(super) fn is_single_pass(&self, launch: &[usize]) -> bool {
        self.single_passes.iter().any(|pair| pair[..] == *launch)
    }

    /// Makes kernels `one` and `other` one; `other` is then empty.
    pub(super) fn merge(&mut self, one: usize, other: usize) {
        let Cluster { tasks, copies } = std::mem::take(&mut self.clusters[other]);
        for &task in tasks.iter().chain(&copies) {
            self.release(task, other);
            self.hold(task, one);
        }
        tasks.iter().for_each(|&task| self.homes[task] = Some(one));
        let into = &mut self.clusters[one];
        into.tasks.extend(tasks);
        into.copies.extend(copies);
        into.copies.retain(|task| !into.tasks.contains(task));
    }

    /// Makes a kernel compute a value for itself. Returns whether it did not yet.
    pub(super) fn copy(&mut self, task: TaskId, into: usize) -> bool {
        let is_new =
            !self.clusters[into].tasks.contains(&task) && self.clusters[into].copies.insert(task);
        if is_new {
            self.hold(task, into);
        }
        is_new
    }

    /// Takes a copied value out of a kernel again.
    pub(super) fn uncopy(&mut self, task: TaskId, from: usize) {
        if self.clusters[from].copies.remove(&task) {
            self.release(task, from);
        }
    }

    fn hold(&mut self, task: TaskId, at: usize) {
        let holders = &mut self.holders[task];
        if let Err(position) = holders.binary_search(&at) {
            holders.insert(position, at);
        }
    }

    fn release(&mut self, task: TaskId, at: usize) {
        let holders = &mut self.holders[task];
        if let Ok(position) = holders.binary_search(&at) {
            holders.remove(position);
        }
    }

    /// Drops the kernels that have no readers, among some, and then kernels that only these have
    /// read. Returns the dropped ones.
    pub(super) fn drop_unread(
        &mut self,
        kernels: impl IntoIterator<Item = usize>,
    ) -> Vec<(usize, Cluster)> {
        let mut open: BTreeSet<usize> = kernels.into_iter().collect();
        let mut dropped = Vec::new();
        while let Some(at) = open.pop_last() {
            let tasks = &self.clusters[at].tasks;
            if tasks.is_empty() || !self.outputs(tasks, &[at]).is_empty() {
                continue;
            }
            let cluster = std::mem::take(&mut self.clusters[at]);
            cluster
                .tasks
                .iter()
                .for_each(|&task| self.homes[task] = None);
            for &task in cluster.tasks.iter().chain(&cluster.copies) {
                self.release(task, at);
                let sources = self.sources(task).iter();
                open.extend(sources.filter_map(|&source| self.home(source)));
            }
            dropped.push((at, cluster));
        }
        dropped
    }

    /// Takes kernels back that were dropped.
    pub(super) fn restore(&mut self, dropped: Vec<(usize, Cluster)>) {
        for (at, cluster) in dropped {
            for &task in cluster.tasks.iter().chain(&cluster.copies) {
                self.hold(task, at);
            }
            let tasks = cluster.tasks.iter();
            tasks.for_each(|&task| self.homes[task] = Some(at));
            self.clusters[at] = cluster;
        }
    }

    /// Positions of the kernels that there are.
    pub(super) fn kernels(&self) -> Vec<usize> {
        let is_there = |&at: &usize| !self.clusters[at].tasks.is_empty();
        (0..self.clusters.len()).filter(is_there).collect()
    }
}
