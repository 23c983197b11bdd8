//! Weights of which none is more than a share of all.

/// The same weights, the largest of them cut to one size so that none is more than `cap` of what is then the sum. Where so few clients cannot
/// all keep to it, they count the same.
pub(super) fn capped(weights: &[f64], cap: f64) -> Vec<f64> {
    let size = largest(weights, cap);
    weights.iter().map(|weight| weight.min(size)).collect()
}

/// The size `t` with `t = cap * sum_i min(w_i, t)`, or that of the largest weight where this is small enough already. If the `k` largest weights are cut,
/// `t = cap * rest / (1 - k cap)`, and `t` must be at least the largest of the rest.
fn largest(weights: &[f64], cap: f64) -> f64 {
    let mut sorted = weights.to_vec();
    sorted.sort_unstable_by(|one, other| other.total_cmp(one));
    for (cut, weight) in sorted.iter().enumerate() {
        let left = 1.0 - cut as f64 * cap;
        if left <= 0.0 {
            break;
        }
        // Summed once more and from the smallest: beside what a liar claims, honest weights would vanish in rounding.
        let size = cap * sorted[cut..].iter().rev().sum::<f64>() / left;
        if size >= *weight {
            return if cut == 0 { *weight } else { size };
        }
    }
    // Too few for the cap: all are cut to the smallest.
    sorted.into_iter().rev().find(|weight| *weight > 0.0).unwrap_or(0.0)
}
