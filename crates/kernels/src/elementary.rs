//! Elementary functions on vectors: `exp`, `ln(1 + e^x)`, the logistic function and what is made of them; and `ln` of a number.
//!
//! None of them asks a library of the system, so the same instructions give the same bits everywhere.
//!
//! All are within a few units in the last place (relative error below 1e-6) wherever the result is a normal number, and what is not
//! a number stays that. The polynomials are minimax fits in relative error.
use pulp::{Simd, cast};

use crate::instructions::multiply_add;

/// Beyond this, `e^x` is infinite in single precision.
const LARGEST: f32 = 88.72;
/// Below this, `e^x` is no longer a normal number in single precision and counts as zero.
const SMALLEST: f32 = -87.33;

/// `(e^r - 1) / r` for `|r| <= ln(2) / 2`, error 1.1e-8, constant term first.
const EXPM1: [f32; 6] = [1.0, 0.499_999_98, 0.166_665_05, 0.041_667_14, 0.008_369_14, 0.001_388_887];

/// `ln(1 + y) / y` for `0 <= y <= 1`, error 3.0e-8, constant term first.
const LOG1P: [f32; 9] =
    [1.0, -0.499_994_93, 0.333_190_97, -0.248_429_82, 0.191_060_06, -0.136_632_45, 0.078_225_95, -0.029_505_237, 0.005_232_694];

/// A polynomial, constant term first.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(simd: S, coefficients: &[f32; N], x: S::f32s) -> S::f32s {
    let mut value = simd.splat_f32s(coefficients[N - 1]);
    for &coefficient in coefficients[..N - 1].iter().rev() {
        value = multiply_add(simd, value, x, simd.splat_f32s(coefficient));
    }
    value
}

/// `if_true` where the mask is set.
#[inline(always)]
pub(crate) fn select<S: Simd>(simd: S, mask: S::m32s, if_true: S::f32s, if_false: S::f32s) -> S::f32s {
    // pulp's own version for floats is not always inlined.
    cast(simd.select_u32s(mask, cast(if_true), cast(if_false)))
}

/// `-x`
#[inline(always)]
pub(crate) fn negate<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    simd.sub_f32s(simd.splat_f32s(0.0), x)
}

/// `x = n ln(2) + r`: `r` and, in the uppermost bits where the exponent of a number is kept, `n`.
#[inline(always)]
fn reduce<S: Simd>(simd: S, x: S::f32s) -> (S::f32s, S::u32s) {
    // Adding 1.5 * 2^23 rounds to a whole number and leaves it in the lowest bits.
    let shifter = simd.splat_f32s(12_582_912.0);
    let shifted = multiply_add(simd, x, simd.splat_f32s(std::f32::consts::LOG2_E), shifter);
    let n = simd.sub_f32s(shifted, shifter);
    // ln(2) in two parts, of which the first has few digits so that its products are exact.
    let r = multiply_add(simd, n, simd.splat_f32s(-0.693_359_4), x);
    let r = multiply_add(simd, n, simd.splat_f32s(2.121_944_4e-4), r);
    (r, simd.wrapping_dyn_shl_u32s(cast(shifted), simd.splat_u32s(23)))
}

/// `e^x` for `x` from [`SMALLEST`] to [`LARGEST`], nonsense for other numbers.
#[inline(always)]
fn exp_in_range<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let (r, n) = reduce(simd, x);
    let fraction = multiply_add(simd, polynomial(simd, &EXPM1, r), r, simd.splat_f32s(1.0));
    cast(simd.add_u32s(cast(fraction), n))
}

/// `e^x`; zero where that is not a normal number, infinite above 88.72.
#[inline(always)]
pub(crate) fn exp<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let value = exp_in_range(simd, x);
    let value = select(simd, simd.less_than_f32s(x, simd.splat_f32s(SMALLEST)), simd.splat_f32s(0.0), value);
    select(simd, simd.greater_than_f32s(x, simd.splat_f32s(LARGEST)), simd.splat_f32s(f32::INFINITY), value)
}

/// `e^-|x|`, between 0 and 1.
#[inline(always)]
fn exp_below<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let x = simd.min_f32s(x, negate(simd, x));
    let value = exp_in_range(simd, x);
    select(simd, simd.less_than_f32s(x, simd.splat_f32s(SMALLEST)), simd.splat_f32s(0.0), value)
}

/// `e^x - 1` for `x <= 0`, accurate also where it is small.
#[inline(always)]
pub(crate) fn exp_minus_one_below<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    // Beyond -20 the result is -1 in single precision.
    let floor = simd.splat_f32s(-20.0);
    let x = select(simd, simd.less_than_f32s(x, floor), floor, x);
    let (r, n) = reduce(simd, x);
    let one = simd.splat_f32s(1.0);
    let power: S::f32s = cast(simd.add_u32s(cast(one), n));
    let fraction = simd.mul_f32s(polynomial(simd, &EXPM1, r), r);
    multiply_add(simd, fraction, power, simd.sub_f32s(power, one))
}

