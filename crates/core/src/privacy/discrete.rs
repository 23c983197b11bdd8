//! Gaussian noise on the integers: `P[x]` proportional to `exp(-x^2 / (2 sigma^2))`.
//!
//! Drawn exactly, by integers alone (Canonne, Kamath and Steinke 2020, Algorithms 1 to 3), so that what is proved of the distribution holds of the numbers: there is no last bit that
//! leaks, as there is in floating-point noise (Mironov 2012). Published crates for it draw by fractions of any size, which takes too long for a number for every parameter.
use rand_chacha::rand_core::Rng;

/// The largest variance: beyond it the products below would not fit into 128 bits.
pub(crate) const LARGEST_VARIANCE: u64 = 1 << 48;

/// The discrete Gaussian distribution around zero.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DiscreteGaussian {
    /// `sigma^2`, at most [`LARGEST_VARIANCE`].
    variance: u64,
    /// The scale of the discrete Laplace distribution that candidates are drawn from: above `sigma` by at most one.
    scale: u64,
}

impl DiscreteGaussian {
    /// With this `sigma^2`, of which it is a whole number.
    pub(crate) fn new(variance: u64) -> Self {
        debug_assert!(variance <= LARGEST_VARIANCE);
        Self { variance, scale: variance.isqrt() + 1 }
    }

    /// Draws a number.
    pub(crate) fn draw(&self, rng: &mut impl Rng) -> i64 {
        let (variance, scale) = (u128::from(self.variance), u128::from(self.scale));
        loop {
            let candidate = laplace(self.scale, rng);
            // Kept with probability exp(-(|y| - sigma^2 / t)^2 / (2 sigma^2)), the fraction made whole by t^2.
            let distance = (scale * u128::from(candidate.unsigned_abs())).abs_diff(variance);
            if happens_by_exponential(distance * distance, 2 * variance * scale * scale, rng) {
                return candidate;
            }
        }
    }
}

/// A number of the discrete Laplace distribution: `P[x]` proportional to `exp(-|x| / scale)`.
fn laplace(scale: u64, rng: &mut impl Rng) -> i64 {
    loop {
        let rest = below(scale.into(), rng);
        if !happens_by_exponential(rest, scale.into(), rng) {
            continue;
        }
        // More than 64 in a row, each with probability 1 / e, are never seen; the bound keeps products within 128 bits.
        let whole = (0..64u64).take_while(|_| happens_by_fraction(1, 1, rng)).count() as u64;
        let size = (rest as u64 + scale * whole) as i64;
        match rng.next_u32() & 1 {
            0 => return size,
            _ if size > 0 => return -size,
            _ => {} // Zero would be drawn twice as often.
        }
    }
}

/// True with probability `exp(-number / unit)`.
fn happens_by_exponential(number: u128, unit: u128, rng: &mut impl Rng) -> bool {
    (0..number / unit).all(|_| happens_by_fraction(1, 1, rng)) && happens_by_fraction(number % unit, unit, rng)
}

/// True with probability `exp(-number / unit)`, for at most one.
fn happens_by_fraction(number: u128, unit: u128, rng: &mut impl Rng) -> bool {
    let failed = (1u128..).find(|step| below(unit * step, rng) >= number).unwrap_or(1);
    failed % 2 == 1
}

/// A number from zero to below a limit, each with the same probability.
fn below(limit: u128, rng: &mut impl Rng) -> u128 {
    let mask = u128::MAX >> (limit - 1).leading_zeros().min(127);
    loop {
        let low = u128::from(rng.next_u64());
        let drawn = if mask > u128::from(u64::MAX) { low | u128::from(rng.next_u64()) << 64 } else { low } & mask;
        if drawn < limit {
            return drawn;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fedeq_data::Seed;

    use super::*;

    fn drawn(variance: u64, count: usize) -> Vec<i64> {
        let (noise, mut rng) = (DiscreteGaussian::new(variance), Seed::new(variance).rng());
        (0..count).map(|_| noise.draw(&mut rng)).collect()
    }

    /// Against the distribution's own formula, by a chi-squared test.
    #[test]
    fn every_integer_is_as_frequent_as_the_formula_says() {
        const COUNT: usize = 100_000;
        for variance in [1u64, 3, 20] {
            let mut seen: BTreeMap<i64, f64> = BTreeMap::new();
            drawn(variance, COUNT).into_iter().for_each(|number| *seen.entry(number).or_default() += 1.0);
            let weight = |x: i64| (-((x * x) as f64) / (2.0 * variance as f64)).exp();
            let all: f64 = (-200..=200).map(weight).sum();
            let expected = |x: i64| COUNT as f64 * weight(x) / all;
            let common: Vec<i64> = (-200..=200).filter(|x| expected(*x) >= 10.0).collect();
            let terms = common.iter().map(|x| (seen.get(x).copied().unwrap_or(0.0) - expected(*x)).powi(2) / expected(*x));
            let (squared, freedom) = (terms.sum::<f64>(), common.len() as f64);
            assert!(squared < freedom + 5.0 * (2.0 * freedom).sqrt(), "{variance}: {squared} for {freedom}");
        }
    }

    #[test]
    fn large_noise_has_its_variance_and_no_mean() {
        const COUNT: usize = 20_000;
        for variance in [1_000_003, 1 << 40, LARGEST_VARIANCE] {
            let numbers = drawn(variance, COUNT);
            let (count, sigma) = (COUNT as f64, (variance as f64).sqrt());
            let mean = numbers.iter().map(|number| *number as f64).sum::<f64>() / count;
            let squares = numbers.iter().map(|number| (*number as f64).powi(2)).sum::<f64>() / count;
            assert!(mean.abs() < 5.0 * sigma / count.sqrt(), "{mean}");
            assert!((squares / variance as f64 - 1.0).abs() < 5.0 * (2.0 / count).sqrt(), "{squares} {variance}");
        }
    }

    #[test]
    fn numbers_below_a_limit_are_all_drawn() {
        let mut rng = Seed::new(1).rng();
        for limit in [1u128, 2, 3, 7] {
            let mut counts = vec![0; limit as usize];
            (0..7_000).for_each(|_| counts[below(limit, &mut rng) as usize] += 1);
            let expected = 7_000.0 / limit as f64;
            assert!(counts.iter().all(|count| (f64::from(*count) - expected).abs() < 5.0 * expected.sqrt()), "{counts:?}");
        }
        assert!((0..100).any(|_| below(1 << 90, &mut rng) > u128::from(u64::MAX)));
    }
}
