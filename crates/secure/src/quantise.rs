//! Real numbers as integers of a ring, so that their sum is exact.
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::ring::RingVector;

/// How vectors of real numbers become vectors of a ring.
///
/// With `h = 2^(precision_bits - 1) - 1` a value `x` becomes `round(clamp(x, -clip, clip) h / clip) + h`, an integer from 0 to `2h`, and zero
/// stays exactly zero. The sum over `n` clients is at most `2 h n`, and the ring is the smallest one that holds it for `clients`:
/// sums never wrap. A mean is off by at most `clip / (2h)` in each coordinate, plus the rounding to `f32`.
///
/// With `largest_weight` a client sends `weight / largest_weight * x` and, behind its values, the digits of its weight in base `2h + 1`, so that
/// the sum of weights is exact and a weighted mean can be taken. The weighted mean is off by at most
/// `clip / (2h) * n * largest_weight / (sum of weights)`: a largest weight far above what clients have costs precision.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quantisation {
    /// Values beyond this, on either side, are set to it.
    pub clip: f32,
    /// Bits of one client's value: 2 to 24.
    pub precision_bits: u8,
    /// The most clients whose vectors are summed.
    pub clients: u16,
    /// The largest weight of a client; without it all count the same.
    pub largest_weight: Option<u32>,
}

/// A client's vector, and how much of it was clipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QuantisedVector {
    /// What goes into the protocol.
    pub vector: RingVector,
    /// How many values were beyond the clip.
    pub clipped: usize,
}

/// What a sum says about its clients' values.
#[derive(Debug, Clone, PartialEq)]
pub struct QuantisedMean {
    /// The mean, weighted if there are weights.
    pub values: Vec<f32>,
    /// The sum of weights; the number of clients if there are none.
    pub total_weight: u64,
}

impl Quantisation {
    fn check(&self) -> Result<()> {
        if !(self.clip.is_finite() && self.clip > 0.0) {
            return Err(Error::setting("clip", format!("`{}` is not a number above zero", self.clip)));
        }
        if !(2..=24).contains(&self.precision_bits) {
            return Err(Error::setting("precision_bits", format!("`{}` is not from 2 to 24", self.precision_bits)));
        }
        if self.clients == 0 || self.largest_weight == Some(0) {
            return Err(Error::setting("clients", "at least one client, of a weight above zero, must be summed"));
        }
        if self.largest_sum() > u64::from(u32::MAX) {
            let (precision, clients) = (self.precision_bits, self.clients);
            return Err(Error::setting(
                "precision_bits",
                format!("sums of `{precision}` bits over {clients} clients take more than 32 bits"),
            ));
        }
        Ok(())
    }

    /// `h`: the largest integer on either side of zero.
    fn half(&self) -> u32 {
        (1 << (self.precision_bits - 1)) - 1
    }

    fn largest_sum(&self) -> u64 {
        2 * u64::from(self.half()) * u64::from(self.clients)
    }

    /// The bits of the smallest ring that holds every sum.
    pub fn ring_bits(&self) -> Result<u8> {
        self.check()?;
        let bits = u64::BITS - self.largest_sum().leading_zeros();
        Ok(u8::try_from(bits).expect("at most 32").max(2))
    }

    /// How many digits a weight has.
    fn digits(&self) -> usize {
        let Some(mut weight) = self.largest_weight else { return 0 };
        let mut digits = 0;
        while weight > 0 {
            weight /= 2 * self.half() + 1;
            digits += 1;
        }
        digits
    }

    /// How many numbers of the ring a vector of this length takes.
    pub fn ring_length(&self, values: usize) -> Result<usize> {
        self.check()?;
        Ok(values + self.digits())
    }

    /// A client's vector in the ring. `weight` is refused unless the settings have a `largest_weight`, and asked for if they have.
    pub fn encode(&self, values: &[f32], weight: Option<u32>) -> Result<QuantisedVector> {
        let bits = self.ring_bits()?;
        let share = self.share(weight)?;
        let (half, clip) = (f64::from(self.half()), f64::from(self.clip));
        let mut words = Vec::with_capacity(values.len() + self.digits());
        let mut clipped = 0;
        for (index, value) in values.iter().enumerate() {
            if !value.is_finite() {
                return Err(Error::NotFinite { index, value: value.to_string() });
            }
            clipped += usize::from(value.abs() > self.clip);
            let inside = f64::from(*value).clamp(-clip, clip) * share;
            // From 0 to 2h, which is exact in both kinds of number.
            words.push(((inside / clip * half).round() + half) as u32);
        }
        words.extend(self.weight_digits(weight.unwrap_or(0)));
        Ok(QuantisedVector { vector: RingVector::new(bits, words)?, clipped })
    }

