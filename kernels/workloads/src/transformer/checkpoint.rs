//! The backward pass of the model: from values that the forward pass keeps, or layer by layer from
//! values that it computes again.

use std::ops::Range;

use super::model::Model;
use sweeper_compiler::graph::{self, Backward, GraphError, NodeId};

/// The values of layers that are computed again in the backward pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Checkpoint {
    /// None: the forward pass keeps all values that the backward pass reads.
    None,
    /// All but the input of each layer: the backward pass applies a layer once more, and one layer
    /// at a time has its values in memory.
    Layer,
}

/// A backward pass that has come down from the loss to some layer.
struct Descent {
    /// The first node of the backward pass.
    from: NodeId,
    /// The gradient by the input of that layer.
    by_x: NodeId,
    /// Gradients by its parameters and all later ones.
    gradients: Vec<NodeId>,
}

impl Model {
    /// Adds gradients of the sum of `loss` by all parameters, in their order.
    pub(super) fn differentiate(
        &mut self,
        loss: NodeId,
        checkpoint: Checkpoint,
    ) -> Result<Backward, GraphError> {
        let parameters = self.builder.by.len();
        match checkpoint {
            Checkpoint::None => {
                let by = self.parameters(0..parameters);
                graph::differentiate(&mut self.builder.graph, &[(loss, None)], &by)
            }
            Checkpoint::Layer => self.differentiate_by_layer(loss),
        }
    }

    /// Each layer once more from its input, behind a barrier: no part of it is computed before the
    /// gradient by its result.
    fn differentiate_by_layer(&mut self, loss: NodeId) -> Result<Backward, GraphError> {
        let (embedded, top) = (self.embedded.clone(), self.top.clone());
        let mut descent = self.part((loss, None), top.x, top.parameters, &[])?;
        let from = descent.from;
        for layer in (0..self.layers.len()).rev() {
            let applied = self.layers[layer].clone();
            let gradient = descent.by_x;
            let x = self.builder.graph.barrier(applied.x, gradient)?;
            let y = self.layer(layer, x)?;
            let of = (y, Some(gradient));
            descent = self.part(of, x, applied.parameters, &descent.gradients)?;
        }
        let of = (embedded.x, Some(descent.by_x));
        let Descent { gradients, .. } =
            self.part(of, embedded.x, embedded.parameters, &descent.gradients)?;
        Ok(Backward { from, gradients })
    }

    /// The gradients of one part of the model, before those of `later` parameters.
    fn part(
        &mut self,
        of: (NodeId, Option<NodeId>),
        x: NodeId,
        parameters: Range<usize>,
        later: &[NodeId],
    ) -> Result<Descent, GraphError> {
        let by = [vec![x], self.parameters(parameters)].concat();
        let Backward { from, gradients } =
            graph::differentiate(&mut self.builder.graph, &[of], &by)?;
        Ok(Descent {
            from,
            by_x: gradients[0],
            gradients: [&gradients[1..], later].concat(),
        })
    }

    /// Nodes of parameters by their positions.
    fn parameters(&self, positions: Range<usize>) -> Vec<NodeId> {
        let parameters = self.builder.by[positions].iter();
        parameters.map(|(_, node)| *node).collect()
    }
}
