//! How far an honest program may be from an answer: the spread of its results, and the lines that
//! follow from it.
//!
//! A [`Spread`] says how much rounding moves the elements of an output: their mean square over the
//! whole tensor and over each slice along each axis, so that no slice can hide in another. It is
//! made from evaluations of the answer in which each operation rounds ([`crate::rounding`]), or
//! from variances that a formula gives.
//!
//! With `e` the error of a result, a slice may have `rms(e) / rms(noise)` up to
//!
//! ```text
//! line = max(2 sqrt(chi2_nu / nu), sqrt(F_(nu, probes nu)))     at a rate of 1e-9
//! ```
//!
//! The factor of 2 is for what the model of rounding does not know; it predicts the error of
//! PyTorch's programs within a factor of 1.5. The quantiles are for chance: of the error, which has
//! `nu` degrees of freedom, and of the noise, which was seen in few evaluations. The degrees of
//! freedom are those of a sum of squares of correlated numbers (Satterthwaite, "An approximate
//! distribution of estimates of variance components", 1946): `tr(C)^2 / tr(C^2)` for a covariance
//! `C`, of which the mean squared cosine of two independent evaluations is the inverse.
//!
//! A factor that all of a result's elements have in common shows in `<e, a> / <a, a>` long before
//! it shows in their distance: it may be 8 times that of the noise (more where few evaluations tell
//! that), and two units of roundoff.

mod judgement;
mod line;
mod sums;

use crate::check::as_f64;
use crate::tensor::{Dtype, Tensor, Tensors};
use rayon::prelude::*;

pub use judgement::{ErrorSums, judge, judge_by_sums};
pub use line::line;
pub use sums::SliceSums;

/// The name of an answer's spread among the answers.
pub fn name_of(output: &str) -> String {
    format!("{SPREAD}{output}")
}

const SPREAD: &str = "spread of ";

/// Whether this is the name of the spread of some answer.
pub fn is_name_of_spread(name: &str) -> bool {
    name.starts_with(SPREAD)
}

/// The name under which the answers hold how far the reference itself is from an output's answer,
/// if it computes in the precision that is judged: the root mean square of the distance, in the
/// whole tensor and, where that is known, in each slice along each axis that [`is_sliced`].
pub fn name_of_own_error(output: &str) -> String {
    format!("own error of {output}")
}

/// The name under which answers hold an output in an evaluation with rounding, by number.
pub fn name_of_probe(output: &str, number: usize) -> String {
    format!("probe {number} of {output}")
}

/// The name under which a device's answers hold the sums of an output's noise.
pub fn name_of_raw_sums(output: &str) -> String {
    format!("noise sums of {output}")
}

/// The name under which the keeper of an output's answer gives the [`ErrorSums`] of a result.
pub fn name_of_error_sums(output: &str) -> String {
    format!("error sums of {output}")
}

/// The name under which answers hold how far rounding moves an output of which each long sum is
/// made of blocks: the root mean square. There is none where no sum is long.
pub fn name_of_tight(output: &str) -> String {
    format!("tight spread of {output}")
}

/// How much rounding moves the elements of an output.
#[derive(Clone, Debug, PartialEq)]
pub struct Spread {
    /// Number of evaluations from which it was found; infinite where a formula gave it.
    pub probes: f64,
    /// Of the whole tensor.
    pub whole: Noise,
    /// Root mean square of the common scale error, relative.
    pub scale: f64,
    /// Along each axis that [`is_sliced`], in order.
    pub axes: Vec<AxisNoise>,
}

/// The noise of a slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Noise {
    /// Effective degrees of freedom of the sum of its squares, at least 1.
    pub freedom: f64,
    /// Mean square of its elements.
    pub mean_square: f64,
}

/// The noise of all slices along an axis.
#[derive(Clone, Debug, PartialEq)]
pub struct AxisNoise {
    /// Mean squares, one a slice.
    pub mean_squares: Vec<f64>,
    /// Effective degrees of freedom of each slice, at least 1.
    pub freedoms: Vec<f64>,
}

