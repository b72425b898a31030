//! Values of nodes at places: computed by the kernel, loaded, counted, or found in another node.

use super::super::access::{self, Axis, Coordinate, Misfit, Place};
use super::super::plan::{Kind, TaskId};
use super::{Builder, EXACT, Found, Operand, Source};
use crate::graph::{NodeId, Op};
use crate::nest::{Binary, OperandId, Value, ValueId};
use sweeper_program::tensor::Dtype;

impl Builder<'_> {
    /// The value of a node at a place.
    pub(super) fn value(&mut self, id: NodeId, place: &Place) -> Found {
        let key = (id, place.clone(), self.swaps_pairs);
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let node = self.plan.graph.node(id);
        let task = self.plan.value(id);
        let value = match (&node.op, task) {
            (Op::Constant(number), _) => self.number(*number),
            (_, Some(task)) if self.members.contains(&task) => match self.plan.tasks[task].kind {
                Kind::Compute => self.computed(id, place)?,
                Kind::Combine if self.swaps_pairs => return Err(Misfit::Impossible),
                Kind::Combine => self.finished(id, place)?,
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
        let mut len = node.elements();
        if let Source::Node(memory) = source {
            at = self.in_memory(memory, at)?;
            len = self.plan.span(memory);
        }
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
        let swaps_pairs = self.are_pairs_of(&at, index, node.dtype)?;
        let operand = Operand {
            source,
            dtype: match source {
                Source::Node(id) => self.plan.dtype_in_memory(id),
                Source::Rounded(_) | Source::Partials(_) => node.dtype,
            },
            at,
            index_step,
            len,
            is_written: false,
            swaps_pairs,
        };
        Ok(self.push_load(operand, index))
    }

    pub(super) fn push_load(&mut self, operand: Operand, index: Option<ValueId>) -> ValueId {
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
        if let Some(swapped) = self.swapped(id, place)? {
            return Ok(swapped);
        }
        match &node.op {
            op if op.is_view() => self.view(id, place),
            // Elements of other places, or indices of them.
            op if self.swaps_pairs && !op.is_elementwise() => Err(Misfit::Impossible),
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

    /// The operand at the indices that it covers, else 0. Indices are counted in f32, and clamped
    /// to the operand elsewhere.
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
}
