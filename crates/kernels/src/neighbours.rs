//! Nearest neighbours: distances between vectors, and what the nearest ones vote for.
use pulp::{Simd, WithSimd};

use crate::InstructionSet;
use crate::instructions::multiply_add;
use crate::loss::softmax;

/// Euclidean distances between queries, `[rows, width]`, and entries, `[entries, width]`: `[rows, entries]`.
///
/// Differences are squared, not sizes subtracted from each other, so close vectors lose no digits.
///
/// # Panics
///
/// If the slices do not have these shapes.
pub fn distances(set: InstructionSet, width: usize, queries: &[f32], entries: &[f32], y: &mut [f32]) {
    let whole = |numbers: usize| width > 0 && numbers.is_multiple_of(width);
    assert!(whole(queries.len()) && whole(entries.len()), "there are whole rows of `{width}` numbers");
    let count = (queries.len() / width).checked_mul(entries.len() / width);
    assert!(count == Some(y.len()), "there is a distance for every query and entry");
    set.run(Distances { width, queries, entries, y });
}

/// The classes of entries and how their votes are counted.
#[derive(Clone, Copy, Debug)]
pub struct Voters<'a> {
    /// The class of each entry.
    pub labels: &'a [i32],
    /// How many of the nearest entries vote; all where there are fewer.
    pub neighbours: usize,
    /// How many classes there are.
    pub classes: usize,
}

/// The votes of the nearest entries with the weights `e^-distance`, which sum to 1 for every query: `[rows, classes]`.
///
/// Of entries at the same distance the first ones are nearer.
///
/// # Panics
///
/// If there is not a distance for every query and entry, a label is not a class, or no neighbour votes.
pub fn vote(set: InstructionSet, voters: Voters<'_>, distances: &[f32], votes: &mut [f32]) {
    let Voters { labels, neighbours, classes } = voters;
    let count = neighbours.min(labels.len());
    assert!(count > 0 && classes > 0, "neighbours vote for classes");
    assert!(distances.len().is_multiple_of(labels.len()), "there is a distance for every entry");
    let rows = distances.len() / labels.len();
    assert!(rows.checked_mul(classes) == Some(votes.len()), "there is a vote for every query and class");
    votes.fill(0.0);
    let mut order: Vec<usize> = Vec::with_capacity(labels.len());
    let (mut closeness, mut weights) = (vec![0.0; count], vec![0.0; count]);
    for (distances, votes) in distances.chunks_exact(labels.len()).zip(votes.chunks_exact_mut(classes)) {
        order.clear();
        order.extend(0..labels.len());
        let nearer = |a: &usize, b: &usize| distances[*a].total_cmp(&distances[*b]).then(a.cmp(b));
        order.select_nth_unstable_by(count - 1, nearer);
        order[..count].sort_unstable_by(nearer);
        for (closeness, &entry) in closeness.iter_mut().zip(&order) {
            *closeness = -distances[entry];
        }
        softmax(set, count, &closeness, &mut weights);
        for (&entry, weight) in order.iter().zip(&weights) {
            let label = usize::try_from(labels[entry]).ok().filter(|&label| label < classes);
            votes[label.unwrap_or_else(|| panic!("the label of an entry is not one of `{classes}` classes"))] += weight;
        }
    }
}

struct Distances<'a> {
    width: usize,
    queries: &'a [f32],
    entries: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Distances<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { width, queries, entries, y } = self;
        let count = entries.len() / width;
        if count == 0 {
            return;
        }
        for (query, y) in queries.chunks_exact(width).zip(y.chunks_exact_mut(count)) {
            // Four at a time: one sum alone would wait for each addition before the next.
            let mut fours = entries.chunks_exact(4 * width);
            let (whole, left) = y.split_at_mut(count / 4 * 4);
            for (entries, y) in (&mut fours).zip(whole.chunks_exact_mut(4)) {
                y.copy_from_slice(&squares::<S, 4>(simd, query, entries));
            }
            for (entry, y) in fours.remainder().chunks_exact(width).zip(left) {
                [*y] = squares::<S, 1>(simd, query, entry);
            }
            for y in y {
                *y = y.sqrt();
            }
        }
    }
}

