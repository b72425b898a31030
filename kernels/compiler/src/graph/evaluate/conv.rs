//! Convolutions and their gradients in f64, as products of matrices, picture by picture.

use std::ops::Range;

use rayon::prelude::*;

use super::array::Array;
use super::matmul::product;
use crate::graph::op::Convolution;

/// Extents of a convolution of a picture (B, I, H, W) with kernels (O, I, R, S) to (B, O, H', W').
struct Extents {
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

    /// Elements that a result is a sum over.
    fn window(&self) -> usize {
        self.channels * self.kernel_len()
    }

    fn out_len(&self) -> usize {
        self.out[0] * self.out[1]
    }
}

/// A picture (I, H, W) as a matrix (I R S, H' W'), zeros where the kernel sticks out.
fn unfolded(e: &Extents, x: &[f64]) -> Vec<f64> {
    let mut unfolded = vec![0.0; e.window() * e.out_len()];
    let planes = unfolded.par_chunks_mut(e.kernel_len() * e.out_len());
    planes
        .zip(x.par_chunks(e.picture_len()))
        .for_each(|(unfolded, x)| {
            for [tap, first, met, len] in e.rows() {
                let met = x[met..].iter().step_by(e.convolution.stride);
                let to = &mut unfolded[tap * e.out_len() + first..][..len];
                to.iter_mut().zip(met).for_each(|(to, x)| *to = *x);
            }
        });
    unfolded
}

/// Adds what [`unfolded`] made of each element of a picture.
fn fold(e: &Extents, unfolded: &[f64], x: &mut [f64]) {
    let planes = unfolded.par_chunks(e.kernel_len() * e.out_len());
    x.par_chunks_mut(e.picture_len())
        .zip(planes)
        .for_each(|(x, unfolded)| {
            for [tap, first, met, len] in e.rows() {
                let met = x[met..].iter_mut().step_by(e.convolution.stride);
                let from = &unfolded[tap * e.out_len() + first..][..len];
                from.iter().zip(met).for_each(|(from, x)| *x += from);
            }
        });
}

fn transposed(elements: &[f64], columns: usize) -> Vec<f64> {
    let rows = elements.len() / columns;
    let element = |at| elements[at % rows * columns + at / rows];
    (0..elements.len()).into_par_iter().map(element).collect()
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
    let pictures = sums.chunks_mut(e.kernels * e.out_len());
    for (out, x) in pictures.zip(x.chunks(e.channels * e.picture_len())) {
        product(&w, &unfolded(&e, x), [e.window(), e.out_len()], out);
    }
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
    let (grad, w) = (grad.to_dense(), transposed(&w.to_dense(), e.window()));
    let mut sums = vec![0.0; x.iter().product()];
    let mut unfolded = vec![0.0; e.window() * e.out_len()];
    let pictures = sums.chunks_mut(e.channels * e.picture_len());
    for (out, grad) in pictures.zip(grad.chunks(e.kernels * e.out_len())) {
        product(&w, grad, [e.kernels, e.out_len()], &mut unfolded);
        fold(&e, &unfolded, out);
    }
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
    let mut of_picture = sums.clone();
    let pictures = x.chunks(e.channels * e.picture_len());
    for (x, grad) in pictures.zip(grad.chunks(e.kernels * e.out_len())) {
        let grad = transposed(grad, e.out_len());
        let shape = [e.out_len(), e.kernels];
        product(&unfolded(&e, x), &grad, shape, &mut of_picture);
        let all = sums.iter_mut().zip(&of_picture);
        all.for_each(|(sum, of_picture)| *sum += of_picture);
    }
    transposed(&sums, e.kernels)
}
