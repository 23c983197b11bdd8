//! Numbers of 16 bits, with one exponent an array: `x = 2^e h`.
//!
//! The exponent puts the largest number below `2^15`, so that nothing overflows and small numbers keep their digits down to `2^-28` of the largest. An array is 2 bytes of exponent and 2 bytes a number;
//! an empty one is nothing.
use half::f16;

use super::bytes::Reader;
use crate::error::{Error, Result};

/// Where the largest number is put: from `2^14`, below `2^15`.
const TOP: i32 = 14;
/// The exponents of the smallest and the largest 32-bit float, shifted.
const EXPONENTS: std::ops::RangeInclusive<i32> = -149 - TOP..=127 - TOP;

/// Appends the bytes of some numbers.
pub(super) fn encode(values: &[f32], bytes: &mut Vec<u8>) {
    if values.is_empty() {
        return;
    }
    let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let exponent = if largest > 0.0 { exponent_of(f64::from(largest)) - TOP } else { 0 };
    bytes.extend((exponent as i16).to_le_bytes());
    let scale = power_of_two(-exponent);
    for &value in values {
        bytes.extend(f16::from_f64(f64::from(value) * scale).to_le_bytes());
    }
}

/// Reads so many numbers.
pub(super) fn decode(reader: &mut Reader<'_>, count: usize) -> Result<Vec<f32>> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let exponent = i32::from(i16::from_le_bytes(reader.array()?));
    if !EXPONENTS.contains(&exponent) {
        return Err(Error::message(format!("its exponent is `{exponent}`")));
    }
    let scale = power_of_two(exponent);
    let halves = reader.take(count.checked_mul(2).ok_or_else(|| Error::message("it holds too many numbers"))?)?;
    let value = |half: &[u8]| {
        let half = f16::from_le_bytes([half[0], half[1]]);
        if half.is_finite() {
            Ok(saturated(half.to_f64() * scale))
        } else {
            Err(Error::message("it holds a value that is not finite"))
        }
    };
    halves.chunks_exact(2).map(value).collect()
}

/// The number in single precision. The largest ones of all may have been rounded beyond it.
pub(super) fn saturated(value: f64) -> f32 {
    value.clamp(f64::from(f32::MIN), f64::from(f32::MAX)) as f32
}

/// `floor(log2(x))` of a normal number.
fn exponent_of(value: f64) -> i32 {
    (value.to_bits() >> 52 & 0x7ff) as i32 - 1023
}

/// `2^e`, exactly.
fn power_of_two(exponent: i32) -> f64 {
    f64::from_bits(((exponent + 1023) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_lost_is_within_the_bound(values in prop::collection::vec(prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO, 1..40)) {
            let mut bytes = Vec::new();
            encode(&values, &mut bytes);
            prop_assert_eq!(bytes.len(), 2 + 2 * values.len());
            let arrived = decode(&mut Reader::new(&bytes), values.len()).expect("readable");
            let largest = values.iter().fold(0.0f64, |most, value| most.max(f64::from(value.abs())));
            for (&sent, &arrived) in values.iter().zip(&arrived) {
                let (sent, arrived) = (f64::from(sent), f64::from(arrived));
                // The last term: single precision has no smaller numbers.
                let bound = sent.abs() / 2048.0 + largest * 0.5f64.powi(39) + 0.5f64.powi(150);
                prop_assert!((sent - arrived).abs() <= bound, "{sent:e} became {arrived:e}");
                prop_assert!(sent * arrived >= 0.0, "no number changes its sign");
            }
        }
    }
}
