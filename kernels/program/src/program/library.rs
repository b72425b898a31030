//! Calls of a vendor's or a well-kept library: the request of a program, not its implementation.
//!
//! A launch of such a kernel has the call's operands as arguments and no geometry: a CPU computes
//! products with the crate `gemm-f32`, a GPU with cuBLASLt, convolutions and attention with cuDNN.

use serde::{Serialize, Serializer};

use super::Geometry;
use super::attention::Attention;
use crate::target::Target;
use crate::tensor::Dtype;

/// Workspace of libraries on a GPU, in bytes: as much as cuBLAS takes for itself on Hopper, for
/// which its heuristics are made (docs/performance/products.md).
const GPU_SCRATCH_BYTES: usize = 32 << 20;

/// From how many terms on a sum is worth splitting into parts that are added afterwards, which
/// takes a second kernel (measured on an H200, docs/performance/products.md).
const TERMS_WORTH_SPLITTING: usize = 512;

/// From how many elements on a result has tiles for all of a GPU, so that nothing is split, and
/// kernels that want some scratch memory are the faster ones (measured as above).
const ELEMENTS_OF_MANY_TILES: usize = 1 << 20;

/// How a matrix lies in memory, in elements. One of the two steps is 1, or the extent along it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Matrix {
    /// From one row to the next.
    pub row_step: usize,
    /// From one column to the next.
    pub column_step: usize,
    /// From one matrix of the batch to the next; 0 for one that all share.
    pub batch_step: usize,
}

impl Matrix {
    /// Elements from the first to the last of a batch of matrices.
    pub fn span(&self, batch: usize, rows: usize, columns: usize) -> usize {
        let last = |extent: usize, step: usize| extent.saturating_sub(1) * step;
        last(batch, self.batch_step)
            + last(rows, self.row_step)
            + last(columns, self.column_step)
            + 1
    }
}

/// The number format of a product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Precision {
    /// Operands in f32, rounded to nothing less.
    #[default]
    F32,
    /// Operands in f32, of which 10 bits of mantissa count, sums in f32. On GPUs.
    Tf32,
    /// Operands that are bf16 in memory ([`Dtype::Bf16`]), sums in f32. On GPUs.
    Bf16,
}

impl Precision {
    /// The word of manifests and rows.
    pub const fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Tf32 => "tf32",
            Precision::Bf16 => "bf16",
        }
    }
}

/// The factor of a product. Two are equal if their bits are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Scale {
    bits: u32,
}

impl Scale {
    /// This number.
    pub const fn new(factor: f32) -> Self {
        Scale {
            bits: factor.to_bits(),
        }
    }

    /// The number.
    pub const fn get(self) -> f32 {
        f32::from_bits(self.bits)
    }
}

impl Default for Scale {
    fn default() -> Self {
        Scale::new(1.0)
    }
}

impl Serialize for Scale {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f32(self.get())
    }
}

/// The function of each element of a product before it is stored. On GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// max(x, 0)
    Relu,
    /// x Phi(x), by the hyperbolic tangent.
    GeluTanh,
}

/// `out = activation(scale a b + bias)` for each matrix of a batch.
///
/// Arguments of the launch: `a`, `b`, `bias` if there is one, all read, then `out`, written, then
/// scratch memory if there is any ([`Library::scratch`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Matmul {
    /// Matrices.
    pub batch: usize,
    /// Rows of `a` and `out`.
    pub m: usize,
    /// Columns of `b` and `out`.
    pub n: usize,
    /// Columns of `a`, rows of `b`.
    pub k: usize,
    /// The first factor.
    pub a: Matrix,
    /// The second factor.
    pub b: Matrix,
    /// The product.
    pub out: Matrix,
    /// The number format of its arithmetic.
    pub precision: Precision,
    /// Type of the elements of `out`: [`Dtype::F32`], or [`Dtype::Bf16`], to which they are
    /// rounded. On GPUs, without a bias.
    pub stores: Dtype,
    /// The factor of the product.
    pub scale: Scale,
    /// Whether a number for each column is added.
    pub has_bias: bool,
    /// The function of each element before it is stored. On GPUs.
    pub activation: Activation,
}

