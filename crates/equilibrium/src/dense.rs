//! The tiny dense systems of the solvers (a handful of unknowns a sample), on the host in f64.

/// Solves `A x = b` for a symmetric positive definite `A`, given row after row, by Cholesky: `b` becomes `x` and `A` is used up. Says whether it
/// could; it cannot if `A` is not positive definite, numerically.
pub(crate) fn solve_positive_definite(a: &mut [f64], b: &mut [f64]) -> bool {
    let n = b.len();
    for j in 0..n {
        for k in 0..j {
            let factor = a[j * n + k];
            (j..n).for_each(|i| a[i * n + j] -= a[i * n + k] * factor);
        }
        // A pivot lost in the rounding of what it was computed from carries no information.
        if a[j * n + j].is_nan() || a[j * n + j] <= f64::EPSILON {
            return false;
        }
        let root = a[j * n + j].sqrt();
        (j..n).for_each(|i| a[i * n + j] /= root);
    }
    for i in 0..n {
        let known: f64 = (0..i).map(|k| a[i * n + k] * b[k]).sum();
        b[i] = (b[i] - known) / a[i * n + i];
    }
    for i in (0..n).rev() {
        let known: f64 = (i + 1..n).map(|k| a[k * n + i] * b[k]).sum();
        b[i] = (b[i] - known) / a[i * n + i];
    }
    true
}

#[cfg(test)]
mod tests {
    use super::solve_positive_definite;

    #[test]
    fn a_known_system_is_solved() {
        let mut a = [4.0, 2.0, 0.6, 2.0, 5.0, 1.0, 0.6, 1.0, 3.0];
        let x = [1.0, -2.0, 0.5];
        let mut b: Vec<f64> = a.chunks(3).map(|row| row.iter().zip(x).map(|(a, x)| a * x).sum()).collect();
        assert!(solve_positive_definite(&mut a, &mut b), "positive definite");
        assert!(b.iter().zip(x).all(|(found, x)| (found - x).abs() < 1e-14));
    }

    #[test]
    fn a_singular_or_indefinite_or_nan_system_is_refused() {
        assert!(!solve_positive_definite(&mut [1.0, 1.0, 1.0, 1.0], &mut [1.0, 1.0]));
        assert!(!solve_positive_definite(&mut [1.0, 2.0, 2.0, 1.0], &mut [1.0, 1.0]));
        assert!(!solve_positive_definite(&mut [f64::NAN], &mut [1.0]));
    }
}
