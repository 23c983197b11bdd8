//! Numbers by their logarithms.

/// `ln(sum of exp(term))`, in the order given.
pub(super) fn log_sum(terms: impl IntoIterator<Item = f64>) -> f64 {
    let terms: Vec<f64> = terms.into_iter().collect();
    let largest = terms.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if largest.is_infinite() {
        return largest;
    }
    largest + libm::log(terms.into_iter().map(|term| libm::exp(term - largest)).sum())
}

/// `ln binomial(n, k)`.
pub(super) fn log_binomial(n: u32, k: u32) -> f64 {
    let log_factorial = |n: u32| libm::lgamma(f64::from(n) + 1.0);
    log_factorial(n) - log_factorial(k) - log_factorial(n - k)
}

/// `ln E[exp(f(t))]` of a standard normal number `t`, where nothing outside of `ranges` counts, by the trapezoidal rule: for what is smooth over many steps
/// its error is far below rounding.
pub(super) fn log_expectation(ranges: &[[f64; 2]], step: f64, f: impl Fn(f64) -> f64) -> f64 {
    let mut terms = Vec::new();
    let mut next = i64::MIN;
    for [from, to] in ranges {
        let points = next.max((from / step).floor() as i64)..=(to / step).ceil() as i64;
        next = points.end() + 1;
        terms.extend(points.map(|point| point as f64 * step).map(|t| f(t) - t * t / 2.0));
    }
    log_sum(terms) + libm::log(step) - 0.5 * libm::log(2.0 * std::f64::consts::PI)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_and_binomials_are_those_of_plain_numbers() {
        assert!((log_sum([2f64.ln(), 3f64.ln()]) - 5f64.ln()).abs() < 1e-15);
        assert_eq!(log_sum([f64::NEG_INFINITY, 1.0]), 1.0);
        assert_eq!(log_sum([]), f64::NEG_INFINITY);
        assert!((log_sum([-2_000.0, -2_000.0]) - (2f64.ln() - 2_000.0)).abs() < 1e-12);
        assert!((log_binomial(10, 4) - 210f64.ln()).abs() < 1e-12);
    }

    #[test]
    fn expectations_are_their_closed_forms() {
        // E[exp(a t)] = exp(a^2 / 2).
        for a in [0.0f64, 1.0, 30.0] {
            let found = log_expectation(&[[a - 12.0, a + 12.0]], 0.25, |t| a * t);
            assert!((found - a * a / 2.0).abs() < 1e-12, "{a}");
        }
        // Ranges that overlap count once.
        assert!(log_expectation(&[[-12.0, 3.0], [-3.0, 12.0]], 0.25, |_| 0.0).abs() < 1e-12);
    }
}
