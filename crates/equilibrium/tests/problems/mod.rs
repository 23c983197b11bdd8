//! Problems on plain memory, shared by the tests that need no burn.
#![allow(dead_code, reason = "each test binary uses its own part")]
use fedeq_equilibrium::{Anderson, HostStates, Map, Ridge, Solver};
use rand::RngExt;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

pub(crate) const SIZE: usize = 6;

/// Uniform numbers in [-1, 1), the same ones for the same seed.
pub(crate) fn uniform(count: usize, seed: u64) -> Vec<f32> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    (0..count).map(|_| rng.random_range(-1.0..1.0)).collect()
}

pub(crate) fn distance(a: &[f32], b: &[f32]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt()
}

pub(crate) fn solvers() -> Vec<(&'static str, Solver)> {
    let authors = Anderson { memory: 4, ridge: Ridge::Absolute(1e-4), delay: 5, ..Anderson::default() };
    vec![
        ("plain", Solver::fixed_point()),
        ("damped", Solver::FixedPoint { damping: 0.3 }),
        ("anderson", Solver::anderson(5)),
        ("anderson, short memory", Solver::anderson(1)),
        ("anderson, long memory", Solver::anderson(30)),
        ("anderson, underrelaxed", Solver::Anderson(Anderson { mixing: 0.5, ..Anderson::default() })),
        ("anderson, restarted", Solver::Anderson(Anderson { restart: Some(8), ..Anderson::default() })),
        ("anderson, as in the authors' code", Solver::Anderson(authors)),
        ("broyden", Solver::broyden(20)),
        ("broyden, short memory", Solver::broyden(8)),
    ]
}

/// `z -> tanh(W z + x)`, with an input `x` for every row.
#[derive(Clone)]
pub(crate) struct Recurrent {
    pub(crate) weight: Vec<f32>,
    pub(crate) input: HostStates,
}

impl Recurrent {
    /// Below a `gain` of 1 it contracts.
    pub(crate) fn random(rows: usize, gain: f32, seed: u64) -> Self {
        let weight = uniform(SIZE * SIZE, seed).into_iter().map(|value| value * gain / SIZE as f32).collect();
        Self { weight, input: HostStates::new(uniform(rows * SIZE, seed + 1), rows, SIZE) }
    }

    /// Rows that need very different numbers of steps: large inputs saturate the cell, and saturated cells converge at once.
    pub(crate) fn uneven(rows: usize, gain: f32, seed: u64) -> Self {
        let mut cell = Self::random(rows, gain, seed);
        for row in 0..rows {
            let scale = if row % 4 == 1 { 0.05 } else { 10.0 + 10.0 * row as f32 };
            cell.input.row_mut(row).iter_mut().for_each(|value| *value *= scale);
        }
        cell
    }

    /// The same with the input of one row only.
    pub(crate) fn only(&self, row: usize) -> Self {
        Self { weight: self.weight.clone(), input: HostStates::new(self.input.row(row).to_vec(), 1, SIZE) }
    }

    pub(crate) fn image(&self, z: &HostStates) -> HostStates {
        let mut image = HostStates::zeros(z.rows(), z.width());
        self.clone().apply(z, &mut image);
        image
    }

    /// `u -> J^T u` at `z`.
    pub(crate) fn transposed(&self, z: &HostStates) -> impl FnMut(&HostStates, &mut HostStates) {
        let (weight, image) = (self.weight.clone(), self.image(z));
        move |u, out| {
            for row in 0..u.rows() {
                let (u, image, out) = (u.row(row), image.row(row), out.row_mut(row));
                for (j, out) in out.iter_mut().enumerate() {
                    *out = (0..SIZE).map(|i| weight[i * SIZE + j] * (1.0 - image[i] * image[i]) * u[i]).sum();
                }
            }
        }
    }
}

impl Map<HostStates> for Recurrent {
    fn apply(&mut self, z: &HostStates, out: &mut HostStates) {
        for row in 0..z.rows() {
            let (z, x) = (z.row(row), self.input.row(row));
            for (i, out) in out.row_mut(row).iter_mut().enumerate() {
                let sum: f32 = self.weight[i * SIZE..(i + 1) * SIZE].iter().zip(z).map(|(w, z)| w * z).sum();
                *out = (sum + x[i]).tanh();
            }
        }
    }

    fn keep(&mut self, rows: &[usize]) -> bool {
        let values = rows.iter().flat_map(|&row| self.input.row(row).to_vec()).collect();
        self.input = HostStates::new(values, rows.len(), SIZE);
        true
    }
}
