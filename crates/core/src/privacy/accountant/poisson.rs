//! Poisson sampling, every client takes part independently: Mironov, Talwar, Zhang, "Rényi differential privacy of the sampled Gaussian mechanism", 2019.
use super::logarithm::{log_binomial, log_expectation, log_sum};

/// Less noise than this protects nothing, sampled or not: what sampling gains is then left out.
const LEAST_NOISE: f64 = 0.05;

/// The divergence of an order, for a client that takes part with probability `rate` and then moves a sum by 1, with noise of deviation `sigma`.
///
/// With `p = N(0, sigma^2)` and `m = (1 - rate) N(0, sigma^2) + rate N(1, sigma^2)` it is `ln A / (order - 1)`, `A = E_p[(m / p)^order]`; the divergence the
/// other way round is no larger (their Theorem 5).
pub(super) fn divergence(rate: f64, sigma: f64, order: f64) -> f64 {
    let plain = order / (2.0 * sigma * sigma);
    if rate == 0.0 {
        return 0.0;
    }
    if rate == 1.0 || sigma < LEAST_NOISE {
        return plain;
    }
    let moment = if order.fract() == 0.0 { whole(rate, sigma, order as u32) } else { fractional(rate, sigma, order) };
    // Not to tell who takes part never costs anything: rounding must not either.
    (moment / (order - 1.0)).clamp(0.0, plain)
}

/// `A = sum_i binomial(order, i) (1 - rate)^(order - i) rate^i exp((i^2 - i) / (2 sigma^2))`.
fn whole(rate: f64, sigma: f64, order: u32) -> f64 {
    let [taking, missing] = [libm::log(rate), libm::log1p(-rate)];
    let term = |i: u32| {
        let (power, rest) = (f64::from(i), f64::from(order - i));
        log_binomial(order, i) + power * taking + rest * missing + (power * power - power) / (2.0 * sigma * sigma)
    };
    log_sum((0..=order).map(term))
}

/// The same expectation by quadrature: their two series (section 3.3) converge slowly, or not at all, for rates of about a half.
fn fractional(rate: f64, sigma: f64, order: f64) -> f64 {
    let distance = 1.0 / sigma;
    let [taking, missing] = [libm::log(rate), libm::log1p(-rate)];
    // ln(m / p) at `sigma t`: the larger of two exponents, and a little more.
    let log_ratio = |t: f64| {
        let shifted = taking + distance * t - distance * distance / 2.0;
        shifted.max(missing) + libm::log1p(libm::exp(-(shifted - missing).abs()))
    };
    // The two exponents change places within a few times sigma, and all weight lies between the two means that a power of either gives.
    log_expectation(&[[-REACH, order * distance + REACH]], 0.25 * sigma.min(1.0), |t| order * log_ratio(t))
}

/// Beyond this distance from a mean, less than `exp(-72)` is left.
const REACH: f64 = 12.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quadrature_is_the_sum_where_the_order_is_whole() {
        for (rate, sigma) in [(0.0001, 0.06), (0.01, 1.0), (0.1, 0.3), (0.3, 0.8), (0.5, 5.0), (0.9, 30.0)] {
            for order in [2, 3, 5, 8, 10] {
                let (sum, integral) = (whole(rate, sigma, order), fractional(rate, sigma, f64::from(order)));
                assert!((sum - integral).abs() < 1e-12 + 1e-9 * sum, "{rate} {sigma} {order}: {sum} and {integral}");
            }
        }
    }
}
