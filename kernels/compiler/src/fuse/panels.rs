//! On a CPU: operations after a product or a convolution run panel by panel, while the panel is in
//! the cache.
//!
//! The host's library adds nothing to them. A kernel that reads a product row by row, and is its
//! only reader, runs after each panel of rows of the product; the product as a whole is never in
//! memory. A convolution's rows are its pictures.

use std::collections::BTreeMap;

use super::body::Source;
use super::library::{self, Lies};
use super::lower::{Loops, Memory};
use super::order::side;
use super::plan::{Plan, TaskId};
use super::{Policy, Request};
use crate::graph::{NodeId, Op};
use crate::nest::{CrossBlock, Extents, Value};
use sweeper_program::workload::Target;
use sweeper_program::{Conv2d, Library, Matmul, Precision};

/// Bytes of a panel: about half of a second-level cache; the other half is for other operands.
pub(super) const PANEL_BYTES: usize = 1 << 20;

/// Rows of a panel, at least: each product of a panel packs the second factor again.
const MIN_ROWS: usize = 64;

/// A product, or a convolution, and how its panels go through the kernel that reads it.
#[derive(Clone, Debug)]
pub(super) struct Panels {
    /// The node of the product.
    pub product: NodeId,
    /// The call for the whole product.
    pub call: Library,
    /// The places of its factors: the rows of the first factor are the product's rows.
    pub factors: [Lies; 2],
    /// Rows of the product.
    pub count: usize,
    /// Elements of a row, of the product and of its first factor.
    pub elements: [usize; 2],
    /// Rows of a panel.
    pub rows: usize,
    /// Sizes of the kernel for the whole product.
    whole: Extents,
    /// Whether the kernel's columns are all elements; otherwise its first dimension of rows is the
    /// product's.
    is_flat: bool,
}

impl Panels {
    /// Sizes of the kernel for so many rows of the product.
    pub(super) fn extents(&self, rows: usize) -> Extents {
        let mut extents = self.whole.clone();
        match self.is_flat {
            true => extents.columns = (rows * self.elements[0]) as u64,
            false => extents.rows[0] = rows as u64,
        }
        extents
    }

    /// The stride of a memory from one row of the product to the next, in elements.
    pub(super) fn row_step(&self, memory: &Memory) -> usize {
        match (memory.source == Source::Node(self.product), self.is_flat) {
            (true, _) => 0,
            (false, true) => memory.columns * self.elements[0],
            (false, false) => memory.rows[0],
        }
    }

    /// The call for so many rows, and the elements of the first factor that it spans.
    pub(super) fn call(&self, rows: usize) -> (Library, usize) {
        match self.call {
            Library::Matmul(call) => {
                let span = 1 + (rows - 1) * call.a.row_step + (call.k - 1) * call.a.column_step;
                (Library::Matmul(Matmul { m: rows, ..call }), span)
            }
            Library::Conv2d(call) => {
                let call = Conv2d {
                    batch: rows,
                    ..call
                };
                (Library::Conv2d(call), rows * self.elements[1])
            }
            Library::Attention(_) => unreachable!("it is computed whole"),
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
        let is_product = matches!(plan.graph.node(node).op, Op::Matmul | Op::Conv2d(_));
        if !is_product || plan.is_result[task] {
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

/// The panels of a product that go through a kernel; none if the kernel needs more than its panel,
/// or if there would be one panel only.
pub(super) fn panels(plan: &Plan, task: TaskId, loops: &Loops) -> Option<Panels> {
    let product = plan.tasks[task].node;
    let (call, factors) = library::call(plan, product, Precision::F32)?;
    let is_counted = |value: &Value| matches!(value, Value::Row(_) | Value::Column);
    let has_last = loops.nest.cross_block == CrossBlock::Partials || loops.combines_partials;
    let is_looked_up = |memory: &Memory| memory.index_step > 0;
    if has_last || loops.nest.values.iter().any(is_counted) || loops.memory.iter().any(is_looked_up)
    {
        return None;
    }
    let (count, elements, rows) = match call {
        Library::Matmul(Matmul {
            batch: 1, m, n, a, ..
        }) => {
            let rows = (PANEL_BYTES / 4 / n).max(MIN_ROWS).next_multiple_of(16);
            (m, [n, a.row_step], rows)
        }
        Library::Matmul(_) | Library::Attention(_) => return None,
        Library::Conv2d(call) => {
            let [height, width] = call.out_picture();
            let given = call.channels_in * call.picture[0] * call.picture[1];
            let made = call.channels_out * height * width;
            let rows = (PANEL_BYTES / 4 / made).max(1);
            (call.batch, [made, given], rows)
        }
    };
    let mut of_product = loops.memory.iter();
    let own = of_product.find(|memory| memory.source == Source::Node(product))?;
    let is_again = of_product.any(|memory| memory.source == Source::Node(product));
    let (row_extents, columns) = (&loops.extents.rows, loops.extents.columns as usize);
    let is_flat = *row_extents == [1] && columns == count * elements[0];
    let is_by_row = row_extents[0] == count as u64 && own.rows[0] == elements[0];
    let is_dense =
        own.start == 0 && own.columns == 1 && own.span(&loops.extents) == count * elements[0];
    let fits = !is_again && is_dense && (is_flat || is_by_row) && 2 * count > 3 * rows;
    fits.then_some(Panels {
        product,
        call,
        factors: factors.try_into().ok()?,
        count,
        elements,
        rows,
        whole: loops.extents.clone(),
        is_flat,
    })
}
