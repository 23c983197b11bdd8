//! Krum: who is nearest to its neighbours.

/// For every update the sum of squared distances to its `n - f - 2` nearest neighbours, of `n` updates with `f` liars among them.
pub(super) fn scores(squared_distances: &[Vec<f64>], liars: usize) -> Vec<f64> {
    let neighbours = squared_distances.len() - liars - 2;
    let score = |(own, row): (usize, &Vec<f64>)| {
        let mut others: Vec<f64> = row.iter().enumerate().filter(|(other, _)| *other != own).map(|(_, value)| *value).collect();
        others.sort_unstable_by(f64::total_cmp);
        others[..neighbours].iter().sum()
    };
    squared_distances.iter().enumerate().map(score).collect()
}

/// Of every update, whether it is among the `count` with the least scores; of equal ones the first.
pub(super) fn best(scores: &[f64], count: usize) -> Vec<bool> {
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_by(|&one, &other| scores[one].total_cmp(&scores[other]));
    let mut best = vec![false; scores.len()];
    order[..count].iter().for_each(|&update| best[update] = true);
    best
}
