//! What rounding does to the outputs of a text that is known by its results in f64 alone.
//!
//! Each output's elements depend on so many elements of the inputs, `k`: as many as follow where a
//! few inputs change. They are taken to be sums of `k` terms, whose partial sums are rounded
//! ([`weights_of_sum`]): `Q`, the terms' squares, shows where each input is disturbed by itself,
//! and `S`, their sum, where all are scaled alike. What happens between is not known, and taken to
//! be as much as [`UNKNOWN`] such sums do.

use rayon::prelude::*;
use sweeper_program::check::as_f64;
use sweeper_program::rounding::{DEVIATION, FUNCTION, UNIT_ROUNDOFF, mixed, weights_of_sum};
use sweeper_program::spread::{self, Spread};
use sweeper_program::workload::TensorSpec;
use sweeper_program::{Dtype, Tensor, Tensors};

/// The variance of what a text does in between, in roundings: that of four functions.
const UNKNOWN: f64 = 4.0 * FUNCTION;

/// Evaluations with rounding. The spread is known well from two of them where there are many
/// elements.
const PROBES: u64 = 4;
const PROBES_OF_MANY: u64 = 2;
const MANY_ELEMENTS: u64 = 1 << 16;

/// The largest part of the inputs that change together, and how many times as small the next is.
const LARGEST_PART: f64 = 1.0 / 16.0;
const NEXT_PART: f64 = 1.0 / 8.0;

/// Where a greater part of an output's elements follows, the next part of the inputs tells better
/// how many they depend on.
const MOST_FOLLOWING: f64 = 0.9;

/// How much an input changes to see what depends on it.
const CHANGE: f64 = 1e-3;

/// A text that can be run in f64.
pub(super) struct TextInF64<'a, R> {
    /// Its inputs.
    pub(super) inputs: (&'a [TensorSpec], &'a Tensors),
    /// Runs it for other inputs.
    pub(super) run: R,
}

impl<R: FnMut(&Tensors) -> Result<Tensors, E>, E> TextInF64<'_, R> {
    /// Adds the spreads of real outputs to their answers.
    ///
    /// # Errors
    /// Those of a run.
    pub(super) fn add_spreads(
        &mut self,
        outputs: &[TensorSpec],
        answers: &mut Tensors,
    ) -> Result<(), E> {
        let outputs: Vec<&TensorSpec> = outputs.iter().filter(|it| it.dtype.is_real()).collect();
        let scaled = self.run_with(|_, unit| 1.0 + unit * DEVIATION / UNIT_ROUNDOFF)?;
        let terms = self.terms(&outputs, answers)?;
        let has_many = |spec: &&TensorSpec| spec.elements() > MANY_ELEMENTS;
        let probes = match outputs.iter().all(has_many) {
            true => PROBES_OF_MANY,
            false => PROBES,
        };
        let probes = (0..probes).map(|probe| {
            let sign = |at: u64| sign(at ^ mixed(probe));
            self.run_with(|at, unit| 1.0 + sign(at) * unit * DEVIATION / UNIT_ROUNDOFF)
        });
        let probes: Vec<Tensors> = probes.collect::<Result<_, E>>()?;
        for (spec, terms) in outputs.into_iter().zip(terms) {
            let (Some(answer), Some(scaled)) = (answers.get(&spec.name), scaled.get(&spec.name))
            else {
                continue;
            };
            let (exact, scaled) = (as_f64(answer), as_f64(scaled));
            let moved = probes.iter().enumerate().filter_map(|(number, probe)| {
                let disturbed = as_f64(probe.get(&spec.name)?);
                let found = (&*exact, &*disturbed, &*scaled);
                Some(moved(found, terms, spec.dtype, number as u64))
            });
            let moved: Vec<Vec<f64>> = moved.collect();
            let spread = Spread::from_probes(spec.dtype, &spec.shape, &exact, &moved);
            answers.insert(spread::name_of(&spec.name), spread.into_tensor());
        }
        Ok(())
    }

    /// How many elements of the inputs an element of each output depends on, in the mean.
    fn terms(&mut self, outputs: &[&TensorSpec], answers: &Tensors) -> Result<Vec<f64>, E> {
        let all: u64 = self.inputs.0.iter().map(TensorSpec::elements).sum();
        let mut terms: Vec<Option<f64>> = vec![None; outputs.len()];
        let mut part = LARGEST_PART;
        while terms.contains(&None) && part * all as f64 > NEXT_PART {
            let is_changed = |at: u64| mixed(at) as f64 * 2f64.powi(-64) < part;
            let changed = self.run_with(|at, _| match is_changed(at) {
                true => 1.0 + CHANGE,
                false => 1.0,
            })?;
            for (spec, terms) in outputs.iter().zip(&mut terms) {
                let pair = (answers.get(&spec.name), changed.get(&spec.name));
                let (Some(answer), Some(changed)) = pair else {
                    continue;
                };
                let (answer, changed) = (as_f64(answer), as_f64(changed));
                let pairs = answer.par_iter().zip(changed.par_iter());
                let following = pairs.filter(|(one, other)| one != other).count();
                let following = following as f64 / answer.len().max(1) as f64;
                if following <= MOST_FOLLOWING && terms.is_none() {
                    *terms = Some((1.0 - following).ln() / (1.0 - part).ln());
                }
            }
            part *= NEXT_PART;
        }
        let terms = terms.into_iter().map(|it| it.unwrap_or(all as f64));
        Ok(terms.map(|it| it.max(1.0)).collect())
    }

    /// Runs it with each element of real inputs times a factor, of the element's number and the
    /// unit roundoff of its type.
    fn run_with(&mut self, factor: impl Fn(u64, f64) -> f64 + Sync) -> Result<Tensors, E> {
        let (specs, inputs) = self.inputs;
        let mut first = 0;
        let changed = specs.iter().filter_map(|spec| {
            let tensor = inputs.get(&spec.name)?;
            let start = first;
            first += spec.elements();
            if !spec.dtype.is_real() {
                return Some((spec.name.clone(), tensor.clone()));
            }
            let unit = spec.dtype.unit_roundoff();
            let values = as_f64(tensor);
            let values = values.par_iter().enumerate();
            let values = values.map(|(at, value)| value * factor(start + at as u64, unit));
            let changed = Tensor::f64(tensor.shape(), values.collect());
            Some((spec.name.clone(), changed))
        });
        let changed: Tensors = changed.collect();
        (self.run)(&changed)
    }
}

