//! Matrices as a product of two thin ones: `M = P Q^T`, the columns of `P` orthonormal.
//!
//! As PowerSGD (Vogels, Karimireddy and Jaggi, 2019) does it: `P` spans what `M` makes of random directions, sharpened by power iteration, and `Q = M^T P` is then the best there is for this `P`. The search
//! starts over in every message, at directions drawn from its seed, so that nothing but the error feedback is kept between messages. The columns of both are written as `float16`, each with an exponent of its own.
//! Arrays that are no matrices, and matrices that would not become smaller, are `float16`.
use fedeq_data::Seed;
use rand_chacha::rand_core::Rng;

use super::bytes::Reader;
use super::float16;
use crate::error::Result;
use crate::params::Array;

/// How often directions are sharpened.
const ITERATIONS: usize = 2;
/// Below this share of its length before, what is left of a column is rounding.
const NOTHING: f64 = 1e-10;

/// A matrix of so many rows and columns, and how many columns its factors have.
#[derive(Clone, Copy)]
struct Factors {
    rows: usize,
    columns: usize,
    rank: usize,
}

impl Factors {
    /// Those of an array of this shape; nothing where they would not be smaller.
    fn of(shape: &[usize], rank: usize) -> Option<Self> {
        let (&rows, others) = shape.split_first().filter(|(_, others)| !others.is_empty())?;
        let columns = others.iter().product();
        let rank = rank.min(rows).min(columns);
        (rank * (rows + columns) < rows * columns).then_some(Self { rows, columns, rank })
    }
}

/// Appends the bytes of some arrays.
pub(super) fn encode<'a>(arrays: impl Iterator<Item = &'a Array>, rank: usize, seed: Seed, bytes: &mut Vec<u8>) {
    for (number, array) in arrays.enumerate() {
        let Some(factors) = Factors::of(&array.shape, rank) else {
            float16::encode(&array.values, bytes);
            continue;
        };
        let (p, q) = factors.find(&array.values, seed.derive("directions", [number as u64]));
        p.iter().chain(&q).for_each(|column| float16::encode(&single(column), bytes));
    }
}

/// Reads an array of a shape.
pub(super) fn decode(reader: &mut Reader<'_>, shape: &[usize], rank: usize) -> Result<Vec<f32>> {
    let Some(factors) = Factors::of(shape, rank) else { return float16::decode(reader, shape.iter().product()) };
    let mut read = |len: usize| (0..factors.rank).map(|_| float16::decode(reader, len)).collect::<Result<Vec<_>>>();
    let (p, q) = (read(factors.rows)?, read(factors.columns)?);
    let entry = |row: usize, column: usize| p.iter().zip(&q).map(|(p, q)| f64::from(p[row]) * f64::from(q[column])).sum();
    let row = |row: usize| (0..factors.columns).map(move |column| (row, column));
    Ok((0..factors.rows).flat_map(row).map(|(row, column)| float16::saturated(entry(row, column))).collect())
}

impl Factors {
    /// The columns of `P` and `Q`.
    fn find(self, matrix: &[f32], seed: Seed) -> (Vec<Vec<f64>>, Vec<Vec<f64>>) {
        let mut rng = seed.rng();
        let mut sign = || if rng.next_u32() & 1 == 0 { 1.0 } else { -1.0 };
        let mut q: Vec<Vec<f64>> = (0..self.rank).map(|_| (0..self.columns).map(|_| sign()).collect()).collect();
        let mut p = Vec::new();
        for _ in 0..ITERATIONS {
            p = q.iter().map(|q| self.times(matrix, q)).collect();
            make_orthonormal(&mut p);
            q = p.iter().map(|p| self.transposed_times(matrix, p)).collect();
        }
        (p, q)
    }

    fn times(self, matrix: &[f32], vector: &[f64]) -> Vec<f64> {
        let row = |row: &[f32]| row.iter().zip(vector).map(|(&entry, value)| f64::from(entry) * value).sum();
        matrix.chunks_exact(self.columns).map(row).collect()
    }

