//! Spreads of answers that a GPU gave, from those of a smaller problem that the host answered.
//!
//! A logarithm at position t is rounded by u t, so that a chain of T positions is off by u T
//! sqrt(T): values, which grow with T, by sqrt(T) of themselves, and marginals, which are
//! exponentials of differences of such logarithms, by T sqrt(T) of themselves, as are entropies.

use crate::semicrf::sizes::Sizes;
use sweeper_program::check::as_f64;
use sweeper_program::spread::{AxisNoise, Noise, SliceSums, Spread, name_of};
use sweeper_program::tensor::{Tensor, Tensors};

/// Adds to each answer of a problem the spread that its answer has in a smaller one, grown with the
/// number of positions. Slices have noise like the whole, in parts of their size.
pub(in crate::semicrf) fn add_spreads(
    answers: &mut Tensors,
    sizes: &Sizes,
    smaller: (&Sizes, &Tensors),
) {
    let (smaller, known) = smaller;
    let growth = sizes.t as f64 / smaller.t as f64;
    let names: Vec<String> = answers.keys().cloned().collect();
    for name in names {
        let own = known.get(&name).zip(known.get(&name_of(&name)));
        let own = own.and_then(|(answer, spread)| {
            Some((answer, Spread::from_tensor(answer.shape(), spread)?))
        });
        if let Some((answer, spread)) = own {
            let sizes = mean_square(&answers[&name]) / mean_square(answer);
            let relative = match name.as_str() {
                // Where values do not grow, what scores have in common is off by T of itself.
                "value" => growth * f64::max(growth, sizes) / sizes,
                _ => growth.powi(3),
            };
            let relative = relative * spread.whole.mean_square / mean_square(answer);
            let spread = relative_spread(&answers[&name], relative, &spread);
            answers.insert(name_of(&name), spread.into_tensor());
        }
    }
}

fn mean_square(answer: &Tensor) -> f64 {
    let values = as_f64(answer);
    let squares: f64 = values.iter().map(|value| value * value).sum();
    (squares / values.len() as f64).max(f64::MIN_POSITIVE)
}

/// A spread whose mean squares are this part of the answer's, otherwise like another one.
fn relative_spread(answer: &Tensor, relative: f64, like: &Spread) -> Spread {
    let values = as_f64(answer);
    let squares = SliceSums::from_elements(answer.shape(), |at| values[at] * values[at]);
    let axes = squares.axes.iter().map(|sums| {
        let in_slice = (values.len() / sums.len()) as f64;
        AxisNoise {
            freedoms: vec![like.whole.freedom; sums.len()],
            mean_squares: sums.iter().map(|sum| relative * sum / in_slice).collect(),
        }
    });
    Spread {
        probes: like.probes,
        whole: Noise {
            freedom: like.whole.freedom,
            mean_square: relative * mean_square(answer),
        },
        scale: relative.sqrt(),
        axes: axes.collect(),
    }
}
