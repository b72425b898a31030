//! What frameworks offer as one operation, in terms of the graph's. Each is a group: one kernel of an
//! eager framework, or as many as such a framework takes.
//!
//! Formulas as PyTorch documents them; a layer norm's variance is the biased one.

use std::f64::consts;

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
        let node = self.node(x);
        let extents = dims.iter().map(|&dim| node.shape.get(dim).copied());
        let count: usize = extents.map(|extent| extent.unwrap_or(1)).product();
        let sum = self.reduce(Reduction::Sum, x, dims)?;
        self.scale(sum, 1.0 / count as f64)
    }

    fn last(&self, x: NodeId) -> usize {
        self.node(x).shape.len().saturating_sub(1)
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
            let scaled = graph.mul(normal, gamma)?;
            graph.add(scaled, beta)
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
            graph.mul(normal, gain)
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
            graph.binary(Binary::Div, weights, sum)
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
            graph.sub(below, log)
        })
    }

    /// `max(x, 0)`
    ///
    /// # Errors
    /// As [`Graph::binary`].
    pub fn relu(&mut self, x: NodeId) -> Added {
        self.group("relu", |graph| {
            let zero = graph.constant(0.0);
            graph.binary(Binary::Max, x, zero)
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
            graph.half_of_one_plus(x, erf)
        })
    }

    /// `x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2`
    ///
    /// # Errors
    /// As [`Graph::unary`].
    pub fn gelu_tanh(&mut self, x: NodeId) -> Added {
        self.group("gelu_tanh", |graph| {
            let square = graph.mul(x, x)?;
            let cubic = graph.scale(square, 0.044_715)?;
            let one = graph.constant(1.0);
            let factor = graph.add(cubic, one)?;
            let inner = graph.mul(x, factor)?;
            let scaled = graph.scale(inner, (2.0 * consts::FRAC_1_PI).sqrt())?;
            let tanh = graph.unary(Unary::Tanh, scaled)?;
            graph.half_of_one_plus(x, tanh)
        })
    }

    fn half_of_one_plus(&mut self, x: NodeId, y: NodeId) -> Added {
        let one = self.constant(1.0);
        let sum = self.add(y, one)?;
        let product = self.mul(x, sum)?;
        self.scale(product, 0.5)
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

    /// The mean of `(x - target)^2` over everything, of shape (): squares and their mean are two kernels of
    /// an eager framework.
    ///
    /// # Errors
    /// Shapes that don't fit.
    pub fn mse(&mut self, x: NodeId, target: NodeId) -> Added {
        let squares = self.group("squared_error", |graph| {
            let difference = graph.sub(x, target)?;
            graph.mul(difference, difference)
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

    /// The mean over rows of `-log_softmax(x)[label]`, of shape (): two kernels of an eager framework.
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
