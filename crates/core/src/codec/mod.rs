//! Codecs: how a vector of parameters becomes few bytes, and which vector comes out of them.
//!
//! A codec is given the layout of the vector by both sides, so that bytes hold numbers and nothing else: no names, no shapes, no lengths that a sender could choose. What it decodes
//! has that layout and finite numbers, or is refused.
//!
//! # Layout
//! - this file: which codecs there are
//! - `float16`, `rounding` (`int8`, `int4`), `top_k`, `low_rank`: one each
//! - `statistics`: what belongs to normalisation layers, which every codec codes alike
//! - `bytes`: reading bytes and bits that may be anything
mod bytes;
mod float16;
mod low_rank;
mod rounding;
mod statistics;
mod top_k;

use fedeq_data::Seed;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::params::{Array, Params};
use crate::weights::Weights;

pub(crate) use bytes::Reader;

/// A way to write parameters, or differences of parameters, in fewer bytes.
///
/// | codec | bits a number | what is lost of `x` |
/// |---|---|---|
/// | `float16` | 16 | at most `2^-11 abs(x) + 2^-39 m`, where `m` is the largest of the array |
/// | `int8` | 8.13 | less than `1.01 m / 127`, where `m` is the largest of 128 neighbours; nothing on average |
/// | `int4` | 4.13 | less than `1.01 m / 7`, likewise |
/// | `{ top-k = share }` | share * (16 + about 1.5 - log2(share)) | all but the largest |
/// | `{ low-rank = r }` | 16 r (m + n) / (m n) of an m x n matrix | what lies outside of r directions |
///
/// ```
/// use fedeq_core::{Array, Codec, Params};
/// use fedeq_data::Seed;
///
/// let update: Params = [("cell.weight".into(), Array::new(vec![4], vec![0.5, -1.0, 0.25, 0.0]))].into_iter().collect();
/// let bytes = Codec::TopK(0.5).encode(&update, Seed::new(7));
/// let arrived = Codec::TopK(0.5).decode(&bytes, &update)?;
/// assert_eq!(*arrived.get("cell.weight").expect("the same layout").values, [0.5, -1.0, 0.0, 0.0]);
/// # Ok::<(), fedeq_core::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Codec {
    /// Numbers of 16 bits, with one exponent an array.
    Float16,
    /// Whole numbers from -127 to 127, with one scale for 128 of them, rounded up or down at random so that the mean is right.
    Int8,
    /// The same from -7 to 7.
    Int4,
    /// The share of all numbers that is largest, as `float16`, and where they are; the others count as 0.
    TopK(#[schemars(range(max = 1.0), extend("exclusiveMinimum" = 0))] f64),
    /// Matrices (of convolutions: one row an output channel) as a product of two of so many columns, as `float16`; other arrays, and matrices that would not be smaller, as `float16`.
    LowRank(#[schemars(range(min = 1, max = MOST_RANK))] usize),
}

/// A rank beyond which no matrix of a network is smaller as a product.
const MOST_RANK: usize = 1024;

impl Codec {
    /// Refuses settings that mean nothing; `name` is where this one stands.
    pub fn validate(self, name: &str) -> Result<()> {
        match self {
            Self::TopK(share) if !(share > 0.0 && share <= 1.0) => {
                Err(Error::invalid(format!("`{name}.top-k` is `{share}`"), "give a share above 0 and at most 1"))
            }
            Self::LowRank(rank) if !(1..=MOST_RANK).contains(&rank) => {
                Err(Error::invalid(format!("`{name}.low-rank` is `{rank}`"), format!("give a rank from 1 to {MOST_RANK}")))
            }
            _ => Ok(()),
        }
    }

    /// The bytes of some parameters, which must be finite. The seed decides how numbers are rounded at random, and where a search for directions begins.
    pub fn encode(self, params: &Params, seed: Seed) -> Vec<u8> {
        let mut bytes = Vec::new();
        let arrays = params.iter().map(|(_, array)| array);
        match self {
            Self::Float16 => arrays.for_each(|array| float16::encode(&array.values, &mut bytes)),
            Self::Int8 => rounding::encode_bytes(arrays, seed, &mut bytes),
            Self::Int4 => rounding::encode_nibbles(arrays, seed, &mut bytes),
            Self::TopK(share) => {
                top_k::encode(&arrays.flat_map(|array| array.values.iter().copied()).collect::<Vec<_>>(), share, &mut bytes)
            }
            Self::LowRank(rank) => low_rank::encode(arrays, rank, seed, &mut bytes),
        }
        bytes
    }

    /// What [`encode`](Self::encode) wrote, as far as it is still there. `like` has the layout that both sides know. Bytes that are not exactly that many numbers of this codec are refused.
    pub fn decode(self, bytes: &[u8], like: &Params) -> Result<Params> {
        let mut reader = Reader::new(bytes);
        let params = self.read(&mut reader, like)?;
        reader.end()?;
        Ok(params)
    }

    /// Reads as much as the parameters take.
    fn read(self, reader: &mut Reader<'_>, like: &Params) -> Result<Params> {
        match self {
            Self::Float16 => each(like, |array| float16::decode(reader, array.values.len())),
            Self::Int8 => each(like, |array| rounding::decode_bytes(reader, array.values.len())),
            Self::Int4 => each(like, |array| rounding::decode_nibbles(reader, array.values.len())),
            Self::TopK(share) => {
                let all = top_k::decode(reader, like.count(), share)?;
                let mut left = all.as_slice();
                each(like, |array| {
                    let (here, others) = left.split_at(array.values.len());
                    left = others;
                    Ok(here.to_vec())
                })
            }
            Self::LowRank(rank) => each(like, |array| low_rank::decode(reader, &array.shape, rank)),
        }
    }

    /// Parameters by this codec, and then statistics.
    pub(crate) fn encode_weights(self, params: &Params, statistics: &Params, seed: Seed) -> Vec<u8> {
        let mut bytes = self.encode(params, seed);
        statistics::encode(statistics, &mut bytes);
        bytes
    }

    /// What [`encode_weights`](Self::encode_weights) wrote.
    pub(crate) fn decode_weights(self, bytes: &[u8], like: &Weights) -> Result<Weights> {
        let mut reader = Reader::new(bytes);
        let params = self.read(&mut reader, &like.params)?;
        let statistics = statistics::decode(&mut reader, &like.statistics)?;
        reader.end()?;
        Ok(Weights { params, statistics })
    }
}

/// Arrays of the same layout, read one after the other.
fn each(like: &Params, mut read: impl FnMut(&Array) -> Result<Vec<f32>>) -> Result<Params> {
    like.iter().map(|(name, array)| Ok((name.to_owned(), Array::new(array.shape.clone(), read(array)?)))).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const ALL: [Codec; 7] =
        [Codec::Float16, Codec::Int8, Codec::Int4, Codec::TopK(0.1), Codec::TopK(1.0), Codec::LowRank(1), Codec::LowRank(3)];

    fn params(shapes: &[Vec<usize>], values: impl Fn(usize) -> f32) -> Params {
        let mut at = 0;
        let mut array = |(index, shape): (usize, &Vec<usize>)| {
            let count: usize = shape.iter().product();
            at += count;
            (format!("{index}"), Array::new(shape.clone(), (at - count..at).map(&values).collect()))
        };
        shapes.iter().enumerate().map(&mut array).collect()
    }

    fn finite() -> impl Strategy<Value = Vec<f32>> {
        let usual = prop::num::f32::NORMAL | prop::num::f32::SUBNORMAL | prop::num::f32::ZERO;
        prop::collection::vec(usual, 1..50)
    }

    proptest! {
        #[test]
        fn every_codec_gives_back_the_layout_with_finite_numbers_and_the_same_bytes_twice(
            shapes in prop::collection::vec(prop::collection::vec(0usize..9, 0..4), 0..4),
            values in finite(),
            seed in any::<u64>(),
        ) {
            let sent = params(&shapes, |at| values[at % values.len()]);
            for codec in ALL {
                let bytes = codec.encode(&sent, Seed::new(seed));
                prop_assert_eq!(&bytes, &codec.encode(&sent, Seed::new(seed)));
                let arrived = codec.decode(&bytes, &sent).expect("readable");
                arrived.ensure_like(&sent).expect("the same layout, and finite");
                if !bytes.is_empty() {
                    prop_assert!(codec.decode(&bytes[..bytes.len() - 1], &sent).is_err(), "cut short");
                }
                prop_assert!(codec.decode(&[&bytes[..], &[0]].concat(), &sent).is_err(), "too long");
            }
        }

        #[test]
        fn whatever_bytes_arrive_they_are_numbers_of_the_layout_or_refused(
            shapes in prop::collection::vec(prop::collection::vec(0usize..9, 0..4), 0..4),
            values in finite(),
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..8),
        ) {
            let sent = params(&shapes, |at| values[at % values.len()]);
            for codec in ALL {
                let mut bytes = codec.encode(&sent, Seed::new(1));
                if !bytes.is_empty() {
                    changes.iter().for_each(|(at, byte)| *at.get_mut(&mut bytes) = *byte);
                }
                if let Ok(arrived) = codec.decode(&bytes, &sent) {
                    arrived.ensure_like(&sent).expect("the same layout, and finite");
                }
            }
        }

        #[test]
        fn random_bytes_are_numbers_of_the_layout_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let like = params(&[vec![3, 4, 5], vec![17], vec![]], |_| 0.0);
            for codec in ALL {
                if let Ok(arrived) = codec.decode(&bytes, &like) {
                    arrived.ensure_like(&like).expect("the same layout, and finite");
                }
            }
        }
    }

    #[test]
    fn nothing_is_nothing() {
        for codec in ALL {
            assert!(codec.encode(&Params::default(), Seed::new(1)).is_empty());
            assert_eq!(codec.decode(&[], &Params::default()).expect("nothing"), Params::default());
        }
    }

    #[test]
    fn shares_and_ranks_that_mean_nothing_are_refused() {
        for bad in [Codec::TopK(0.0), Codec::TopK(1.5), Codec::TopK(f64::NAN), Codec::LowRank(0), Codec::LowRank(5000)] {
            let error = bad.validate("plan.compression.up").expect_err("refused").to_string();
            assert!(error.contains("`plan.compression.up."), "{error}");
        }
        assert!(ALL.iter().all(|codec| codec.validate("x").is_ok()));
    }
}