/// Greatest number of slices along an axis that are judged one by one.
const MOST_SLICES: usize = 1 << 16;

/// Whether slices along an axis of this extent are judged one by one, in a tensor of so many
/// elements: there are several of them, and each has several elements.
pub const fn is_sliced(extent: usize, elements: usize) -> bool {
    extent > 1 && extent <= MOST_SLICES && elements >= 2 * extent
}

impl Spread {
    /// The spread that evaluations with rounding show beside the exact values of a tensor of such
    /// elements. Values that they can't hold, or that an evaluation makes infinite, have no noise.
    pub fn from_probes<P: AsRef<[f64]> + Sync>(
        dtype: Dtype,
        shape: &[usize],
        exact: &[f64],
        probes: &[P],
    ) -> Spread {
        let noise = |probe: &P, at: usize| {
            let noise = probe.as_ref()[at] - exact[at];
            match noise.is_finite() && dtype.holds(exact[at]) {
                true => noise,
                false => 0.0,
            }
        };
        let finite = |at: usize| Some(exact[at]).filter(|x| x.is_finite()).unwrap_or(0.0);
        let size = SliceSums::from_elements(shape, |at| finite(at).powi(2)).whole;
        let sums = probes.par_iter().map(|probe| {
            let [squares, along] = SliceSums::of_several(shape, |at| {
                let noise = noise(probe, at);
                [noise * noise, noise * finite(at)]
            });
            (squares, along.whole)
        });
        let (squares, scales): (Vec<SliceSums>, Vec<f64>) = sums.unzip();
        let pairs = probes.par_chunks_exact(2);
        let products: Vec<SliceSums> = pairs
            .map(|pair| {
                SliceSums::from_elements(shape, |at| noise(&pair[0], at) * noise(&pair[1], at))
            })
            .collect();
        Spread::from_sums(&squares, &products, &scales, size)
    }

    /// The spread from sums over slices: of the squares of each probe's noise, of the products of
    /// each pair of probes (0 and 1, 2 and 3, and so on), of each probe's product with the answer,
    /// and of the answer's squares.
    pub fn from_sums(
        squares: &[SliceSums],
        products: &[SliceSums],
        scales: &[f64],
        size: f64,
    ) -> Spread {
        let probes = squares.len() as f64;
        let mean = |of: &dyn Fn(&SliceSums) -> f64| squares.iter().map(of).sum::<f64>() / probes;
        let cosine = |of: &dyn Fn(&SliceSums) -> f64| {
            let pairs = squares.chunks_exact(2).zip(products);
            let cosines = pairs.map(|(pair, product)| {
                let both = of(&pair[0]) * of(&pair[1]);
                if both > 0.0 {
                    of(product).powi(2) / both
                } else {
                    1.0
                }
            });
            cosines.sum::<f64>() / products.len().max(1) as f64
        };
        let first = &squares[0];
        let axes = first.axes.iter().enumerate().map(|(axis, sums)| {
            let in_slice = first.elements as f64 / sums.len() as f64;
            let sums = 0..sums.len();
            let mean_squares: Vec<f64> = sums
                .map(|slice| mean(&|sums| sums.axes[axis][slice]) / in_slice)
                .collect();
            let cosines =
                (0..mean_squares.len()).map(|slice| cosine(&|sums| sums.axes[axis][slice]));
            let cosines: Vec<f64> = cosines.collect();
            let noisy = cosines.iter().zip(&mean_squares);
            let noisy = noisy.filter(|(_, square)| **square > 0.0);
            let (sum, count) = noisy.fold((0.0, 0.0), |(sum, count), (cosine, _)| {
                (sum + cosine, count + 1.0)
            });
            // One slice has few pairs: its freedom is at most that of the slices' mean. Without
            // noise that is NaN, which `max` passes over.
            let least: f64 = sum / count;
            let freedoms = cosines
                .iter()
                .map(|own| freedom(own.max(least), products.len()));
            AxisNoise {
                freedoms: freedoms.collect(),
                mean_squares,
            }
        });
        let of_scales: f64 = scales.iter().map(|scale| (scale / size).powi(2)).sum();
        let mut axes: Vec<AxisNoise> = axes.collect();
        let whole = Noise {
            freedom: freedom(cosine(&|sums| sums.whole), products.len()),
            mean_square: mean(&|sums| sums.whole) / first.elements.max(1) as f64,
        };
        let whole = let_events_lie_anywhere(squares, whole, &mut axes);
        Spread {
            probes,
            whole,
            scale: if size > 0.0 {
                (of_scales / probes).sqrt()
            } else {
                0.0
            },
            axes,
        }
    }

