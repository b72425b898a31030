//! The operations of a graph: few, each with one meaning.

use serde::{Deserialize, Serialize};

use sweeper_program::tensor::Dtype;

pub use super::primitive::{Binary, Unary};
pub(crate) use super::primitive::{BinaryText, UnaryText};

/// The way in which elements are reduced to one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reduction {
    /// The sum of the elements.
    Sum,
    /// The greatest.
    Max,
}

/// Strides and zeros around a convolution: equal along both dimensions of the picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Convolution {
    /// Elements from one application of the kernel to the next.
    pub stride: usize,
    /// Rows and columns of zeros on each side.
    pub padding: usize,
}

/// Attention: softmax(scale q k^T) v over each row of queries. The compiler makes it of a product,
/// a softmax and a product, and its gradients of theirs; workloads do not.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Attention {
    /// The value that the node has.
    pub part: AttentionPart,
    /// Factor of the scores.
    pub scale: f64,
    /// True if a query sees the keys up to its own position; there are as many keys as queries.
    pub is_causal: bool,
    /// True if rows of the value are those of all heads beside each other: of shape
    /// (.., S, heads, E), not (.., heads, S, E).
    pub is_by_rows: bool,
    /// True if gradients have `out` in place of `delta`, which is computed from it: libraries do
    /// that themselves.
    pub takes_out: bool,
    /// True if the sum of a row's exponentials is two numbers: see [`AttentionPart::LogSumExp`].
    pub splits_sums: bool,
}

/// A value of an attention. Shapes: queries (.., S, D), keys (.., T, D), values (.., T, E).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AttentionPart {
    /// Of `q, k, v`: the weighted values (.., S, E).
    Out,
    /// Of `q, k`: the logarithm of each row's sum of exponentials, (.., S, 1). Where sums are
    /// split, (.., S, 2): a number near the row's greatest score, and the reciprocal of the sum
    /// relative to it, from which weights follow without the rounding of a logarithm as large as
    /// scores. Here the former is the greatest score; kernels have units and references of their
    /// own.
    LogSumExp,
    /// Of `q, k, v, grad_out, log_sum_exp, delta`: the gradient by `q`. `delta` (.., S, 1) is the
    /// sum of `grad_out out` over each row (Dao et al., "FlashAttention", 2022, appendix B.2).
    GradQ,
    /// As [`AttentionPart::GradQ`]: the gradient by `k`.
    GradK,
    /// As [`AttentionPart::GradQ`]: the gradient by `v`.
    GradV,
}

/// An operation: how a node's value follows from its operands. Operands of elementwise operations
/// have equal shapes: the builder broadcasts them by nodes of their own.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A tensor that is given, called so in files.
    Input(String),
    /// One number, of shape ().
    Constant(f64),
    /// Each element's index along one dimension, in the node's shape, [`Dtype::I64`].
    Iota {
        /// The dimension.
        dim: usize,
    },
    /// One element each.
    Unary(Unary),
    /// Two elements each.
    Binary(Binary),
    /// Operands `mask, a, b`: `a` where the mask is not 0, else `b`.
    Select,
    /// The operand's values in the node's type.
    Cast(Dtype),
    /// Over some dimensions, ascending, which are kept with extent 1.
    Reduce {
        /// The kind of the reduction.
        reduction: Reduction,
        /// The reduced dimensions.
        dims: Vec<usize>,
    },
    /// To the node's shape, of equal rank: extents of 1 are repeated.
    Broadcast,
    /// The operand's elements in row-major order, in the node's shape.
    Reshape,
    /// Operands `x` and `after`: `x` as it is, for users that are computed after `after`. Values
    /// that are computed from it are not computed together with those from `x`.
    Barrier,
    /// Dimension `i` of the node is dimension `order[i]` of the operand.
    Transpose {
        /// A permutation of the dimensions.
        order: Vec<usize>,
    },
    /// Part of one dimension, to the node's extent.
    Slice {
        /// The dimension.
        dim: usize,
        /// First index that is taken.
        start: usize,
        /// Distance of indices that are taken.
        step: usize,
    },
    /// The operand in a tensor of zeros: puts back the elements that [`Op::Slice`] takes out.
    Unslice {
        /// The dimension.
        dim: usize,
        /// Index of the operand's first element.
        start: usize,
        /// Distance of indices.
        step: usize,
    },
    /// The operands one after another along a dimension: memory that they lie in. The compiler
    /// alone makes it, of operands that can be computed where they lie.
    Concat {
        /// The dimension.
        dim: usize,
    },
    /// Operands of the shapes (.., M, K) and (.., K, N), with equal leading extents: (.., M, N). A
    /// transposed operand is a [`Op::Transpose`] node: it is read as it lies.
    Matmul,
    /// Operands `x` (B, I, H, W) and `w` (O, I, R, S): cross-correlation, (B, O, H', W') with
    /// `H' = (H + 2 padding - R) / stride + 1`.
    Conv2d(Convolution),
    /// The gradient of [`Op::Conv2d`] by `x`, from `grad_out` and `w`; the node has the shape of
    /// `x`.
    Conv2dGradX(Convolution),
    /// The gradient of [`Op::Conv2d`] by `w`, from `grad_out` and `x`; the node has the shape of
    /// `w`.
    Conv2dGradW(Convolution),
    /// Operands `rows` (V, ..) and `indices` of [`Dtype::I64`]: `rows[indices]`, of the shape of
    /// `indices` and then the row's.
    Gather,
    /// Operands `x` (.., N) and `indices` (..) of [`Dtype::I64`]: `x[.., indices]`, of shape (..).
    Pick,
    /// A value of an attention.
    Attention(Attention),
    /// Operands `values` and `indices` as [`Op::Gather`] yields and takes them: a tensor of the
    /// node's shape (V, ..), whose rows are the sums of the values with that index.
    ScatterAdd,
}

