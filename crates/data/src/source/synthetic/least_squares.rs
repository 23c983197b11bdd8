//! Just enough linear algebra to solve small symmetric positive definite systems.

/// The lower triangle L of a matrix LL'.
pub(super) struct Cholesky(Vec<Vec<f64>>);

impl Cholesky {
    /// Factors the matrix with these rows; nothing if it is not positive definite.
    pub(super) fn of(rows: &[Vec<f64>]) -> Option<Self> {
        let mut lower: Vec<Vec<f64>> = Vec::with_capacity(rows.len());
        for (i, row) in rows.iter().enumerate() {
            let mut new = Vec::with_capacity(i + 1);
            for (j, above) in lower.iter().enumerate() {
                new.push((row[j] - dot(&new, &above[..j])) / above[j]);
            }
            let pivot = row[i] - dot(&new, &new);
            if pivot <= f64::EPSILON * row[i] || !pivot.is_finite() {
                return None;
            }
            new.push(pivot.sqrt());
            lower.push(new);
        }
        Some(Self(lower))
    }

    /// The x with LL'x = `right`.
    pub(super) fn solve(&self, right: &[f64]) -> Vec<f64> {
        let lower = &self.0;
        let mut x: Vec<f64> = Vec::with_capacity(right.len());
        for (i, row) in lower.iter().enumerate() {
            x.push((right[i] - dot(&x, &row[..i])) / row[i]);
        }
        for i in (0..x.len()).rev() {
            let known: f64 = (i + 1..x.len()).map(|j| lower[j][i] * x[j]).sum();
            x[i] = (x[i] - known) / lower[i][i];
        }
        x
    }
}

/// The sum of the products.
pub(super) fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}
