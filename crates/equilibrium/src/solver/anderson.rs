//! Anderson acceleration with a Gram matrix for every sample.
use burn::tensor::{Int, Tensor};

use super::changes::{Changes, Dots};
use super::{Anderson, Evaluation, Iteration, Ridge};
use crate::dense::solve_positive_definite;

/// Beyond this sum of absolute coefficients a combination amplifies rounding more than it extrapolates.
const LARGEST_COEFFICIENT_SUM: f64 = 1e6;

/// Works on differences of successive plain steps `p = x + mixing r` and residuals, `dp_j = p_{j+1} - p_j` and `dr_j = r_{j+1} - r_j`:
/// the next iterate is `p - sum_j gamma_j dp_j`, where `gamma` minimises `||r - sum_j gamma_j dr_j||^2` plus the ridge.
/// This is the problem of the weights with its constraint eliminated; it stays regular where an exact solution exists, and what is
/// added to `p` is small, which matters in f32.
pub(super) struct AndersonIteration {
    settings: Anderson,
    plain_changes: Changes,
    residual_changes: Changes,
    /// The past of every sample, kept on the host in f64.
    memories: Vec<Memory>,
    step: usize,
}

impl AndersonIteration {
    pub(super) fn new(settings: Anderson, like: &Tensor<2>) -> Self {
        Self {
            plain_changes: Changes::new(settings.memory, like),
            residual_changes: Changes::new(settings.memory, like),
            memories: vec![Memory::new(settings.memory); like.dims()[0]],
            settings,
            step: 0,
        }
    }

    /// Stores the newest change; says in which slot, with the inner products of the residual and all changes of residuals.
    fn learn(&mut self, plain: &Tensor<2>, residual: &Tensor<2>) -> Option<(usize, Dots)> {
        self.plain_changes.push(plain);
        self.residual_changes.push(residual);
        let slot = self.residual_changes.newest()?;
        let (of_change, of_residual) = self.residual_changes.dots();
        for (memory, dots) in self.memories.iter_mut().zip(of_change) {
            memory.insert(slot, &dots);
        }
        Some((slot, of_residual))
    }

    /// The next iterate, with the coefficients that the past suggests.
    fn extrapolated(&mut self, plain: &Tensor<2>, newest: usize, dots: &Dots) -> Tensor<2> {
        let ridge = self.settings.ridge;
        let gamma: Vec<Vec<f64>> =
            self.memories.iter_mut().zip(dots).map(|(memory, dots)| memory.coefficients(newest, dots, ridge)).collect();
        self.plain_changes.combine(plain, -1.0, &gamma)
    }

    fn restart_is_due(&self) -> bool {
        self.settings.restart.is_some_and(|period| self.step.is_multiple_of(period))
    }
}

impl Iteration for AndersonIteration {
    fn next(&mut self, at: &Evaluation<'_>) -> Tensor<2> {
        let plain = match self.settings.mixing {
            1.0 => at.image.clone(),
            mixing => at.z.clone() + at.residual.clone().mul_scalar(mixing),
        };
        let learnt = self.learn(&plain, at.residual);
        if self.restart_is_due() {
            self.memories.iter_mut().for_each(Memory::forget);
        }
        self.step += 1;
        let next = match learnt {
            Some((newest, dots)) if self.step > self.settings.delay => self.extrapolated(&plain, newest, &dots),
            _ => plain,
        };
        self.plain_changes.make_room();
        self.residual_changes.make_room();
        next
    }

    fn keep(&mut self, rows: &Tensor<1, Int>, indices: &[usize]) {
        self.plain_changes.keep(rows, indices);
        self.residual_changes.keep(rows, indices);
        self.memories = indices.iter().map(|&index| self.memories[index].clone()).collect();
    }
}

/// The Gram matrix of one sample's residual changes, and how many of the newest ones may be used.
#[derive(Clone)]
struct Memory {
    gram: Vec<Vec<f64>>,
    usable: usize,
}

impl Memory {
    fn new(width: usize) -> Self {
        Self { gram: vec![vec![0.0; width]; width], usable: 0 }
    }

    fn forget(&mut self) {
        self.usable = 0;
    }

    /// A new change in `slot`, given its inner products with all slots.
    fn insert(&mut self, slot: usize, dots: &[f64]) {
        self.usable = (self.usable + 1).min(self.gram.len());
        for (other, &dot) in dots.iter().enumerate() {
            self.gram[slot][other] = dot;
            self.gram[other][slot] = dot;
        }
    }

    /// `gamma` over the slots, given the inner products of the residual with all changes. Zero (a plain step) where it cannot be
    /// trusted; what led there is then forgotten.
    fn coefficients(&mut self, newest: usize, dots: &[f64], ridge: Ridge) -> Vec<f64> {
        let width = self.gram.len();
        let oldest_first: Vec<usize> = (0..self.usable).rev().map(|age| (newest + width - age) % width).collect();
        let mut gamma = vec![0.0; width];
        match self.least_squares(&oldest_first, dots, ridge) {
            Some(found) => oldest_first.iter().zip(found).for_each(|(&slot, value)| gamma[slot] = value),
            None => self.forget(),
        }
        gamma
    }

    /// Changes shrink by orders of magnitude along a solve, so the system is written for `gamma_j ||dr_j||`: rounding then stays
    /// relative to each change's own size.
    fn least_squares(&self, slots: &[usize], dots: &[f64], ridge: Ridge) -> Option<Vec<f64>> {
        let norms: Vec<f64> = slots.iter().map(|&slot| self.gram[slot][slot].sqrt()).collect();
        if norms.iter().any(|&norm| norm == 0.0 || !norm.is_finite()) {
            return None;
        }
        let count = slots.len();
        let entry = |i: usize, j: usize| (self.gram[slots[i]][slots[j]] + penalty(ridge, i, j, norms[i])) / (norms[i] * norms[j]);
        let matrix = (0..count).map(|i| (0..count).map(|j| entry(i, j)).collect()).collect();
        let rhs = (0..count).map(|i| (dots[slots[i]] + pull(ridge, i + 1 == count)) / norms[i]).collect();
        let scaled = solve_positive_definite(matrix, rhs)?;
        let gamma: Vec<f64> = scaled.iter().zip(&norms).map(|(value, norm)| value / norm).collect();
        let size: f64 = gamma.iter().map(|value| value.abs()).sum();
        (size <= LARGEST_COEFFICIENT_SUM).then_some(gamma) // Also false for NaN.
    }
}

/// What the ridge adds to the matrix. In terms of `gamma`, oldest first, the weights of the iterates are
/// `gamma_0, gamma_1 - gamma_0, ..., 1 - gamma_last`; their squares sum to a tridiagonal form.
fn penalty(ridge: Ridge, i: usize, j: usize, norm: f64) -> f64 {
    match (ridge, i.abs_diff(j)) {
        (Ridge::Relative(ridge), 0) => ridge * norm * norm,
        (Ridge::Absolute(ridge), 0) => 2.0 * ridge,
        (Ridge::Absolute(ridge), 1) => -ridge,
        _ => 0.0,
    }
}

/// What the ridge adds to the right-hand side, from the `1` in the newest weight.
fn pull(ridge: Ridge, newest: bool) -> f64 {
    match ridge {
        Ridge::Absolute(ridge) if newest => ridge,
        Ridge::Absolute(_) | Ridge::Relative(_) => 0.0,
    }
}
