//! The largest numbers and where they are; the others count as 0.
//!
//! How many there are follows from the share and the number of all, which both sides know. Places are written as the numbers of places between them, by a Rice code: the quotient by `2^b` as that many ones
//! and a zero, the rest in `b` bits. With the `b` chosen this is about `1.5 - log2(share)` bits a place, within a few percent of what is possible for places drawn at random.
//! The numbers follow as `float16`.
use super::bytes::{BitReader, BitWriter, Reader};
use super::float16;
use crate::error::{Error, Result};

/// How many of so many are sent: at least one.
fn kept(count: usize, share: f64) -> usize {
    ((share * count as f64).ceil() as usize).clamp(count.min(1), count)
}

/// The Rice code's `b`: the largest with `2^b <= 0.7 count / kept`, in whole numbers so that both sides agree everywhere.
fn rice_bits(count: usize, kept: usize) -> u32 {
    let ratio = 7 * count as u128 / (10 * kept.max(1) as u128);
    ratio.checked_ilog2().unwrap_or(0)
}

/// Appends the bytes of some numbers.
pub(super) fn encode(values: &[f32], share: f64, bytes: &mut Vec<u8>) {
    let kept = kept(values.len(), share);
    if kept == 0 {
        return;
    }
    let places = largest(values, kept);
    let b = rice_bits(values.len(), kept);
    let (mut bits, mut next) = (BitWriter::default(), 0);
    for &place in &places {
        let between = (place - next) as u64;
        (0..between >> b).for_each(|_| bits.bit(true));
        bits.bit(false);
        bits.bits(between, b);
        next = place + 1;
    }
    bytes.extend(bits.finish());
    float16::encode(&places.iter().map(|&place| values[place]).collect::<Vec<_>>(), bytes);
}

/// Where the largest numbers are, in order; of equal ones the first.
fn largest(values: &[f32], kept: usize) -> Vec<usize> {
    let mut places: Vec<usize> = (0..values.len()).collect();
    if kept < places.len() {
        let order = |a: &usize, b: &usize| values[*b].abs().total_cmp(&values[*a].abs()).then(a.cmp(b));
        places.select_nth_unstable_by(kept, order);
        places.truncate(kept);
        places.sort_unstable();
    }
    places
}

/// Reads as many numbers as there are.
pub(super) fn decode(reader: &mut Reader<'_>, count: usize, share: f64) -> Result<Vec<f32>> {
    let kept = kept(count, share);
    let places = read_places(reader, count, kept)?;
    let numbers = float16::decode(reader, kept)?;
    let mut values = vec![0.0; count];
    places.into_iter().zip(numbers).for_each(|(place, number)| values[place] = number);
    Ok(values)
}

fn read_places(reader: &mut Reader<'_>, count: usize, kept: usize) -> Result<Vec<usize>> {
    let b = rice_bits(count, kept);
    let mut bits = BitReader::new(reader);
    let (mut places, mut next) = (Vec::new(), 0usize);
    for _ in 0..kept {
        let mut between = 0usize;
        while bits.bit()? {
            between = within(between + (1 << b), next, count)?;
        }
        let place = next + within(between + bits.bits(b)? as usize, next, count)?;
        places.push(place);
        next = place + 1;
    }
    bits.end()?;
    Ok(places)
}

/// So many places after the next one there is still one.
fn within(between: usize, next: usize, count: usize) -> Result<usize> {
    if next + between < count { Ok(between) } else { Err(Error::message(format!("it names a place beyond its {count} numbers"))) }
}

#[cfg(test)]
mod tests {
    use fedeq_data::Seed;
    use proptest::prelude::*;
    use rand_chacha::rand_core::Rng;

    use super::*;

    proptest! {
        #[test]
        fn the_largest_arrive_and_the_others_are_zero(values in prop::collection::vec(-1e3f32..1e3, 1..400), share in 0.001f64..1.0) {
            let mut bytes = Vec::new();
            encode(&values, share, &mut bytes);
            let arrived = decode(&mut Reader::new(&bytes), values.len(), share).expect("readable");
            let mut sizes: Vec<f32> = values.iter().map(|value| value.abs()).collect();
            sizes.sort_by(|a, b| b.total_cmp(a));
            let least = sizes[kept(values.len(), share) - 1];
            let is_near = |sent: f32, arrived: f32| (sent - arrived).abs() <= sent.abs() / 2048.0 + sizes[0] * 1e-11;
            for (&sent, &arrived) in values.iter().zip(&arrived) {
                prop_assert!(is_near(sent, arrived) || (arrived == 0.0 && sent.abs() <= least), "{sent} became {arrived}");
            }
            prop_assert!(arrived.iter().filter(|value| **value != 0.0).count() <= kept(values.len(), share));
        }
    }

    #[test]
    fn places_take_about_as_many_bits_as_they_must() {
        // Places that look random: the entropy of a share p is (-p log2 p - (1 - p) log2 (1 - p)) / p bits a place.
        let count = 100_000usize;
        let mut rng = Seed::new(3).rng();
        let values: Vec<f32> = (0..count).map(|_| (rng.next_u32() >> 8) as f32).collect();
        for share in [0.001f64, 0.01, 0.1, 0.5] {
            let mut bytes = Vec::new();
            encode(&values, share, &mut bytes);
            let kept = kept(count, share) as f64;
            let bits = 8.0 * (bytes.len() as f64 - 2.0 - 2.0 * kept) / kept;
            let entropy = (-share * share.log2() - (1.0 - share) * (1.0 - share).log2()) / share;
            assert!(bits < 1.08 * entropy + 0.1, "{share}: {bits} bits, and {entropy} must be");
        }
    }
}
