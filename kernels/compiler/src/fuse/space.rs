//! The loops of a kernel: axes of rows, and axes of columns inside them.

use super::access::{Axis, Coordinate, dense_steps};
use super::plan::{Kind, Members, Plan, TaskId};
use super::reduce::Class;
use crate::graph::{NodeId, Op};

/// Axes and their extents, outermost first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Space {
    extents: Vec<usize>,
    rows: usize,
    /// Whether the only axis of rows goes over partials of another kernel. Their number is known
    /// when the other kernel is generated; here it is 1.
    of_partials: bool,
    /// Whether rows and columns have a meaning: a value is reduced over one of them.
    pub is_fixed: bool,
}

impl Space {
    /// The loops of a kernel: those of its reductions, or else over the elements of its largest
    /// value. None if it combines partials of different shapes.
    pub(super) fn of(plan: &Plan, members: &Members, outputs: &[TaskId]) -> Option<Space> {
        let tasks = members.iter().map(|&task| plan.tasks[task]);
        let finished = tasks.clone().filter(|task| task.kind == Kind::Combine);
        let shapes = finished.map(|task| plan.graph.node(task.node).shape.as_slice());
        if let Some(shape) = shapes.clone().next() {
            let elements = |shape: &[usize]| shape.iter().product::<usize>();
            let is_one = shapes
                .clone()
                .all(|other| elements(other) == elements(shape));
            return is_one.then(|| Space::new(&[1], shape, true));
        }
        let reductions = tasks.filter(|task| task.kind == Kind::Compute);
        let reductions = reductions.filter_map(|task| Space::of_reduction(plan, task.node));
        if let Some(space) = reductions.max_by_key(Space::size) {
            return Some(space);
        }
        let largest = outputs.iter().map(|&task| {
            let id = plan.tasks[task].node;
            let node = plan.graph.node(id);
            match (&node.op, plan.stores_partials(task)) {
                (_, true) => node.operands[0],
                // A copied reshape goes over its operand's dimensions: see `body`.
                (op, _) if op.is_in_order() => unreshaped(plan, members, id),
                _ => id,
            }
        });
        let largest = largest.max_by_key(|&id| plan.graph.node(id).elements())?;
        Some(Space::new(&[], &plan.graph.node(largest).shape, false))
    }

    fn of_reduction(plan: &Plan, id: NodeId) -> Option<Space> {
        let class = Class::of(&plan.graph, id)?;
        let node = plan.graph.node(id);
        let shape = &plan.graph.node(node.operands[0]).shape;
        let Op::Reduce { dims, .. } = &node.op else {
            return None;
        };
        let select = |is_reduced: bool| -> Vec<usize> {
            let extents = shape.iter().enumerate();
            let extents = extents.filter(|(dim, _)| dims.contains(dim) == is_reduced);
            extents.map(|(_, &extent)| extent).collect()
        };
        match class {
            Class::Columns => Some(Space::new(&select(false), &select(true), false)),
            Class::Rows => Some(Space::new(&select(true), &select(false), false)),
            Class::All | Class::None => None,
        }
        .map(|space| Space {
            is_fixed: true,
            ..space
        })
    }

    fn new(rows: &[usize], columns: &[usize], of_partials: bool) -> Space {
        Space {
            extents: [rows, columns].concat(),
            rows: rows.len(),
            of_partials,
            is_fixed: of_partials,
        }
    }

    fn size(&self) -> usize {
        self.extents.iter().product()
    }

    /// Makes one axis two, the inner one of `inner` iterations. None if this is not possible.
    pub(super) fn divide(&mut self, axis: Axis, inner: usize) -> Option<()> {
        let extent = *self.extents.get(axis)?;
        if self.extents.len() >= MOST_AXES || (self.of_partials && axis == 0) {
            return None;
        }
        self.extents[axis] = extent / inner;
        self.extents.insert(axis + 1, inner);
        self.rows += usize::from(axis < self.rows);
        Some(())
    }

    /// Extents of all axes.
    pub(super) fn extents(&self) -> Vec<usize> {
        self.extents.clone()
    }

    /// Number of axes.
    pub(super) fn axes(&self) -> usize {
        self.extents.len()
    }

    /// Number of axes of rows; the axes of columns follow.
    pub(super) fn row_axes(&self) -> usize {
        self.rows
    }

    /// Whether rows are partials of another kernel.
    pub(super) fn combines_partials(&self) -> bool {
        self.of_partials
    }

    /// Whether an axis is one of rows.
    pub(super) fn is_row(&self, axis: Axis) -> bool {
        axis < self.rows
    }

    /// Iterations of all axes of columns.
    pub(super) fn columns(&self) -> usize {
        self.extents[self.rows..].iter().product()
    }

    /// A bit for each axis of rows.
    pub(super) fn row_bits(&self) -> u64 {
        (1 << self.rows) - 1
    }

    /// A bit for each axis of columns.
    pub(super) fn column_bits(&self) -> u64 {
        ((1 << self.axes()) - 1) & !self.row_bits()
    }

    /// A bit for each axis of more than one iteration.
    pub(super) fn long_bits(&self) -> u64 {
        let long = self.extents.iter().enumerate();
        long.filter(|(_, extent)| **extent > 1)
            .fold(0, |sum, (axis, _)| sum | 1 << axis)
    }

    /// Iterations of the axes whose bits are set.
    pub(super) fn iterations(&self, bits: u64) -> u64 {
        let set = self.extents.iter().enumerate();
        set.filter(|(axis, _)| bits >> axis & 1 == 1)
            .map(|(_, &extent)| extent as u64)
            .product()
    }

    /// Iterations of the axes that a coordinate has steps along.
    pub(super) fn count(&self, at: &Coordinate) -> usize {
        at.steps
            .iter()
            .map(|&(axis, _)| self.extents[axis])
            .product()
    }

    fn position(&self, axes: std::ops::Range<usize>) -> Coordinate {
        let steps = dense_steps(&self.extents[axes.clone()]);
        Coordinate {
            start: 0,
            steps: axes.zip(steps).collect(),
        }
    }

    /// The position in row-major order among rows.
    pub(super) fn rows_position(&self) -> Coordinate {
        self.position(0..self.rows)
    }

    /// The position in row-major order among columns.
    pub(super) fn columns_position(&self) -> Coordinate {
        self.position(self.rows..self.axes())
    }

    /// The position of a value with so many elements: one for each iteration, each row, or, where
    /// rows are partials, each column. None for any other number of elements.
    pub(super) fn position_of(&self, elements: usize) -> Option<Coordinate> {
        let candidates = match self.of_partials {
            true => vec![self.columns_position()],
            false => vec![self.position(0..self.axes()), self.rows_position()],
        };
        let mut candidates = candidates.into_iter();
        candidates.find(|at| self.count(at) == elements)
    }
}

/// Axes are bits of a word, and nests have few of them.
const MOST_AXES: usize = 12;

/// The origin of a chain of reshapes that are copied here.
fn unreshaped(plan: &Plan, members: &Members, mut id: NodeId) -> NodeId {
    let is_here = |id| plan.value(id).is_some_and(|task| members.contains(&task));
    while plan.graph.node(id).op.is_in_order() && is_here(id) {
        id = plan.graph.node(id).operands[0];
    }
    id
}
