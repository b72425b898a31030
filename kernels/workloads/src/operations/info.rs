//! What descriptions of operations have in common.

use crate::graph_problem;
use sweeper_program::workload::{
    ParameterInfo, ShorthandFlag, TensorInfo, WorkloadInfo, axis_flag, size, tensor,
};

pub(super) const BATCH: ParameterInfo = size("batch", 1 << 24, None, "sequences");
pub(super) const SEQUENCE: ParameterInfo =
    size("sequence", 1 << 24, None, "positions of a sequence");
pub(super) const DIMENSION: ParameterInfo =
    size("dimension", 1 << 20, None, "elements of a position");
const SIZES: &[ParameterInfo] = &[BATCH, SEQUENCE, DIMENSION];

/// Powers of two up to where a row of f32 fills the registers of a block of threads, and the widths
/// of models between them; beyond, the next power of two.
const BUCKETS: &[(&str, &[u64])] = &[(
    "dimension",
    &[
        8, 16, 32, 64, 128, 256, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384,
    ],
)];

pub(super) const FULL: &str = "(batch, sequence, dimension)";

pub(super) const X: TensorInfo = tensor("x", FULL, "what the operation is applied to");
pub(super) const GAMMA: TensorInfo = tensor("gamma", "(dimension)", "gain");
pub(super) const GRAD_OUT: TensorInfo =
    tensor("grad_out", FULL, "incoming gradient of the backward pass");
pub(super) const GRAD_LOSS: TensorInfo =
    tensor("grad_out", "()", "incoming gradient of the backward pass");
pub(super) const OUT: TensorInfo = tensor("out", FULL, "result");
pub(super) const LOSS: TensorInfo = tensor("out", "()", "result");
pub(super) const GRAD_X: TensorInfo = tensor("grad_x", FULL, "gradient by x");
pub(super) const GRAD_GAMMA: TensorInfo = tensor("grad_gamma", "(dimension)", "gradient by gamma");

const FLAGS: &[ShorthandFlag] = &[
    axis_flag(
        &["--batch", "--batch-sizes", "--batch-size"],
        "batch",
        "batch sizes of operations",
    ),
    axis_flag(
        &["--sequence", "--sequence-lengths", "--seq-len"],
        "sequence",
        "sequence lengths of operations",
    ),
    axis_flag(
        &["--dimension", "--tensor-dimensions", "--d-model"],
        "dimension",
        "dimensions of operations",
    ),
];

/// An elementwise operation of three sizes; others differ in some fields.
pub(super) const PLAIN: WorkloadInfo = WorkloadInfo {
    parameters: SIZES,
    inputs: &[X, GRAD_OUT],
    outputs: &[OUT, GRAD_X],
    buckets: BUCKETS,
    flags: FLAGS,
    ..graph_problem::PLAIN
};
