//! The body of a kernel, over axes that are not yet rows and columns of a nest.
//!
//! Starting from the places of its outputs, values are found by walking from users to operands: a
//! node that the kernel computes becomes a value, any other is loaded from memory, views are places
//! in another node's memory. The body is exact or refused ([`Misfit`]): an attempt shows whether
//! kernels can be merged.

mod pairs;
mod reductions;
mod values;

use std::collections::BTreeMap;

use super::access::{self, Axis, Coordinate, Misfit, Place};
use super::plan::{Members, Plan, TaskId};
use super::space::Space;
use crate::graph::NodeId;
use crate::nest::{Binary, OperandId, Store, Unary, Value, ValueId};
use sweeper_program::tensor::Dtype;

/// Memory that a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// The elements of a node, dense.
    Node(NodeId),
    /// The elements of a node in bf16, dense.
    Rounded(NodeId),
    /// The partials of a cross-block reduction, one after the other.
    Partials(NodeId),
}

/// Memory and how it is stepped through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    /// The memory.
    pub source: Source,
    /// Type of the elements.
    pub dtype: Dtype,
    /// First element, and steps along axes.
    pub at: Coordinate,
    /// Step of an index that is looked up.
    pub index_step: usize,
    /// Elements of the whole memory.
    pub len: usize,
    /// Whether the operand is written.
    pub is_written: bool,
    /// Whether each pair of columns is exchanged.
    pub swaps_pairs: bool,
}

/// The body of a kernel.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    /// The loops.
    pub space: Space,
    /// Memory.
    pub operands: Vec<Operand>,
    /// Values; [`Value::Row`] holds an axis.
    pub values: Vec<Value>,
    /// Stores.
    pub stores: Vec<Store>,
    /// Numbers that are arguments.
    pub scalars: Vec<f32>,
    /// Axes whose iterations are counted: they can't be merged with others.
    pub counted: Vec<Axis>,
    /// Operations, each as often as it is done; an exponential is worth several.
    pub operations: u64,
}

/// An index that is counted in f32 is exact below this.
const EXACT: usize = 1 << 24;

/// Numbers that are part of a kernel's structure; others are arguments, since sizes are among them.
const STRUCTURAL: [f64; 5] = [0.0, 1.0, -1.0, 0.5, 2.0];

type Found = Result<ValueId, Misfit>;

/// Makes the body of a kernel that computes `members` and writes `outputs`.
///
/// # Errors
/// A misfit that no other choice of axes helps against.
pub(super) fn body(plan: &Plan, members: &Members, outputs: &[TaskId]) -> Result<Body, Misfit> {
    let mut space = Space::of(plan, members, outputs).ok_or(Misfit::Impossible)?;
    loop {
        let mut builder = Builder::new(plan, members, space.clone());
        let built = outputs.iter().try_for_each(|&task| builder.output(task));
        match built {
            Ok(()) => return Ok(builder.body),
            Err(Misfit::Split { axis, inner }) => {
                space.divide(axis, inner).ok_or(Misfit::Impossible)?;
            }
            Err(misfit) => return Err(misfit),
        }
    }
}

#[derive(Clone)]
struct Builder<'a> {
    plan: &'a Plan,
    members: &'a Members,
    body: Body,
    /// Extents of the loops, and then of the dimensions of look-ups.
    extents: Vec<usize>,
    /// For each axis after the loops, the index.
    indices: Vec<ValueId>,
    /// For each value, a bit for each axis that it varies over.
    varies: Vec<u64>,
    known: BTreeMap<(NodeId, Place, bool), ValueId>,
    /// Whether values are those of the other column of each pair.
    swaps_pairs: bool,
}

impl<'a> Builder<'a> {
    fn new(plan: &'a Plan, members: &'a Members, space: Space) -> Self {
        Builder {
            plan,
            members,
            extents: space.extents(),
            body: Body {
                space,
                ..Body::default()
            },
            indices: vec![],
            varies: vec![],
            known: BTreeMap::new(),
            swaps_pairs: false,
        }
    }

    fn loops(&self) -> usize {
        self.body.space.axes()
    }