/// An output in an evaluation with rounding, from the answer, and the results for inputs that are
/// disturbed each by itself, and that are scaled alike.
fn moved(
    (exact, disturbed, scaled): (&[f64], &[f64], &[f64]),
    terms: f64,
    dtype: Dtype,
    probe: u64,
) -> Vec<f64> {
    let [of_square, of_squares] = weights_of_sum(terms.round() as usize);
    let rounding = dtype.unit_roundoff() * DEVIATION / UNIT_ROUNDOFF;
    let elements = exact.par_iter().zip(disturbed).zip(scaled).enumerate();
    let moved = elements.map(|(at, ((&exact, disturbed), scaled))| {
        let sign = |place: u64| sign(mixed(2 * at as u64 + place) ^ mixed(!probe));
        let noise = of_square.sqrt() * (scaled - exact) * sign(0)
            + of_squares.sqrt() * (disturbed - exact)
            + rounding * exact * sign(1);
        exact + UNKNOWN.sqrt() * noise
    });
    moved.collect()
}

/// One or minus one, by chance.
fn sign(place: u64) -> f64 {
    match mixed(place) >> 63 {
        0 => 1.0,
        _ => -1.0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The spread of an output and the terms it depends on, for a function of an input.
    fn found(len: usize, function: impl Fn(&[f64]) -> Vec<f64>) -> (Vec<f64>, f64) {
        let specs = [TensorSpec {
            name: "x".to_owned(),
            dtype: Dtype::F32,
            shape: vec![len],
        }];
        let x: Vec<f32> = (0..len).map(|at| 1.0 + (at % 7) as f32).collect();
        let inputs = Tensors::from([("x".to_owned(), Tensor::f32([len], x))]);
        let run = |inputs: &Tensors| {
            let y = function(&as_f64(&inputs["x"]));
            let y = Tensor::f64([y.len()], y);
            Ok::<_, ()>(Tensors::from([("y".to_owned(), y)]))
        };
        let mut answers = run(&inputs).unwrap();
        let output = TensorSpec {
            name: "y".to_owned(),
            dtype: Dtype::F32,
            shape: answers["y"].shape().to_vec(),
        };
        let mut text = TextInF64 {
            inputs: (&specs, &inputs),
            run,
        };
        let terms = text.terms(&[&output], &answers).unwrap();
        text.add_spreads(std::slice::from_ref(&output), &mut answers)
            .unwrap();
        let spread = Spread::from_tensor(&output.shape, &answers[&spread::name_of("y")]).unwrap();
        let squares: f64 = as_f64(&answers["y"]).iter().map(|y| y * y).sum();
        let size = squares / output.elements() as f64;
        (terms, (spread.whole.mean_square / size).sqrt() / DEVIATION)
    }

    #[test]
    fn elements_by_themselves_are_a_few_roundings_out() {
        let (terms, roundings) = found(5000, |x| x.iter().map(|x| 2.0 * x).collect());
        assert!((0.5..2.0).contains(&terms[0]), "{terms:?}");
        assert!((4.0..8.0).contains(&roundings), "{roundings}");
    }

    #[test]
    fn sums_are_as_far_out_as_the_model_of_sums_says() {
        for in_row in [50, 4000] {
            let sums = |x: &[f64]| x.chunks(in_row).map(|row| row.iter().sum()).collect();
            let (terms, roundings) = found(20 * in_row, sums);
            let in_row = in_row as f64;
            assert!((0.4..2.5).contains(&(terms[0] / in_row)), "{terms:?}");
            let expected = 4.0 * (in_row / 3.0).sqrt();
            let ratio = roundings / expected;
            assert!((0.6..1.7).contains(&ratio), "{roundings} for {expected}");
        }
    }
}
