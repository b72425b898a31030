//! The element of a tensor in each iteration of a kernel: coordinates that are sums of steps.
//!
//! A kernel iterates over *axes*. A [`Place`] gives each dimension of a node a [`Coordinate`]: a
//! start, and a step for each axis. Views turn places of their result into places of their operand,
//! so that they cost nothing: they only change the steps through memory.

use crate::graph::{Node, Op};

/// A loop of a kernel, by position; after the loops come axes for values that are looked up.
pub(super) type Axis = usize;

/// A place along one dimension: `start + sum of step * axis`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Coordinate {
    /// The coordinate where all axes are 0.
    pub start: usize,
    /// Steps that are not 0, by ascending axis.
    pub steps: Vec<(Axis, usize)>,
}

/// A coordinate for each dimension of a node.
pub(super) type Place = Vec<Coordinate>;

/// Why a view can't be read as the axes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Misfit {
    /// The view could be stepped through if this axis were two, the inner one of so many
    /// iterations.
    Split { axis: Axis, inner: usize },
    /// No axes of such a kernel can step through the view.
    Impossible,
}

impl Coordinate {
    /// The axis itself, times `step`.
    pub(super) fn axis(axis: Axis, step: usize) -> Self {
        Coordinate {
            start: 0,
            steps: vec![(axis, step)],
        }
    }

    /// `factor` times this.
    pub(super) fn times(&self, factor: usize) -> Self {
        Coordinate {
            start: self.start * factor,
            steps: self
                .steps
                .iter()
                .filter(|_| factor > 0)
                .map(|&(axis, step)| (axis, step * factor))
                .collect(),
        }
    }

    /// The sum of two.
    pub(super) fn plus(mut self, other: &Coordinate) -> Self {
        self.start += other.start;
        for &(axis, step) in &other.steps {
            match self.steps.binary_search_by_key(&axis, |&(axis, _)| axis) {
                Ok(at) => self.steps[at].1 += step,
                Err(at) => self.steps.insert(at, (axis, step)),
            }
        }
        self
    }

    /// The step along an axis.
    pub(super) fn step(&self, axis: Axis) -> usize {
        let found = self.steps.iter().find(|&&(held, _)| held == axis);
        found.map_or(0, |&(_, step)| step)
    }

    /// Whether the coordinate depends on these axes alone.
    pub(super) fn is_within(&self, is_allowed: impl Fn(Axis) -> bool) -> bool {
        self.steps.iter().all(|&(axis, _)| is_allowed(axis))
    }
}

/// The place whose coordinates are one axis each.
pub(super) fn axes(count: usize) -> Place {
    (0..count).map(|axis| Coordinate::axis(axis, 1)).collect()
}

/// Distances of neighbours along each dimension of a dense tensor.
pub(super) fn dense_steps(shape: &[usize]) -> Vec<usize> {
    let mut steps = vec![1; shape.len()];
    for dim in (1..shape.len()).rev() {
        steps[dim - 1] = steps[dim] * shape[dim];
    }
    steps
}

/// The position in row-major order.
pub(super) fn position(place: &[Coordinate], shape: &[usize]) -> Coordinate {
    let steps = dense_steps(shape).into_iter().zip(place);
    steps.fold(Coordinate::default(), |sum, (step, coordinate)| {
        sum.plus(&coordinate.times(step))
    })
}

/// The coordinates of a position in row-major order; the inverse of [`position`].
///
/// Each axis must move within one dimension, and no sum of steps may carry into the next one.
pub(super) fn split(
    position: &Coordinate,
    shape: &[usize],
    extents: &[usize],
) -> Result<Place, Misfit> {
    let dense = dense_steps(shape);
    let mut place = vec![Coordinate::default(); shape.len()];
    let mut rest = position.start;
    for (dim, coordinate) in place.iter_mut().enumerate() {
        coordinate.start = rest / dense[dim];
        rest %= dense[dim];
    }
    for &(axis, step) in &position.steps {
        let extent = extents[axis];
        if extent <= 1 {
            continue;
        }
        let holds = |dim: &usize| shape[*dim] > 1 && dense[*dim] <= step;
        let dim = (0..shape.len()).find(holds).ok_or(Misfit::Impossible)?;
        if !step.is_multiple_of(dense[dim]) {
            return Err(Misfit::Impossible);
        }
        let room = dense[dim] * shape[dim];
        if (extent - 1) * step >= room {
            let inner = room / step;
            let divides = room.is_multiple_of(step) && inner > 1 && extent.is_multiple_of(inner);
            return Err(match divides {
                true => Misfit::Split { axis, inner },
                false => Misfit::Impossible,
            });
        }
        place[dim].steps.push((axis, step / dense[dim]));
    }
    for (coordinate, &extent) in place.iter().zip(shape) {
        let reach = coordinate.steps.iter();
        let reach: usize = reach.map(|&(axis, step)| step * (extents[axis] - 1)).sum();
        if coordinate.start + reach >= extent.max(1) {
            return Err(Misfit::Impossible);
        }
    }
    Ok(place)
}

