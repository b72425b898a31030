//! Convolutions and their gradients in f64, plane by plane.

use std::ops::Range;

use rayon::prelude::*;

use super::array::Array;
use crate::graph::op::Convolution;

/// Extents of a convolution of a picture (B, I, H, W) with kernels (O, I, R, S) to (B, O, H', W').
struct Extents {
    batch: usize,
    channels: usize,
    kernels: usize,
    picture: [usize; 2],
    kernel: [usize; 2],
    out: [usize; 2],
    convolution: Convolution,
}

impl Extents {
    fn new(x: &[usize], w: &[usize], out: &[usize], convolution: Convolution) -> Self {
        Extents {
            batch: x[0],
            channels: x[1],
            kernels: w[0],
            picture: [x[2], x[3]],
            kernel: [w[2], w[3]],
            out: [out[2], out[3]],
            convolution,
        }
    }

    /// The indices of the result along `dim` whose picture element for `tap` of the kernel exists.
    fn inside(&self, dim: usize, tap: usize) -> Range<usize> {
        let Convolution { stride, padding } = self.convolution;
        let first = padding.saturating_sub(tap).div_ceil(stride);
        let last = (self.picture[dim] + padding)
            .saturating_sub(tap)
            .div_ceil(stride);
        first..last.clamp(first, self.out[dim].max(first))
    }

    /// The picture's index along a dimension that `tap` of the kernel meets for the result's index
    /// `out`.
    fn met(&self, out: usize, tap: usize) -> usize {
        out * self.convolution.stride + tap - self.convolution.padding
    }

    /// For each tap of a kernel and each row of the result where both exist: the tap's position in
    /// the kernel, the first element of the result, the picture's that it meets, and how many
    /// follow.
    fn rows(&self) -> impl Iterator<Item = [usize; 4]> + '_ {
        let taps = (0..self.kernel[0]).flat_map(|r| (0..self.kernel[1]).map(move |s| (r, s)));
        taps.flat_map(move |(r, s)| {
            let columns = self.inside(1, s);
            let rows = if columns.is_empty() {
                0..0
            } else {
                self.inside(0, r)
            };
            rows.map(move |row| {
                let out = row * self.out[1] + columns.start;
                let x = self.met(row, r) * self.picture[1] + self.met(columns.start, s);
                [r * self.kernel[1] + s, out, x, columns.len()]
            })
        })
    }

    fn picture_len(&self) -> usize {
        self.picture[0] * self.picture[1]
    }

    fn kernel_len(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    fn out_len(&self) -> usize {
        self.out[0] * self.out[1]
    }
}

/// Plane `at` of `len` elements.
fn plane(elements: &[f64], at: usize, len: usize) -> &[f64] {
    &elements[at * len..(at + 1) * len]
}

/// `x` (B, I, H, W) with `w` (O, I, R, S), to the shape `out`.
pub(super) fn conv2d(
    x: &Array<f64>,
    w: &Array<f64>,
    out: &[usize],
    convolution: Convolution,
) -> Vec<f64> {
    let e = Extents::new(x.shape(), w.shape(), out, convolution);
    let (x, w) = (x.to_dense(), w.to_dense());
    let mut sums = vec![0.0; out.iter().product()];
    let planes = sums.par_chunks_mut(e.out_len()).enumerate();
    planes.for_each(|(at, out)| {
        let (batch, kernel) = (at / e.kernels, at % e.kernels);
        for channel in 0..e.channels {
            let x = plane(&x, batch * e.channels + channel, e.picture_len());
            let w = plane(&w, kernel * e.channels + channel, e.kernel_len());
            for [tap, first, met, len] in e.rows() {
                let met = x[met..].iter().step_by(convolution.stride);
                for (out, x) in out[first..first + len].iter_mut().zip(met) {
                    *out += w[tap] * x;
                }
            }
        }
    });
    sums
}

/// The gradient by `x`, of shape `x`, from the gradient of the result and `w`.
pub(super) fn grad_x(
    grad: &Array<f64>,
    w: &Array<f64>,
    x: &[usize],
    convolution: Convolution,
) -> Vec<f64> {
    let e = Extents::new(x, w.shape(), grad.shape(), convolution);
    let (grad, w) = (grad.to_dense(), w.to_dense());
    let mut sums = vec![0.0; x.iter().product()];
    let planes = sums.par_chunks_mut(e.picture_len()).enumerate();
    planes.for_each(|(at, out)| {
        let (batch, channel) = (at / e.channels, at % e.channels);
        for kernel in 0..e.kernels {
            let grad = plane(&grad, batch * e.kernels + kernel, e.out_len());
            let w = plane(&w, kernel * e.channels + channel, e.kernel_len());
            for [tap, first, met, len] in e.rows() {
                let met = out[met..].iter_mut().step_by(convolution.stride);
                for (grad, out) in grad[first..first + len].iter().zip(met) {
                    *out += w[tap] * grad;
                }
            }
        }
    });
    sums
}

/// The gradient by `w`, of shape `w`, from the gradient of the result and `x`.
pub(super) fn grad_w(
    grad: &Array<f64>,
    x: &Array<f64>,
    w: &[usize],
    convolution: Convolution,
) -> Vec<f64> {
    let e = Extents::new(x.shape(), w, grad.shape(), convolution);
    let (grad, x) = (grad.to_dense(), x.to_dense());
    let mut sums = vec![0.0; w.iter().product()];
    let planes = sums.par_chunks_mut(e.kernel_len()).enumerate();
    planes.for_each(|(at, out)| {
        let (kernel, channel) = (at / e.channels, at % e.channels);
        for batch in 0..e.batch {
            let grad = plane(&grad, batch * e.kernels + kernel, e.out_len());
            let x = plane(&x, batch * e.channels + channel, e.picture_len());
            for [tap, first, met, len] in e.rows() {
                let met = x[met..].iter().step_by(convolution.stride);
                let products = grad[first..first + len].iter().zip(met);
                out[tap] += products.map(|(grad, x)| grad * x).sum::<f64>();
            }
        }
    });
    sums
}