    /// The spread from sums one after another, as devices give them. Each evaluation has those of
    /// its squares (the whole, then the slices along each axis that [`is_sliced`]) and its product
    /// with the answer; each second one has those of its products with the one before it. Last
    /// comes the sum of the answer's squares.
    ///
    /// None if these are not as many as [`raw_sums_length`] says for any number of evaluations.
    pub fn from_raw_sums(shape: &[usize], raw: &[f64]) -> Option<Spread> {
        let empty = SliceSums::zero(shape);
        let (&size, mut rest) = raw.split_last()?;
        let (mut squares, mut products, mut scales) = (Vec::new(), Vec::new(), Vec::new());
        while !rest.is_empty() {
            squares.push(empty.filled_from(&mut rest)?);
            scales.push(*rest.split_off_first()?);
            if squares.len() % 2 == 0 {
                products.push(empty.filled_from(&mut rest)?);
            }
        }
        (!squares.is_empty()).then(|| Spread::from_sums(&squares, &products, &scales, size))
    }

    /// The same with all slices along an axis as noisy as the noisiest, and as free as the least.
    #[must_use]
    pub fn of_widest_slices(mut self) -> Spread {
        for axis in &mut self.axes {
            let most = axis.mean_squares.iter().copied().fold(0.0, f64::max);
            let least = axis.freedoms.iter().copied().fold(f64::INFINITY, f64::min);
            axis.mean_squares.fill(most);
            axis.freedoms.fill(least);
        }
        self
    }

    /// As a tensor among answers: `probes`, then the whole's degrees of freedom and mean square,
    /// the scale, and for each sliced axis all mean squares, then all degrees of freedom.
    pub fn into_tensor(self) -> Tensor {
        let whole = [
            self.probes,
            self.whole.freedom,
            self.whole.mean_square,
            self.scale,
        ];
        let mut values = whole.to_vec();
        for axis in self.axes {
            values.extend(axis.mean_squares);
            values.extend(axis.freedoms);
        }
        Tensor::f64([values.len()], values)
    }

    /// The spread of an output of this shape, from such a tensor; none if it is another tensor.
    pub fn from_tensor(shape: &[usize], tensor: &Tensor) -> Option<Spread> {
        let values = as_f64(tensor);
        let (head, mut rest) = values.split_at_checked(4)?;
        let elements = shape.iter().product();
        let mut axes = Vec::new();
        for &extent in shape.iter().filter(|extent| is_sliced(**extent, elements)) {
            let (mean_squares, others) = rest.split_at_checked(extent)?;
            let (freedoms, others) = others.split_at_checked(extent)?;
            axes.push(AxisNoise {
                mean_squares: mean_squares.to_vec(),
                freedoms: freedoms.to_vec(),
            });
            rest = others;
        }
        rest.is_empty().then(|| Spread {
            probes: head[0],
            whole: Noise {
                freedom: head[1],
                mean_square: head[2],
            },
            scale: head[3],
            axes,
        })
    }
}

/// The number of sums that [`Spread::from_raw_sums`] takes for an output of this shape.
pub fn raw_sums_length(shape: &[usize], probes: usize) -> usize {
    let sums = SliceSums::zero(shape);
    let each = 1 + sums.axes.iter().map(Vec::len).sum::<usize>();
    probes * (each + 1) + probes / 2 * each + 1
}

