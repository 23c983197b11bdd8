//! The geometric median, by Weiszfeld's iteration with smoothed distances.
use super::coordinate;
use super::rows::{combination, distances_to, squared_distance};
use super::rule::GeometricMedian;

/// The weights by which the geometric median is a mean of the rows: `alpha_i / max(nu, ||v - x_i||)`.
///
/// It begins at the coordinate median: from the mean it would take as many iterations as a liar's update has digits. `nu` is halved from iteration to iteration until it
/// is as small as the settings say: with a small one from the start, the iteration would hardly leave a row that it begins at.
pub(super) fn weights(rows: &[&[f32]], alphas: &[f64], settings: &GeometricMedian) -> Vec<f64> {
    let mut centre: Vec<f64> = coordinate::median(rows).into_iter().map(f64::from).collect();
    let mut distances = distances_to(&centre, rows);
    let scale = scale(&distances);
    if scale == 0.0 {
        return alphas.to_vec(); // All rows are the same.
    }
    let (mut nu, smallest) = (scale, settings.smoothing * scale);
    for _ in 0..settings.iterations {
        nu = (nu / 2.0).max(smallest);
        let next = combination(rows, &inverse(alphas, &distances, nu));
        let moved = squared_distance(&next, &centre).sqrt();
        centre = next;
        distances = distances_to(&centre, rows);
        if nu == smallest && moved <= nu {
            break;
        }
    }
    inverse(alphas, &distances, nu)
}

fn inverse(alphas: &[f64], distances: &[f64], nu: f64) -> Vec<f64> {
    alphas.iter().zip(distances).map(|(alpha, distance)| alpha / distance.max(nu)).collect()
}

/// A distance that is usual in the cohort: the median, or the shortest where most are 0.
fn scale(distances: &[f64]) -> f64 {
    let mut sorted = distances.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let from_middle = &sorted[(sorted.len() - 1) / 2..];
    from_middle.iter().copied().find(|distance| *distance > 0.0).unwrap_or(0.0)
}
