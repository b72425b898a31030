//! The cost of a cluster as a kernel, and the kernel itself.

use super::body::body;
use super::epilogue;
use super::lower::{Loops, lower};
use super::plan::{Kind, Members, Plan, TaskId};
use crate::graph::{NodeId, Op};
use sweeper_program::tensor::Dtype;

/// Bytes and operations of one kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Cost {
    /// Bytes read and written.
    pub bytes: u64,
    /// Operations, an exponential counted as several.
    pub operations: u64,
    /// Pointers that the kernel is given.
    pub operands: usize,
    /// Values that it computes.
    pub values: usize,
}

impl Plan {
    /// The generated kernel that computes `members` and writes `outputs`; none if there is no nest
    /// for it.
    pub(super) fn loops(&self, members: &Members, outputs: &[TaskId]) -> Option<Loops> {
        let body = body(self, members, outputs).ok()?;
        lower(&body, &self.words(members))
    }

    /// Words of the operations of some tasks, in order.
    pub(super) fn words(&self, members: &Members) -> Vec<&'static str> {
        let word = |&task: &TaskId| {
            let task = self.tasks[task];
            let op = &self.graph.node(task.node).op;
            match (op, task.kind) {
                (_, Kind::Combine) => "combine",
                (op, _) if op.is_view() => "copy",
                (op, _) => op.name(),
            }
        };
        members.iter().map(word).collect()
    }

    /// The cost of a cluster; none if the cluster can't be one kernel.
    pub(super) fn cost(&self, members: &Members, tasks: &Members, own: &[usize]) -> Option<Cost> {
        let outputs = self.outputs(tasks, own);
        if outputs.is_empty() {
            return Some(Cost::default());
        }
        if let Some(&call) = tasks.iter().find(|&&task| self.is_call(task)) {
            return Some(self.call_cost(call, tasks));
        }
        self.cost_of_loops(members, &outputs)
    }

    /// The cost of a generated kernel.
    pub(super) fn cost_of_loops(&self, members: &Members, outputs: &[TaskId]) -> Option<Cost> {
        let loops = self.loops(members, outputs)?;
        let (read, written) = loops.bytes();
        Some(Cost {
            bytes: read + written,
            operations: loops.operations,
            operands: loops.memory.len(),
            values: loops.nest.values.len(),
        })
    }

    /// Operands once, the result, and the bias.
    fn call_cost(&self, call: TaskId, tasks: &Members) -> Cost {
        let node = self.graph.node(self.tasks[call].node);
        let bytes = |id: NodeId| {
            let size = self.dtype_in_memory(self.base(id)).size_bytes();
            (self.graph.node(id).elements() * size) as u64
        };
        let read: u64 = node.operands.iter().map(|&operand| bytes(operand)).sum();
        let bias = epilogue::of_cluster(self, tasks, call).bias;
        let bias = bias.map_or(0, |bias| (bias.span * Dtype::F32.size_bytes()) as u64);
        Cost {
            bytes: read + bias + bytes(self.tasks[call].node),
            operations: 0,
            operands: node.operands.len() + 1,
            values: 1,
        }
    }

    /// Whether a task's value can be had without reading memory.
    pub(super) fn is_free(&self, task: TaskId) -> bool {
        matches!(self.graph.node(self.tasks[task].node).op, Op::Iota { .. })
            && !self.is_result[task]
    }
}
