//! What one kernel computes, over axes that are not yet rows and columns of a nest.
//!
//! Starting from the places of its outputs, values are found by walking from users to operands: what
//! the kernel computes itself becomes a value, what it does not is loaded from the memory of a node,
//! views are places in another node's memory. What comes out is exact or refused ([`Misfit`]): which
//! kernels can be merged is found out by trying.

use std::collections::BTreeMap;

use super::access::{self, Axis, Coordinate, Misfit, Place};
use super::plan::{Kind, Members, Plan, TaskId};
use super::space::Space;
use crate::graph::{NodeId, Op};
use crate::nest::{Binary, OperandId, Over, Reduction, Store, Unary, Value, ValueId};
use crate::tensor::Dtype;

/// Memory that a kernel reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// The elements of a node, dense.
    Node(NodeId),
    /// The parts of a last reduction, one after the other.
    Parts(NodeId),
}

/// Memory and how it is stepped through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Operand {
    /// What memory.
    pub source: Source,
    /// Type of the elements.
    pub dtype: Dtype,
    /// First element, and steps along axes.
    pub at: Coordinate,
    /// Step of an index that is looked up.
    pub index_step: usize,
    /// Elements of the whole memory.
    pub len: usize,
    /// Whether it is written.
    pub is_written: bool,
}