impl Matmul {
    /// Elements of each factor, where both have several matrices or one for all.
    pub fn factor_elements(&self) -> [usize; 2] {
        let of = |matrix: &Matrix, rows: usize, columns: usize| match matrix.batch_step {
            0 => rows * columns,
            _ => self.batch * rows * columns,
        };
        [of(&self.a, self.m, self.k), of(&self.b, self.k, self.n)]
    }

    /// Whether a GPU's library, which splits sums wherever it has memory for the parts, is faster
    /// with it.
    const fn gains_from_scratch(&self) -> bool {
        self.k >= TERMS_WORTH_SPLITTING || self.batch * self.m * self.n >= ELEMENTS_OF_MANY_TILES
    }
}

/// Which of the three products of a convolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ConvPass {
    /// `out` from `x` and `w`.
    Forward,
    /// `grad_x` from `grad_out` and `w`.
    GradX,
    /// `grad_w` from `grad_out` and `x`.
    GradW,
}

/// A convolution: `x` (batch, in, height, width) with `w` (out, in, rows, columns), contiguous, to
/// (batch, out, ..), by cross-correlation.
///
/// Arguments of the launch: the two that are read in the order of [`ConvPass`], a bias for each
/// channel if there is one, then the one that is written, then scratch memory
/// ([`Library::scratch`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct Conv2d {
    /// Which product.
    pub pass: ConvPass,
    /// Pictures.
    pub batch: usize,
    /// Channels of `x`.
    pub channels_in: usize,
    /// Channels of the result.
    pub channels_out: usize,
    /// Rows and columns of `x`.
    pub picture: [usize; 2],
    /// Rows and columns of the kernel.
    pub kernel: [usize; 2],
    /// Elements from one application of the kernel to the next.
    pub stride: usize,
    /// Rows and columns of zeros on each side.
    pub padding: usize,
    /// The number format of its arithmetic.
    pub precision: Precision,
    /// Whether a number for each channel is added; forward, on GPUs.
    pub has_bias: bool,
    /// The function of each element before it is stored: none or max(x, 0), forward, on GPUs.
    pub activation: Activation,
}

impl Conv2d {
    /// Rows and columns of the result.
    pub fn out_picture(&self) -> [usize; 2] {
        [0, 1]
            .map(|dim| (self.picture[dim] + 2 * self.padding - self.kernel[dim]) / self.stride + 1)
    }

    /// Elements of the kernel's window over all channels: rows of the matrix that a CPU unfolds one
    /// picture into.
    pub fn window(&self) -> usize {
        self.channels_in * self.kernel[0] * self.kernel[1]
    }

    /// Elements of scratch memory that a CPU needs: one unfolded picture.
    pub fn scratch(&self) -> usize {
        let [height, width] = self.out_picture();
        self.window() * height * width
    }
}

/// One call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Library {
    /// A product of matrices.
    Matmul(Matmul),
    /// A convolution.
    Conv2d(Conv2d),
    /// An attention.
    Attention(Attention),
}

