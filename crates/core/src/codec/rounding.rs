//! Stochastic rounding by blocks: `x = s q`, where `q` is a whole number and `s` belongs to a block of 128 numbers.
//!
//! `x / s` is rounded up with the probability of what is above the whole number below it, so that the mean of `s q` is `x`. The scale is the largest number of the block by the largest whole number,
//! rounded up to 16 bits (bfloat16). A block is 2 bytes of scale and one byte, or half a byte, a number.
use fedeq_data::Seed;
use half::bf16;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

use super::bytes::Reader;
use super::float16::saturated;
use crate::error::{Error, Result};
use crate::params::Array;

/// Numbers with the same scale.
const BLOCK: usize = 128;
/// The largest whole numbers of 8 and of 4 bits.
const LEVELS: [i32; 2] = [127, 7];
/// Added to a whole number of 4 bits, so that none is negative.
const ZERO: i32 = 8;

/// Appends arrays with a byte a number.
pub(super) fn encode_bytes<'a>(arrays: impl Iterator<Item = &'a Array>, seed: Seed, bytes: &mut Vec<u8>) {
    each_block(arrays, LEVELS[0], seed, |scale, whole| {
        bytes.extend(scale.to_le_bytes());
        bytes.extend(whole.iter().map(|&whole| whole as i8 as u8));
    });
}

/// Appends arrays with half a byte a number.
pub(super) fn encode_nibbles<'a>(arrays: impl Iterator<Item = &'a Array>, seed: Seed, bytes: &mut Vec<u8>) {
    let nibble = |whole: Option<&i32>| (whole.copied().unwrap_or_default() + ZERO) as u8;
    each_block(arrays, LEVELS[1], seed, |scale, whole| {
        bytes.extend(scale.to_le_bytes());
        bytes.extend(whole.chunks(2).map(|pair| nibble(pair.first()) | nibble(pair.get(1)) << 4));
    });
}

fn each_block<'a>(arrays: impl Iterator<Item = &'a Array>, levels: i32, seed: Seed, mut write: impl FnMut(bf16, &[i32])) {
    let mut rng = seed.rng();
    let mut whole = Vec::with_capacity(BLOCK);
    for block in arrays.flat_map(|array| array.values.chunks(BLOCK)) {
        let scale = scale_of(block, levels);
        whole.clear();
        whole.extend(block.iter().map(|&value| rounded(value, scale, levels, &mut rng)));
        write(scale, &whole);
    }
}

/// The smallest scale of 16 bits with which no number is above the largest whole number.
fn scale_of(block: &[f32], levels: i32) -> bf16 {
    let largest = block.iter().fold(0.0f32, |most, value| most.max(value.abs()));
    let exact = f64::from(largest) / f64::from(levels);
    let near = bf16::from_f64(exact);
    if near.to_f64() < exact { bf16::from_bits(near.to_bits() + 1) } else { near }
}

fn rounded(value: f32, scale: bf16, levels: i32, rng: &mut ChaCha8Rng) -> i32 {
    if scale.to_bits() == 0 {
        return 0;
    }
    let chance = f64::from(rng.next_u32()) / 4_294_967_296.0;
    ((f64::from(value) / scale.to_f64() + chance).floor() as i32).clamp(-levels, levels)
}

/// Reads an array with a byte a number.
pub(super) fn decode_bytes(reader: &mut Reader<'_>, count: usize) -> Result<Vec<f32>> {
    blocks(count, |values, len| {
        let scale = read_scale(reader)?;
        for &byte in reader.take(len)? {
            values.push(value(i32::from(byte as i8), LEVELS[0], scale)?);
        }
        Ok(())
    })
}

/// Reads an array with half a byte a number.
pub(super) fn decode_nibbles(reader: &mut Reader<'_>, count: usize) -> Result<Vec<f32>> {
    blocks(count, |values, len| {
        let scale = read_scale(reader)?;
        let pairs = reader.take(len.div_ceil(2))?;
        let nibble = |at: usize| i32::from(pairs[at / 2] >> (4 * (at % 2)) & 15) - ZERO;
        for at in 0..len {
            values.push(value(nibble(at), LEVELS[1], scale)?);
        }
        if len % 2 == 1 && nibble(len) != 0 {
            return Err(Error::message("its last bits are not 0"));
        }
        Ok(())
    })
}

