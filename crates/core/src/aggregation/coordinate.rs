//! Rules for every coordinate on its own. They count every client the same, and depend on no order.
use rayon::prelude::*;

use super::rows::BLOCK;

/// The median of every coordinate; of an even number of values the mean of the two in the middle.
pub(super) fn median(rows: &[&[f32]]) -> Vec<f32> {
    let (low, high) = ((rows.len() - 1) / 2, rows.len() / 2);
    by_coordinate(rows, |sorted| ((f64::from(sorted[low]) + f64::from(sorted[high])) / 2.0) as f32)
}

/// The mean of every coordinate without its `cut` smallest and its `cut` largest values, of which more than `2 cut` are there.
pub(super) fn trimmed_mean(rows: &[&[f32]], cut: usize) -> Vec<f32> {
    by_coordinate(rows, |sorted| {
        let kept = &sorted[cut..sorted.len() - cut];
        (kept.iter().copied().map(f64::from).sum::<f64>() / kept.len() as f64) as f32
    })
}

/// Something of the sorted values of every coordinate.
fn by_coordinate(rows: &[&[f32]], value_of: impl Fn(&[f32]) -> f32 + Sync) -> Vec<f32> {
    let mut values = vec![0.0; rows[0].len()];
    values.par_chunks_mut(BLOCK).enumerate().for_each(|(block, values)| {
        let mut sorted = vec![0.0; rows.len()];
        for (at, value) in values.iter_mut().enumerate() {
            sorted.iter_mut().zip(rows).for_each(|(slot, row)| *slot = row[block * BLOCK + at]);
            sorted.sort_unstable_by(f32::total_cmp);
            *value = value_of(&sorted);
        }
    });
    values
}