/// Puts the spread of an output of such elements in the place of its probes among answers, if it
/// has any.
pub fn finish_probes(answers: &mut Tensors, output: &str, dtype: Dtype) {
    let probes = (0..).map_while(|number| answers.remove(&name_of_probe(output, number)));
    let probes: Vec<Tensor> = probes.collect();
    let probes: Vec<_> = probes.iter().map(as_f64).collect();
    if let Some(exact) = answers.get(output).filter(|_| !probes.is_empty()) {
        let spread = Spread::from_probes(dtype, exact.shape(), &as_f64(exact), &probes);
        answers.insert(name_of(output), spread.into_tensor());
    }
}

/// Puts the spread of an output of this shape in the place of its noise's sums among answers, if
/// it has any.
pub fn finish_sums(answers: &mut Tensors, output: &str, shape: &[usize]) {
    let raw = answers.remove(&name_of_raw_sums(output));
    let spread = raw.and_then(|raw| Spread::from_raw_sums(shape, &as_f64(&raw)));
    if let Some(spread) = spread {
        answers.insert(name_of(output), spread.into_tensor());
    }
}

/// Lets noise of few elements lie in any slice along the axes whose slices show it. Yields the
/// whole's noise, with no more degrees of freedom than there are such elements.
fn let_events_lie_anywhere(
    squares: &[SliceSums],
    mut whole: Noise,
    axes: &mut [AxisNoise],
) -> Noise {
    // No slice is said to have more degrees of freedom than cosines show in their mean.
    let dense = axes
        .iter()
        .map(|axis| axis.freedoms.iter().copied().fold(1.0, f64::max));
    let events: Vec<f64> = (0..)
        .zip(dense)
        .map(|(axis, dense)| events_in_slice(squares, axis, dense))
        .collect();
    for (axis, &events) in axes.iter().zip(&events) {
        whole.freedom = whole.freedom.min(events * axis.freedoms.len() as f64);
    }
    for (axis, _) in axes
        .iter_mut()
        .zip(&events)
        .filter(|(_, events)| events.is_finite())
    {
        // A slice may hold the noise of all.
        let slices = axis.freedoms.len() as f64;
        axis.mean_squares.fill(whole.mean_square * slices);
        axis.freedoms.fill(whole.freedom);
    }
    whole
}

/// Fewer elements of a slice that share its noise say little of the next evaluation's noise there.
const MOST_EVENTS: f64 = 16.0;

/// Fewer pairs of slices tell nothing of noise that few elements have.
const LEAST_PAIRS: f64 = 16.0;

/// How many elements have the noise of a slice along an axis, where these are clearly fewer than
/// the degrees of freedom that cosines of evaluations show; infinity otherwise. Rounding turns a
/// sign here and there, and an element of a gradient becomes zero: no two evaluations have that in
/// one place, so they are at right angles, as dense noise is, but their sums of squares differ. Two
/// sums `a` and `b` with `n` degrees of freedom have `1 / (n + 1)` as the mean of
/// `((a - b) / (a + b))^2`.
fn events_in_slice(squares: &[SliceSums], axis: usize, freedom: f64) -> f64 {
    let (mut sum, mut count) = (0.0, 0.0);
    for pair in squares.chunks_exact(2) {
        for (&a, &b) in pair[0].axes[axis].iter().zip(&pair[1].axes[axis]) {
            if a + b > 0.0 {
                sum += ((a - b) / (a + b)).powi(2);
                count += 1.0;
            }
        }
    }
    let events = (count / sum - 1.0).max(1.0);
    match count >= LEAST_PAIRS && events < MOST_EVENTS.min(freedom / 3.0) {
        true => events,
        false => f64::INFINITY,
    }
}

/// Degrees of freedom from the mean squared cosine of so many pairs of evaluations. Few pairs can
/// be at right angles by chance: then there are said to be fewer degrees than they show.
fn freedom(cosine: f64, pairs: usize) -> f64 {
    (1.0 / (cosine + 1.0 / (48.0 * pairs.max(1) as f64))).max(1.0)
}

#[cfg(test)]
mod tests;
