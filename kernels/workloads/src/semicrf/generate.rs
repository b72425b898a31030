//! Inputs: made from a key, or checked if they were read from a file.

use super::sizes::{Lengths, Semiring, Sizes};
use sweeper_program::check;
use sweeper_program::inputs::InputKey;
use sweeper_program::tensor::{Tensor, Tensors};

/// Standard normal scores; decomposed ones are centred over the positions of a sequence and label,
/// summed in f64 and rounded once.
pub fn generate(sizes: &Sizes, key: &InputKey) -> Tensors {
    let mut tensors = Tensors::new();
    for spec in sizes.score_specs("") {
        let tensor = if spec.name == "cum_scores" {
            let scores = key
                .stream("scores")
                .normal(sizes.b * sizes.t * sizes.c, 1.0);
            Tensor::f32(spec.shape, cumulative(sizes, &scores))
        } else {
            let elements = spec.shape.iter().product();
            Tensor::f32(spec.shape, key.stream(&spec.name).normal(elements, 1.0))
        };
        tensors.insert(spec.name, tensor);
    }
    tensors.insert("lengths".to_owned(), lengths(sizes, key));
    tensors
}

/// Inputs on which no duration is rarer than others: each segment costs as much as a choice among
/// labels, durations and scores gains, `ln C + 1/2 + ln K` (1/2 is the logarithm of the mean of
/// `e^x` for a normal x). Without that cost each further segment adds to the sum over
/// segmentations, and those with a long segment weigh nothing in it. A cost by duration would
/// change nothing: it adds up to the same for each segmentation. The best segmentation has few
/// segments where each costs three times as much, so that the longest are among them. Sequences end
/// anywhere, and by turns with the last label or the first.
pub fn showing(sizes: &Sizes, key: &InputKey) -> Tensors {
    let ending_anywhere = Sizes {
        lengths: Lengths::Random,
        ..*sizes
    };
    let mut tensors = generate(&ending_anywhere, &key.other("showing"));
    let gain = (sizes.c as f32).ln() + 0.5 + (sizes.longest() as f32).ln();
    let cost = match sizes.semiring {
        Semiring::Max => 3.0 * gain,
        Semiring::Log | Semiring::Entropy => gain,
    };
    let name = match sizes.is_decomposed() {
        true => "duration_bias",
        false => "edge",
    };
    let scores = tensors.get_mut(name).and_then(Tensor::as_f32_mut);
    scores
        .into_iter()
        .flatten()
        .for_each(|score| *score -= cost);
    if sizes.is_decomposed() {
        prefer(sizes, &mut tensors);
    }
    tensors
}

/// Makes a label at each sequence's end better than others, and for the best segmentation the
/// longest duration.
fn prefer(sizes: &Sizes, tensors: &mut Tensors) {
    let ends = check::elements(&tensors["lengths"]).map(|length| length as usize);
    let ends: Vec<usize> = ends.collect();
    let sums = tensors.get_mut("cum_scores").and_then(Tensor::as_f32_mut);
    let sums = sums.into_iter();
    let sums = sums.flat_map(|sums| sums.chunks_exact_mut((sizes.t + 1) * sizes.c));
    for (sequence, (sums, end)) in sums.zip(ends).enumerate() {
        let label = if sequence % 2 == 0 { sizes.c - 1 } else { 0 };
        sums[end * sizes.c + label] += PREFERENCE;
    }
    if sizes.semiring == Semiring::Max {
        let longest = sizes.longest() - 1 + sizes.first_duration_index();
        let bias = tensors
            .get_mut("duration_bias")
            .and_then(Tensor::as_f32_mut);
        let bias = bias.into_iter().flatten().skip(longest * sizes.c);
        bias.take(sizes.c).for_each(|score| *score += PREFERENCE);
    }
}

/// By how much a label at the end, or the longest duration, is preferred to others.
const PREFERENCE: f32 = 8.0;

/// (B, T, C) scores to (B, T+1, C) cumulative sums of the centred scores.
fn cumulative(sizes: &Sizes, scores: &[f32]) -> Vec<f32> {
    let Sizes { t, c, b, .. } = *sizes;
    let mut sums = vec![0.0; b * (t + 1) * c];
    for sequence in 0..b {
        for label in 0..c {
            let score = |position| f64::from(scores[(sequence * t + position) * c + label]);
            let mean = (0..t).map(score).sum::<f64>() / t as f64;
            let mut sum = 0.0;
            for position in 0..t {
                sum += score(position) - mean;
                sums[(sequence * (t + 1) + position + 1) * c + label] = sum as f32;
            }
        }
    }
    sums
}

fn lengths(sizes: &Sizes, key: &InputKey) -> Tensor {
    let t = sizes.t as i64;
    let mut lengths = match sizes.lengths {
        Lengths::Full => vec![t; sizes.b],
        Lengths::Random => key
            .stream("lengths")
            .integers(sizes.b, shortest(sizes.t) as i64, t),
    };
    lengths[0] = t;
    Tensor::i64([sizes.b], lengths)
}

/// The least length that is generated for T positions.
pub fn shortest(t: usize) -> usize {
    t.div_ceil(2)
}

/// Checks values: lengths within the tensors, scores that are numbers, cumulative scores that begin
/// at 0.
///
/// # Errors
/// A sentence that names the value and the tensor that is not allowed.
pub fn validate(sizes: &Sizes, inputs: &Tensors) -> Result<(), String> {
    for (sequence, length) in check::elements(&inputs["lengths"]).enumerate() {
        if !(1.0..=sizes.t as f64).contains(&length) {
            return Err(format!(
                "`lengths`: sequence {sequence} has length {length}, allowed is 1 to T = {}",
                sizes.t
            ));
        }
    }
    for spec in sizes.score_specs("") {
        let bad = check::elements(&inputs[&spec.name]).position(|score| !score.is_finite());
        if let Some(element) = bad {
            return Err(format!(
                "`{}`: element {element} is not finite; what is forbidden is written as -1e9",
                spec.name
            ));
        }
    }
    if !sizes.is_decomposed() {
        return Ok(());
    }
    let row = (sizes.t + 1) * sizes.c;
    let start = check::elements(&inputs["cum_scores"])
        .enumerate()
        .position(|(element, score)| element % row < sizes.c && score != 0.0);
    match start {
        Some(element) => Err(format!(
            "`cum_scores`: element {element} is at position 0 and not 0"
        )),
        None => Ok(()),
    }
}
