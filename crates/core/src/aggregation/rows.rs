//! What clients sent, one row of numbers a client. Sums depend on the order given and on nothing else: blocks of coordinates, or pairs of rows, are spread over
//! the cores, and each is summed by one of them.
use rayon::prelude::*;

use crate::params::{Array, Params};

/// Coordinates that are worked on together.
pub(super) const BLOCK: usize = 2048;

/// Sums side by side, so that vector instructions can be used; always as many, so that the result is the same everywhere.
const LANES: usize = 8;

/// All numbers one after the other, by name.
pub(crate) fn flat(params: &Params) -> Vec<f32> {
    let mut values = Vec::with_capacity(params.count());
    params.iter().for_each(|(_, array)| values.extend_from_slice(&array.values));
    values
}

/// The inverse of [`flat`].
pub(crate) fn named_like(like: &Params, values: &[f32]) -> Params {
    let mut rest = values;
    let named = |(name, array): (&str, &Array)| {
        let (own, after) = rest.split_at(array.values.len());
        rest = after;
        (name.to_owned(), Array::new(array.shape.clone(), own.to_vec()))
    };
    like.iter().map(named).collect()
}

/// `||a - b||^2`.
pub(super) fn squared_distance<A: Copy + Into<f64>, B: Copy + Into<f64>>(a: &[A], b: &[B]) -> f64 {
    let square = |(a, b): (&A, &B)| {
        let difference: f64 = (*a).into() - (*b).into();
        difference * difference
    };
    let mut sums = [0.0; LANES];
    let (a, b) = (a.chunks_exact(LANES), b.chunks_exact(LANES));
    let rest: f64 = a.remainder().iter().zip(b.remainder()).map(square).sum();
    for (a, b) in a.zip(b) {
        sums.iter_mut().zip(a.iter().zip(b)).for_each(|(sum, pair)| *sum += square(pair));
    }
    sums.into_iter().sum::<f64>() + rest
}

/// The distance of every row to a point.
pub(crate) fn distances_to<A: Copy + Into<f64> + Sync>(point: &[A], rows: &[&[f32]]) -> Vec<f64> {
    rows.par_iter().map(|row| squared_distance(point, row).sqrt()).collect()
}

/// The squared distance of every row to every other.
pub(super) fn squared_distances(rows: &[&[f32]]) -> Vec<Vec<f64>> {
    let after = |one: usize| rows[one + 1..].iter().map(|other| squared_distance(rows[one], other)).collect();
    let upper: Vec<Vec<f64>> = (0..rows.len()).into_par_iter().map(after).collect();
    let between = |one: usize, other: usize| match one.cmp(&other) {
        std::cmp::Ordering::Less => upper[one][other - one - 1],
        std::cmp::Ordering::Equal => 0.0,
        std::cmp::Ordering::Greater => upper[other][one - other - 1],
    };
    (0..rows.len()).map(|one| (0..rows.len()).map(|other| between(one, other)).collect()).collect()
}

/// The weighted mean of the rows, in double precision.
pub(super) fn combination(rows: &[&[f32]], weights: &[f64]) -> Vec<f64> {
    let total: f64 = weights.iter().sum();
    let mut mean = vec![0.0; rows[0].len()];
    mean.par_chunks_mut(BLOCK).enumerate().for_each(|(block, mean)| {
        for (row, weight) in rows.iter().zip(weights) {
            let row = &row[block * BLOCK..][..mean.len()];
            mean.iter_mut().zip(row).for_each(|(sum, &value)| *sum += weight * f64::from(value));
        }
        mean.iter_mut().for_each(|sum| *sum /= total);
    });
    mean
}
