//! The graph in which groups of products are one product each.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::{Concatenation, Group, Stretch};
use crate::fuse::rewrite::Whole;
use crate::graph::{Binary, Graph, Node, NodeId, Op};
use sweeper_program::tensor::Dtype;

/// The graph with the product of each group in the place of its first node.
pub(super) fn rebuilt(whole: &Whole, groups: &[Group], concatenations: &[Concatenation]) -> Whole {
    let old = &whole.graph;
    let mut rebuild = Rebuild {
        old,
        graph: old.emptied(),
        stands_for: vec![None; old.nodes().len()],
        groups,
        group_of: BTreeMap::new(),
        concatenations,
        made: vec![None; concatenations.len()],
    };
    let mut inside = BTreeSet::new();
    for (at, group) in groups.iter().enumerate() {
        match group {
            Group::Sharing { products, .. } => {
                let of = products.iter().map(|&product| (product, at));
                rebuild.group_of.extend(of);
            }
            Group::Added { sum, inner, .. } => {
                rebuild.group_of.insert(*sum, at);
                inside.extend(inner.iter().copied());
            }
        }
    }
    let mut boundary = None;
    for id in old.ids() {
        if whole.boundary == Some(id) {
            boundary = Some(rebuild.graph.begin_pass());
        }
        if !inside.contains(&id) {
            rebuild.node(id);
        }
    }
    if whole
        .boundary
        .is_some_and(|at| at.index() >= old.nodes().len())
    {
        boundary = Some(rebuild.graph.next());
    }
    for output in old.outputs() {
        let node = rebuild.node(output.node);
        let (name, role) = (output.name.clone(), output.role);
        match output.updates {
            None => rebuild.graph.output(name, node, role),
            Some(given) => {
                let given = rebuild.node(given);
                rebuild.graph.update(name, node, given, role);
            }
        }
    }
    let setup = whole.setup.iter().map(|&id| rebuild.node(id)).collect();
    Whole {
        graph: Arc::new(rebuild.graph),
        boundary,
        setup,
    }
}

struct Rebuild<'a> {
    old: &'a Graph,
    graph: Graph,
    /// For each old node that is there, the new one.
    stands_for: Vec<Option<NodeId>>,
    groups: &'a [Group],
    /// The group that yields an old node.
    group_of: BTreeMap<NodeId, usize>,
    concatenations: &'a [Concatenation],
    /// For each concatenation that is there, its node.
    made: Vec<Option<NodeId>>,
}

impl Rebuild<'_> {
    /// The new node for an old one, with all that it needs.
    fn node(&mut self, id: NodeId) -> NodeId {
        if let Some(new) = self.stands_for[id.index()] {
            return new;
        }
        let groups = self.groups;
        let new = match self.group_of.get(&id).map(|&at| &groups[at]) {
            Some(Group::Added { .. }) => self.added(id),
            Some(Group::Sharing { .. }) => {
                self.sharing(id);
                return self.node(id);
            }
            None => {
                let mut node = self.old.node(id).clone();
                for operand in &mut node.operands {
                    *operand = self.node(*operand);
                }
                self.graph.append(node, self.old.role_of(id))
            }
        };
        self.stands_for[id.index()] = Some(new);
        new
    }

    /// The product of the group that yields a node, and its slices.
    fn sharing(&mut self, id: NodeId) {
        let groups = self.groups;
        let Group::Sharing {
            at,
            shared,
            products,
            others,
            is_turned,
        } = &groups[self.group_of[&id]]
        else {
            return;
        };
        let shared = self.node(*shared);
        let others = self.concatenated(others, *is_turned);
        let factors = if *at == 0 {
            [shared, others]
        } else {
            [others, shared]
        };
        let product = self.product(factors);
        let (dim, mut start) = (1 - at, 0);
        for product_of in products {
            let shape = self.old.node(*product_of).shape.clone();
            let count = shape[dim];
            let slice = Op::Slice {
                dim,
                start,
                step: 1,
            };
            let slice = self.append(slice, &[product], shape);
            self.stands_for[product_of.index()] = Some(slice);
            start += count;
        }
    }

    /// A sum with one product among its addends.
    fn added(&mut self, sum: NodeId) -> NodeId {
        let groups = self.groups;
        let Group::Added {
            addends,
            factors,
            are_turned,
            ..
        } = &groups[self.group_of[&sum]]
        else {
            unreachable!("the group of a sum");
        };
        let factors = [0, 1].map(|at: usize| self.concatenated(&factors[at], are_turned[at]));
        let product = self.product(factors);
        let shape = self.old.node(sum).shape.clone();
        let mut all = self.reshaped(product, &shape);
        for &addend in addends {
            let addend = self.node(addend);
            let addend = self.reshaped(addend, &shape);
            all = self.append(Op::Binary(Binary::Add), &[addend, all], shape.clone());
        }
        all
    }

    /// Neighbouring parts of a concatenation, or the transpose of these.
    fn concatenated(&mut self, Stretch { at, parts }: &Stretch, is_turned: bool) -> NodeId {
        let concatenations = self.concatenations;
        let Concatenation { cores, dim, .. } = &concatenations[*at];
        let whole = self.whole(*at);
        let extent = |cores: &[NodeId]| -> usize {
            let extents = cores.iter().map(|&core| self.old.node(core).shape[*dim]);
            extents.sum()
        };
        let (start, count) = (extent(&cores[..parts.start]), extent(&cores[parts.clone()]));
        let mut shape = self.graph.node(whole).shape.clone();
        let mut stretch = whole;
        if shape[*dim] != count {
            shape[*dim] = count;
            let (dim, step) = (*dim, 1);
            stretch = self.append(Op::Slice { dim, start, step }, &[whole], shape.clone());
        }
        if !is_turned {
            return stretch;
        }
        shape.reverse();
        self.append(Op::Transpose { order: vec![1, 0] }, &[stretch], shape)
    }

    fn whole(&mut self, at: usize) -> NodeId {
        if let Some(whole) = self.made[at] {
            return whole;
        }
        let concatenations = self.concatenations;
        let Concatenation { cores, dim, .. } = &concatenations[at];
        let parts: Vec<NodeId> = cores.iter().map(|&core| self.node(core)).collect();
        let mut shape = self.graph.node(parts[0]).shape.clone();
        let extents = parts.iter().map(|&part| self.graph.node(part).shape[*dim]);
        shape[*dim] = extents.sum();
        let whole = self.append(Op::Concat { dim: *dim }, &parts, shape);
        self.made[at] = Some(whole);
        whole
    }

    fn product(&mut self, factors: [NodeId; 2]) -> NodeId {
        let [a, b] = factors.map(|factor| &self.graph.node(factor).shape);
        let shape = vec![a[0], b[1]];
        self.append(Op::Matmul, &factors, shape)
    }

    fn reshaped(&mut self, x: NodeId, shape: &[usize]) -> NodeId {
        match self.graph.node(x).shape == shape {
            true => x,
            false => self.append(Op::Reshape, &[x], shape.to_vec()),
        }
    }

    fn append(&mut self, op: Op, operands: &[NodeId], shape: Vec<usize>) -> NodeId {
        let node = Node {
            op,
            operands: operands.to_vec(),
            shape,
            dtype: Dtype::F32,
            group: None,
        };
        self.graph.append(node, None)
    }
}