    /// The part of its values that a client of some weight sends.
    fn share(&self, weight: Option<u32>) -> Result<f64> {
        match (self.largest_weight, weight) {
            (None, None) => Ok(1.0),
            (Some(largest), Some(weight)) if weight <= largest => Ok(f64::from(weight) / f64::from(largest)),
            (Some(largest), Some(weight)) => {
                Err(Error::setting("weight", format!("`{weight}` is above the largest weight {largest}")))
            }
            (Some(_), None) => Err(Error::setting("weight", "missing, and the sum is weighted")),
            (None, Some(weight)) => Err(Error::setting("weight", format!("`{weight}` in a sum without weights"))),
        }
    }

    fn weight_digits(&self, mut weight: u32) -> impl Iterator<Item = u32> {
        let base = 2 * self.half() + 1;
        (0..self.digits()).map(move |_| {
            let digit = weight % base;
            weight /= base;
            digit
        })
    }

    /// The mean of the vectors whose sum this is.
    pub fn decode_mean(&self, sum: &RingVector, clients: usize) -> Result<QuantisedMean> {
        let bits = self.ring_bits()?;
        let values = sum.len().checked_sub(self.digits()).ok_or(Error::Malformed("sum"))?;
        sum.fits(bits, values + self.digits())?;
        if clients == 0 || clients > usize::from(self.clients) {
            return Err(Error::setting(
                "clients",
                format!("a sum over `{clients}` clients where 1 to {} can be summed", self.clients),
            ));
        }
        let total_weight = self.total_weight(sum.values().skip(values), clients);
        if total_weight == 0 {
            return Err(Error::setting("weight", "no client has a weight above zero"));
        }
        let offset = clients as f64 * f64::from(self.half());
        let largest = f64::from(self.largest_weight.unwrap_or(1));
        let scale = f64::from(self.clip) / f64::from(self.half()) * largest / total_weight as f64;
        let mean = sum.values().take(values).map(|value| ((f64::from(value) - offset) * scale) as f32);
        Ok(QuantisedMean { values: mean.collect(), total_weight })
    }

