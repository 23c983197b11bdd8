//! So many clients out of all, none twice: Wang, Balle, Kasiviswanathan, "Subsampled Rényi differential privacy and analytical moments accountant", 2019.
use super::logarithm::{log_binomial, log_expectation, log_sum};

/// Beyond this order the simpler of two bounds is taken for every term.
const TIGHT: usize = 256;

/// A share of all clients is drawn; a client that is replaced by another moves a sum by 1, with noise of deviation `sigma`.
pub(super) struct Sampled {
    share: f64,
    /// `1 / sigma`.
    distance: f64,
    /// [`log_central_moment`] of 0, 2, 4 and so on.
    moments: Vec<f64>,
}

impl Sampled {
    pub(super) fn new(share: f64, sigma: f64) -> Self {
        let distance = 1.0 / sigma;
        let needed = if share > 0.0 && share < 1.0 { TIGHT / 2 } else { 0 };
        let moments = (0..=needed).map(|half| log_central_moment(2 * half, distance)).collect();
        Self { share, distance, moments }
    }

    /// The divergence of an order. `(order - 1)` times it is convex in the order, so between whole orders it lies below a straight line (their Corollary 10).
    pub(super) fn divergence(&self, order: f64) -> f64 {
        let plain = order * self.distance * self.distance / 2.0;
        if self.share == 0.0 || self.share == 1.0 {
            return self.share * plain;
        }
        let (lower, between) = (order.floor(), order.fract());
        let mut log_moment = self.log_moment(lower as u32);
        if between > 0.0 {
            log_moment += between * (self.log_moment(lower as u32 + 1) - log_moment);
        }
        // Not to tell who takes part never costs anything, though the bound may say so for large shares.
        (log_moment / (order - 1.0)).min(plain)
    }

    /// Their Theorem 27 for a whole order:
    /// `ln(1 + sum_{j >= 2} share^j binomial(order, j) min(4 sqrt(B(2 floor(j/2)) B(2 ceil(j/2))), 2 exp(j (j - 1) / (2 sigma^2))))`.
    fn log_moment(&self, order: u32) -> f64 {
        let term = |j: u32| f64::from(j) * libm::log(self.share) + log_binomial(order, j) + self.worst(j);
        log_sum([0.0].into_iter().chain((2..=order).map(term)))
    }

    fn worst(&self, j: u32) -> f64 {
        let power = f64::from(j);
        let simple = libm::log(2.0) + power * (power - 1.0) * self.distance * self.distance / 2.0;
        match (self.moments.get(j as usize / 2), self.moments.get(j.div_ceil(2) as usize)) {
            (Some(lower), Some(upper)) => simple.min(libm::log(4.0) + 0.5 * (lower + upper)),
            _ => simple,
        }
    }
}

/// `ln B(power)`, `B(power) = E_q[(p / q - 1)^power]` of an even power, for two normal distributions `p` and `q` of deviation 1 at this distance.
///
/// It is a sum of alternating exponentials, which cancel to the last digit where the distance is small; so it is integrated instead, over where there is
/// anything: the integrand is nowhere negative, and on either side of its zero its logarithm is concave with a curvature of at least 1.
fn log_central_moment(power: usize, distance: f64) -> f64 {
    if power == 0 {
        return 0.0;
    }
    let (power, zero) = (power as f64, distance / 2.0);
    let log_ratio = |t: f64| {
        let exponent = distance * (t - zero);
        if exponent > 0.0 { exponent + libm::log(-libm::expm1(-exponent)) } else { libm::log(-libm::expm1(exponent)) }
    };
    // Where the derivative is zero, on either side.
    let slope = |t: f64| power * distance / -libm::expm1(-distance * (t - zero)) - t;
    let left = bisected(-power.sqrt() - 1.0, 0.0, slope);
    let right = bisected(zero, zero.max(power * distance) + power.sqrt() + 1.0, slope);
    log_expectation(&[left, right].map(|peak| [peak - REACH, peak + REACH]), STEP, |t| power * log_ratio(t))
}

/// Beyond this distance from a peak, less than `exp(-72)` of it is left.
const REACH: f64 = 12.0;
/// A small part of the narrowest peak.
const STEP: f64 = 0.05;

/// Where a falling function is zero.
fn bisected(mut from: f64, mut to: f64, value: impl Fn(f64) -> f64) -> f64 {
    for _ in 0..60 {
        let middle = 0.5 * (from + to);
        if value(middle) > 0.0 { from = middle } else { to = middle }
    }
    0.5 * (from + to)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn central_moments_are_their_closed_forms_where_these_do_not_cancel() {
        for distance in [0.5f64, 1.0, 2.0, 5.0] {
            let moment = |power: i32| (f64::from(power * (power - 1)) * distance * distance / 2.0).exp();
            let second = moment(2) - 1.0;
            let fourth = moment(4) - 4.0 * moment(3) + 6.0 * moment(2) - 3.0;
            for (power, expected) in [(2, second), (4, fourth)] {
                let found = log_central_moment(power, distance);
                assert!((found - expected.ln()).abs() < 1e-9, "{power} {distance}: {found} and {}", expected.ln());
            }
        }
        // For a small distance, (p / q - 1) is distance times a standard normal number, to first order.
        for (power, odd_factorial) in [(2, 1.0f64), (4, 3.0), (6, 15.0), (8, 105.0)] {
            let expected = odd_factorial.ln() + power as f64 * 1e-4f64.ln();
            assert!((log_central_moment(power, 1e-4) - expected).abs() < 1e-5, "{power}");
        }
    }
}