impl Op {
    /// The word of programs as people read them; with its kind for families of functions.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Input(_) => "input",
            Op::Constant(_) => "constant",
            Op::Iota { .. } => "iota",
            Op::Unary(unary) => unary.name(),
            Op::Binary(binary) => binary.name(),
            Op::Select => "select",
            Op::Cast(_) => "cast",
            Op::Reduce { reduction, .. } => reduction.name(),
            Op::Broadcast => "broadcast",
            Op::Reshape => "reshape",
            Op::Barrier => "barrier",
            Op::Transpose { .. } => "transpose",
            Op::Slice { .. } => "slice",
            Op::Unslice { .. } => "unslice",
            Op::Concat { .. } => "concat",
            Op::Matmul => "matmul",
            Op::Conv2d(_) => "conv2d",
            Op::Conv2dGradX(_) => "conv2d_grad_x",
            Op::Conv2dGradW(_) => "conv2d_grad_w",
            Op::Gather => "gather",
            Op::Pick => "pick",
            Op::Attention(attention) => attention.part.name(),
            Op::ScatterAdd => "scatter_add",
        }
    }

    /// True for operations that only read the operand's memory in another way. (A reshape of a
    /// transposed operand is not always a view; the layout of memory decides this.)
    pub const fn is_view(&self) -> bool {
        matches!(
            self,
            Op::Broadcast | Op::Reshape | Op::Barrier | Op::Transpose { .. } | Op::Slice { .. }
        )
    }

    /// True for views with the operand's elements in equal order.
    pub const fn is_in_order(&self) -> bool {
        matches!(self, Op::Reshape | Op::Barrier)
    }

    /// True where each element of the result depends on one element of each operand, at the same
    /// place.
    pub const fn is_elementwise(&self) -> bool {
        matches!(
            self,
            Op::Unary(_) | Op::Binary(_) | Op::Select | Op::Cast(_)
        )
    }
}

impl AttentionPart {
    /// The word of programs as people read them.
    pub const fn name(self) -> &'static str {
        match self {
            AttentionPart::Out => "attention",
            AttentionPart::LogSumExp => "attention_log_sum_exp",
            AttentionPart::GradQ => "attention_grad_q",
            AttentionPart::GradK => "attention_grad_k",
            AttentionPart::GradV => "attention_grad_v",
        }
    }
}

impl Reduction {
    /// The word of programs as people read them.
    pub const fn name(self) -> &'static str {
        match self {
            Reduction::Sum => "sum",
            Reduction::Max => "amax",
        }
    }
}