    /// Adds a value, or finds it.
    fn push(&mut self, value: Value, varies: u64) -> ValueId {
        if let Some(at) = self.body.values.iter().position(|held| *held == value) {
            return ValueId(at);
        }
        let cost = match &value {
            Value::Unary(function, _) => function.entry().cost,
            Value::Binary(..) | Value::Select(..) | Value::Reduce { .. } => 1,
            _ => 0,
        };
        let repeated = match &value {
            Value::Reduce { of, .. } => self.varies[of.0],
            _ => varies,
        };
        self.body.operations += cost * self.body.space.iterations(repeated);
        self.body.values.push(value);
        self.varies.push(varies);
        ValueId(self.body.values.len() - 1)
    }

    fn together(&self, ids: &[ValueId]) -> u64 {
        ids.iter().fold(0, |sum, id| sum | self.varies[id.0])
    }

    fn unary(&mut self, unary: Unary, x: ValueId) -> ValueId {
        self.push(Value::Unary(unary, x), self.varies[x.0])
    }

    fn binary(&mut self, binary: Binary, a: ValueId, b: ValueId) -> ValueId {
        let varies = self.together(&[a, b]);
        self.push(Value::Binary(binary, a, b), varies)
    }

    fn cast(&mut self, dtype: Dtype, x: ValueId) -> ValueId {
        self.push(Value::Cast(dtype, x), self.varies[x.0])
    }

    fn number(&mut self, number: f64) -> ValueId {
        if STRUCTURAL.contains(&number) {
            return self.push(Value::Constant(number), 0);
        }
        self.scalar(number)
    }

    fn scalar(&mut self, number: f64) -> ValueId {
        let bits = (number as f32).to_bits();
        let scalars = &mut self.body.scalars;
        let held = scalars.iter().position(|held| held.to_bits() == bits);
        let at = held.unwrap_or_else(|| {
            scalars.push(number as f32);
            scalars.len() - 1
        });
        self.push(Value::Scalar(at), 0)
    }

    /// Computes and stores the value of a task.
    fn output(&mut self, task: TaskId) -> Result<(), Misfit> {
        let node = self.plan.tasks[task].node;
        if self.plan.stores_partials(task) {
            let (value, columns) = self.partials(node)?;
            // If two nodes are one reduction, a nest stores its partials once.
            if self.body.stores.iter().any(|store| store.value == value) {
                return Err(Misfit::Impossible);
            }
            self.store(Source::Partials(node), value, columns, Dtype::F32);
            return Ok(());
        }
        // A copied reshape has its operand's elements in their order: it need not be a view.
        let mut from = node;
        while self.plan.graph.node(from).op.is_in_order() && self.has(self.plan.value(from)) {
            from = self.plan.graph.node(from).operands[0];
        }
        let shape = &self.plan.graph.node(from).shape;
        let space = &self.body.space;
        let at = space
            .position_of(shape.iter().product())
            .ok_or(Misfit::Impossible)?;
        let place = access::split(&at, shape, &self.extents)?;
        let value = self.value(from, &place)?;
        let dtype = self.plan.graph.node(node).dtype;
        let at = self.in_memory(node, at)?;
        self.store(Source::Node(node), value, at, dtype);
        Ok(())
    }

    fn store(&mut self, source: Source, value: ValueId, at: Coordinate, dtype: Dtype) {
        let len = at
            .steps
            .iter()
            .map(|&(axis, step)| (self.extents[axis] - 1) * step);
        self.body.operands.push(Operand {
            source,
            dtype,
            len: 1 + len.sum::<usize>(),
            at,
            index_step: 0,
            is_written: true,
            swaps_pairs: false,
        });
        let operand = OperandId(self.body.operands.len() - 1);
        self.body.stores.push(Store { operand, value });
    }

    /// The place of an element in memory, from its place among the elements of the node.
    fn in_memory(&self, node: NodeId, at: Coordinate) -> Result<Coordinate, Misfit> {
        match self.plan.parts.get(&node) {
            Some(part) => part.position(&at, &self.extents),
            None => Ok(at),
        }
    }

    fn has(&self, task: Option<TaskId>) -> bool {
        task.is_some_and(|task| self.members.contains(&task))
    }
}