impl Library {
    /// The word of programs and rows.
    pub const fn name(&self) -> &'static str {
        match self {
            Library::Matmul(_) => "library.matmul",
            Library::Conv2d(_) => "library.conv2d",
            Library::Attention(_) => "library.attention",
        }
    }

    /// Operands that a launch reads, its first arguments; those that follow are written.
    pub fn read_count(&self) -> usize {
        match self {
            Library::Matmul(call) => 2 + usize::from(call.has_bias),
            Library::Conv2d(call) => 2 + usize::from(call.has_bias),
            Library::Attention(call) => call.reads().len(),
        }
    }

    /// The most elements that each operand spans, in the order of a launch's arguments, without
    /// scratch memory.
    pub fn operand_lens(&self) -> Vec<usize> {
        match self {
            Library::Matmul(call) => {
                let bias = call.has_bias.then_some(call.n);
                let read = [
                    call.a.span(call.batch, call.m, call.k),
                    call.b.span(call.batch, call.k, call.n),
                ];
                let out = call.out.span(call.batch, call.m, call.n);
                read.into_iter().chain(bias).chain([out]).collect()
            }
            Library::Conv2d(call) => {
                let [height, width] = call.out_picture();
                let x = call.batch * call.channels_in * call.picture[0] * call.picture[1];
                let w = call.channels_out * call.window();
                let out = call.batch * call.channels_out * height * width;
                let bias = call.has_bias.then_some(call.channels_out);
                let (one, other, result) = match call.pass {
                    ConvPass::Forward => (x, w, out),
                    ConvPass::GradX => (out, w, x),
                    ConvPass::GradW => (out, x, w),
                };
                [one, other]
                    .into_iter()
                    .chain(bias)
                    .chain([result])
                    .collect()
            }
            Library::Attention(call) => [call.reads(), call.writes()].concat(),
        }
    }

    /// Elements of scratch memory, f32, that a launch must have as its last argument, which is
    /// written: 0 for none. A CPU unfolds one picture of a convolution. On a GPU the library may
    /// use less than it gets.
    pub fn scratch(&self, target: &Target) -> usize {
        const GPU: usize = GPU_SCRATCH_BYTES / Dtype::F32.size_bytes();
        match (self, target) {
            (Library::Conv2d(call), Target::Cpu) => call.scratch(),
            (Library::Matmul(_) | Library::Attention(_), Target::Cpu) => 0,
            (Library::Matmul(call), Target::Cuda { .. }) if !call.gains_from_scratch() => 0,
            (Library::Attention(call), Target::Cuda { .. }) => {
                call.scratch_bytes().div_ceil(Dtype::F32.size_bytes())
            }
            (_, Target::Cuda { .. }) => GPU,
        }
    }

    /// Elements of scratch memory that a launch is known to write and to read again: on a CPU, each
    /// picture of a convolution is unfolded once. The traffic of a GPU's library to its workspace
    /// is not known, and is not counted.
    pub fn scratch_traffic(&self, target: &Target) -> usize {
        match (self, target) {
            (Library::Conv2d(call), Target::Cpu) => call.batch * call.scratch(),
            (Library::Matmul(_) | Library::Attention(_), _) | (_, Target::Cuda { .. }) => 0,
        }
    }

    /// The geometry of its launches: none of ours.
    pub const fn geometry(&self) -> Geometry {
        Geometry::blocks(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gpu_gets_scratch_memory_for_long_sums_and_large_results() {
        let product = |batch, m, k, n| {
            let of = |columns| Matrix {
                row_step: columns,
                column_step: 1,
                batch_step: 0,
            };
            let call = Matmul {
                batch,
                m,
                n,
                k,
                a: of(k),
                b: of(n),
                out: of(n),
                precision: Precision::F32,
                stores: Dtype::F32,
                scale: Scale::default(),
                has_bias: false,
                activation: Activation::None,
            };
            Library::Matmul(call)
        };
        let gpu = Target::Cuda {
            arch: "sm_90a".to_owned(),
        };
        assert_eq!(product(1, 128, 511, 128).scratch(&gpu), 0);
        assert_eq!(product(1, 128, 512, 128).scratch(&gpu), 8 << 20);
        assert_eq!(product(15, 256, 64, 256).scratch(&gpu), 0);
        assert_eq!(product(16, 256, 64, 256).scratch(&gpu), 8 << 20);
        assert_eq!(product(16, 256, 512, 256).scratch(&Target::Cpu), 0);
    }
}
