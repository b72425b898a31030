//! Outputs held against the lines that follow from a spread, slice by slice.

use super::line::{self, Lines, line};
use super::sums::SliceSums;
use super::{Spread, name_of, name_of_own_error, name_of_tight};
use crate::check::{Metric, TensorCheck, as_f64};
use crate::rounding::UNIT_ROUNDOFF;
use crate::tensor::{Tensor, Tensors};

/// An output that is so many times as far out as a tight spread says is inexact: by chance, one in
/// ten thousand that are a single number is.
const INEXACT: f64 = 4.0;

/// An output may be so many times as far out as its reference is, in the judged precision.
const OWN_MARGIN: f64 = 3.0;

/// Judges an output by its answer and the answer's spread, both among `expected`. The error and the
/// tolerance are those of the slice that is furthest out, relative to the slice's norm (or to that
/// of its noise where the answer is zero there). An answer without a spread is not judged right.
pub fn judge(name: &str, out: Option<&Tensor>, expected: &Tensors) -> TensorCheck {
    let answer = &expected[name];
    let out = out.filter(|out| out.shape() == answer.shape());
    let sums = out.and_then(|out| ErrorSums::from_tensors(out, answer));
    judge_by_sums(name, answer.shape(), sums, expected)
}

/// As [`judge`], by the sums of an output of this shape; none of one that is wrong in any case.
pub fn judge_by_sums(
    name: &str,
    shape: &[usize],
    sums: Option<ErrorSums>,
    expected: &Tensors,
) -> TensorCheck {
    let spread = expected.get(&name_of(name));
    let spread = spread.and_then(|spread| Spread::from_tensor(shape, spread));
    let own = OwnError::from_tensor(shape, expected.get(&name_of_own_error(name)));
    let tight = expected.get(&name_of_tight(name));
    let tight = tight.and_then(|tight| as_f64(tight).first().copied());
    let found = sums.zip(spread);
    let is_inexact = found.as_ref().zip(tight).is_some_and(|((sums, _), tight)| {
        let error = (sums.errors.whole / sums.errors.elements as f64).sqrt();
        error > f64::max(INEXACT * tight, OWN_MARGIN * own.0.whole)
    });
    let found = found.and_then(|(sums, spread)| furthest(&sums, &spread, &own));
    let Some(found) = found else {
        return TensorCheck::not_judged(name, Metric::RelativeL2);
    };
    TensorCheck {
        tensor: name.to_owned(),
        is_inexact,
        ..found
    }
}

/// Sums over the elements of an output that have a finite answer.
#[derive(Clone, Debug, PartialEq)]
pub struct ErrorSums {
    /// Of squares of the output less the answer.
    errors: SliceSums,
    /// Of squares of the answer.
    sizes: SliceSums,
    /// Of the error times the answer.
    along: f64,
}

impl ErrorSums {
    /// Of an output and its answer; none where an element is not finite and should be, or differs
    /// from one that is not.
    fn from_tensors(out: &Tensor, answer: &Tensor) -> Option<Self> {
        // Outputs of f32 are read where they lie: a copy of large ones takes longer than the sums.
        if let Some(out) = out.as_f32() {
            return ErrorSums::from_elements(|at| f64::from(out[at]), answer);
        }
        let out = as_f64(out);
        ErrorSums::from_elements(|at| out[at], answer)
    }

    fn from_elements(out: impl Fn(usize) -> f64 + Sync, answer: &Tensor) -> Option<Self> {
        let exact = as_f64(answer);
        let (exact, shape) = (&exact[..], answer.shape());
        let [errors, sizes, along] = SliceSums::of_several(shape, |at| {
            let (out, exact) = (out(at), exact[at]);
            if exact.is_finite() {
                let error = out - exact;
                return [error * error, exact * exact, error * exact];
            }
            let is_alike = out == exact || out.is_nan() && exact.is_nan();
            [if is_alike { 0.0 } else { f64::NAN }, 0.0, 0.0]
        });
        // An output that is not finite where its answer is has no finite error.
        errors.whole.is_finite().then_some(ErrorSums {
            errors,
            sizes,
            along: along.whole,
        })
    }

    /// From numbers one after another, as the answer's keeper gives them: how many elements are
    /// wrong because they are not finite or should not be, the error times the answer, the squares
    /// of errors (of the whole, then of the slices along each axis with [`super::is_sliced`]), and
    /// those of the answer. None if there are not as many, or if elements are wrong.
    pub fn from_raw(shape: &[usize], raw: &[f64]) -> Option<Self> {
        let empty = SliceSums::zero(shape);
        let (&[wrong, along], mut rest) = raw.split_first_chunk()?;
        let errors = empty.filled_from(&mut rest)?;
        let sizes = empty.filled_from(&mut rest)?;
        let is_right = wrong == 0.0 && rest.is_empty();
        is_right.then_some(ErrorSums {
            errors,
            sizes,
            along,
        })
    }
}

