//! Noise by clients under their masks: the distributed discrete Gaussian mechanism (Kairouz, Liu and Steinke 2021).
//!
//! Each client shortens its change to the bound `C`, rounds it to the steps of the ring so that it is no longer than `C` afterwards either, and adds Gaussian noise on the integers. Sums wrap
//! around the ring, which takes nothing from the promise: what the server sees is a function of the sum of whole numbers.
//!
//! The sum of `n` such noises of variance `s^2` (in steps) is nearly one of variance `n s^2`: by Proposition 14 of the paper, whatever the order `alpha` is, the Rényi divergence between sums whose
//! clients differ by `D` is at most `alpha / 2 (D / (sqrt(n) s) + tau sqrt(p))^2` for `p` parameters, where `tau = 10 sum_{k < n} exp(-2 pi^2 s^2 k / (k + 1))`. The Gaussian mechanism has
//! the same without `tau`. With `s >= 3`, which is demanded, `tau sqrt(p)` is below `10^-28` for any cohort and any network here: less than the account's own rounding, so that the
//! account of the Gaussian mechanism is the account of this one.
use fedeq_data::Seed;
use fedeq_secure::RingVector;

use super::{SecureAggregation, too_large_or_unfit, unfit};
use crate::error::{Error, Result};
use crate::privacy::{DiscreteGaussian, LARGEST_VARIANCE, NoiseShare};

/// The least deviation of one client's noise, in steps of the ring.
const LEAST_DEVIATION: f64 = 3.0;
/// So many deviations of its noise a sum stays within the ring: it leaves it with a probability below `10^-30`, and then it is wrong and not less private.
const MARGIN: f64 = 12.0;

/// What each client of a round adds, in steps of the ring.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct RingNoise {
    /// A step, as a change of a parameter.
    step: f64,
    /// No parameter changes by more than so many steps.
    most: f64,
    /// No change is longer than so many steps: `C`.
    bound: f64,
    /// The variance of one client's noise.
    variance: u64,
    /// What sums are divided by, whichever clients take part.
    denominator: f64,
    /// The fewest clients whose noise is as much as the account has.
    fewest: usize,
}

/// A client's vector with its noise, and how many of its numbers were beyond the clip.
pub(crate) struct NoisyVector {
    pub(crate) vector: RingVector,
    pub(crate) clipped: u64,
}

impl RingNoise {
    pub(crate) fn new(settings: &SecureAggregation, share: NoiseShare) -> Result<Self> {
        let NoiseShare { bound, deviation, denominator, fewest } = share;
        let most = f64::from((1u32 << (settings.precision_bits - 1)) - 1);
        let step = f64::from(settings.clip) / most;
        let steps = deviation / step;
        let problem = || {
            format!(
                "`plan.privacy` with `plan.secure_aggregation`: the noise of one client has a deviation of {steps:.3} steps of the ring"
            )
        };
        if steps < LEAST_DEVIATION {
            let remedy =
                "raise `plan.secure_aggregation.precision_bits`, or lower `plan.secure_aggregation.clip`: it takes 3 steps";
            return Err(Error::invalid(problem(), remedy));
        }
        if steps * steps > (LARGEST_VARIANCE - 1) as f64 {
            let remedy = "lower `plan.secure_aggregation.precision_bits`, or raise `plan.secure_aggregation.clip`";
            return Err(Error::invalid(problem(), remedy));
        }
        // Rounded up: never less than was promised.
        let variance = (steps * steps).ceil() as u64;
        Ok(Self { step, most, bound: bound / step, variance, denominator, fewest })
    }

    /// The fewest clients whose noise is as much as the account has.
    pub(crate) fn fewest(&self) -> usize {
        self.fewest
    }

    /// The standard deviation of the noise in every shared parameter, after a sum over so many clients.
    pub(crate) fn deviation(&self, clients: usize) -> f64 {
        self.step * (self.variance as f64 * clients as f64).sqrt() / self.denominator
    }

