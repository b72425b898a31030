//! Passes that rewrite the graph itself.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::graph::pattern::Rule;
use crate::graph::{Graph, Node, NodeId};

/// A graph and the first node of its backward pass.
#[derive(Clone, Debug)]
pub(super) struct Whole {
    /// The graph.
    pub graph: Arc<Graph>,
    /// First node of the backward pass.
    pub boundary: Option<NodeId>,
    /// Nodes that are computed once, before anything else.
    pub setup: BTreeSet<NodeId>,
}

/// Rebuilds a graph, whose backward pass begins at `backward`; `add` adds the replacement of a
/// node, whose operands are nodes of the new graph.
pub(super) fn rewritten(
    old: &Graph,
    backward: Option<NodeId>,
    mut add: impl FnMut(&mut Graph, NodeId, Node) -> NodeId,
) -> Whole {
    let mut boundary = None;
    let (graph, _) = old.copied(|graph, id, node| {
        if backward == Some(id) {
            boundary = Some(graph.begin_pass());
        }
        add(graph, id, node)
    });
    if backward.is_some_and(|at| at.index() >= old.nodes().len()) {
        boundary = Some(graph.next());
    }
    Whole {
        graph: Arc::new(graph),
        boundary,
        setup: BTreeSet::new(),
    }
}

/// Rebuilds a graph with the first rule that holds for each node. Also returns the nodes that rules
/// added and that depend on parameters and constants alone.
pub(super) fn apply(old: &Graph, backward: Option<NodeId>, rules: &[Rule]) -> (Whole, Vec<NodeId>) {
    let uses_of_old = old.uses();
    let mut uses: Vec<usize> = Vec::new();
    let mut of_parameters = Vec::new();
    let made = rewritten(old, backward, |graph, id, node| {
        let first = graph.next();
        let made = rules
            .iter()
            .find_map(|rule| rule.apply(graph, &node, &uses));
        if made.is_some() {
            let new = (first.0..graph.next().0).map(NodeId);
            of_parameters.extend(new.filter(|&id| graph.is_of_parameters(id)));
        }
        let made = made.unwrap_or_else(|| graph.append(node, old.role_of(id)));
        uses.resize(graph.nodes().len(), 1);
        let others = if made < first { uses[made.index()] } else { 0 };
        uses[made.index()] = others + uses_of_old[id.index()];
        made
    });
    (made, of_parameters)
}