/// How far a reference is from its answer in the judged precision: root mean squares in the place
/// of sums. Library kernels are less exact in some slices than in others, as in channels with large
/// weights of a convolution by Winograd's algorithm.
struct OwnError(SliceSums);

impl OwnError {
    /// From a tensor under [`name_of_own_error`]; zero where there is none.
    fn from_tensor(shape: &[usize], own: Option<&Tensor>) -> Self {
        let values = own.map(as_f64).unwrap_or_default();
        let none = SliceSums::zero(shape);
        OwnError(none.filled_from(&mut &values[..]).unwrap_or(SliceSums {
            whole: values.first().copied().unwrap_or(0.0),
            ..none
        }))
    }

    /// How far a slice may be out.
    fn bound(&self, axis: usize, slice: usize) -> f64 {
        OWN_MARGIN * self.0.whole.max(self.0.axes[axis][slice])
    }
}

/// The slice that is furthest out.
fn furthest(sums: &ErrorSums, spread: &Spread, own: &OwnError) -> Option<TensorCheck> {
    let ErrorSums {
        errors,
        sizes,
        along,
    } = sums;
    let elements = errors.elements;
    let whole = (errors.whole, sizes.whole, elements);
    let bound = line(spread.whole.freedom, spread.probes, 1);
    let own_of_whole = OWN_MARGIN * own.0.whole;
    let mut all = vec![slice(whole, spread.whole.mean_square, bound, own_of_whole)];
    let axes = errors.axes.iter().zip(&sizes.axes).zip(&spread.axes);
    for (axis, ((errors, sizes), noise)) in axes.enumerate() {
        let in_slice = elements / errors.len().max(1);
        let mut lines = Lines::new(spread.probes, errors.len());
        let places = errors.iter().zip(sizes);
        let noise = noise.mean_squares.iter().zip(&noise.freedoms);
        // A slice that is nothing beside the others, as a key that no query looks at, may be off by
        // what is nothing beside their noise: exponentials end at some least number.
        let least = UNIT_ROUNDOFF.powi(2) * spread.whole.mean_square;
        let places = places.zip(noise).enumerate();
        all.extend(places.map(|(at, ((&error, &size), (&square, &freedom)))| {
            slice(
                (error, size, in_slice),
                square.max(least),
                lines.at(freedom),
                own.bound(axis, at),
            )
        }));
    }
    if sizes.whole > 0.0 {
        let own = own_of_whole / (sizes.whole / elements as f64).sqrt();
        let noise = line::scale_line(spread.probes) * spread.scale + 2.0 * UNIT_ROUNDOFF;
        all.push(TensorCheck {
            tensor: String::new(),
            metric: Metric::CommonScale,
            error: along.abs() / sizes.whole,
            tolerance: noise.max(own),
            spreads: Some(
                along.abs()
                    / sizes.whole
                    / f64::max(spread.scale + UNIT_ROUNDOFF / 4.0, own / OWN_MARGIN),
            ),
            notices: None,
            is_inexact: false,
        });
    }
    let notices = all.first().map(|whole| whole.tolerance);
    let furthest = all
        .into_iter()
        .max_by(|a, b| a.ratio().total_cmp(&b.ratio()));
    furthest.map(|found| TensorCheck { notices, ..found })
}

/// The judgement of a slice by the sums of its squared errors and values, its number of elements,
/// the mean square of its noise, and the line in units of the noise.
fn slice(
    (error, size, elements): (f64, f64, usize),
    mean_square: f64,
    line: f64,
    own: f64,
) -> TensorCheck {
    let noise_norm = (mean_square * elements as f64).sqrt();
    let own_norm = own * (elements as f64).sqrt();
    let bound = f64::max(line * noise_norm, own_norm);
    // What an honest program does, or the reference itself.
    let honest_norm = noise_norm.max(own_norm / OWN_MARGIN);
    let scale = match size > 0.0 {
        true => size.sqrt(),
        false if noise_norm > 0.0 => noise_norm,
        false => 1.0,
    };
    TensorCheck {
        tensor: String::new(),
        metric: Metric::RelativeL2,
        error: error.sqrt() / scale,
        tolerance: bound / scale,
        spreads: (honest_norm > 0.0).then(|| error.sqrt() / honest_norm),
        notices: None,
        is_inexact: false,
    }
}