    fn total_weight(&self, digits: impl Iterator<Item = u32>, clients: usize) -> u64 {
        if self.largest_weight.is_none() {
            return clients as u64;
        }
        let base = 2 * u64::from(self.half()) + 1;
        let mut unit = 1;
        digits.fold(0, |total, digit| {
            let total = total + unit * u64::from(digit);
            unit *= base;
            total
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sum(vectors: &[QuantisedVector]) -> RingVector {
        let mut sum = vectors[0].vector.clone();
        vectors[1..].iter().for_each(|other| sum.add(&other.vector).unwrap());
        sum
    }

    /// The claim that sums do not wrap, at its edge: all clients at the clip give the largest sum, which fits, and would not fit into one bit less.
    #[test]
    fn the_largest_sum_fits_into_the_ring_and_into_none_smaller() {
        for precision_bits in 2..=24 {
            for clients in [1, 2, 3, 10, 100, 127, 128, 129, 255, 256, 1000] {
                let quantisation = Quantisation { clip: 0.5, precision_bits, clients, largest_weight: None };
                let Ok(bits) = quantisation.ring_bits() else {
                    assert!((u64::from(clients) * ((1 << precision_bits) - 2)) >> 32 > 0);
                    continue;
                };
                let largest = quantisation.encode(&[0.5], None).unwrap().vector.values().next().unwrap();
                let smallest = quantisation.encode(&[-0.5], None).unwrap().vector.values().next().unwrap();
                assert_eq!((smallest, largest), (0, (1 << precision_bits) - 2));
                let sum = u64::from(largest) * u64::from(clients);
                assert!(sum < 1 << bits && (bits == 2 || sum >= 1 << (bits - 1)), "{precision_bits} bits, {clients} clients");
            }
        }
    }

    proptest! {
        #[test]
        fn a_mean_is_within_half_a_step_of_the_true_one(
            vectors in prop::collection::vec(prop::collection::vec(-1.5f32..1.5, 5), 1..20), precision_bits in 4u8..=24, clip in 0.1f32..2.0,
        ) {
            let quantisation = Quantisation { clip, precision_bits, clients: 20, largest_weight: None };
            let encoded: Vec<_> = vectors.iter().map(|values| quantisation.encode(values, None).unwrap()).collect();
            let mean = quantisation.decode_mean(&sum(&encoded), vectors.len()).unwrap();
            let step = f64::from(clip) / f64::from((1 << (precision_bits - 1)) - 1);
            for (index, value) in mean.values.iter().enumerate() {
                let clipped = vectors.iter().map(|values| f64::from(values[index].clamp(-clip, clip)));
                let expected = clipped.sum::<f64>() / vectors.len() as f64;
                prop_assert!((f64::from(*value) - expected).abs() <= step / 2.0 + 1e-6);
            }
        }

        #[test]
        fn a_weighted_mean_has_the_exact_weight_and_the_stated_error(
            clients in prop::collection::vec((prop::collection::vec(-1.0f32..1.0, 3), 1u32..100_000), 1..12),
        ) {
            let quantisation = Quantisation { clip: 1.0, precision_bits: 16, clients: 12, largest_weight: Some(100_000) };
            let encoded: Vec<_> = clients.iter().map(|(values, weight)| quantisation.encode(values, Some(*weight)).unwrap()).collect();
            let mean = quantisation.decode_mean(&sum(&encoded), clients.len()).unwrap();
            let total: u64 = clients.iter().map(|(_, weight)| u64::from(*weight)).sum();
            prop_assert_eq!(mean.total_weight, total);
            let bound = 0.5 / 32767.0 * clients.len() as f64 * 100_000.0 / total as f64 + 1e-6;
            for (index, value) in mean.values.iter().enumerate() {
                let expected = clients.iter().map(|(values, weight)| f64::from(values[index]) * f64::from(*weight)).sum::<f64>() / total as f64;
                prop_assert!((f64::from(*value) - expected).abs() <= bound, "{value} {expected} {bound}");
            }
        }
    }

    #[test]
    fn zero_stays_zero_and_what_is_clipped_is_counted() {
        let quantisation = Quantisation { clip: 1.0, precision_bits: 8, clients: 3, largest_weight: None };
        let encoded = quantisation.encode(&[0.0, -0.0, 3.0, -1.0, 1.0], None).unwrap();
        assert_eq!(encoded.clipped, 1);
        assert_eq!(encoded.vector.values().collect::<Vec<_>>(), [127, 127, 254, 0, 254]);
        assert_eq!(quantisation.decode_mean(&encoded.vector, 1).unwrap().values, [0.0, 0.0, 1.0, -1.0, 1.0]);
    }

    #[test]
    fn what_cannot_be_summed_is_refused() {
        let quantisation = Quantisation { clip: 1.0, precision_bits: 16, clients: 100, largest_weight: None };
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(matches!(quantisation.encode(&[0.0, bad], None), Err(Error::NotFinite { index: 1, .. })));
        }
        assert!(quantisation.encode(&[0.0], Some(1)).is_err());
        let weighted = Quantisation { largest_weight: Some(9), ..quantisation };
        assert!(weighted.encode(&[0.0], None).is_err() && weighted.encode(&[0.0], Some(10)).is_err());
        for bad in [
            Quantisation { clip: 0.0, ..quantisation },
            Quantisation { clip: f32::NAN, ..quantisation },
            Quantisation { precision_bits: 1, ..quantisation },
            Quantisation { precision_bits: 25, ..quantisation },
            Quantisation { precision_bits: 24, clients: 300, ..quantisation },
            Quantisation { clients: 0, ..quantisation },
            Quantisation { largest_weight: Some(0), ..quantisation },
        ] {
            assert!(matches!(bad.ring_bits(), Err(Error::Setting { .. })), "{bad:?}");
        }
        let sum = quantisation.encode(&[0.0], None).unwrap().vector;
        assert!(quantisation.decode_mean(&sum, 0).is_err() && quantisation.decode_mean(&sum, 101).is_err());
        let idle = weighted.encode(&[0.5], Some(0)).unwrap().vector;
        assert!(weighted.decode_mean(&idle, 1).is_err());
    }
}
