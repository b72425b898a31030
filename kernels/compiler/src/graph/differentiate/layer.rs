//! Gradients of whole layers, from few tensors that the forward pass keeps.
//!
//! The chain rule through a layer's nodes would give the same numbers from many intermediates, of
//! which the terms that cancel (the greatest element of a softmax, the mean of a layer norm's
//! centred elements) would still be computed.

use std::f64::consts;

use super::Pass;
use crate::graph::{Graph, GraphError, NodeId, Unary};

/// The layer that a node is the result of, as its builder says.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::graph) enum Layer {
    /// [`Graph::softmax`].
    Softmax { x: NodeId },
    /// [`Graph::log_softmax`].
    LogSoftmax { x: NodeId },
    /// [`Graph::layernorm`]: the rows' means and inverse deviations are kept.
    Norm {
        x: NodeId,
        gamma: NodeId,
        beta: NodeId,
        mean: NodeId,
        scale: NodeId,
    },
    /// [`Graph::rmsnorm`]: the rows' inverse root mean squares are kept.
    RootMeanSquare {
        x: NodeId,
        gain: NodeId,
        scale: NodeId,
    },
    /// [`Graph::relu`].
    Relu { x: NodeId },
    /// [`Graph::gelu_erf`].
    GeluErf { x: NodeId },
    /// [`Graph::gelu_tanh`].
    GeluTanh { x: NodeId },
    /// `(x - target)^2`, of [`Graph::mse`].
    SquaredError { x: NodeId, target: NodeId },
}

type Added = Result<NodeId, GraphError>;
type Given = Result<(), GraphError>;

/// The factor of the cubic term in the tanh form of gelu.
pub(in crate::graph) const GELU_CUBIC: f64 = 0.044_715;

impl Pass<'_> {
    /// Gives the operands of a layer whose result is `y` their part of its gradient `g`.
    pub(super) fn visit_layer(&mut self, layer: &Layer, y: NodeId, g: NodeId) -> Given {
        match *layer {
            Layer::Softmax { x } => self.give_with(x, |graph| softmax(graph, y, g)),
            Layer::LogSoftmax { x } => self.give_with(x, |graph| log_softmax(graph, y, g)),
            Layer::Norm {
                x,
                gamma,
                beta,
                mean,
                scale,
            } => {
                let centred = self.graph.sub(x, mean)?;
                self.norm([x, centred], [gamma, scale], true, g)?;
                let shape = self.graph.node(beta).shape.clone();
                self.give_with(beta, |graph| graph.sum_to(g, &shape))
            }
            Layer::RootMeanSquare { x, gain, scale } => self.norm([x, x], [gain, scale], false, g),
            Layer::Relu { x } => self.give_with(x, |graph| {
                let mask = graph.is_positive(y)?;
                graph.where_set(mask, g)
            }),
            Layer::GeluErf { x } => self.give_with(x, |graph| gelu_erf(graph, x, g)),
            Layer::GeluTanh { x } => self.give_with(x, |graph| gelu_tanh(graph, x, g)),
            Layer::SquaredError { x, target } => {
                let difference = self.graph.sub(x, target)?;
                let twice = self.graph.scale(difference, 2.0)?;
                let gradient = self.graph.mul(twice, g)?;
                let shape = self.graph.node(x).shape.clone();
                self.give_with(x, |graph| graph.sum_to(gradient, &shape))?;
                let shape = self.graph.node(target).shape.clone();
                self.give_with(target, |graph| {
                    let negative = graph.unary(Unary::Neg, gradient)?;
                    graph.sum_to(negative, &shape)
                })
            }
        }
    }

    /// The gradient of a norm whose result is `gamma` times `normal = scale * centred`, where
    /// `centred` is `x` or `x` less its mean, and `scale` the inverse root mean square of
    /// `centred`. With `g' = g gamma`:
    ///
    /// `dx = scale (g' - mean(g') - normal mean(g' normal))`, the first mean only where one was
    /// taken off; `dgamma = sum over rows of g normal`.
    fn norm(
        &mut self,
        [x, centred]: [NodeId; 2],
        [gamma, scale]: [NodeId; 2],
        is_centred: bool,
        g: NodeId,
    ) -> Given {
        let normal = self.graph.mul(centred, scale)?;
        self.give_with(x, |graph| {
            let g = graph.mul(g, gamma)?;
            let products = graph.mul(g, normal)?;
            let along = graph.mean_last(products)?;
            let along = graph.mul(normal, along)?;
            let rest = match is_centred {
                true => {
                    let mean = graph.mean_last(g)?;
                    graph.sub(g, mean)?
                }
                false => g,
            };
            let across = graph.sub(rest, along)?;
            graph.mul(across, scale)
        })?;
        let shape = self.graph.node(gamma).shape.clone();
        self.give_with(gamma, |graph| {
            let products = graph.mul(g, normal)?;
            graph.sum_to(products, &shape)
        })
    }
}

/// `y (g - sum(y g))`
fn softmax(graph: &mut Graph, y: NodeId, g: NodeId) -> Added {
    let products = graph.mul(g, y)?;
    let sum = graph.sum_last(products)?;
    let rest = graph.sub(g, sum)?;
    graph.mul(y, rest)
}

/// `g - e^y sum(g)`
fn log_softmax(graph: &mut Graph, y: NodeId, g: NodeId) -> Added {
    let weights = graph.unary(Unary::Exp, y)?;
    let sum = graph.sum_last(g)?;
    let part = graph.mul(weights, sum)?;
    graph.sub(g, part)
}

/// `g (Phi(x) + x phi(x))` with the normal distribution's function and density.
fn gelu_erf(graph: &mut Graph, x: NodeId, g: NodeId) -> Added {
    let scaled = graph.scale(x, consts::FRAC_1_SQRT_2)?;
    let erf = graph.unary(Unary::Erf, scaled)?;
    let half = graph.scale(erf, 0.5)?;
    let below = graph.plus(half, 0.5)?;
    let square = graph.mul(x, x)?;
    let exponent = graph.scale(square, -0.5)?;
    let bell = graph.unary(Unary::Exp, exponent)?;
    let density = graph.scale(bell, 0.5 * consts::FRAC_2_SQRT_PI * consts::FRAC_1_SQRT_2)?;
    let part = graph.mul(x, density)?;
    let slope = graph.add(below, part)?;
    graph.mul(g, slope)
}

/// With `u = c x (1 + a x^2)` and `t = tanh u`: `g (1 + t + x (1 - t^2) c (1 + 3 a x^2)) / 2`.
fn gelu_tanh(graph: &mut Graph, x: NodeId, g: NodeId) -> Added {
    let c = (2.0 * consts::FRAC_1_PI).sqrt();
    let square = graph.mul(x, x)?;
    let cubic = graph.scale(square, c * GELU_CUBIC)?;
    let factor = graph.plus(cubic, c)?;
    let u = graph.mul(x, factor)?;
    let t = graph.unary(Unary::Tanh, u)?;
    let t_square = graph.mul(t, t)?;
    let t_slope = graph.one_minus(t_square)?;
    let cubic_slope = graph.scale(square, 3.0 * c * GELU_CUBIC)?;
    let u_slope = graph.plus(cubic_slope, c)?;
    let inner = graph.mul(t_slope, u_slope)?;
    let part = graph.mul(x, inner)?;
    let sum = graph.add(t, part)?;
    let double = graph.plus(sum, 1.0)?;
    let slope = graph.scale(double, 0.5)?;
    graph.mul(g, slope)
}
