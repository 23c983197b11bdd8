//! What belongs to normalisation layers: means and variances as `float16`, so that variances stay variances, and single numbers, such as counts of steps, as they are.
//!
//! They are sent as they are, not as differences, and nothing of them is fed back: what is lost is a 2048th of each number, once.
use super::bytes::Reader;
use super::{each, float16};
use crate::error::{Error, Result};
use crate::params::Params;

/// Appends the bytes of all statistics.
pub(super) fn encode(statistics: &Params, bytes: &mut Vec<u8>) {
    for (_, array) in statistics.iter() {
        match array.values.as_slice() {
            [single] => bytes.extend(single.to_le_bytes()),
            values => float16::encode(values, bytes),
        }
    }
}

/// Reads statistics of a layout.
pub(super) fn decode(reader: &mut Reader<'_>, like: &Params) -> Result<Params> {
    each(like, |array| match array.values.len() {
        1 => {
            let single = f32::from_le_bytes(reader.array()?);
            if single.is_finite() { Ok(vec![single]) } else { Err(Error::message("it holds a value that is not finite")) }
        }
        count => float16::decode(reader, count),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::params::Array;

    #[test]
    fn variances_stay_positive_and_counts_stay_exact() {
        let named = |name: &str, values: Vec<f32>| (name.to_owned(), Array::new(vec![values.len()], values));
        let statistics: Params =
            [named("mean", vec![-3.0, 1e6, 1e-3]), named("variance", vec![1e-7, 2.0, 3e9]), named("steps", vec![16_777_215.0])]
                .into_iter()
                .collect();
        let mut bytes = Vec::new();
        encode(&statistics, &mut bytes);
        assert_eq!(bytes.len(), 8 + 4 + 8);
        let arrived = decode(&mut Reader::new(&bytes), &statistics).expect("readable");
        assert_eq!(arrived.get("steps"), statistics.get("steps"));
        assert!(arrived.get("variance").expect("there").values.iter().all(|&variance| variance >= 0.0));
    }
}
