//! Building a graph from another one, node by node: for passes that rewrite.

use super::{Given, Graph, Node, NodeId};
use sweeper_program::Role;

impl Graph {
    /// A graph without nodes and with the groups of this one.
    pub(crate) fn emptied(&self) -> Graph {
        Graph {
            groups: self.groups.clone(),
            ..Graph::default()
        }
    }

    /// Adds a node that the caller knows to be well-formed, since it stands for one that is.
    pub(crate) fn append(&mut self, node: Node, given: Option<Role>) -> NodeId {
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(node);
        if let Some(role) = given {
            self.given.push(Given { node: id, role });
        }
        id
    }

    /// What the memory of a given tensor is for.
    pub(crate) fn role_of(&self, id: NodeId) -> Option<Role> {
        let mut given = self.given.iter();
        given.find(|given| given.node == id).map(|given| given.role)
    }
}
