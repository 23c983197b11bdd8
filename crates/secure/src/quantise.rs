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
///
/// A few numbers of any size (counts, variances) can go along as *wide* ones: fixed-point numbers of 64 bits, from `-2^31` to `2^31` in steps of
/// `2^-32`, each in as many digits of the ring as that takes.
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
    /// The mean of the wide numbers, alike.
    pub wide: Vec<f64>,
    /// The sum of weights; the number of clients if there are none.
    pub total_weight: u64,
}

/// The largest wide number, the steps of a unit, and what zero is written as.
const WIDE_LIMIT: f64 = (1u64 << 31) as f64;
const WIDE_STEPS: f64 = (1u64 << 32) as f64;
const WIDE_ZERO: u128 = 1 << 63;

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

    /// Numbers are written in digits of this base, so that sums of digits do not wrap.
    fn base(&self) -> u32 {
        2 * self.half() + 1
    }

    /// How many digits numbers up to this one have.
    fn digits_of(&self, mut largest: u128) -> usize {
        let mut digits = 0;
        while largest > 0 {
            largest /= u128::from(self.base());
            digits += 1;
        }
        digits
    }

    /// How many digits a weight has.
    fn weight_digits(&self) -> usize {
        self.digits_of(self.largest_weight.unwrap_or(0).into())
    }

    /// How many digits a wide number has.
    fn wide_digits(&self) -> usize {
        self.digits_of(2 * WIDE_ZERO)
    }

    /// How many numbers of the ring a vector takes, with so many wide numbers beside it.
    pub fn ring_length(&self, values: usize, wide: usize) -> Result<usize> {
        self.check()?;
        Ok(values + wide * self.wide_digits() + self.weight_digits())
    }

    /// A client's vector in the ring, with wide numbers beside it. `weight` is refused unless the settings have a `largest_weight`, and asked for
    /// if they have.
    pub fn encode(&self, values: &[f32], wide: &[f64], weight: Option<u32>) -> Result<QuantisedVector> {
        let bits = self.ring_bits()?;
        let share = self.share(weight)?;
        let (half, clip) = (f64::from(self.half()), f64::from(self.clip));
        let mut words = Vec::with_capacity(self.ring_length(values.len(), wide.len())?);
        let mut clipped = 0;
        let mut within = |index: usize, value: f64, limit: f64| {
            if !value.is_finite() {
                return Err(Error::NotFinite { index, value: value.to_string() });
            }
            clipped += usize::from(value.abs() > limit);
            Ok(value.clamp(-limit, limit) * share)
        };
        for (index, value) in values.iter().enumerate() {
            // From 0 to 2h, which is exact in both kinds of number.
            words.push(((within(index, (*value).into(), clip)? / clip * half).round() + half) as u32);
        }
        for (index, value) in wide.iter().enumerate() {
            let steps = (within(values.len() + index, *value, WIDE_LIMIT)? * WIDE_STEPS).round() as i128;
            self.push_digits((WIDE_ZERO as i128 + steps) as u128, self.wide_digits(), &mut words);
        }
        self.push_digits(weight.unwrap_or(0).into(), self.weight_digits(), &mut words);
        Ok(QuantisedVector { vector: RingVector::new(bits, words)?, clipped })
    }

    /// The lowest first.
    fn push_digits(&self, mut number: u128, digits: usize, words: &mut Vec<u32>) {
        let base = u128::from(self.base());
        for _ in 0..digits {
            words.push((number % base) as u32);
            number /= base;
        }
    }

    /// The sum of numbers of which these are the sums of digits.
    fn number(&self, digits: &[u32]) -> u128 {
        digits.iter().rev().fold(0, |number, digit| number * u128::from(self.base()) + u128::from(*digit))
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

    /// The mean of the vectors whose sum this is, with so many wide numbers.
    pub fn decode_mean(&self, sum: &RingVector, wide: usize, clients: usize) -> Result<QuantisedMean> {
        let bits = self.ring_bits()?;
        let beside = wide.saturating_mul(self.wide_digits()).saturating_add(self.weight_digits());
        let values = sum.len().checked_sub(beside).ok_or(Error::Malformed("sum"))?;
        sum.fits(bits, values + beside)?;
        if clients == 0 || clients > usize::from(self.clients) {
            return Err(Error::setting(
                "clients",
                format!("a sum over `{clients}` clients where 1 to {} can be summed", self.clients),
            ));
        }
        let digits: Vec<u32> = sum.values().skip(values).collect();
        let (wide_digits, weight_digits) = digits.split_at(wide * self.wide_digits());
        let total_weight = match self.largest_weight {
            None => clients as u64,
            Some(_) => self.number(weight_digits) as u64,
        };
        if total_weight == 0 {
            return Err(Error::setting("weight", "no client has a weight above zero"));
        }
        let share = f64::from(self.largest_weight.unwrap_or(1)) / total_weight as f64;
        let offset = clients as f64 * f64::from(self.half());
        let scale = f64::from(self.clip) / f64::from(self.half()) * share;
        let zero = WIDE_ZERO as i128 * clients as i128;
        let wide =
            wide_digits.chunks(self.wide_digits()).map(|digits| (self.number(digits) as i128 - zero) as f64 / WIDE_STEPS * share);
        Ok(QuantisedMean {
            values: sum.values().take(values).map(|value| ((f64::from(value) - offset) * scale) as f32).collect(),
            wide: wide.collect(),
            total_weight,
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
                let largest = quantisation.encode(&[0.5], &[], None).unwrap().vector.values().next().unwrap();
                let smallest = quantisation.encode(&[-0.5], &[], None).unwrap().vector.values().next().unwrap();
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
            let encoded: Vec<_> = vectors.iter().map(|values| quantisation.encode(values, &[], None).unwrap()).collect();
            let mean = quantisation.decode_mean(&sum(&encoded), 0, vectors.len()).unwrap();
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
            let encoded: Vec<_> = clients.iter().map(|(values, weight)| quantisation.encode(values, &[], Some(*weight)).unwrap()).collect();
            let mean = quantisation.decode_mean(&sum(&encoded), 0, clients.len()).unwrap();
            let total: u64 = clients.iter().map(|(_, weight)| u64::from(*weight)).sum();
            prop_assert_eq!(mean.total_weight, total);
            let bound = 0.5 / 32767.0 * clients.len() as f64 * 100_000.0 / total as f64 + 1e-6;
            for (index, value) in mean.values.iter().enumerate() {
                let expected = clients.iter().map(|(values, weight)| f64::from(values[index]) * f64::from(*weight)).sum::<f64>() / total as f64;
                prop_assert!((f64::from(*value) - expected).abs() <= bound, "{value} {expected} {bound}");
            }
        }
    }

    proptest! {
        #[test]
        fn wide_numbers_of_any_size_keep_their_precision(
            clients in prop::collection::vec((prop::collection::vec(prop_oneof![-1e9f64..1e9, -1.0..1.0], 4), 1u32..1000), 1..9),
            precision_bits in 2u8..=24, weighted: bool,
        ) {
            let quantisation = Quantisation { clip: 1.0, precision_bits, clients: 9, largest_weight: weighted.then_some(1000) };
            let weight = |weight: u32| if weighted { weight } else { 1 };
            let encode = |(wide, given): &(Vec<f64>, u32)| {
                let encoded = quantisation.encode(&[0.5], wide, weighted.then_some(*given)).unwrap();
                assert_eq!((encoded.vector.len(), encoded.clipped), (quantisation.ring_length(1, 4).unwrap(), 0));
                encoded
            };
            let encoded: Vec<_> = clients.iter().map(encode).collect();
            let mean = quantisation.decode_mean(&sum(&encoded), 4, clients.len()).unwrap();
            let total: f64 = clients.iter().map(|(_, given)| f64::from(weight(*given))).sum();
            prop_assert_eq!(mean.total_weight, total as u64);
            for (index, value) in mean.wide.iter().enumerate() {
                let expected = clients.iter().map(|(wide, given)| wide[index] * f64::from(weight(*given))).sum::<f64>() / total;
                prop_assert!((value - expected).abs() < 1e-6, "{value} {expected}");
            }
        }
    }

    #[test]
    fn zero_stays_zero_and_what_is_clipped_is_counted() {
        let quantisation = Quantisation { clip: 1.0, precision_bits: 8, clients: 3, largest_weight: None };
        let encoded = quantisation.encode(&[0.0, -0.0, 3.0, -1.0, 1.0], &[], None).unwrap();
        assert_eq!(encoded.clipped, 1);
        assert_eq!(encoded.vector.values().collect::<Vec<_>>(), [127, 127, 254, 0, 254]);
        assert_eq!(quantisation.decode_mean(&encoded.vector, 0, 1).unwrap().values, [0.0, 0.0, 1.0, -1.0, 1.0]);
    }

    #[test]
    fn what_cannot_be_summed_is_refused() {
        let quantisation = Quantisation { clip: 1.0, precision_bits: 16, clients: 100, largest_weight: None };
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(matches!(quantisation.encode(&[0.0, bad], &[], None), Err(Error::NotFinite { index: 1, .. })));
        }
        assert!(quantisation.encode(&[0.0], &[], Some(1)).is_err());
        let weighted = Quantisation { largest_weight: Some(9), ..quantisation };
        assert!(weighted.encode(&[0.0], &[], None).is_err() && weighted.encode(&[0.0], &[], Some(10)).is_err());
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
        let sum = quantisation.encode(&[0.0], &[], None).unwrap().vector;
        assert!(quantisation.decode_mean(&sum, 0, 0).is_err() && quantisation.decode_mean(&sum, 0, 101).is_err());
        let idle = weighted.encode(&[0.5], &[], Some(0)).unwrap().vector;
        assert!(weighted.decode_mean(&idle, 0, 1).is_err());
    }
}