/// Softplus, `ln(1 + e^x)`, computed as `max(x, 0) + ln(1 + e^-|x|)`.
#[inline(always)]
pub(crate) fn softplus<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let y = exp_below(simd, x);
    let ramp = simd.max_f32s(x, simd.splat_f32s(0.0));
    multiply_add(simd, polynomial(simd, &LOG1P, y), y, ramp)
}

/// The logistic function `1 / (1 + e^-x)`, the derivative of [`softplus`], and what it lacks to one, both accurate also where they are small.
#[inline(always)]
fn sigmoid_and_rest<S: Simd>(simd: S, x: S::f32s) -> (S::f32s, S::f32s) {
    let one = simd.splat_f32s(1.0);
    let y = exp_below(simd, x);
    let larger = simd.div_f32s(one, simd.add_f32s(one, y));
    let smaller = simd.mul_f32s(larger, y);
    let above = simd.less_than_f32s(simd.splat_f32s(0.0), x);
    (select(simd, above, larger, smaller), select(simd, above, smaller, larger))
}

/// `2 sqrt(2 / pi)` and that times the weight of the cube in the tanh form of GELU.
const GELU: (f32, f32) = (1.595_769, 1.595_769 * 0.044_715);

/// `(1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2`, which is a logistic function, and what it lacks to one.
#[inline(always)]
fn gelu_gate<S: Simd>(simd: S, x: S::f32s, square: S::f32s) -> (S::f32s, S::f32s) {
    let factor = multiply_add(simd, square, simd.splat_f32s(GELU.1), simd.splat_f32s(GELU.0));
    sigmoid_and_rest(simd, simd.mul_f32s(x, factor))
}

/// The tanh form of the Gaussian error linear unit, `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`.
#[inline(always)]
pub(crate) fn gelu<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    simd.mul_f32s(x, gelu_gate(simd, x, simd.mul_f32s(x, x)).0)
}

/// The derivative of [`gelu`]: `s + x s (1 - s) 2 sqrt(2/pi) (1 + 3 * 0.044715 x^2)` with `s` the gate.
#[inline(always)]
pub(crate) fn gelu_derivative<S: Simd>(simd: S, x: S::f32s) -> S::f32s {
    let square = simd.mul_f32s(x, x);
    let (gate, closing) = gelu_gate(simd, x, square);
    let inner = multiply_add(simd, square, simd.splat_f32s(3.0 * GELU.1), simd.splat_f32s(GELU.0));
    let slope = simd.mul_f32s(simd.mul_f32s(x, inner), closing);
    multiply_add(simd, slope, gate, gate)
}

/// The natural logarithm, to double precision: `x = 2^n m` with `m` between `sqrt(1/2)` and `sqrt(2)`, and
/// `ln(m) = 2 (s + s^3 / 3 + s^5 / 5 + ...)` for `s = (m - 1) / (m + 1)`, at most 0.172, whose power 21 no longer counts.
///
/// Only additions, multiplications and divisions, which every machine rounds alike.
pub(crate) fn ln(x: f64) -> f64 {
    if x.is_nan() || x < 0.0 {
        return f64::NAN;
    }
    if x == 0.0 || x == f64::INFINITY {
        return if x == 0.0 { f64::NEG_INFINITY } else { x };
    }
    // Numbers too small for a full mantissa are made larger first, by 2^54.
    let (x, shift) = if x < f64::MIN_POSITIVE { (x * 18_014_398_509_481_984.0, -54) } else { (x, 0) };
    let offset = std::f64::consts::FRAC_1_SQRT_2.to_bits();
    let n = (x.to_bits().wrapping_sub(offset) as i64) >> 52;
    let m = f64::from_bits(x.to_bits().wrapping_sub((n << 52) as u64));
    let s = (m - 1.0) / (m + 1.0);
    let square = s * s;
    let series = (0..10).rev().fold(0.0, |sum, at| sum * square + 1.0 / f64::from(2 * at + 1));
    // ln(2) in two parts, of which the first has few digits so that its products are exact.
    let n = (n + shift) as f64;
    n * 6.931_471_803_691_238e-1 + (2.0 * s * series + n * 1.908_214_929_270_587_7e-10)
}

#[cfg(test)]
mod tests {
    use pulp::{Simd, WithSimd};

    use super::*;
    use crate::InstructionSet;

    /// A function of this module with what it should be.
    #[derive(Clone, Copy, Debug)]
    enum Function {
        Exp,
        ExpMinusOneBelow,
        Softplus,
        Sigmoid,
        Gelu,
        GeluDerivative,
    }

    impl Function {
        fn exact(self, x: f64) -> f64 {
            let inner = (2.0 / std::f64::consts::PI).sqrt() * (x + 0.044715 * x.powi(3));
            match self {
                Self::Exp => x.exp(),
                Self::ExpMinusOneBelow => x.exp_m1(),
                Self::Softplus => x.max(0.0) + (-x.abs()).exp().ln_1p(),
                Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
                Self::Gelu => x / 2.0 * (1.0 + inner.tanh()),
                Self::GeluDerivative => {
                    let slope = (2.0 / std::f64::consts::PI).sqrt() * (1.0 + 3.0 * 0.044715 * x * x);
                    (1.0 + inner.tanh()) / 2.0 + x / 2.0 / inner.cosh().powi(2) * slope
                }
            }
        }