    /// Refuses vectors that steps are too coarse for: rounding could make them much longer than the bound.
    pub(crate) fn check_length(&self, parameters: usize) -> Result<()> {
        if longest_rounding(parameters) <= self.bound / 4.0 {
            return Ok(());
        }
        let problem = format!(
            "`plan.secure_aggregation` rounds {parameters} parameters to steps of {:.1e}, by up to {:.1e} in all, where `plan.privacy.clip` allows {:.1e}",
            self.step,
            self.step * longest_rounding(parameters),
            self.step * self.bound
        );
        Err(Error::invalid(problem, "raise `plan.secure_aggregation.precision_bits`, or lower `plan.secure_aggregation.clip`"))
    }

    /// The bits of the smallest ring that holds sums over so many clients.
    pub(crate) fn ring_bits(&self, clients: usize) -> Result<u8> {
        let clients = clients as f64;
        let largest = clients * self.most.min(self.bound).ceil() + MARGIN * (clients * self.variance as f64).sqrt();
        let bits = libm::log2(2.0 * largest + 1.0).ceil();
        if bits <= 32.0 {
            return Ok((bits as u8).max(2));
        }
        let problem =
            format!("`plan.secure_aggregation` with noise: sums over {clients} clients take {bits} bits, and a ring has 32");
        Err(Error::invalid(problem, "lower `plan.secure_aggregation.precision_bits`"))
    }

    /// A client's change with its noise, in the ring of so many clients. `seed` must be the client's secret, and serve once.
    pub(crate) fn encode(&self, changes: &[f32], clients: usize, seed: Seed) -> Result<NoisyVector> {
        self.check_length(changes.len())?;
        let bits = self.ring_bits(clients)?;
        let (steps, clipped) = self.steps(changes)?;
        let (noise, mut rng) = (DiscreteGaussian::new(self.variance), seed.rng());
        let noisy = self.rounded(steps).into_iter().map(|integer| integer + noise.draw(&mut rng));
        Ok(NoisyVector { vector: RingVector::wrapped(bits, noisy).map_err(unfit)?, clipped })
    }

    /// Changes in steps, none beyond the clip, and how many were.
    fn steps(&self, changes: &[f32]) -> Result<(Vec<f64>, u64)> {
        if let Some(index) = changes.iter().position(|change| !change.is_finite()) {
            let value = changes[index].to_string();
            return Err(too_large_or_unfit(fedeq_secure::Error::NotFinite { index, value }));
        }
        let steps = changes.iter().map(|change| f64::from(*change) / self.step);
        let clipped = steps.clone().filter(|steps| steps.abs() > self.most).count();
        Ok((steps.map(|steps| steps.clamp(-self.most, self.most)).collect(), clipped as u64))
    }

    /// Whole steps, together no longer than the bound. Rounding moves a vector by at most half a step in every coordinate: one that it makes too long is shortened by that much before.
    fn rounded(&self, steps: Vec<f64>) -> Vec<i64> {
        let norm = steps.iter().map(|steps| steps * steps).sum::<f64>().sqrt();
        let to = |length: f64| {
            let scale = if norm > length { length / norm } else { 1.0 };
            steps.iter().map(|steps| (steps * scale).round() as i64).collect::<Vec<i64>>()
        };
        let nearest = to(self.bound);
        if length(&nearest) <= self.bound { nearest } else { to(self.bound - longest_rounding(steps.len())) }
    }

    /// The change of every parameter, from a sum.
    pub(crate) fn decode(&self, sum: &RingVector) -> Vec<f32> {
        sum.centred().map(|integer| (integer as f64 * self.step / self.denominator) as f32).collect()
    }
}

/// How far rounding moves a vector, in steps.
fn longest_rounding(parameters: usize) -> f64 {
    (parameters as f64).sqrt() / 2.0
}

