//! GMRES with restarts, one Krylov space a sample, all of them advanced by the same batched products.
use burn::tensor::Tensor;

use crate::host::{column, norm_column, row_mask, to_host};
use crate::solution::{Outcome, Report};
use crate::solver::Window;
use crate::stop::Stop;

/// Solves `A u = b` for every row of `b` from `u = 0`; `a` applies the operator to all rows at once.
pub(super) fn solve(mut a: impl FnMut(Tensor<2>) -> Tensor<2>, b: Tensor<2>, memory: usize, stop: &Stop) -> (Tensor<2>, Report) {
    let mut samples: Vec<Sample> = to_host(norm_column(&b)).into_iter().map(|norm| Sample::new(norm, stop)).collect();
    let mut u = b.zeros_like();
    let mut residual = b.clone();
    while samples.iter().any(Sample::is_open) {
        let mut krylov = Krylov::new(residual, memory, &samples);
        while krylov.has_room() && samples.iter().any(Sample::is_open) {
            krylov.advance(&mut a, &mut samples, stop);
        }
        u = krylov.corrected(u);
        if !samples.iter().any(Sample::is_open) {
            break;
        }
        residual = b.clone() - a(u.clone());
    }
    (u, report(&samples))
}

fn report(samples: &[Sample]) -> Report {
    let most = samples.iter().map(|sample| sample.steps).max().unwrap_or(0);
    Report {
        steps: samples.iter().map(|sample| sample.steps).collect(),
        residual: samples.iter().map(Sample::relative).collect(),
        outcome: samples.iter().map(|sample| sample.outcome.expect("nobody is open any more")).collect(),
        trace: None,
        evaluated_rows: most * samples.len(),
    }
}

/// How far one sample is.
struct Sample {
    scale: f64,
    residual: f64,
    steps: usize,
    outcome: Option<Outcome>,
}

impl Sample {
    fn new(scale: f64, stop: &Stop) -> Self {
        let mut sample = Self { scale, residual: scale, steps: 0, outcome: None };
        sample.judge(scale, stop);
        sample
    }

    fn is_open(&self) -> bool {
        self.outcome.is_none()
    }

    fn relative(&self) -> f64 {
        if self.residual == 0.0 { 0.0 } else { self.residual / self.scale }
    }

    fn judge(&mut self, residual: f64, stop: &Stop) {
        if !residual.is_finite() {
            self.outcome = Some(Outcome::NotFinite);
            return;
        }
        self.residual = residual;
        if stop.is_met(residual, self.scale) {
            self.outcome = Some(Outcome::Converged);
        } else if self.steps >= stop.max_steps {
            self.outcome = Some(Outcome::StepLimit);
        }
    }
}

/// One stretch between restarts: an orthonormal basis a sample, `[rows, memory + 1, n]`.
struct Krylov {
    basis: Window,
    newest: Tensor<2>,
    memory: usize,
    columns: usize,
    spaces: Vec<Space>,
}

impl Krylov {
    fn new(residual: Tensor<2>, memory: usize, samples: &[Sample]) -> Self {
        let norms = to_host(norm_column(&residual));
        let newest = unit_rows(residual, &norms, samples);
        let mut basis = Window::new(memory + 1, &newest);
        basis.set(0, newest.clone());
        Self { basis, newest, memory, columns: 0, spaces: norms.into_iter().map(Space::new).collect() }
    }

    fn has_room(&self) -> bool {
        self.columns < self.memory
    }

    /// One more product, orthogonalised against the basis (twice: once loses orthogonality in f32).
    fn advance(&mut self, a: &mut impl FnMut(Tensor<2>) -> Tensor<2>, samples: &mut [Sample], stop: &Stop) {
        let image = a(self.newest.clone());
        let first = self.basis.dots(&image);
        let image = self.basis.combine(&image, -1.0, &first);
        let second = self.basis.dots(&image);
        let image = self.basis.combine(&image, -1.0, &second);
        let norms = to_host(norm_column(&image));
        for (row, (space, sample)) in self.spaces.iter_mut().zip(samples.iter_mut()).enumerate() {
            if sample.is_open() {
                let projections = first[row].iter().zip(&second[row]).take(self.columns + 1).map(|(a, b)| a + b);
                sample.steps += 1;
                sample.judge(space.push(projections.collect(), norms[row]), stop);
            }
        }
        self.newest = unit_rows(image, &norms, samples);
        self.columns += 1;
        self.basis.set(self.columns, self.newest.clone());
    }

    /// The solution with what the stretch adds to it.
    fn corrected(&self, u: Tensor<2>) -> Tensor<2> {
        let padded = |space: &Space| {
            let mut weights = space.coefficients();
            weights.resize(self.memory + 1, 0.0);
            weights
        };
        self.basis.combine(&u, 1.0, &self.spaces.iter().map(padded).collect::<Vec<_>>())
    }
}

/// Rows of unit length; zero for samples that are finished or have no direction left.
fn unit_rows(rows: Tensor<2>, norms: &[f64], samples: &[Sample]) -> Tensor<2> {
    let idle: Vec<bool> = norms.iter().zip(samples).map(|(&norm, sample)| norm == 0.0 || !sample.is_open()).collect();
    let inverse = norms.iter().zip(&idle).map(|(norm, &idle)| if idle { 0.0 } else { norm.recip() }).collect();
    let mask = row_mask(&idle, &rows);
    let inverse = column(inverse, &rows);
    (rows * inverse).mask_fill(mask, 0.0)
}

/// One sample's least-squares problem, kept triangular by Givens rotations.
struct Space {
    /// Columns of the triangular factor.
    triangle: Vec<Vec<f64>>,
    rotations: Vec<(f64, f64)>,
    rhs: Vec<f64>,
}

impl Space {
    fn new(residual: f64) -> Self {
        Self { triangle: Vec::new(), rotations: Vec::new(), rhs: vec![residual] }
    }

    /// A new column of the Hessenberg matrix: projections on the basis and the length of what is left. Returns the norm of the
    /// residual with it; a column that is not finite is not taken.
    fn push(&mut self, mut column: Vec<f64>, below: f64) -> f64 {
        if !below.is_finite() || column.iter().any(|value| !value.is_finite()) {
            return f64::NAN;
        }
        for (i, &(c, s)) in self.rotations.iter().enumerate() {
            let (upper, lower) = (column[i], column[i + 1]);
            (column[i], column[i + 1]) = (c * upper + s * lower, c * lower - s * upper);
        }
        let last = column.len() - 1;
        let length = column[last].hypot(below);
        let (c, s) = if length == 0.0 { (1.0, 0.0) } else { (column[last] / length, below / length) };
        column[last] = length;
        self.triangle.push(column);
        self.rotations.push((c, s));
        let carried = self.rhs[last];
        self.rhs[last] = c * carried;
        self.rhs.push(-s * carried);
        (s * carried).abs()
    }

    /// The combination of basis vectors with the smallest residual.
    fn coefficients(&self) -> Vec<f64> {
        let mut y = self.rhs[..self.triangle.len()].to_vec();
        for j in (0..y.len()).rev() {
            let pivot = self.triangle[j][j];
            y[j] = if pivot == 0.0 { 0.0 } else { y[j] / pivot };
            for i in 0..j {
                y[i] -= self.triangle[j][i] * y[j];
            }
        }
        y
    }
}
