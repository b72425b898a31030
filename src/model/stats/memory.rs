//! How much a series remembers: samples in a row that are alike say less than as many that are not.

/// The factor by which the median's variance is larger than that of independent samples: the
/// long-run variance of whether a sample lies above the median (Newey and West, 1987, with
/// Bartlett's weights over sqrt(n) lags), and never less than one.
pub fn memory(samples: &[f64], median: f64) -> f64 {
    let mut signs: Vec<f64> = samples
        .iter()
        .map(|sample| f64::from(i8::from(*sample > median) - i8::from(*sample < median)))
        .collect();
    let count = signs.len() as f64;
    let mean = signs.iter().sum::<f64>() / count;
    signs.iter_mut().for_each(|sign| *sign -= mean);
    let product = |lag: usize| -> f64 {
        let pairs = signs.iter().zip(&signs[lag..]);
        pairs.map(|(one, other)| one * other).sum()
    };
    let variance = product(0);
    if variance == 0.0 {
        return 1.0;
    }
    let lags = (count.sqrt() as usize).clamp(1, samples.len() - 1);
    let weighted = |lag: usize| (1.0 - lag as f64 / (lags + 1) as f64) * product(lag) / variance;
    (1.0 + 2.0 * (1..=lags).map(weighted).sum::<f64>()).max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_slow_remembers_and_what_alternates_does_not() {
        let slow: Vec<f64> = (0..40)
            .map(|index| 100.0 + f64::from(index / 10 % 2))
            .collect();
        let quick: Vec<f64> = (0..40).map(|index| 100.0 + f64::from(index % 2)).collect();
        assert!(memory(&slow, 100.5) > 3.0);
        assert_eq!(memory(&quick, 100.5), 1.0);
    }
}