/// What a kernel computes.
#[derive(Clone, Debug, Default)]
pub(super) struct Body {
    /// The loops.
    pub space: Space,
    /// Memory.
    pub operands: Vec<Operand>,
    /// Values; [`Value::Row`] holds an axis.
    pub values: Vec<Value>,
    /// What is written.
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

/// What a transcendental function costs in additions, about.
const FUNCTION_COST: u64 = 16;

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

struct Builder<'a> {
    plan: &'a Plan,
    members: &'a Members,
    body: Body,
    /// Extents of the loops, and then of dimensions in which something is looked up.
    extents: Vec<usize>,
    /// For each axis after the loops, the index.
    indices: Vec<ValueId>,
    /// For each value, a bit for each axis that it varies over.
    varies: Vec<u64>,
    known: BTreeMap<(NodeId, Place), ValueId>,
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
            Value::Unary(Unary::Neg | Unary::Abs, _) | Value::Binary(..) | Value::Select(..) => 1,
            Value::Unary(..) => FUNCTION_COST,
            Value::Reduce { .. } => 1,
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
        if self.plan.leaves_parts(task) {
            let (value, columns) = self.parts(node)?;
            // Two nodes that are the same sum: a nest leaves the parts of one once.
            if self.body.stores.iter().any(|store| store.value == value) {
                return Err(Misfit::Impossible);
            }
            self.store(Source::Parts(node), value, columns, Dtype::F32);
            return Ok(());
        }
        // A copied reshape has its operand's elements in their order: it need not be a view.
        let mut from = node;
        while self.plan.graph.node(from).op == Op::Reshape && self.has(self.plan.value(from)) {
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
        });
        let operand = OperandId(self.body.operands.len() - 1);
        self.body.stores.push(Store { operand, value });
    }

    fn has(&self, task: Option<TaskId>) -> bool {
        task.is_some_and(|task| self.members.contains(&task))
    }

    /// The value of a node at a place.
    fn value(&mut self, id: NodeId, place: &Place) -> Found {
        let key = (id, place.clone());
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let node = self.plan.graph.node(id);
        let task = self.plan.value(id);
        let value = match (&node.op, task) {
            (Op::Constant(number), _) => self.number(*number),
            (_, Some(task)) if self.members.contains(&task) => match self.plan.tasks[task].kind {
                Kind::Compute => self.computed(id, place)?,
                Kind::Finish => self.finished(id, place)?,
            },
            (op, None) if op.is_view() => self.view(id, place)?,
            _ => self.load(Source::Node(id), id, place)?,
        };
        self.known.insert(key, value);
        Ok(value)
    }

    fn view(&mut self, id: NodeId, place: &Place) -> Found {
        let node = self.plan.graph.node(id);
        // The elements of a dense tensor in another shape are where they were.
        let base = self.plan.unreshaped(id);
        let is_given = matches!(self.plan.graph.node(base).op, Op::Input(_));
        let is_elsewhere = |task: TaskId| !self.members.contains(&task);
        if base != id && (is_given || self.plan.value(base).is_some_and(is_elsewhere)) {
            return self.load(Source::Node(base), id, place);
        }
        let operand = node.operands[0];
        let shape = &self.plan.graph.node(operand).shape;
        let place = access::through(node, shape, place, &self.extents)?;
        self.value(operand, &place)
    }

    fn load(&mut self, source: Source, id: NodeId, place: &Place) -> Found {
        let node = self.plan.graph.node(id);
        let mut at = access::position(place, &node.shape);
        let loops = self.loops();
        let looked_up: Vec<(Axis, usize)> = at
            .steps
            .iter()
            .copied()
            .filter(|&(axis, _)| axis >= loops)
            .collect();
        let (index, index_step) = match looked_up[..] {
            [] => (None, 0),
            [(axis, step)] => (Some(self.indices[axis - loops]), step),
            _ => return Err(Misfit::Impossible),
        };
        at.steps.retain(|&(axis, _)| axis < loops);
        let operand = Operand {
            source,
            dtype: node.dtype,
            at,
            index_step,
            len: node.elements(),
            is_written: false,
        };
        Ok(self.push_load(operand, index))
    }

    fn push_load(&mut self, operand: Operand, index: Option<ValueId>) -> ValueId {
        let steps = operand.at.steps.iter().filter(|&&(_, step)| step > 0);
        let varies = steps.fold(0, |sum, &(axis, _)| sum | 1 << axis);
        let varies = varies | self.together(index.as_slice());
        let operands = &mut self.body.operands;
        let held = operands.iter().position(|held| *held == operand);
        let at = held.unwrap_or_else(|| {
            operands.push(operand);
            operands.len() - 1
        });
        let operand = OperandId(at);
        self.push(Value::Load { operand, index }, varies)
    }

    /// The value of a node that is computed here.
    fn computed(&mut self, id: NodeId, place: &Place) -> Found {
        let node = self.plan.graph.node(id);
        let all = |builder: &mut Self| -> Result<Vec<ValueId>, Misfit> {
            let operands = node.operands.iter();
            operands
                .map(|&operand| builder.value(operand, place))
                .collect()
        };
        match &node.op {
            op if op.is_view() => self.view(id, place),
            Op::Unary(unary) => {
                let x = self.value(node.operands[0], place)?;
                Ok(self.unary(*unary, x))
            }
            Op::Cast(dtype) => {
                let x = self.value(node.operands[0], place)?;
                Ok(self.cast(*dtype, x))
            }
            Op::Binary(binary) => {
                let operands = all(self)?;
                Ok(self.binary(*binary, operands[0], operands[1]))
            }
            Op::Select => {
                let operands = all(self)?;
                let varies = self.together(&operands);
                let [mask, a, b] = [operands[0], operands[1], operands[2]];
                Ok(self.push(Value::Select(mask, a, b), varies))
            }
            Op::Iota { dim } => self.count(&place[*dim]),
            Op::Reduce { dims, .. } if dims.is_empty() => self.value(node.operands[0], place),
            Op::Reduce { .. } => self.reduced(id, place),
            Op::Gather => self.gathered(id, place),
            Op::Pick => self.picked(id, place),
            Op::Unslice { .. } => self.unsliced(id, place),
            _ => Err(Misfit::Impossible),
        }
    }

    /// The index along one dimension, i64, where that is a loop's own.
    fn count(&mut self, coordinate: &Coordinate) -> Found {
        match (coordinate.start, &coordinate.steps[..]) {
            (0, []) => {
                let zero = self.number(0.0);
                Ok(self.cast(Dtype::I64, zero))
            }
            (0, &[(axis, 1)]) if axis < self.loops() => {
                if !self.body.counted.contains(&axis) {
                    self.body.counted.push(axis);
                }
                Ok(self.push(Value::Row(axis), 1 << axis))
            }
            (0, &[(axis, 1)]) => Ok(self.indices[axis - self.loops()]),
            _ => Err(Misfit::Impossible),
        }
    }

    /// A new dimension of `extent` indices that are looked up.
    fn look_up(&mut self, index: ValueId, extent: usize) -> Coordinate {
        let loops = self.loops();
        let held = self.indices.iter().zip(&self.extents[loops..]);
        let held = held.clone().position(|held| held == (&index, &extent));
        let at = held.unwrap_or_else(|| {
            self.indices.push(index);
            self.extents.push(extent);
            self.indices.len() - 1
        });
        Coordinate::axis(loops + at, 1)
    }

    fn gathered(&mut self, id: NodeId, place: &Place) -> Found {
        let node = self.plan.graph.node(id);
        let (rows, indices) = (node.operands[0], node.operands[1]);
        let rank = self.plan.graph.node(indices).shape.len();
        let index = self.value(indices, &place[..rank].to_vec())?;
        let extent = self.plan.graph.node(rows).shape[0];
        let mut from = vec![self.look_up(index, extent)];
        from.extend_from_slice(&place[rank..]);
        self.value(rows, &from)
    }

    fn picked(&mut self, id: NodeId, place: &Place) -> Found {
        let node = self.plan.graph.node(id);
        let (x, indices) = (node.operands[0], node.operands[1]);
        let index = self.value(indices, place)?;
        let extent = self.plan.graph.node(x).shape.last().copied();
        let mut from = place.clone();
        from.push(self.look_up(index, extent.unwrap_or(1)));
        self.value(x, &from)
    }

    /// The operand where the index is one of its own, else 0. Indices are counted in f32, and kept
    /// within the operand where they are not its own.
    fn unsliced(&mut self, id: NodeId, place: &Place) -> Found {
        let node = self.plan.graph.node(id);
        let Op::Unslice { dim, start, step } = node.op else {
            return Err(Misfit::Impossible);
        };
        let x = node.operands[0];
        let extent = self.plan.graph.node(x).shape[dim];
        if node.shape[dim] > EXACT {
            return Err(Misfit::Impossible);
        }
        let count = self.count(&place[dim])?;
        let here = self.cast(Dtype::F32, count);
        let first = self.scalar(start as f64);
        let mut within = self.binary(Binary::Sub, here, first);
        if step > 1 {
            let step = self.scalar(step as f64);
            within = self.binary(Binary::Div, within, step);
        }
        let (zero, last) = (self.number(0.0), self.scalar((extent - 1) as f64));
        let within = self.binary(Binary::Max, within, zero);
        let within = self.binary(Binary::Min, within, last);
        let index = self.cast(Dtype::I64, within);
        let mut back = self.cast(Dtype::F32, index);
        if step > 1 {
            let step = self.scalar(step as f64);
            back = self.binary(Binary::Mul, back, step);
        }
        let back = self.binary(Binary::Add, back, first);
        let mask = self.binary(Binary::Equal, back, here);
        let mut from = place.clone();
        from[dim] = self.look_up(index, extent);
        let value = self.value(x, &from)?;
        let varies = self.together(&[mask, value]);
        Ok(self.push(Value::Select(mask, value, zero), varies))
    }

    /// A reduction over columns.
    fn reduced(&mut self, id: NodeId, place: &Place) -> Found {
        let node = self.plan.graph.node(id);
        let Op::Reduce { reduction, dims } = &node.op else {
            return Err(Misfit::Impossible);
        };
        let space = self.body.space.clone();
        // Parts are the only rows of a kernel that adds them up, and what they come to is a last value.
        if space.is_of_parts() {
            return Err(Misfit::Impossible);
        }
        let kept = place
            .iter()
            .enumerate()
            .filter(|(dim, _)| !dims.contains(dim));
        if kept
            .clone()
            .any(|(_, held)| !held.is_within(|axis| space.is_row(axis)))
        {
            return Err(Misfit::Impossible);
        }
        let x = node.operands[0];
        let from = self.spread(x, dims, place, &space.columns_position())?;
        let of = self.value(x, &from)?;
        let columns = space.column_bits();
        if self.varies[of.0] & columns == 0 {
            return Ok(self.repeated(*reduction, of, space.columns()));
        }
        let value = Value::Reduce {
            reduction: *reduction,
            over: Over::Columns,
            of,
        };
        let varies = self.varies[of.0] & !columns;
        Ok(self.push(value, varies | space.row_bits()))
    }

    /// The place of a reduction's operand: reduced dimensions go along a position of the loops.
    fn spread(
        &self,
        x: NodeId,
        dims: &[usize],
        place: &Place,
        along: &Coordinate,
    ) -> Result<Place, Misfit> {
        let shape = &self.plan.graph.node(x).shape;
        let reduced: Vec<usize> = dims.iter().map(|&dim| shape[dim]).collect();
        if reduced.iter().product::<usize>() != self.body.space.count(along) {
            return Err(Misfit::Impossible);
        }
        let mut from = place.clone();
        let along = access::split(along, &reduced, &self.extents)?;
        for (&dim, coordinate) in dims.iter().zip(along) {
            from[dim] = coordinate;
        }
        Ok(from)
    }

    /// The reduction of `count` equal values.
    fn repeated(&mut self, reduction: Reduction, of: ValueId, count: usize) -> ValueId {
        match reduction {
            Reduction::Max => of,
            Reduction::Sum => {
                let count = self.scalar(count as f64);
                self.binary(Binary::Mul, of, count)
            }
        }
    }

    /// A reduction over rows or over all, in parts: its value, and where a part's elements lie.
    fn parts(&mut self, id: NodeId) -> Result<(ValueId, Coordinate), Misfit> {
        let node = self.plan.graph.node(id);
        let Op::Reduce { reduction, dims } = &node.op else {
            return Err(Misfit::Impossible);
        };
        let x = node.operands[0];
        let shape = &self.plan.graph.node(x).shape;
        let space = self.body.space.clone();
        if space.is_of_parts() {
            return Err(Misfit::Impossible);
        }
        if dims.len() == shape.len() {
            let value = self.part_of_all(*reduction, x)?;
            return Ok((value, Coordinate::default()));
        }
        let columns = space.columns_position();
        if node.elements() != space.columns() {
            return Err(Misfit::Impossible);
        }
        let place = access::split(&columns, &node.shape, &self.extents)?;
        let from = self.spread(x, dims, &place, &space.rows_position())?;
        let of = self.value(x, &from)?;
        // A value that is the same in some rows would have to be counted for each.
        let needed = space.long_bits();
        if self.varies[of.0] & needed != needed {
            return Err(Misfit::Impossible);
        }
        let value = Value::Reduce {
            reduction: *reduction,
            over: Over::Rows,
            of,
        };
        let varies = space.column_bits();
        Ok((self.push(value, varies), columns))
    }

    fn part_of_all(&mut self, reduction: Reduction, x: NodeId) -> Found {
        let node = self.plan.graph.node(x);
        let space = self.body.space.clone();
        let at = space
            .position_of(node.elements())
            .ok_or(Misfit::Impossible)?;
        let place = access::split(&at, &node.shape, &self.extents)?;
        let mut of = self.value(x, &place)?;
        let (varies, long) = (self.varies[of.0], space.long_bits());
        let (rows, columns) = (long & space.row_bits(), long & space.column_bits());
        let of_rows = space.count(&at) != space.iterations(u64::MAX) as usize;
        if varies & rows != rows || (rows == 0 && varies & columns != columns) {
            return Err(Misfit::Impossible);
        }
        if !of_rows && varies & columns != columns {
            if varies & columns != 0 {
                return Err(Misfit::Impossible);
            }
            of = self.repeated(reduction, of, space.columns());
        } else if of_rows && varies & columns != 0 {
            return Err(Misfit::Impossible);
        }
        let value = Value::Reduce {
            reduction,
            over: Over::All,
            of,
        };
        Ok(self.push(value, 0))
    }

    /// A last reduction, from its parts.
    fn finished(&mut self, id: NodeId, place: &Place) -> Found {
        let node = self.plan.graph.node(id);
        let Op::Reduce { reduction, .. } = &node.op else {
            return Err(Misfit::Impossible);
        };
        let space = self.body.space.clone();
        let columns = space.columns_position();
        let is_long = |at: &Coordinate| -> Vec<(Axis, usize)> {
            let steps = at.steps.iter().copied();
            steps.filter(|&(axis, _)| self.extents[axis] > 1).collect()
        };
        let at = access::position(place, &node.shape);
        if !space.is_of_parts() || at.start != 0 || is_long(&at) != is_long(&columns) {
            return Err(Misfit::Impossible);
        }
        let len = space.columns();
        let operand = Operand {
            source: Source::Parts(id),
            dtype: Dtype::F32,
            at: columns.plus(&Coordinate::axis(0, len)),
            index_step: 0,
            len,
            is_written: false,
        };
        let of = self.push_load(operand, None);
        let value = Value::Reduce {
            reduction: *reduction,
            over: Over::Rows,
            of,
        };
        Ok(self.push(value, space.column_bits()))
    }
}
