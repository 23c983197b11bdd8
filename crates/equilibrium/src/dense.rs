//! The tiny dense systems of the solvers (a handful of unknowns a sample), on the host in f64.

/// Solves `A x = b` for a symmetric positive definite `A` by Cholesky; nothing if it is not, numerically.
pub(crate) fn solve_positive_definite(mut a: Vec<Vec<f64>>, mut b: Vec<f64>) -> Option<Vec<f64>> {
    let n = b.len();
    for j in 0..n {
        for k in 0..j {
            let factor = a[j][k];
            (j..n).for_each(|i| a[i][j] -= a[i][k] * factor);
        }
        // A pivot lost in the rounding of what it was computed from carries no information.
        if a[j][j].is_nan() || a[j][j] <= f64::EPSILON {
            return None;
        }
        let root = a[j][j].sqrt();
        (j..n).for_each(|i| a[i][j] /= root);
    }
    for i in 0..n {
        let known: f64 = (0..i).map(|k| a[i][k] * b[k]).sum();
        b[i] = (b[i] - known) / a[i][i];
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| a[k][i] * b[k]).sum();
        b[i] = (b[i] - known) / a[i][i];
    }
    Some(b)
}

#[cfg(test)]
mod tests {
    use super::solve_positive_definite;

    #[test]
    fn a_known_system_is_solved() {
        let a = vec![vec![4.0, 2.0, 0.6], vec![2.0, 5.0, 1.0], vec![0.6, 1.0, 3.0]];
        let x = [1.0, -2.0, 0.5];
        let b = a.iter().map(|row| row.iter().zip(x).map(|(a, x)| a * x).sum()).collect();
        let found = solve_positive_definite(a, b).expect("positive definite");
        assert!(found.iter().zip(x).all(|(found, x)| (found - x).abs() < 1e-14));
    }

    #[test]
    fn a_singular_or_indefinite_or_nan_system_is_refused() {
        assert_eq!(solve_positive_definite(vec![vec![1.0, 1.0], vec![1.0, 1.0]], vec![1.0, 1.0]), None);
        assert_eq!(solve_positive_definite(vec![vec![1.0, 2.0], vec![2.0, 1.0]], vec![1.0, 1.0]), None);
        assert_eq!(solve_positive_definite(vec![vec![f64::NAN]], vec![1.0]), None);
    }
}
