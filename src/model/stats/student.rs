//! Student's t: probabilities, quantiles, and fitting it to differences between runs.

use statrs::distribution::{ContinuousCDF, Normal, StudentsT};
use statrs::function::gamma::ln_gamma;

/// Tails that a fit may have, in degrees of freedom: from very heavy to nearly normal.
const TAILS: [f64; 7] = [2.0, 3.0, 4.0, 6.0, 10.0, 20.0, 50.0];
/// Steps of a fit; each halves the distance to the best scale at least.
const FIT_STEPS: usize = 60;

fn standard(freedom: f64) -> Option<StudentsT> {
    StudentsT::new(0.0, 1.0, freedom).ok()
}

/// The probability of a `t` at least this far from zero, on either side.
pub fn two_sided_p(t: f64, freedom: f64) -> f64 {
    match standard(freedom) {
        _ if t.is_nan() => 1.0,
        Some(_) if t.is_infinite() => 0.0,
        Some(student) => (2.0 * student.cdf(-t.abs())).min(1.0),
        None => 1.0,
    }
}

/// The distance from zero that `t` keeps with probability `confidence`.
pub fn critical(confidence: f64, freedom: f64) -> f64 {
    standard(freedom).map_or(f64::INFINITY, |student| {
        student.inverse_cdf(0.5 + confidence / 2.0)
    })
}

/// The distance from zero that a standard normal number keeps with probability `confidence`.
pub fn normal_critical(confidence: f64) -> f64 {
    Normal::standard().inverse_cdf(0.5 + confidence / 2.0)
}

/// How far the interval of a number reaches on either side, and the probability of such a number,
/// were it zero: `size` is its standard error.
pub fn around(centre: f64, size: f64, freedom: f64, confidence: f64) -> (f64, f64) {
    let t = match centre {
        0.0 => 0.0,
        _ => centre / size,
    };
    let reach = match size {
        0.0 => 0.0,
        _ => size * critical(confidence, freedom),
    };
    (reach, two_sided_p(t, freedom))
}

/// Scale and degrees of freedom of the t distribution about zero under which `differences` are the
/// most likely. The scale is found by expectation-maximisation for each of a few tails.
///
/// No differences, or none but zeros, have no scale.
pub fn fit(differences: &[f64]) -> (f64, f64) {
    let scale_of = |freedom: f64| {
        let count = differences.len() as f64;
        let mut square = differences.iter().map(|x| x * x).sum::<f64>() / count;
        for _ in 0..FIT_STEPS {
            let weighted = |x: &f64| (freedom + 1.0) * x * x / (freedom + x * x / square);
            square = differences.iter().map(weighted).sum::<f64>() / count;
        }
        square.sqrt()
    };
    let likelihood = |scale: f64, freedom: f64| {
        let constant = ln_gamma((freedom + 1.0) / 2.0)
            - ln_gamma(freedom / 2.0)
            - 0.5 * (freedom * std::f64::consts::PI).ln()
            - scale.ln();
        let density =
            |x: &f64| -(freedom + 1.0) / 2.0 * (x * x / (scale * scale) / freedom).ln_1p();
        differences
            .iter()
            .map(|x| constant + density(x))
            .sum::<f64>()
    };
    if differences.iter().all(|&x| x == 0.0) {
        return (0.0, TAILS[TAILS.len() - 1]);
    }
    let fits = TAILS.map(|freedom| {
        let scale = scale_of(freedom);
        (likelihood(scale, freedom), scale, freedom)
    });
    let best = fits
        .into_iter()
        .max_by(|one, other| one.0.total_cmp(&other.0));
    best.map_or((0.0, 2.0), |(_, scale, freedom)| (scale, freedom))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Points of Student's t from any table.
    #[test]
    fn tables_agree() {
        for (freedom, expected) in [(1.0, 12.706), (2.0, 4.303), (4.0, 2.776), (30.0, 2.042)] {
            assert!(
                (critical(0.95, freedom) - expected).abs() < 1e-3,
                "{freedom}"
            );
            assert!(
                (two_sided_p(expected, freedom) - 0.05).abs() < 1e-4,
                "{freedom}"
            );
        }
        assert!((normal_critical(0.95) - 1.959_964).abs() < 1e-5);
        assert_eq!(two_sided_p(f64::INFINITY, 3.0), 0.0);
        assert_eq!(two_sided_p(0.0, 3.0), 1.0);
        assert_eq!(two_sided_p(f64::NAN, 3.0), 1.0);
    }

    /// Quantiles of a distribution stand for a sample of it.
    fn quantiles(freedom: f64, scale: f64) -> Vec<f64> {
        let student = standard(freedom).unwrap();
        (0..400)
            .map(|index| scale * student.inverse_cdf((f64::from(index) + 0.5) / 400.0))
            .collect()
    }

    #[test]
    fn fits_find_what_was_put_in() {
        let (scale, freedom) = fit(&quantiles(3.0, 0.02));
        assert!(
            (scale / 0.02 - 1.0).abs() < 0.1 && (2.0..=4.0).contains(&freedom),
            "{scale} {freedom}"
        );
        let (scale, freedom) = fit(&quantiles(200.0, 0.5));
        assert!(
            (scale / 0.5 - 1.0).abs() < 0.05 && freedom >= 20.0,
            "{scale} {freedom}"
        );
        assert_eq!(fit(&[0.0, 0.0]).0, 0.0);
        assert_eq!(fit(&[]).0, 0.0);
    }
}
