//! Keeping a linear map of a burn model contractive.
use burn::tensor::{Int, Tensor};

/// The Euclidean projection of `B` onto `{B : ||B||_inf <= radius}`: every row onto the l1 ball of that radius.
///
/// Rows inside the ball are left alone. After Duchi, Shalev-Shwartz, Singer, Chandra, "Efficient projections onto the l1-ball", 2008.
pub fn project_onto_linf_ball(b: Tensor<2>, radius: f64) -> Tensor<2> {
    let inside = absolute_row_sums(&b).lower_equal_elem(radius).expand(b.dims());
    project_rows_onto_l1_sphere(b.clone(), radius).mask_where(inside, b)
}

/// Every row onto the l1 *sphere*: rows shorter than `radius` are lengthened. What the paper's own code does.
pub fn project_rows_onto_l1_sphere(b: Tensor<2>, radius: f64) -> Tensor<2> {
    let sizes = b.clone().abs();
    let threshold = simplex_threshold(&sizes, radius);
    let shrunk = (sizes - threshold).clamp_min(0.0);
    let sign = b.clone().sign().mask_fill(b.equal_elem(0.0), 1.0); // A zero that is lengthened goes up.
    shrunk * sign
}

/// The `t` of every row, as a column, for which `sum_j max(size_j - t, 0) = radius`.
fn simplex_threshold(sizes: &Tensor<2>, radius: f64) -> Tensor<2> {
    let [_, columns] = sizes.dims();
    let sorted = sizes.clone().sort_descending(1);
    let counts = Tensor::<1, Int>::arange(1..columns as i64 + 1, &sizes.device()).float().cast(sizes.dtype()).unsqueeze::<2>();
    let candidates = (sorted.clone().cumsum(1) - radius) / counts;
    // The last candidate below its own entry is the right one, and they form a prefix.
    let valid = sorted.greater(candidates.clone()).int().sum_dim(1);
    candidates.gather(1, valid.sub_scalar(1).clamp_min(0))
}

/// `B` with every row scaled down, if need be, to an l1 norm of `bound`: `||B||_inf <= bound`, differentiable.
pub fn weight_normalise(b: Tensor<2>, bound: f64) -> Tensor<2> {
    let excess = absolute_row_sums(&b).div_scalar(bound).clamp_min(1.0);
    b / excess
}

/// `B` scaled down, if need be, to a largest singular value of `bound`; differentiable.
///
/// The singular value is found by `steps` rounds of the power method and its vectors count as constants, which gives the exact gradient
/// once they have converged.
pub fn spectral_normalise(b: Tensor<2>, bound: f64, steps: usize) -> Tensor<2> {
    let (left, right) = leading_singular_vectors(&b.clone().without_autodiff(), steps);
    let sigma = left.transpose().matmul(b.clone()).matmul(right);
    b / sigma.div_scalar(bound).clamp_min(1.0)
}

/// The leading left and right singular vectors as columns.
fn leading_singular_vectors(b: &Tensor<2>, steps: usize) -> (Tensor<2>, Tensor<2>) {
    let normed = |v: Tensor<2>| {
        let norm = v.clone().square().sum().sqrt().add_scalar(f64::from(f32::MIN_POSITIVE)).unsqueeze::<2>();
        v / norm
    };
    // The image of a vector that favours no direction, but is not symmetric either.
    let [_, columns] = b.dims();
    let start = Tensor::<1, Int>::arange(0..columns as i64, &b.device()).float().cast(b.dtype()).add_scalar(0.5).cos();
    let mut right = normed(start.unsqueeze_dim(1));
    let mut left = normed(b.clone().matmul(right.clone()));
    for _ in 0..steps {
        right = normed(b.clone().transpose().matmul(left));
        left = normed(b.clone().matmul(right.clone()));
    }
    (left, right)
}

/// The l1 norm of every row as a column; the largest is `||B||_inf`.
fn absolute_row_sums(b: &Tensor<2>) -> Tensor<2> {
    b.clone().abs().sum_dim(1)
}