/// The place of a view's operand, of `shape`, that a place of the view means.
pub(super) fn through(
    view: &Node,
    shape: &[usize],
    place: &[Coordinate],
    extents: &[usize],
) -> Result<Place, Misfit> {
    match &view.op {
        Op::Broadcast => Ok(place
            .iter()
            .zip(shape.iter().zip(&view.shape))
            .map(|(coordinate, (&own, &repeated))| match own == repeated {
                true => coordinate.clone(),
                false => Coordinate::default(),
            })
            .collect()),
        Op::Transpose { order } => {
            let mut to = vec![Coordinate::default(); place.len()];
            for (coordinate, &dim) in place.iter().zip(order) {
                to[dim] = coordinate.clone();
            }
            Ok(to)
        }
        Op::Slice { dim, start, step } => {
            let mut to = place.to_vec();
            to[*dim] = to[*dim].times(*step);
            to[*dim].start += start;
            Ok(to)
        }
        Op::Barrier => Ok(place.to_vec()),
        Op::Reshape => split(&position(place, &view.shape), shape, extents),
        _ => Err(Misfit::Impossible),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::{Graph, NodeId};
    use sweeper_program::Role;
    use sweeper_program::tensor::Dtype;

    /// Steps in the memory of the viewed tensor for each axis of `node`.
    fn steps(graph: &Graph, mut node: NodeId, extents: &[usize]) -> Result<Vec<usize>, Misfit> {
        let mut place = axes(extents.len());
        while graph.node(node).op.is_view() {
            let view = graph.node(node);
            let operand = view.operands[0];
            place = through(view, &graph.node(operand).shape, &place, extents)?;
            node = operand;
        }
        let place = position(&place, &graph.node(node).shape);
        let steps = (0..extents.len()).map(|axis| place.step(axis));
        Ok([place.start].into_iter().chain(steps).collect())
    }

    #[test]
    fn views_are_steps_through_memory() {
        let mut graph = Graph::new();
        let x = graph.input("x", &[6, 8], Dtype::F32, Role::Input).unwrap();
        let y = graph.transpose(x, &[1, 0]).unwrap();
        assert_eq!(steps(&graph, y, &[8, 6]), Ok(vec![0, 1, 8]));
        let y = graph.slice(y, 0, 1, 3, 2).unwrap();
        assert_eq!(steps(&graph, y, &[2, 6]), Ok(vec![1, 3, 8]));
        let heads = graph.reshape(x, &[6, 2, 4]).unwrap();
        let heads = graph.transpose(heads, &[1, 0, 2]).unwrap();
        assert_eq!(steps(&graph, heads, &[2, 6, 4]), Ok(vec![0, 4, 8, 1]));
        let row = graph.slice(x, 0, 2, 1, 1).unwrap();
        let row = graph.reshape(row, &[8]).unwrap();
        let row = graph.broadcast(row, &[5, 8]).unwrap();
        assert_eq!(steps(&graph, row, &[5, 8]), Ok(vec![16, 0, 1]));
    }

    #[test]
    fn what_spans_dimensions_is_split_where_that_helps() {
        let mut graph = Graph::new();
        let x = graph.input("x", &[6, 8], Dtype::F32, Role::Input).unwrap();
        let y = graph.transpose(x, &[1, 0]).unwrap();
        let y = graph.reshape(y, &[48]).unwrap();
        let split = Misfit::Split { axis: 0, inner: 6 };
        assert_eq!(steps(&graph, y, &[48]), Err(split));
        let y = graph.reshape(y, &[12, 4]).unwrap();
        assert_eq!(steps(&graph, y, &[12, 4]), Err(Misfit::Impossible));
    }
}
