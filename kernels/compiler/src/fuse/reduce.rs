//! Classes of reductions: over a kernel's columns, its rows, or everything; and the rule that
//! splits all other reductions.

use crate::graph::pattern::Pattern::{Any, Of};
use crate::graph::pattern::{Kind, Rule, X};
use crate::graph::{Graph, Node, NodeId, Op};

const REDUCE: Kind = |op| matches!(op, Op::Reduce { .. });

/// A reduction over scattered dimensions becomes several, each over neighbouring ones.
pub(super) const SPLIT: &[Rule] = &[Rule {
    from: Of(REDUCE, &[Any(X)]),
    to: |graph, node, _| {
        let Op::Reduce { reduction, dims } = &node.op else {
            return None;
        };
        let mut x = node.operands[0];
        let mut shape = graph.node(x).shape.clone();
        for dims in steps(&shape.clone(), dims) {
            for &dim in &dims {
                shape[dim] = 1;
            }
            let step = Node {
                op: Op::Reduce {
                    reduction: *reduction,
                    dims,
                },
                operands: vec![x],
                shape: shape.clone(),
                ..node.clone()
            };
            x = graph.append(step, None);
        }
        Some(x)
    },
}];

/// Kinds of reductions, by the dimensions that they go over. Told by positions of dimensions where
/// that is possible, not by extents, so that kernels differ by structure alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Class {
    /// Over trailing dimensions, or some in the middle: the loops are arranged so that these are
    /// columns.
    Columns,
    /// Over leading dimensions: one value for each combination of the other dimensions.
    Rows,
    /// Over all: one value.
    All,
    /// Over no dimension: the operand itself.
    None,
}

impl Class {
    /// The class of a node, if it is a reduction.
    pub(super) fn of(graph: &Graph, id: NodeId) -> Option<Class> {
        let node = graph.node(id);
        let Op::Reduce { dims, .. } = &node.op else {
            return None;
        };
        Some(Class::of_dims(&graph.node(node.operands[0]).shape, dims))
    }

    /// The class of a reduction of `dims`, ascending, of a tensor of `shape`.
    pub(super) fn of_dims(shape: &[usize], dims: &[usize]) -> Class {
        let rank = shape.len();
        let Some(&last) = dims.last() else {
            return Class::None;
        };
        let is_reduced_or_one = |dim: usize| shape[dim] == 1 || dims.contains(&dim);
        if dims.len() == rank {
            Class::All
        } else if dims.iter().copied().eq(rank - dims.len()..rank) {
            Class::Columns
        } else if dims.iter().copied().eq(0..dims.len()) || (0..last).all(is_reduced_or_one) {
            Class::Rows
        } else {
            Class::Columns
        }
    }

    /// Whether it is a cross-block reduction.
    pub(super) fn is_cross_block(self) -> bool {
        matches!(self, Class::Rows | Class::All)
    }
}

/// The dimensions of a reduction, as consecutive reductions that kernels compute well: trailing
/// dimensions first, then leading ones, then dimensions in the middle.
fn steps(shape: &[usize], dims: &[usize]) -> Vec<Vec<usize>> {
    let rank = shape.len();
    let whole = [Class::Columns, Class::Rows, Class::All, Class::None];
    let is_run = dims.windows(2).all(|pair| pair[1] == pair[0] + 1);
    if is_run && whole.contains(&Class::of_dims(shape, dims)) {
        return vec![dims.to_vec()];
    }
    let trailing = (0..rank).rev().take_while(|dim| dims.contains(dim)).count();
    let leading = (0..rank).take_while(|dim| dims.contains(dim)).count();
    let (inner, outer) = (rank - trailing, leading);
    let parts = [
        dims.iter().copied().filter(|&dim| dim >= inner).collect(),
        dims.iter().copied().filter(|&dim| dim < outer).collect(),
        dims.iter()
            .copied()
            .filter(|&dim| dim >= outer && dim < inner)
            .collect::<Vec<usize>>(),
    ];
    let parts = parts.into_iter().filter(|part| !part.is_empty());
    let mut steps: Vec<Vec<usize>> = Vec::new();
    for part in parts {
        // Runs of neighbours in the middle, one after the other.
        for dim in part {
            match steps.last_mut() {
                Some(run) if run.last().is_some_and(|&last| last + 1 == dim) => run.push(dim),
                _ => steps.push(vec![dim]),
            }
        }
    }
    steps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_are_told_by_their_dimensions() {
        let shape = [4, 5, 6];
        assert_eq!(Class::of_dims(&shape, &[2]), Class::Columns);
        assert_eq!(Class::of_dims(&shape, &[1, 2]), Class::Columns);
        assert_eq!(Class::of_dims(&shape, &[1]), Class::Columns);
        assert_eq!(Class::of_dims(&shape, &[0, 1]), Class::Rows);
        assert_eq!(Class::of_dims(&shape, &[0, 1, 2]), Class::All);
        assert_eq!(Class::of_dims(&[1, 1, 6], &[2]), Class::Columns);
        assert_eq!(Class::of_dims(&[1, 5, 6], &[1]), Class::Rows);
        assert_eq!(Class::of_dims(&[6], &[0]), Class::All);
    }

    #[test]
    fn scattered_dimensions_are_reduced_in_turn() {
        assert_eq!(steps(&[2, 3, 4, 5], &[0, 2, 3]), [vec![2, 3], vec![0]]);
        assert_eq!(steps(&[2, 3, 4, 5], &[0, 2]), [vec![0], vec![2]]);
        assert_eq!(steps(&[2, 3, 4], &[1]), [vec![1]]);
        assert_eq!(steps(&[2, 3, 4], &[0, 1, 2]), [vec![0, 1, 2]]);
    }
}
