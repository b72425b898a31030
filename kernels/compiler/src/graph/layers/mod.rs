//! Layers that frameworks offer as one operation, built from the graph's operations. Each is a
//! group: one kernel of an eager framework, or as many as such a framework takes.
//!
//! Formulas follow PyTorch's documentation; a layer norm's variance is the biased one.

use std::f64::consts;

use super::differentiate::{GELU_CUBIC, Layer};
use super::op::{Binary, Reduction, Unary};
use super::{Graph, GraphError, NodeId};

type Added = Result<NodeId, GraphError>;

impl Graph {
    /// `a + b`, broadcast.
    ///
    /// # Errors
    /// As [`Graph::binary`].
    pub fn add(&mut self, a: NodeId, b: NodeId) -> Added {
        self.binary(Binary::Add, a, b)
    }

    /// `a - b`, broadcast.
    ///
    /// # Errors
    /// As [`Graph::binary`].
    pub fn sub(&mut self, a: NodeId, b: NodeId) -> Added {
        self.binary(Binary::Sub, a, b)
    }

    /// `a b`, broadcast.
    ///
    /// # Errors
    /// As [`Graph::binary`].
    pub fn mul(&mut self, a: NodeId, b: NodeId) -> Added {
        self.binary(Binary::Mul, a, b)
    }

    /// `factor x`.
    ///
    /// # Errors
    /// As [`Graph::binary`].
    pub fn scale(&mut self, x: NodeId, factor: f64) -> Added {
        let factor = self.constant(factor);
        self.mul(x, factor)
    }

    /// The mean over `dims`, which are kept with extent 1.
    ///
    /// # Errors
    /// As [`Graph::reduce`].
    pub fn mean(&mut self, x: NodeId, dims: &[usize]) -> Added {
        let sum = self.reduce(Reduction::Sum, x, dims)?;
        let count = self.node(x).elements() / self.node(sum).elements();
        self.scale(sum, 1.0 / count as f64)
    }

    /// The last dimension of `x`; 0 for a number, which no reduction takes.
    pub(super) fn last(&self, x: NodeId) -> usize {
        self.node(x).shape.len().saturating_sub(1)
    }

    /// Parameters, broadcast to the shape of `x`.
    fn like<const N: usize>(
        &mut self,
        x: NodeId,
        parameters: [NodeId; N],
    ) -> Result<[NodeId; N], GraphError> {
        let shape = self.node(x).shape.clone();
        let mut wide = parameters;
        for parameter in &mut wide {
            *parameter = self.broadcast(*parameter, &shape)?;
        }
        Ok(wide)
    }

    /// Notes that `y` is a layer's result, so that its gradient is the layer's.
    fn result(&mut self, y: NodeId, layer: Layer) -> Added {
        self.layers.insert(y, layer);
        Ok(y)
    }

    /// `gamma (x - mean) / sqrt(variance + eps) + beta` over the last dimension.
    ///
    /// # Errors
    /// Shapes that don't fit.
    pub fn layernorm(&mut self, x: NodeId, gamma: NodeId, beta: NodeId, eps: f64) -> Added {
        self.group("layernorm", |graph| {
            let dims = [graph.last(x)];
            let mean = graph.mean(x, &dims)?;
            let centred = graph.sub(x, mean)?;
            let squared = graph.mul(centred, centred)?;
            let variance = graph.mean(squared, &dims)?;
            let eps = graph.constant(eps);
            let variance = graph.add(variance, eps)?;
            let scale = graph.unary(Unary::Rsqrt, variance)?;
            let normal = graph.mul(centred, scale)?;
            let [wide_gamma, wide_beta] = graph.like(x, [gamma, beta])?;
            let scaled = graph.mul(normal, wide_gamma)?;
            let y = graph.add(scaled, wide_beta)?;
            let layer = Layer::Norm {
                x,
                gamma,
                beta,
                mean,
                scale,
            };
            graph.result(y, layer)
        })
    }

    /// `gain x / sqrt(mean(x^2) + eps)` over the last dimension.
    ///
    /// # Errors
    /// Shapes that don't fit.
    pub fn rmsnorm(&mut self, x: NodeId, gain: NodeId, eps: f64) -> Added {
        self.group("rmsnorm", |graph| {
            let squared = graph.mul(x, x)?;
            let mean = graph.mean(squared, &[graph.last(x)])?;
            let eps = graph.constant(eps);
            let mean = graph.add(mean, eps)?;
            let scale = graph.unary(Unary::Rsqrt, mean)?;
            let normal = graph.mul(x, scale)?;
            let [wide_gain] = graph.like(x, [gain])?;
            let y = graph.mul(normal, wide_gain)?;
            graph.result(y, Layer::RootMeanSquare { x, gain, scale })
        })
    }

    /// `e^x / sum e^x` over the last dimension.
    ///
    /// # Errors
    /// Shapes that don't fit.
    pub fn softmax(&mut self, x: NodeId) -> Added {
        self.group("softmax", |graph| {
            let dims = [graph.last(x)];
            let greatest = graph.reduce(Reduction::Max, x, &dims)?;
            let below = graph.sub(x, greatest)?;
            let weights = graph.unary(Unary::Exp, below)?;
            let sum = graph.reduce(Reduction::Sum, weights, &dims)?;
            let y = graph.binary(Binary::Div, weights, sum)?;
            graph.result(y, Layer::Softmax { x })
        })
    }

