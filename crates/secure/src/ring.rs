//! Vectors of integers modulo a power of two: what is masked, sent and summed.
use frost_ristretto255::rand_core::RngCore;
use zeroize::Zeroizing;

use crate::error::{Error, Result, sized};
use crate::secrets::{Generator, Key};

/// Words of a mask that are drawn at once.
const BLOCK: usize = 1024;

/// A vector over the integers modulo `2^bits`, with `bits` from 2 to 32.
///
/// In memory each number has 32 bits, of which those above `bits` mean nothing: sums wrap at `2^32`, a multiple of `2^bits`. What is compared,
/// read or sent is reduced first.
#[derive(Debug, Clone)]
pub struct RingVector {
    bits: u8,
    words: Vec<u32>,
}

impl RingVector {
    /// A vector of these numbers, each below `2^bits`.
    pub fn new(bits: u8, words: Vec<u32>) -> Result<Self> {
        if !(2..=32).contains(&bits) {
            return Err(Error::setting("ring_bits", format!("`{bits}` is not from 2 to 32")));
        }
        let vector = Self { bits, words };
        match vector.words.iter().find(|word| **word > vector.largest()) {
            Some(word) => Err(Error::setting("ring_bits", format!("`{word}` does not fit into {bits} bits"))),
            None => Ok(vector),
        }
    }

    /// A vector of these integers, each reduced modulo `2^bits`.
    pub fn wrapped(bits: u8, integers: impl IntoIterator<Item = i64>) -> Result<Self> {
        let largest = Self::new(bits, Vec::new())?.largest();
        Self::new(bits, integers.into_iter().map(|integer| integer as u32 & largest).collect())
    }

    /// Its numbers as integers around zero, from `-2^(bits - 1)` to `2^(bits - 1) - 1`: those of [`wrapped`](Self::wrapped), where they are within.
    pub fn centred(&self) -> impl ExactSizeIterator<Item = i64> + '_ {
        let (half, whole) = (1i64 << (self.bits - 1), 1i64 << self.bits);
        self.values().map(move |value| if i64::from(value) < half { i64::from(value) } else { i64::from(value) - whole })
    }

    pub(crate) fn zero(bits: u8, length: usize) -> Self {
        Self { bits, words: vec![0; length] }
    }

    /// How many bits a number has.
    pub fn bits(&self) -> u8 {
        self.bits
    }

    /// How many numbers there are.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Its numbers, from zero to `2^bits - 1`.
    pub fn values(&self) -> impl ExactSizeIterator<Item = u32> + '_ {
        let largest = self.largest();
        self.words.iter().map(move |word| word & largest)
    }

    fn largest(&self) -> u32 {
        u32::MAX >> (32 - self.bits)
    }

    /// Adds another vector of the same ring and length.
    pub fn add(&mut self, other: &Self) -> Result<()> {
        self.fits(other.bits, other.len())?;
        for (sum, word) in self.words.iter_mut().zip(&other.words) {
            *sum = sum.wrapping_add(*word);
        }
        Ok(())
    }

    /// That this vector is of a ring and a length.
    pub(crate) fn fits(&self, bits: u8, length: usize) -> Result<()> {
        sized("ring", self.bits.into(), bits.into())?;
        sized("vector", self.len(), length)
    }

    pub(crate) fn add_mask(&mut self, key: &Key) {
        self.masked(key, u32::wrapping_add);
    }

    pub(crate) fn subtract_mask(&mut self, key: &Key) {
        self.masked(key, u32::wrapping_sub);
    }

    fn masked(&mut self, key: &Key, apply: impl Fn(u32, u32) -> u32) {
        let mut generator = Generator::new(key);
        let mut bytes = Zeroizing::new([0; 4 * BLOCK]);
        for block in self.words.chunks_mut(BLOCK) {
            let drawn = &mut bytes[..4 * block.len()];
            generator.fill_bytes(drawn);
            for (word, mask) in block.iter_mut().zip(drawn.as_chunks().0) {
                *word = apply(*word, u32::from_le_bytes(*mask));
            }
        }
    }

    /// The bytes that a packed vector takes.
    pub fn packed_len(bits: u8, length: usize) -> usize {
        (length * usize::from(bits)).div_ceil(8)
    }

    /// Its numbers one after another without gaps, each with `bits` bits, the lowest first; the last byte is filled up with zeros.
    pub fn pack(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(Self::packed_len(self.bits, self.len()) + 8);
        let (mut held, mut count) = (0u64, 0);
        for value in self.values() {
            held |= u64::from(value) << count;
            count += u32::from(self.bits);
            if count >= 32 {
                bytes.extend_from_slice(&(held as u32).to_le_bytes());
                held >>= 32;
                count -= 32;
            }
        }
        bytes.extend_from_slice(&held.to_le_bytes()[..count.div_ceil(8) as usize]);
        bytes
    }

    /// Reads what [`RingVector::pack`] wrote; refused where the size is another, or the last byte is not filled up with zeros.
    pub fn unpack(bits: u8, length: usize, bytes: &[u8]) -> Result<Self> {
        sized("packed vector", bytes.len(), Self::packed_len(bits, length))?;
        let mut vector = Self::zero(bits, length);
        let largest = vector.largest();
        let (mut held, mut count, mut next) = (0u64, 0, bytes.iter());
        for word in &mut vector.words {
            while count < u32::from(bits) {
                held |= u64::from(*next.next().expect("the size was checked")) << count;
                count += 8;
            }
            *word = held as u32 & largest;
            held >>= bits;
            count -= u32::from(bits);
        }
        if held == 0 { Ok(vector) } else { Err(Error::Malformed("packed vector")) }
    }
}