    fn transposed_times(self, matrix: &[f32], vector: &[f64]) -> Vec<f64> {
        let mut product = vec![0.0; self.columns];
        for (row, value) in matrix.chunks_exact(self.columns).zip(vector) {
            product.iter_mut().zip(row).for_each(|(sum, &entry)| *sum += f64::from(entry) * value);
        }
        product
    }
}

/// Gram and Schmidt's method, twice for each column, which is enough for all digits. A column without a direction of its own becomes 0.
fn make_orthonormal(columns: &mut [Vec<f64>]) {
    for at in 0..columns.len() {
        let (before, rest) = columns.split_at_mut(at);
        let column = &mut rest[0];
        let length = norm(column);
        for other in before.iter().chain(before.iter()) {
            let along: f64 = column.iter().zip(other).map(|(a, b)| a * b).sum();
            column.iter_mut().zip(other).for_each(|(value, other)| *value -= along * other);
        }
        let left = norm(column);
        let factor = if left > NOTHING * length { 1.0 / left } else { 0.0 };
        column.iter_mut().for_each(|value| *value *= factor);
    }
}

fn norm(vector: &[f64]) -> f64 {
    vector.iter().map(|value| value * value).sum::<f64>().sqrt()
}

fn single(values: &[f64]) -> Vec<f32> {
    values.iter().map(|&value| float16::saturated(value)).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sent(array: &Array, rank: usize) -> (Vec<f32>, usize) {
        let mut bytes = Vec::new();
        encode(std::iter::once(array), rank, Seed::new(5), &mut bytes);
        (decode(&mut Reader::new(&bytes), &array.shape, rank).expect("readable"), bytes.len())
    }

    fn distance(a: &[f32], b: &[f32]) -> f64 {
        norm(&a.iter().zip(b).map(|(&a, &b)| f64::from(a) - f64::from(b)).collect::<Vec<_>>())
    }

    fn size(values: &[f32]) -> f64 {
        distance(values, &vec![0.0; values.len()])
    }

    proptest! {
        #[test]
        fn a_matrix_of_the_rank_arrives_whole(left in prop::collection::vec(-1f32..1.0, 24), right in prop::collection::vec(-1f32..1.0, 40), scale in -20i32..20) {
            let scale = 2f32.powi(scale);
            let entry = |at: usize| scale * (left[at / 20] * right[at % 20] + left[12 + at / 20] * right[20 + at % 20]);
            let array = Array::new(vec![12, 4, 5], (0..240).map(entry).collect());
            let (arrived, bytes) = sent(&array, 2);
            prop_assert_eq!(bytes, 2 * (2 + 2 * 12) + 2 * (2 + 2 * 20));
            prop_assert!(distance(&array.values, &arrived) <= size(&array.values) / 256.0);
        }

        #[test]
        fn never_more_is_lost_than_there_was(values in prop::collection::vec(-1e3f32..1e3, 90), rank in 1usize..8) {
            let array = Array::new(vec![9, 10], values);
            let (arrived, _) = sent(&array, rank);
            prop_assert!(distance(&array.values, &arrived) <= size(&array.values) * (1.0 + 1.0 / 256.0));
        }
    }

    #[test]
    fn what_is_no_matrix_or_would_not_be_smaller_is_sent_as_it_is() {
        for shape in [vec![60], vec![1, 60], vec![3, 4], vec![0, 5]] {
            let array = Array::new(shape.clone(), (0..shape.iter().product()).map(|at| at as f32 - 3.5).collect());
            let (arrived, _) = sent(&array, 3);
            assert_eq!(arrived, *array.values, "{shape:?}");
        }
    }

    #[test]
    fn the_largest_direction_is_found_first() {
        // Two directions, one ten times as long.
        let entry = |at: usize| {
            let (row, column) = (at / 16, at % 16);
            10.0 * (row as f32 - 7.5) * (column as f32 - 7.5) + 40.0 * ((row % 2) as f32 - 0.5) * ((column % 2) as f32 - 0.5)
        };
        let array = Array::new(vec![16, 16], (0..256).map(entry).collect());
        let (arrived, _) = sent(&array, 1);
        assert!(distance(&array.values, &arrived) < 0.15 * size(&array.values));
    }
}