    /// `x - ln sum e^x` over the last dimension.
    ///
    /// # Errors
    /// Shapes that don't fit.
    pub fn log_softmax(&mut self, x: NodeId) -> Added {
        self.group("log_softmax", |graph| {
            let dims = [graph.last(x)];
            let greatest = graph.reduce(Reduction::Max, x, &dims)?;
            let below = graph.sub(x, greatest)?;
            let weights = graph.unary(Unary::Exp, below)?;
            let sum = graph.reduce(Reduction::Sum, weights, &dims)?;
            let log = graph.unary(Unary::Ln, sum)?;
            let y = graph.sub(below, log)?;
            graph.result(y, Layer::LogSoftmax { x })
        })
    }

    /// `max(x, 0)`
    ///
    /// # Errors
    /// As [`Graph::binary`].
    pub fn relu(&mut self, x: NodeId) -> Added {
        self.group("relu", |graph| {
            let zero = graph.constant(0.0);
            let y = graph.binary(Binary::Max, x, zero)?;
            graph.result(y, Layer::Relu { x })
        })
    }

    /// `x Phi(x) = x (1 + erf(x / sqrt 2)) / 2`
    ///
    /// # Errors
    /// As [`Graph::unary`].
    pub fn gelu_erf(&mut self, x: NodeId) -> Added {
        self.group("gelu", |graph| {
            let scaled = graph.scale(x, consts::FRAC_1_SQRT_2)?;
            let erf = graph.unary(Unary::Erf, scaled)?;
            let y = graph.half_of_one_plus(x, erf)?;
            graph.result(y, Layer::GeluErf { x })
        })
    }

    /// `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`
    ///
    /// # Errors
    /// As [`Graph::unary`].
    pub fn gelu_tanh(&mut self, x: NodeId) -> Added {
        self.group("gelu_tanh", |graph| {
            let square = graph.mul(x, x)?;
            let cubic = graph.scale(square, GELU_CUBIC)?;
            let one = graph.constant(1.0);
            let factor = graph.add(cubic, one)?;
            let inner = graph.mul(x, factor)?;
            let scaled = graph.scale(inner, (2.0 * consts::FRAC_1_PI).sqrt())?;
            let tanh = graph.unary(Unary::Tanh, scaled)?;
            let y = graph.half_of_one_plus(x, tanh)?;
            graph.result(y, Layer::GeluTanh { x })
        })
    }

    fn half_of_one_plus(&mut self, x: NodeId, y: NodeId) -> Added {
        let one = self.constant(1.0);
        let sum = self.add(y, one)?;
        let product = self.mul(x, sum)?;
        self.scale(product, 0.5)
    }

    /// `x sigmoid(x)`: two kernels of an eager framework.
    ///
    /// # Errors
    /// As [`Graph::unary`].
    pub fn swish(&mut self, x: NodeId) -> Added {
        let gate = self.group("sigmoid", |graph| graph.unary(Unary::Sigmoid, x))?;
        self.mul(x, gate)
    }

    /// `x w + b` for `w` (in, out), one kernel.
    ///
    /// # Errors
    /// Shapes that don't fit.
    pub fn linear(&mut self, x: NodeId, w: NodeId, b: NodeId) -> Added {
        self.group("linear", |graph| {
            let product = graph.matmul(x, w)?;
            graph.add(product, b)
        })
    }

    /// The mean of `(x - target)^2` over everything, of shape (): squares and their mean are two
    /// kernels of an eager framework.
    ///
    /// # Errors
    /// Shapes that don't fit.
    pub fn mse(&mut self, x: NodeId, target: NodeId) -> Added {
        let squares = self.group("squared_error", |graph| {
            let difference = graph.sub(x, target)?;
            let y = graph.mul(difference, difference)?;
            graph.result(y, Layer::SquaredError { x, target })
        })?;
        self.group("mean", |graph| graph.mean_of_all(squares))
    }

    /// The mean over everything, of shape ().
    ///
    /// # Errors
    /// As [`Graph::reduce`].
    pub fn mean_of_all(&mut self, x: NodeId) -> Added {
        let dims: Vec<usize> = (0..self.node(x).shape.len()).collect();
        let mean = self.mean(x, &dims)?;
        self.reshape(mean, &[])
    }

    /// The mean over rows of `-log_softmax(x)[label]`, of shape (): two kernels of an eager
    /// framework.
    ///
    /// # Errors
    /// Shapes that don't fit.
    pub fn cross_entropy(&mut self, x: NodeId, labels: NodeId) -> Added {
        let logs = self.log_softmax(x)?;
        self.group("nll_loss", |graph| {
            let own = graph.pick(logs, labels)?;
            let mean = graph.mean_of_all(own)?;
            graph.unary(Unary::Neg, mean)
        })
    }
}

#[cfg(test)]
mod tests;
