//! AdamW: a step of gradient descent scaled by moments, with decoupled weight decay.

use crate::graph_builder::Added;
use crate::graph_workload::Given;
use sweeper_compiler::graph::{Binary, Graph, NodeId, Unary};

/// The hyperparameters of a step.
#[derive(Clone, Copy, Debug)]
pub(super) struct AdamW {
    /// Learning rate.
    pub(super) rate: f64,
    /// How much of the first moment stays.
    pub(super) beta1: f64,
    /// How much of the second moment stays.
    pub(super) beta2: f64,
    /// Added to the root of the second moment.
    pub(super) eps: f64,
    /// Share of a parameter that goes, in learning rates.
    pub(super) decay: f64,
    /// Number of the step, from 1 on: moments that began as zeros are too small by it.
    pub(super) count: usize,
}

/// A parameter with its moments.
#[derive(Clone, Copy, Debug)]
pub(super) struct State {
    pub(super) parameter: NodeId,
    pub(super) moment1: NodeId,
    pub(super) moment2: NodeId,
}

impl AdamW {
    /// The hyperparameters that parameters ask for.
    pub(super) fn new(given: &Given) -> Self {
        AdamW {
            rate: given.number("rate"),
            beta1: given.number("beta1"),
            beta2: given.number("beta2"),
            eps: given.number("eps"),
            decay: given.number("weight_decay"),
            count: given.size("step_count"),
        }
    }

    /// The state after a step: one kernel of an eager framework.
    pub(super) fn step(
        &self,
        graph: &mut Graph,
        before: State,
        gradient: NodeId,
    ) -> Result<State, sweeper_compiler::graph::GraphError> {
        graph.group("adamw", |graph| {
            let moment1 = mixed(graph, before.moment1, gradient, self.beta1)?;
            let square = graph.mul(gradient, gradient)?;
            let moment2 = mixed(graph, before.moment2, square, self.beta2)?;
            // `rate m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + eps)`
            let missing = |beta: f64| 1.0 - beta.powf(self.count as f64);
            let root = graph.unary(Unary::Sqrt, moment2)?;
            let root = graph.scale(root, missing(self.beta2).sqrt().recip())?;
            let eps = graph.constant(self.eps);
            let scale = graph.add(root, eps)?;
            let direction = graph.binary(Binary::Div, moment1, scale)?;
            let step = graph.scale(direction, self.rate / missing(self.beta1))?;
            let kept = graph.scale(before.parameter, 1.0 - self.rate * self.decay)?;
            Ok(State {
                parameter: graph.sub(kept, step)?,
                moment1,
                moment2,
            })
        })
    }
}

/// `beta old + (1 - beta) new`
fn mixed(graph: &mut Graph, old: NodeId, new: NodeId, beta: f64) -> Added {
    let old = graph.scale(old, beta)?;
    let new = graph.scale(new, 1.0 - beta)?;
    graph.add(old, new)
}
