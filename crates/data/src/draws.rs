//! Draws from the normal and the gamma distribution. `exp` and `ln` are `libm`'s, so that a seed gives the same bytes whatever C library a machine has.
use std::sync::LazyLock;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// How many layers of equal area the ziggurat has.
const LAYERS: usize = 256;
/// Where the lowest layer ends and the tail begins.
const TAIL: f64 = 3.654_152_885_361_009;
/// The area of every layer below `exp(-x^2 / 2)`, the lowest with the tail, in the digits that Doornik gives.
const AREA: f64 = 0.004_928_673_233_99;

static ZIGGURAT: LazyLock<Ziggurat> = LazyLock::new(Ziggurat::new);

/// `exp(-x^2 / 2)`.
fn density(x: f64) -> f64 {
    libm::exp(-x * x / 2.0)
}

/// A bell cut into layers of equal area, one on the other, the widest first.
struct Ziggurat {
    /// How wide each layer is; 0 above the last. The lowest is as wide as a rectangle of its area and height would be.
    width: [f64; LAYERS + 1],
    /// The density there.
    height: [f64; LAYERS + 1],
}

impl Ziggurat {
    fn new() -> Self {
        let mut width = [0.0; LAYERS + 1];
        (width[0], width[1]) = (AREA / density(TAIL), TAIL);
        for layer in 2..LAYERS {
            let below = width[layer - 1];
            width[layer] = (-2.0 * libm::log(AREA / below + density(below))).sqrt();
        }
        Self { width, height: width.map(density) }
    }
}