/// The squared distances of `N` entries from a query.
#[inline(always)]
fn squares<S: Simd, const N: usize>(simd: S, query: &[f32], entries: &[f32]) -> [f32; N] {
    let (vectors, rest) = S::as_simd_f32s(query);
    let entry = |n: usize| S::as_simd_f32s(&entries[n * query.len()..][..query.len()]);
    let others: [_; N] = std::array::from_fn(entry);
    let mut sums = [simd.splat_f32s(0.0); N];
    for (at, &x) in vectors.iter().enumerate() {
        for (sum, (others, _)) in sums.iter_mut().zip(&others) {
            let difference = simd.sub_f32s(x, others[at]);
            *sum = multiply_add(simd, difference, difference, *sum);
        }
    }
    let last = simd.partial_load_f32s(rest);
    for (sum, (_, other)) in sums.iter_mut().zip(&others) {
        let difference = simd.sub_f32s(last, simd.partial_load_f32s(other));
        *sum = multiply_add(simd, difference, difference, *sum);
    }
    sums.map(|sum| simd.reduce_sum_f32s(sum))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
    }

    #[test]
    fn distances_agree_with_double_precision() {
        for set in InstructionSet::available() {
            for [rows, count, width] in [[1, 1, 1], [3, 9, 5], [4, 8, 64], [2, 7, 130], [0, 3, 2], [3, 0, 2]] {
                let (queries, entries) = (numbers(rows * width, 1), numbers(count * width, 2));
                let mut y = vec![f32::NAN; rows * count];
                distances(set, width, &queries, &entries, &mut y);
                for (at, found) in y.iter().enumerate() {
                    let (query, entry) = (at / count * width, at % count * width);
                    let square = |j: usize| (f64::from(queries[query + j]) - f64::from(entries[entry + j])).powi(2);
                    let exact = (0..width).map(square).sum::<f64>().sqrt();
                    assert!((f64::from(*found) - exact).abs() < 1e-6 * exact.max(1.0), "{} {found} {exact}", set.name());
                }
            }
        }
    }

    #[test]
    fn close_vectors_far_from_the_origin_keep_their_distance() {
        let mut y = [0.0];
        distances(InstructionSet::best(), 3, &[1e4, 1e4, 1e4], &[1e4, 1e4 + 0.0625, 1e4], &mut y);
        assert_eq!(y, [0.0625]);
    }

    #[test]
    fn the_nearest_vote_by_their_distance() {
        let voters = Voters { labels: &[0, 1, 1, 2, 2], neighbours: 3, classes: 4 };
        let mut votes = [f32::NAN; 4];
        vote(InstructionSet::best(), voters, &[5.0, 1.0, 2.0, 1.0, 9.0], &mut votes);
        let weights = [1.0f64, 2.0, 1.0].map(|distance| (-distance).exp());
        let sum: f64 = weights.iter().sum();
        let exact = [0.0, (weights[0] + weights[1]) / sum, weights[2] / sum, 0.0];
        assert!(votes.iter().zip(exact).all(|(found, exact)| (f64::from(*found) - exact).abs() < 1e-6), "{votes:?} {exact:?}");
    }

    #[test]
    fn of_equally_near_entries_the_first_vote_and_fewer_entries_than_neighbours_all_vote() {
        let mut votes = [0.0; 2];
        vote(InstructionSet::best(), Voters { labels: &[1, 0], neighbours: 1, classes: 2 }, &[2.0, 2.0], &mut votes);
        assert_eq!(votes, [0.0, 1.0]);
        vote(InstructionSet::best(), Voters { labels: &[1, 0], neighbours: 9, classes: 2 }, &[2.0, 2.0], &mut votes);
        assert_eq!(votes, [0.5, 0.5]);
    }
}