impl PartialEq for RingVector {
    fn eq(&self, other: &Self) -> bool {
        self.bits == other.bits && self.len() == other.len() && self.values().eq(other.values())
    }
}

impl Eq for RingVector {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn vectors() -> impl Strategy<Value = (u8, Vec<u32>)> {
        (2u8..=32, prop::collection::vec(any::<u32>(), 0..70)).prop_map(|(bits, words)| {
            let largest = u32::MAX >> (32 - bits);
            (bits, words.into_iter().map(|word| word & largest).collect())
        })
    }

    proptest! {
        #[test]
        fn packing_keeps_every_number_and_wastes_less_than_a_byte((bits, words) in vectors()) {
            let vector = RingVector::new(bits, words.clone()).unwrap();
            let bytes = vector.pack();
            prop_assert_eq!(bytes.len(), (words.len() * usize::from(bits)).div_ceil(8));
            let again = RingVector::unpack(bits, words.len(), &bytes).unwrap();
            prop_assert_eq!(again.values().collect::<Vec<_>>(), words);
        }

        #[test]
        fn a_mask_is_removed_by_the_same_key((bits, words) in vectors(), key: [u8; 32]) {
            let key = Zeroizing::new(key);
            let plain = RingVector::new(bits, words).unwrap();
            let mut masked = plain.clone();
            masked.add_mask(&key);
            let mut sent = RingVector::unpack(bits, plain.len(), &masked.pack()).unwrap();
            sent.subtract_mask(&key);
            prop_assert_eq!(sent, plain);
        }
    }

    #[test]
    fn bits_are_laid_out_lowest_first() {
        let vector = RingVector::new(3, vec![1, 2, 7]).unwrap();
        assert_eq!(vector.pack(), [0b1101_0001, 0b1]);
        assert_eq!(RingVector::unpack(3, 3, &[0b1101_0001, 0b11]), Err(Error::Malformed("packed vector")));
        assert_eq!(RingVector::unpack(3, 4, &[0; 3]), Err(Error::WrongSize { what: "packed vector", found: 3, expected: 2 }));
        assert!(RingVector::new(3, vec![8]).is_err() && RingVector::new(33, vec![]).is_err());
    }
}
