//! Where a fresh network's numbers come from: a seed, and the path of each parameter.
//!
//! Every parameter has its own stream of random numbers, told apart by its path, so its values depend on nothing but the seed
//! and its own name: not on the order of construction, not on threads, not on the machine.
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use serde::Serialize;

/// How the entries of a fresh parameter are drawn.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Initializer {
    /// Zero everywhere.
    Zeros,
    /// One everywhere.
    Ones,
    /// `N(0, deviation^2)`.
    Normal {
        /// The standard deviation.
        deviation: f64,
    },
    /// `N(0, deviation^2)` with everything beyond two deviations drawn again.
    TruncatedNormal {
        /// The standard deviation before truncation.
        deviation: f64,
    },
}

impl Initializer {
    /// The default of dense and convolutional layers: truncated, `deviation = 1 / sqrt(fan_in)`.
    pub(crate) fn fan_in(fan_in: usize) -> Self {
        Self::TruncatedNormal { deviation: 1.0 / (fan_in as f64).sqrt() }
    }

    /// Truncated, with the deviation raised so that the variance *after* truncation is `scale / fan_in`.
    pub(crate) fn variance_scaling(scale: f64, fan_in: usize) -> Self {
        /// The standard deviation of `N(0, 1)` truncated at two.
        const TRUNCATED_DEVIATION: f64 = 0.879_625_661_034_239_8;
        Self::TruncatedNormal { deviation: (scale / fan_in as f64).sqrt() / TRUNCATED_DEVIATION }
    }

    pub(crate) fn draw(self, count: usize, rng: ChaCha8Rng) -> Vec<f32> {
        let mut normal = Normal::new(rng);
        let mut next = || match self {
            Self::Zeros => 0.0,
            Self::Ones => 1.0,
            Self::Normal { deviation } => deviation * normal.next(),
            Self::TruncatedNormal { deviation } => deviation * normal.next_within(2.0),
        };
        (0..count).map(|_| next() as f32).collect()
    }
}

/// Standard normal numbers that depend on nothing but the seed and the name.
pub fn normal_numbers(seed: u64, name: &str, count: usize) -> Vec<f32> {
    Initializer::Normal { deviation: 1.0 }.draw(count, stream(seed, name))
}

/// The random numbers that belong to `name` under `seed`.
pub(crate) fn stream(seed: u64, name: &str) -> ChaCha8Rng {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    rng.set_stream(fingerprint(name));
    rng
}

/// The key of the random numbers under `seed`, as ChaCha has it.
pub(crate) fn key(seed: u64) -> [u32; 8] {
    let bytes = ChaCha8Rng::seed_from_u64(seed).get_seed();
    std::array::from_fn(|word| u32::from_le_bytes(std::array::from_fn(|byte| bytes[4 * word + byte])))
}

/// 64-bit FNV-1a; tells the streams of random numbers apart.
pub(crate) fn fingerprint(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A number in `[0, 1)` with 53 random bits.
pub(crate) fn uniform(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64
}

/// Standard normal numbers by Marsaglia's polar method.
///
/// The logarithm comes from `libm`, which is the same code everywhere, and the square root is exact by IEEE 754: a seed means
/// the same weights on a server and on a device.
struct Normal {
    rng: ChaCha8Rng,
    spare: Option<f64>,
}

impl Normal {
    fn new(rng: ChaCha8Rng) -> Self {
        Self { rng, spare: None }
    }

    fn next(&mut self) -> f64 {
        self.spare.take().unwrap_or_else(|| self.draw_pair())
    }

    fn next_within(&mut self, bound: f64) -> f64 {
        loop {
            let value = self.next();
            if value.abs() <= bound {
                return value;
            }
        }
    }

    fn draw_pair(&mut self) -> f64 {
        loop {
            let u = 2.0 * uniform(&mut self.rng) - 1.0;
            let v = 2.0 * uniform(&mut self.rng) - 1.0;
            let s = u * u + v * v;
            if s > 0.0 && s < 1.0 {
                let factor = (-2.0 * libm::log(s) / s).sqrt();
                self.spare = Some(v * factor);
                return u * factor;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moments(init: Initializer) -> (f64, f64, f64) {
        let values = init.draw(200_000, stream(7, "moments"));
        let n = values.len() as f64;
        let mean = values.iter().map(|&x| f64::from(x)).sum::<f64>() / n;
        let variance = values.iter().map(|&x| (f64::from(x) - mean).powi(2)).sum::<f64>() / n;
        let largest = values.iter().fold(0.0, |most: f64, &x| most.max(f64::from(x).abs()));
        (mean, variance.sqrt(), largest)
    }

    #[test]
    fn a_normal_initializer_has_its_mean_and_deviation() {
        let (mean, deviation, largest) = moments(Initializer::Normal { deviation: 0.01 });
        assert!(mean.abs() < 1e-4, "{mean}");
        assert!((deviation - 0.01).abs() < 1e-4, "{deviation}");
        assert!(largest > 0.035, "{largest}");
    }

    #[test]
    fn a_truncated_initializer_stops_at_two_deviations_and_keeps_88_percent_of_the_deviation() {
        let (mean, deviation, largest) = moments(Initializer::fan_in(25));
        assert!(mean.abs() < 2e-3, "{mean}");
        assert!((deviation - 0.2 * 0.8796).abs() < 1e-3, "{deviation}");
        assert!(largest <= 0.4 && largest > 0.399, "{largest}");
    }

    #[test]
    fn variance_scaling_makes_up_for_the_truncation() {
        let (_, deviation, _) = moments(Initializer::variance_scaling(1.0, 64));
        assert!((deviation - 0.125).abs() < 1e-3, "{deviation}");
    }

    #[test]
    fn streams_of_different_names_and_seeds_differ() {
        let first = |seed, name| stream(seed, name).next_u64();
        assert_eq!(first(1, "a"), first(1, "a"));
        assert_ne!(first(1, "a"), first(1, "b"));
        assert_ne!(first(1, "a"), first(2, "a"));
    }
}