/// Room is made block by block, as far as there are bytes for it.
fn blocks(count: usize, mut read: impl FnMut(&mut Vec<f32>, usize) -> Result<()>) -> Result<Vec<f32>> {
    let mut values = Vec::new();
    while values.len() < count {
        let len = BLOCK.min(count - values.len());
        read(&mut values, len)?;
    }
    Ok(values)
}

fn read_scale(reader: &mut Reader<'_>) -> Result<f64> {
    let scale = bf16::from_le_bytes(reader.array()?);
    if scale.is_finite() && !scale.is_sign_negative() {
        Ok(scale.to_f64())
    } else {
        Err(Error::message(format!("its scale is `{scale}`")))
    }
}

fn value(whole: i32, levels: i32, scale: f64) -> Result<f32> {
    if whole.abs() <= levels {
        Ok(saturated(f64::from(whole) * scale))
    } else {
        Err(Error::message(format!("it holds the level `{whole}`")))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    type Encode = fn(&Array, Seed, &mut Vec<u8>);
    type Decode = fn(&mut Reader<'_>, usize) -> Result<Vec<f32>>;
    const BOTH: [(Encode, Decode, i32); 2] = [
        (|array, seed, bytes| encode_bytes(std::iter::once(array), seed, bytes), decode_bytes, LEVELS[0]),
        (|array, seed, bytes| encode_nibbles(std::iter::once(array), seed, bytes), decode_nibbles, LEVELS[1]),
    ];

    fn sent(values: &[f32], encode: Encode, decode: Decode, seed: u64) -> Vec<f32> {
        let mut bytes = Vec::new();
        encode(&Array::new(vec![values.len()], values.to_vec()), Seed::new(seed), &mut bytes);
        decode(&mut Reader::new(&bytes), values.len()).expect("readable")
    }

    proptest! {
        #[test]
        fn no_number_moves_by_more_than_a_step(values in prop::collection::vec(prop::num::f32::NORMAL | prop::num::f32::ZERO, 1..300), seed in any::<u64>()) {
            for (encode, decode, levels) in BOTH {
                let arrived = sent(&values, encode, decode, seed);
                for (block, arrived) in values.chunks(BLOCK).zip(arrived.chunks(BLOCK)) {
                    let largest = block.iter().fold(0.0f64, |most, value| most.max(f64::from(value.abs())));
                    let step = 1.01 * largest / f64::from(levels) + 0.5f64.powi(133);
                    for (&sent, &arrived) in block.iter().zip(arrived) {
                        prop_assert!((f64::from(sent) - f64::from(arrived)).abs() < step, "{sent:e} became {arrived:e}");
                    }
                }
            }
        }
    }

    /// With n draws the mean of an unbiased rounding is within 5 standard errors of `x`, but for one number in two million; a step has a variance of at most a quarter.
    #[test]
    fn the_mean_of_many_roundings_is_the_number() {
        let draws = 4000;
        let values: Vec<f32> = (0..40).map(|at| ((at * 37 % 41) as f32 - 20.0) * 0.013).collect();
        let largest = values.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        for (encode, decode, levels) in BOTH {
            let mut sums = vec![0.0f64; values.len()];
            for seed in 0..draws {
                let arrived = sent(&values, encode, decode, seed);
                sums.iter_mut().zip(arrived).for_each(|(sum, value)| *sum += f64::from(value));
            }
            let step = 1.01 * f64::from(largest) / f64::from(levels);
            let bound = 5.0 * 0.5 * step / (draws as f64).sqrt();
            for (&value, sum) in values.iter().zip(sums) {
                let mean = sum / draws as f64;
                assert!((mean - f64::from(value)).abs() < bound, "{mean} instead of {value}, {levels} levels");
            }
        }
    }

    #[test]
    fn bytes_are_those_of_scales_and_numbers() {
        let values = Array::new(vec![259], (0..259).map(|at| at as f32).collect());
        for ((encode, ..), expected) in BOTH.iter().zip([3 * 2 + 259, 3 * 2 + 64 + 64 + 2]) {
            let mut bytes = Vec::new();
            encode(&values, Seed::new(1), &mut bytes);
            assert_eq!(bytes.len(), expected);
        }
    }
}
