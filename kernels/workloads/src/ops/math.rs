//! Exponential and logarithm in f32 without branches or tables, so that loops over them vectorise.
//!
//! Coefficients of the exponential are a minimax polynomial of degree 6 whose first two are 1
//! (relative error 4e-9), the coefficients of the logarithm are those of Cephes `logf` (Moshier
//! 1992). Fused multiply-adds round once on every machine, so results have equal bits for all
//! instruction sets that a loop is compiled to.

/// Added to and subtracted from a small number, it rounds to the nearest whole one.
const ROUND: f32 = 12_582_912.0;

/// ln 2 in two parts; a small whole number times the first is exact.
const LN_2_HIGH: f32 = 0.693_359_4;
const LN_2_LOW: f32 = -2.121_944_4e-4;

/// Below it the result would be subnormal.
const EXP_LEAST: f32 = -87.336_54;

/// 128 times [`LN_2`](std::f32::consts::LN_2), the first argument whose result is infinite.
const EXP_MOST: f32 = 128.0 * std::f32::consts::LN_2;

/// e to the `x`, within [`exp_ulp`] units in the last place; 0 where it would be subnormal.
///
/// One constant stands for ln 2, which it misses by 1.9e-9. So the error grows with `x`, but eleven
/// times slower than the effect of half a unit in the last place of `x` itself. It also makes the
/// end of the range cheap: the remainder of [`EXP_MOST`] is exactly 0, whose exponential is 1, and
/// its exponent is the exponent of infinity, so that an argument need only be clamped there.
#[inline(always)]
pub fn exp(x: f32) -> f32 {
    // In this order a minimum instruction passes NaN through.
    let x = if EXP_MOST < x { EXP_MOST } else { x };
    let rounded = x.mul_add(std::f32::consts::LOG2_E, ROUND);
    let n = rounded - ROUND;
    let r = n.mul_add(-std::f32::consts::LN_2, x);
    let mut p = 1.381_458_4e-3f32;
    p = p.mul_add(r, 8.368_724e-3);
    p = p.mul_add(r, 4.166_839e-2);
    p = p.mul_add(r, 1.666_652e-1);
    p = p.mul_add(r, 4.999_999_4e-1);
    p = p.mul_add(r, 1.0);
    let y = p.mul_add(r, 1.0);
    // The low bits of `rounded` are n, and go where the exponent is.
    let scaled = f32::from_bits(y.to_bits().wrapping_add(rounded.to_bits() << 23));
    if x < EXP_LEAST { 0.0 } else { scaled }
}

/// Greatest error of [`exp`] at `x`, in units in the last place of the true value.
pub const fn exp_ulp(x: f32) -> f64 {
    1.0 + (if x < 0.0 { -x } else { x }) as f64 / 22.0
}

/// The natural logarithm, within [`LN_ULP`] units in the last place; negative infinity at 0 and at
/// subnormal numbers, not a number below.
#[inline(always)]
pub fn ln(x: f32) -> f32 {
    let bits = x.to_bits();
    // Counted from the bits of sqrt(1/2), so that the mantissa lies around 1.
    let exponent = (bits.wrapping_sub(0x3f35_04f3) as i32) >> 23;
    let m = f32::from_bits(bits.wrapping_sub((exponent << 23) as u32)) - 1.0;
    let e = exponent as f32;
    let square = m * m;
    // Odd and even powers apart: half as long a chain of dependent instructions, which bounds the
    // time of few elements.
    let mut p = 7.037_683_6e-2f32;
    p = p.mul_add(square, (-1.151_461e-1f32).mul_add(m, 1.167_699_9e-1));
    p = p.mul_add(square, (-1.242_014_1e-1f32).mul_add(m, 1.424_932_3e-1));
    p = p.mul_add(square, (-1.666_805_8e-1f32).mul_add(m, 2.000_071_5e-1));
    p = p.mul_add(square, (-2.499_999_4e-1f32).mul_add(m, 3.333_333e-1));
    let tail = e.mul_add(LN_2_LOW, p * m * square);
    let value = e.mul_add(LN_2_HIGH, (-0.5f32).mul_add(square, tail) + m);
    let value = if x < f32::MIN_POSITIVE {
        f32::NEG_INFINITY
    } else {
        value
    };
    let value = if x < 0.0 { f32::NAN } else { value };
    if x < f32::INFINITY { value } else { x }
}

/// Greatest error of [`ln`], in units in the last place of the true value.
pub const LN_ULP: f64 = 1.0;

#[cfg(test)]
mod tests {
    use super::*;

    /// Error in units in the last place of the true value's f32 neighbourhood.
    fn ulps(found: f32, expected: f64) -> f64 {
        let near = (expected as f32).abs();
        let unit = f64::from(f32::from_bits(near.to_bits() + 1)) - f64::from(near);
        (f64::from(found) - expected).abs() / unit
    }

    /// Floats from `low` to `high`, every `step`-th of each sign.
    fn floats(low: f32, high: f32, step: usize) -> impl Iterator<Item = f32> {
        (0..=u32::MAX)
            .step_by(step)
            .map(f32::from_bits)
            .filter(move |x| (low..=high).contains(x))
    }

    #[test]
    fn exp_is_within_its_bound() {
        // The greatest float whose exponential is one.
        let most = 88.722_83;
        for x in floats(EXP_LEAST, most, 1009).chain([EXP_LEAST, most]) {
            let error = ulps(exp(x), f64::from(x).exp());
            assert!(error <= exp_ulp(x), "{x}: {error} ulp");
        }
    }

    #[test]
    fn ln_is_within_its_bound() {
        let worst = floats(f32::MIN_POSITIVE, f32::MAX, 1009)
            .map(|x| ulps(ln(x), f64::from(x).ln()))
            .fold(0.0, f64::max);
        assert!(worst <= LN_ULP, "{worst} ulp");
    }

    #[test]
    fn ends_of_the_range() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!([exp(-87.4), exp(-1e9), exp(f32::NEG_INFINITY)], [0.0; 3]);
        let beyond = [EXP_MOST, 88.8, 1e9, f32::INFINITY];
        assert_eq!(beyond.map(exp), [f32::INFINITY; 4]);
        assert!(exp(88.722_83) < f32::INFINITY);
        assert!(exp(f32::NAN).is_nan() && ln(f32::NAN).is_nan() && ln(-1.0).is_nan());
        assert_eq!((ln(1.0), ln(0.0)), (0.0, f32::NEG_INFINITY));
        assert_eq!(ln(f32::INFINITY), f32::INFINITY);
    }
}