fn length(integers: &[i64]) -> f64 {
    // Whole numbers are summed as such.
    let squares: u128 = integers.iter().map(|integer| u128::from(integer.unsigned_abs()).pow(2)).sum();
    (squares as f64).sqrt()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SHARE: NoiseShare = NoiseShare { bound: 0.5, deviation: 0.25, denominator: 8.0, fewest: 6 };

    fn settings(precision_bits: u8) -> SecureAggregation {
        SecureAggregation { precision_bits, ..SecureAggregation::default() }
    }

    proptest! {
        /// What the account rests on: whatever a client trained, it moves the sum by no more than the bound.
        #[test]
        fn no_change_is_longer_than_the_bound_after_rounding(
            changes in prop::collection::vec(prop_oneof![-0.01f32..0.01, -2.0f32..2.0, Just(0.5), Just(-3e30)], 1..400),
            precision in 8u8..=24,
        ) {
            let noise = RingNoise::new(&settings(precision), SHARE).unwrap();
            prop_assume!(noise.check_length(changes.len()).is_ok());
            let (steps, _) = noise.steps(&changes).unwrap();
            let rounded = noise.rounded(steps.clone());
            prop_assert!(length(&rounded) <= noise.bound);
            let norm = steps.iter().map(|steps| steps * steps).sum::<f64>().sqrt();
            let scale = (noise.bound / norm).min(1.0);
            for (integer, steps) in rounded.iter().zip(&steps) {
                prop_assert!((*integer as f64 - steps * scale).abs() <= 0.5 + longest_rounding(changes.len()));
            }
        }
    }

    #[test]
    fn the_sum_has_the_noise_of_all_who_are_in_it_and_nothing_else() {
        const PARAMETERS: usize = 20_000;
        let noise = RingNoise::new(&settings(16), SHARE).unwrap();
        let change = |client: usize| vec![0.001 * client as f32; PARAMETERS];
        for clients in [6, 8] {
            let mut sum: Option<RingVector> = None;
            for client in 0..clients {
                let encoded = noise.encode(&change(client), 8, Seed::new(client as u64)).unwrap();
                assert_eq!(encoded.clipped, 0);
                match &mut sum {
                    Some(sum) => sum.add(&encoded.vector).unwrap(),
                    None => sum = Some(encoded.vector),
                }
            }
            let values = noise.decode(&sum.unwrap());
            let expected: f64 = (0..clients).map(|client| 0.001 * client as f64).sum::<f64>() / 8.0;
            let errors: Vec<f64> = values.iter().map(|value| f64::from(*value) - expected).collect();
            let (count, deviation) = (PARAMETERS as f64, noise.deviation(clients));
            let mean = errors.iter().sum::<f64>() / count;
            let measured = (errors.iter().map(|error| error * error).sum::<f64>() / count).sqrt();
            assert!((measured / deviation - 1.0).abs() < 5.0 / (2.0 * count).sqrt(), "{measured} {deviation}");
            assert!(mean.abs() < 5.0 * deviation / count.sqrt() + noise.step, "{mean}");
            // As many as are counted on have all of the noise, more have more.
            let promised = SHARE.deviation * 6f64.sqrt() / SHARE.denominator;
            assert!(deviation >= promised && deviation < 1.16 * promised);
        }
    }

    #[test]
    fn what_cannot_be_promised_is_refused_by_name() {
        let problem = |result: Result<RingNoise>| result.unwrap_err().to_string();
        assert!(problem(RingNoise::new(&settings(4), SHARE)).contains("steps of the ring"));
        let huge = NoiseShare { deviation: 1e4, ..SHARE };
        assert!(problem(RingNoise::new(&settings(24), huge)).contains("steps of the ring"));
        let noise = RingNoise::new(&settings(8), SHARE).unwrap();
        assert!(noise.check_length(1_000).is_ok() && noise.check_length(10_000).is_err());
        assert!(RingNoise::new(&settings(24), SHARE).unwrap().ring_bits(500).is_err());
        assert!(noise.encode(&[f32::NAN], 8, Seed::new(0)).is_err());
    }

    /// The bound of Proposition 14 beside the Gaussian mechanism's, for the least noise, the largest cohort and the longest vector.
    #[test]
    fn the_account_of_the_gaussian_mechanism_is_that_of_the_sum() {
        let (clients, parameters) = (65_534u32, f64::from(fedeq_secure::LONGEST_VECTOR));
        let term = |k: u32| (-2.0 * (std::f64::consts::PI * LEAST_DEVIATION).powi(2) * f64::from(k) / f64::from(k + 1)).exp();
        let tau: f64 = 10.0 * (1..clients).map(term).sum::<f64>();
        assert!(tau * parameters.sqrt() < 1e-28, "{tau}");
    }
}
