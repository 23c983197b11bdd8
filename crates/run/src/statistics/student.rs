//! Student's t distribution.

/// The probability of being at least as far from 0 as `t`: `I_x(n/2, 1/2)` with `x = n / (n + t^2)`.
pub(super) fn two_sided(t: f64, freedom: f64) -> f64 {
    incomplete_beta(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The regularised incomplete beta function `I_x(a, b)`.
fn incomplete_beta(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return x.clamp(0.0, 1.0);
    }
    // The continued fraction converges fast on this side of the mean; the other side follows by symmetry.
    if x > (a + 1.0) / (a + b + 2.0) {
        return 1.0 - incomplete_beta(1.0 - x, b, a);
    }
    let logarithm = libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b) + a * x.ln() + b * (1.0 - x).ln();
    logarithm.exp() / (a * fraction(x, a, b))
}

/// The continued fraction `1 + d_1 / (1 + d_2 / (1 + ...))` of the incomplete beta function, from the innermost term outwards.
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TERMS: u32 = 400;
    let term = |index: u32| {
        let m = f64::from(index / 2);
        if index.is_multiple_of(2) {
            m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m))
        } else {
            -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0))
        }
    };
    (1..=TERMS).rev().fold(1.0, |inner, index| 1.0 + term(index) / inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::f64::consts::PI;

    /// With one and two degrees of freedom the distribution has closed forms.
    #[test]
    fn closed_forms_agree() {
        for t in [0.1, 0.5, 1.0, 2.0, 5.0, 30.0] {
            let cauchy = 1.0 - 2.0 * f64::atan(t) / PI;
            let two = 1.0 - t / f64::sqrt(2.0 + t * t);
            assert!((two_sided(t, 1.0) - cauchy).abs() < 1e-12, "{t}");
            assert!((two_sided(-t, 2.0) - two).abs() < 1e-12, "{t}");
        }
    }

    /// The 97.5 % quantiles of every statistics textbook.
    #[test]
    fn textbook_quantiles_have_their_probability() {
        for (freedom, quantile) in [(3.0, 3.182_446), (10.0, 2.228_139), (30.0, 2.042_272), (1_000.0, 1.962_339)] {
            assert!((two_sided(quantile, freedom) - 0.05).abs() < 1e-6, "{freedom}");
        }
    }

    #[test]
    fn no_difference_is_certain_to_be_reached() {
        assert_eq!(two_sided(0.0, 4.2), 1.0);
    }
}