        #[inline(always)]
        fn vector<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
            match self {
                Self::Exp => exp(simd, x),
                Self::ExpMinusOneBelow => exp_minus_one_below(simd, x),
                Self::Softplus => softplus(simd, x),
                Self::Sigmoid => sigmoid_and_rest(simd, x).0,
                Self::Gelu => gelu(simd, x),
                Self::GeluDerivative => gelu_derivative(simd, x),
            }
        }
    }

    struct Map<'a>(Function, &'a mut [f32]);

    impl WithSimd for Map<'_> {
        type Output = ();

        #[inline(always)]
        fn with_simd<S: Simd>(self, simd: S) {
            let (vectors, _) = S::as_mut_simd_f32s(self.1);
            for x in vectors {
                *x = self.0.vector(simd, *x);
            }
        }
    }

    fn map(set: InstructionSet, function: Function, x: &[f32]) -> Vec<f32> {
        let mut padded = x.to_vec();
        padded.resize(x.len().next_multiple_of(16), 0.0);
        set.run(Map(function, &mut padded));
        padded.truncate(x.len());
        padded
    }

    /// Numbers of both signs and all sizes up to `largest`.
    fn numbers(largest: f32) -> Vec<f32> {
        let fine = (-4000..=4000).map(|at| at as f32 / 4000.0 * largest);
        let small = (0..200).flat_map(|at| [1.17f32.powi(-at), -(1.17f32.powi(-at))]);
        fine.chain(small).filter(|x| x.abs() <= largest).collect()
    }

    #[test]
    fn functions_are_exact_to_a_few_units_in_the_last_place() {
        use Function::*;
        for set in InstructionSet::available() {
            for (function, largest) in [(Exp, 87.3), (Softplus, 87.3), (Sigmoid, 87.0), (ExpMinusOneBelow, 87.0)] {
                let below = matches!(function, ExpMinusOneBelow);
                let x: Vec<f32> = numbers(largest).into_iter().map(|x| if below { -x.abs() } else { x }).collect();
                for (&x, found) in x.iter().zip(map(set, function, &x)) {
                    let exact = function.exact(f64::from(x));
                    let error = (f64::from(found) - exact).abs() / exact.abs().max(1e-37);
                    assert!(error < 6e-7, "{} {function:?}({x}) = {found}, not {exact}: {error:e}", set.name());
                }
            }
        }
    }

    #[test]
    fn gelu_and_its_derivative_are_exact_to_single_precision() {
        for set in InstructionSet::available() {
            for function in [Function::Gelu, Function::GeluDerivative] {
                let x = numbers(20.0);
                for (&x, found) in x.iter().zip(map(set, function, &x)) {
                    let exact = function.exact(f64::from(x));
                    let error = (f64::from(found) - exact).abs() / exact.abs().max(1.0);
                    assert!(error < 1e-6, "{} {function:?}({x}) = {found}, not {exact}: {error:e}", set.name());
                }
            }
        }
    }

    #[test]
    fn functions_saturate_and_keep_what_is_not_a_number() {
        use Function::*;
        let x = [f32::NEG_INFINITY, -1e30, -100.0, 100.0, 1e30, f32::INFINITY];
        for set in InstructionSet::available() {
            assert_eq!(map(set, Exp, &x), [0.0, 0.0, 0.0, f32::INFINITY, f32::INFINITY, f32::INFINITY], "{}", set.name());
            assert_eq!(map(set, Softplus, &x), [0.0, 0.0, 0.0, 100.0, 1e30, f32::INFINITY], "{}", set.name());
            assert_eq!(map(set, Sigmoid, &x), [0.0, 0.0, 0.0, 1.0, 1.0, 1.0], "{}", set.name());
            for function in [Exp, ExpMinusOneBelow, Softplus, Sigmoid, Gelu, GeluDerivative] {
                assert!(map(set, function, &[f32::NAN])[0].is_nan(), "{} {function:?}", set.name());
            }
        }
    }

    #[test]
    fn the_logarithm_is_exact_to_double_precision() {
        let wide = (-1020..=1020).map(|exponent| 1.37 * 2f64.powi(exponent));
        let near_one = (-2000..=2000).map(|at| 1.0 + f64::from(at) * 3e-4);
        let nearer = (1..60).flat_map(|at| [1.0 + 0.5f64.powi(at), 1.0 - 0.5f64.powi(at)]);
        for x in wide.chain(near_one).chain(nearer).chain([f64::MAX, f64::MIN_POSITIVE, 5e-324, 1.0, 2.0]) {
            let (found, exact) = (ln(x), x.ln());
            assert!((found - exact).abs() <= 4.0 * f64::EPSILON * exact.abs(), "ln({x}) = {found}, not {exact}");
        }
        assert_eq!([ln(1.0), ln(0.0), ln(f64::INFINITY)], [0.0, f64::NEG_INFINITY, f64::INFINITY]);
        assert!(ln(-1.0).is_nan() && ln(f64::NAN).is_nan());
    }
}
