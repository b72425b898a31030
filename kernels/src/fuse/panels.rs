//! On a CPU: what follows a product is done panel by panel, while the panel is in the cache.
//!
//! The host's library adds nothing to products. A kernel that reads a product row by row, and is its only
//! reader, runs after each panel of rows of the product; the product as a whole is never in memory.

use std::collections::BTreeMap;

use super::body::Source;
use super::library::{self, Lies};
use super::lower::{Loops, Memory};
use super::order::side;
use super::plan::{Plan, TaskId};
use super::{Policy, Request};
use crate::graph::{NodeId, Op};
use crate::nest::{Extents, Parts, Value};
use crate::program::{Matmul, Precision};
use crate::workload::Target;

/// Bytes of a panel of the product: about half of a second-level cache, for what else is read.
const PANEL_BYTES: usize = 1 << 20;

/// Rows of a panel, at least: each product of a panel packs the second factor again.
const LEAST_ROWS: usize = 64;

/// A product and how its panels go through the kernel that reads it.
#[derive(Clone, Debug)]
pub(super) struct Panels {
    /// The node of the product.
    pub product: NodeId,
    /// The whole product.
    pub call: Matmul,
    /// Where its factors lie.
    pub factors: [Lies; 2],
    /// Rows of a panel.
    pub rows: usize,
    /// Whether the kernel's columns are all elements; otherwise its rows are the product's.
    is_flat: bool,
}

impl Panels {
    /// Sizes of the kernel for so many rows of the product.
    pub(super) fn extents(&self, rows: usize) -> Extents {
        match self.is_flat {
            true => Extents {
                rows: vec![1],
                columns: (rows * self.call.n) as u64,
            },
            false => Extents {
                rows: vec![rows as u64],
                columns: self.call.n as u64,
            },
        }
    }

    /// Elements from what one row of the product meets to what the next one does.
    pub(super) fn row_step(&self, memory: &Memory) -> usize {
        match (memory.source == Source::Node(self.product), self.is_flat) {
            (true, _) => 0,
            (false, true) => memory.columns * self.call.n,
            (false, false) => memory.rows[0],
        }
    }
}

/// For kernels that are run panel by panel, the kernel that is the product, and its task.
pub(super) fn find(plan: &Plan, request: &Request<'_>) -> BTreeMap<usize, (usize, TaskId)> {
    let mut found = BTreeMap::new();
    if *request.target != Target::Cpu || request.policy == Policy::Primitive {
        return found;
    }
    for task in 0..plan.tasks.len() {
        let node = plan.tasks[task].node;
        if plan.graph.node(node).op != Op::Matmul || plan.is_result[task] {
            continue;
        }
        let Some(home) = plan.home(task) else {
            continue;
        };
        let readers = plan.readers(task);
        let mut readers = readers.into_iter();
        if let (Some(reader), None) = (readers.next(), readers.next())
            && side(plan, reader) == side(plan, home)
            && is_allowed(plan, request.policy, node, reader)
        {
            found.entry(reader).or_insert((home, task));
        }
    }
    found
}

/// Whether a policy lets a product and its reader run together.
fn is_allowed(plan: &Plan, policy: Policy, product: NodeId, reader: usize) -> bool {
    let tasks = &plan.clusters[reader].tasks;
    if tasks.iter().any(|&task| plan.is_call(task)) {
        return false;
    }
    let group = plan.graph.node(product).group;
    let is_own = |&task: &TaskId| plan.graph.node(plan.tasks[task].node).group == group;
    policy == Policy::Compiled || (group.is_some() && tasks.iter().all(is_own))
}

/// How a product's panels go through a kernel; none if the kernel needs more than its panel, or if there
/// would be one panel only.
pub(super) fn panels(plan: &Plan, task: TaskId, loops: &Loops) -> Option<Panels> {
    let product = plan.tasks[task].node;
    let (call, factors) = library::matmul(plan, product, Precision::F32)?;
    let is_counted = |value: &Value| matches!(value, Value::Row(_) | Value::Column);
    let has_last = loops.nest.parts == Parts::Many || loops.is_of_parts;
    let is_looked_up = |memory: &Memory| memory.index_step > 0;
    if call.batch > 1
        || has_last
        || loops.nest.values.iter().any(is_counted)
        || loops.memory.iter().any(is_looked_up)
    {
        return None;
    }
    let Matmul { m, n, .. } = call;
    let mut of_product = loops.memory.iter();
    let own = of_product.find(|memory| memory.source == Source::Node(product))?;
    let is_again = of_product.any(|memory| memory.source == Source::Node(product));
    let columns = loops.extents.columns as usize;
    let is_flat = loops.extents.rows == [1] && columns == m * n && own.columns == 1;
    let is_by_row =
        loops.extents.rows == [m as u64] && columns == n && own.columns == 1 && own.rows == [n];
    let rows = (PANEL_BYTES / 4 / n).max(LEAST_ROWS).next_multiple_of(16);
    let fits = !is_again && own.start == 0 && (is_flat || is_by_row) && 2 * m > 3 * rows;
    fits.then_some(Panels {
        product,
        call,
        factors,
        rows,
        is_flat,
    })
}
