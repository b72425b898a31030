//! Rules that rewrite graphs: a pattern of nodes, and its replacement.
//!
//! A [`Pattern`] is an operation with patterns of its operands. A [`Rule`] is tried on a node that
//! is about to be added; its replacement is added instead.

use std::ops::Index;

use super::op::{Binary, Op, Reduction};
use super::{Graph, Node, NodeId};

/// A name that a pattern gives to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Var(pub(crate) usize);

pub(crate) const A: Var = Var(0);
pub(crate) const B: Var = Var(1);
pub(crate) const C: Var = Var(2);
pub(crate) const X: Var = Var(3);
pub(crate) const Y: Var = Var(4);

const VARS: usize = 8;

/// A test of an operation.
pub(crate) type Kind = fn(&Op) -> bool;

pub(crate) const ADD: Kind = |op| *op == Op::Binary(Binary::Add);
pub(crate) const SUB: Kind = |op| *op == Op::Binary(Binary::Sub);
pub(crate) const MUL: Kind = |op| *op == Op::Binary(Binary::Mul);
pub(crate) const DIV: Kind = |op| *op == Op::Binary(Binary::Div);
pub(crate) const BROADCAST: Kind = |op| *op == Op::Broadcast;
pub(crate) const TRANSPOSE: Kind = |op| matches!(op, Op::Transpose { .. });
pub(crate) const SUM: Kind = |op| {
    let sum = Reduction::Sum;
    matches!(op, Op::Reduce { reduction, .. } if *reduction == sum)
};

/// A condition on a node and the nodes that it is computed from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Pattern {
    /// Anything, which is called so; a name that has a node already stands for that one alone.
    Any(Var),
    /// One number in all elements, through views.
    Number(Var),
    /// This number in all elements, through views.
    Is(f64),
    /// An operation with operands that match these patterns. Operands of sums, products and
    /// equality are tried in both orders.
    Of(Kind, &'static [Pattern]),
    /// A node that matches the pattern, and its name.
    Named(Var, &'static Pattern),
    /// A node that matches the pattern and depends on parameters and constants alone.
    OfParameters(&'static Pattern),
    /// A node that matches the pattern and has one use; being a result is a use.
    UsedOnce(&'static Pattern),
}

/// A rule of rewriting.
#[derive(Debug)]
pub(crate) struct Rule {
    /// The pattern: an operation.
    pub from: Pattern,
    /// Builds the replacement; none where a condition that patterns can't express does not hold.
    pub to: fn(&mut Graph, &Node, &Match) -> Option<NodeId>,
}

impl Rule {
    /// The replacement of a node that is about to be added, if the rule holds. `uses` counts the
    /// uses of nodes as far as they are known; others have one.
    pub(crate) fn apply(&self, graph: &mut Graph, node: &Node, uses: &[usize]) -> Option<NodeId> {
        let mut found = Match::default();
        let search = Search { graph, uses };
        let Pattern::Of(kind, operands) = self.from else {
            return None;
        };
        if !search.is_operation(kind, operands, node, &mut found) {
            return None;
        }
        (self.to)(graph, node, &found)
    }
}

impl Pattern {
    /// The nodes that the pattern has names for, where node `id` matches it.
    pub(crate) fn find(&self, graph: &Graph, id: NodeId) -> Option<Match> {
        let mut found = Match::default();
        let search = Search { graph, uses: &[] };
        search.is(self, id, &mut found).then_some(found)
    }
}

/// The nodes that a pattern has names for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Match([Option<NodeId>; VARS]);

impl Match {
    fn bind(&mut self, var: Var, id: NodeId) -> bool {
        *self.0[var.0].get_or_insert(id) == id
    }
}

impl Index<Var> for Match {
    type Output = NodeId;

    fn index(&self, var: Var) -> &NodeId {
        self.0[var.0].as_ref().expect("the pattern has this name")
    }
}

/// The graph that a pattern is matched in.
struct Search<'a> {
    graph: &'a Graph,
    uses: &'a [usize],
}

impl Search<'_> {
    fn is(&self, pattern: &Pattern, id: NodeId, found: &mut Match) -> bool {
        match *pattern {
            Pattern::Any(var) => found.bind(var, id),
            Pattern::Number(var) => self.graph.number(id).is_some() && found.bind(var, id),
            Pattern::Is(number) => self.graph.number(id) == Some(number),
            Pattern::Of(kind, operands) => {
                self.is_operation(kind, operands, self.graph.node(id), found)
            }
            Pattern::Named(var, pattern) => self.is(pattern, id, found) && found.bind(var, id),
            Pattern::OfParameters(pattern) => {
                self.graph.is_of_parameters(id) && self.is(pattern, id, found)
            }
            Pattern::UsedOnce(pattern) => {
                self.uses.get(id.index()).is_none_or(|&uses| uses == 1)
                    && self.is(pattern, id, found)
            }
        }
    }

    fn is_operation(
        &self,
        kind: Kind,
        operands: &[Pattern],
        node: &Node,
        found: &mut Match,
    ) -> bool {
        if !kind(&node.op) || operands.len() != node.operands.len() {
            return false;
        }
        let before = *found;
        if self.are(operands, &node.operands, found) {
            return true;
        }
        *found = before;
        let commutes = matches!(
            node.op,
            Op::Binary(Binary::Add | Binary::Mul | Binary::Equal)
        );
        commutes && self.are(operands, &[node.operands[1], node.operands[0]], found)
    }

    fn are(&self, patterns: &[Pattern], ids: &[NodeId], found: &mut Match) -> bool {
        let mut pairs = patterns.iter().zip(ids);
        pairs.all(|(pattern, &id)| self.is(pattern, id, found))
    }
}
