//! Reductions: over columns, over rows or over all as partials, and from partials.

use super::super::access::{self, Axis, Coordinate, Misfit, Place};
use super::{Builder, Found, Operand, Source};
use crate::graph::{NodeId, Op};
use crate::nest::{Binary, Over, Reduction, Value, ValueId};
use sweeper_program::tensor::Dtype;

impl Builder<'_> {
    /// A reduction over columns.
    pub(super) fn reduced(&mut self, id: NodeId, place: &Place) -> Found {
        let node = self.plan.graph.node(id);
        let Op::Reduce { reduction, dims } = &node.op else {
            return Err(Misfit::Impossible);
        };
        let space = self.body.space.clone();
        // Partials are the only rows of a kernel that combines them, and the result is cross-block.
        if space.combines_partials() {
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

    /// A reduction over rows or over all as partials: its value, and the coordinates of a partial's
    /// elements.
    pub(super) fn partials(&mut self, id: NodeId) -> Result<(ValueId, Coordinate), Misfit> {
        let node = self.plan.graph.node(id);
        let Op::Reduce { reduction, dims } = &node.op else {
            return Err(Misfit::Impossible);
        };
        let x = node.operands[0];
        let shape = &self.plan.graph.node(x).shape;
        let space = self.body.space.clone();
        if space.combines_partials() {
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
        // A value that several rows share would have to be counted for each.
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

    /// A cross-block reduction, from its partials.
    pub(super) fn finished(&mut self, id: NodeId, place: &Place) -> Found {
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
        if !space.combines_partials() || at.start != 0 || is_long(&at) != is_long(&columns) {
            return Err(Misfit::Impossible);
        }
        let len = space.columns();
        let operand = Operand {
            source: Source::Partials(id),
            dtype: Dtype::F32,
            at: columns.plus(&Coordinate::axis(0, len)),
            index_step: 0,
            len,
            is_written: false,
            swaps_pairs: false,
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