/// A number from 0 to below 1.
fn below_one(rng: &mut ChaCha8Rng) -> f64 {
    (rng.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
}

/// A number above 0, up to 1.
pub(crate) fn above_zero(rng: &mut ChaCha8Rng) -> f64 {
    ((rng.next_u64() >> 11) + 1) as f64 / (1_u64 << 53) as f64
}

/// A number above 0 and below 1.
fn between(rng: &mut ChaCha8Rng) -> f64 {
    (2 * (rng.next_u64() >> 12) + 1) as f64 / (1_u64 << 53) as f64
}

/// A draw from the normal distribution of mean 0 and deviation 1, by the ziggurat of Marsaglia and Tsang (2000) as Doornik (2005) has it: a point is drawn in a layer that is chosen at random; it is
/// taken where it lies under the bell, which nearly always shows without computing the bell.
pub fn standard_normal(rng: &mut ChaCha8Rng) -> f64 {
    let Ziggurat { width, height } = &*ZIGGURAT;
    loop {
        let bits = rng.next_u64();
        let layer = (bits % LAYERS as u64) as usize;
        let side = (bits >> 12) as f64 / (1_u64 << 51) as f64 - 1.0;
        let x = side * width[layer];
        if x.abs() < width[layer + 1] {
            return x;
        }
        if layer == 0 {
            return tail(rng).copysign(side);
        }
        if height[layer + 1] + (height[layer] - height[layer + 1]) * below_one(rng) < density(x) {
            return x;
        }
    }
}

/// A draw beyond the lowest layer (Marsaglia, 1964).
fn tail(rng: &mut ChaCha8Rng) -> f64 {
    loop {
        let beyond = -libm::log(between(rng)) / TAIL;
        let exponential = -libm::log(between(rng));
        if 2.0 * exponential >= beyond * beyond {
            return TAIL + beyond;
        }
    }
}

/// A draw from the gamma distribution of a shape of at least 1 and scale 1, by Marsaglia and Tsang (2000): the cube of a normal variate, `d (1 + c x)^3`, taken with the right probability.
///
/// # Panics
///
/// If the shape is below 1.
pub fn gamma(shape: f64, rng: &mut ChaCha8Rng) -> f64 {
    assert!(shape >= 1.0, "smaller shapes need another way");
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = standard_normal(rng);
        let root = 1.0 + c * x;
        if root <= 0.0 {
            continue;
        }
        let (v, square, u) = (root * root * root, x * x, between(rng));
        let is_surely = u < 1.0 - 0.0331 * square * square;
        if is_surely || libm::log(u) < 0.5 * square + d * (1.0 - v + libm::log(v)) {
            return v * d;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Seed;

    const DRAWS: usize = 200_000;

    fn draws(purpose: &str, draw: impl Fn(&mut ChaCha8Rng) -> f64) -> Vec<f64> {
        let mut rng = Seed::new(3).derive(purpose, []).rng();
        (0..DRAWS).map(|_| draw(&mut rng)).collect()
    }

    /// Kolmogorov's distance between draws and a distribution, in units of `1 / sqrt(n)`: above 1.95 by chance once in a thousand times.
    fn distance(mut draws: Vec<f64>, distribution: impl Fn(f64) -> f64) -> f64 {
        draws.sort_by(f64::total_cmp);
        let n = draws.len() as f64;
        let apart = |(rank, &x): (usize, &f64)| {
            let expected = distribution(x);
            (expected - rank as f64 / n).abs().max((expected - (rank + 1) as f64 / n).abs())
        };
        draws.iter().enumerate().map(apart).fold(0.0, f64::max) * n.sqrt()
    }

    /// The normal distribution by its error function.
    fn normal_distribution(x: f64) -> f64 {
        0.5 * libm::erfc(-x / std::f64::consts::SQRT_2)
    }

    /// The area beneath the bell from `x` on.
    fn beyond(x: f64) -> f64 {
        (std::f64::consts::PI / 2.0).sqrt() * libm::erfc(x / std::f64::consts::SQRT_2)
    }

    #[test]
    fn all_layers_of_the_ziggurat_have_the_same_area_and_fill_the_bell() {
        let Ziggurat { width, height } = &*ZIGGURAT;
        let lowest = TAIL * density(TAIL) + beyond(TAIL);
        assert!((lowest / AREA - 1.0).abs() < 1e-11, "{lowest}");
        for layer in 1..LAYERS {
            let area = width[layer] * (height[layer + 1] - height[layer]);
            assert!((area / AREA - 1.0).abs() < 1e-8, "layer {layer} has {area}");
        }
    }

    #[test]
    fn normal_draws_follow_the_error_function() {
        let found = draws("normal", standard_normal);
        let moment = |power: i32| found.iter().map(|x| x.powi(power)).sum::<f64>() / DRAWS as f64;
        // Five times the deviation of each mean: 1, 2, 15 and 96 are the variances of the powers.
        for (power, expected, variance) in [(1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0_f64)] {
            let allowed = 5.0 * (variance / DRAWS as f64).sqrt();
            assert!((moment(power) - expected).abs() < allowed, "moment {power} is {}", moment(power));
        }
        assert!(distance(found, normal_distribution) < 1.95);
    }

    #[test]
    fn the_tail_follows_the_error_function() {
        let found: Vec<f64> = draws("tail", tail);
        assert!(found.iter().all(|&x| x >= TAIL));
        assert!(distance(found, |x| 1.0 - beyond(x) / beyond(TAIL)) < 1.95);
    }

    #[test]
    fn both_sides_are_drawn_equally_often_beyond_the_lowest_layer() {
        let many = (0..20).flat_map(|part| draws(&format!("sides {part}"), standard_normal));
        let (mut left, mut right) = (0.0, 0.0);
        many.filter(|x| x.abs() > TAIL).for_each(|x| if x < 0.0 { left += 1.0 } else { right += 1.0 });
        let expected = 10.0 * DRAWS as f64 * libm::erfc(TAIL / std::f64::consts::SQRT_2);
        for side in [left, right] {
            assert!((side - expected).abs() < 4.0 * expected.sqrt(), "{left} and {right} of {expected} each");
        }
    }

    #[test]
    fn gamma_draws_follow_their_distribution() {
        // Shape 1, 2 and 5 are waiting times for so many events; 1.5 has the error function in it.
        let waiting = |events: u32, x: f64| {
            let mut term = 1.0;
            let mut fewer = 0.0;
            for event in 1..=events {
                fewer += term;
                term *= x / f64::from(event);
            }
            1.0 - libm::exp(-x) * fewer
        };
        for events in [1, 2, 5] {
            let found = draws("events", |rng| gamma(f64::from(events), rng));
            assert!(distance(found, |x| waiting(events, x)) < 1.95, "shape {events}");
        }
        let half = |x: f64| libm::erf(x.sqrt()) - (4.0 * x / std::f64::consts::PI).sqrt() * libm::exp(-x);
        assert!(distance(draws("half", |rng| gamma(1.5, rng)), half) < 1.95);
    }

    #[test]
    fn gamma_draws_have_their_shape_as_mean_and_variance() {
        for shape in [1.0001, 1.1, 1.7, 30.0, 1e6] {
            let found = draws("shape", |rng| gamma(shape, rng));
            let mean = found.iter().sum::<f64>() / DRAWS as f64;
            let variance = found.iter().map(|x| (x - mean) * (x - mean)).sum::<f64>() / DRAWS as f64;
            assert!((mean - shape).abs() < 5.0 * (shape / DRAWS as f64).sqrt(), "mean {mean} of {shape}");
            // The fourth central moment of a gamma distribution is 3 k^2 + 6 k.
            let allowed = 5.0 * ((2.0 * shape * shape + 6.0 * shape) / DRAWS as f64).sqrt();
            assert!((variance - shape).abs() < allowed, "variance {variance} of {shape}");
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_draws() {
        assert_eq!(draws("again", standard_normal), draws("again", standard_normal));
        assert_eq!(draws("again", |rng| gamma(1.3, rng)), draws("again", |rng| gamma(1.3, rng)));
        assert_ne!(draws("again", standard_normal), draws("other", standard_normal));
    }
}
