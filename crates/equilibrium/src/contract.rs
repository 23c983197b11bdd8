//! Keeping a linear map contractive, so that `phi(B z + ...)` with a 1-Lipschitz `phi` has exactly one fixed point.
//!
//! `B` is a matrix whose rows, here, are the rows of the mathematical `B`: row `i` produces output unit `i`. A weight stored the
//! other way round (burn's `Linear` stores `[input, output]`) is transposed first.
#[cfg(feature = "burn")]
pub use crate::tensor::contract::{project_onto_linf_ball, project_rows_onto_l1_sphere, spectral_normalise, weight_normalise};

/// The Euclidean projection of one row of `B` onto the l1 ball of that radius, in place; of every row, that of `B` onto
/// `{B : ||B||_inf <= radius}`.
///
/// A row inside the ball is left alone. After Duchi, Shalev-Shwartz, Singer, Chandra, "Efficient projections onto the l1-ball", 2008.
///
/// ```
/// use fedeq_equilibrium::contract;
///
/// let mut b = [0.5, -0.25, 0.75, -1.25]; // Two rows of two.
/// b.chunks_mut(2).for_each(|row| contract::project_row_onto_l1_ball(row, 1.0));
/// assert_eq!(b, [0.5, -0.25, 0.25, -0.75]);
/// ```
pub fn project_row_onto_l1_ball(row: &mut [f32], radius: f32) {
    project_row_onto_l1_ball_in(row, radius, &mut Vec::new());
}

/// The same in memory that is kept: once it is as large as the longest row, nothing is allocated.
pub fn project_row_onto_l1_ball_in(row: &mut [f32], radius: f32, memory: &mut Vec<f32>) {
    let size: f32 = row.iter().map(|value| value.abs()).sum();
    if size > radius {
        project_row_onto_l1_sphere_in(row, radius, memory);
    }
}

/// One row of `B` onto the l1 *sphere*, in place: a row shorter than `radius` is lengthened. What the paper's own code does.
pub fn project_row_onto_l1_sphere(row: &mut [f32], radius: f32) {
    project_row_onto_l1_sphere_in(row, radius, &mut Vec::new());
}

/// The same in memory that is kept.
pub fn project_row_onto_l1_sphere_in(row: &mut [f32], radius: f32, memory: &mut Vec<f32>) {
    let threshold = simplex_threshold(row, radius, memory);
    for value in row {
        // A zero that is lengthened goes up.
        *value = (value.abs() - threshold).max(0.0) * if *value < 0.0 { -1.0 } else { 1.0 };
    }
}

/// The `t` for which `sum_j max(|row_j| - t, 0) = radius`.
fn simplex_threshold(row: &[f32], radius: f32, sizes: &mut Vec<f32>) -> f32 {
    sizes.clear();
    sizes.extend(row.iter().map(|value| value.abs()));
    sizes.sort_unstable_by(|a, b| b.total_cmp(a));
    let mut sum = 0.0;
    let mut threshold = 0.0;
    for (index, &size) in sizes.iter().enumerate() {
        sum += size;
        let candidate = (sum - radius) / (index + 1) as f32;
        // The last candidate below its own entry is the right one, and they form a prefix.
        if index > 0 && candidate >= size {
            break;
        }
        threshold = candidate;
    }
    threshold
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn size(row: &[f32]) -> f32 {
        row.iter().map(|value| value.abs()).sum()
    }

    proptest! {
        #[test]
        fn the_projection_is_the_nearest_point_of_the_ball(before in prop::collection::vec(-3.0..3.0f32, 1..9), radius in 0.1..2.0f32) {
            let mut after = before.clone();
            project_row_onto_l1_ball(&mut after, radius);
            if size(&before) <= radius {
                prop_assert_eq!(before, after);
            } else {
                prop_assert!((size(&after) - radius).abs() < 1e-5);
                // Nearest point: no vertex of the ball makes an acute angle with what was removed.
                let removed: Vec<f32> = before.iter().zip(&after).map(|(b, a)| b - a).collect();
                let along: f32 = removed.iter().zip(&after).map(|(r, a)| r * a).sum();
                let steepest = removed.iter().fold(0f32, |most, r| most.max(r.abs())) * radius;
                prop_assert!(steepest <= along + 1e-4);
            }
        }

        #[test]
        fn the_sphere_projection_gives_every_row_the_same_norm(mut row in prop::collection::vec(-3.0..3.0f32, 1..9)) {
            project_row_onto_l1_sphere(&mut row, 1.0);
            prop_assert!((size(&row) - 1.0).abs() < 1e-5);
        }
    }

    #[test]
    fn a_row_of_zeros_is_projected_without_harm() {
        let mut row = [0.0; 4];
        project_row_onto_l1_ball(&mut row, 0.9);
        assert_eq!(row, [0.0; 4]);
        project_row_onto_l1_sphere(&mut row, 1.0);
        assert_eq!(row, [0.25; 4]);
    }
}
