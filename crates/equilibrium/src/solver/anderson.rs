//! Anderson acceleration with a Gram matrix for every sample.
use burn::tensor::{Int, Tensor};

use super::window::Window;
use super::{Anderson, Iteration, Ridge};
use crate::dense::solve_positive_definite;

/// Beyond this sum of absolute weights a combination amplifies rounding more than it extrapolates.
const LARGEST_WEIGHT_SUM: f64 = 1e6;

pub(super) struct AndersonIteration {
    settings: Anderson,
    points: Window,
    residuals: Window,
    /// The past of every sample, kept on the host in f64.
    memories: Vec<Memory>,
    step: usize,
}

impl AndersonIteration {
    pub(super) fn new(settings: Anderson, like: &Tensor<2>) -> Self {
        let width = settings.memory + 1;
        Self {
            points: Window::new(width, like),
            residuals: Window::new(width, like),
            memories: vec![Memory::new(width); like.dims()[0]],
            settings,
            step: 0,
        }
    }

    fn restart_is_due(&self) -> bool {
        self.settings.restart.is_some_and(|period| self.step > 0 && self.step.is_multiple_of(period))
    }

    /// The weights of every sample over the slots of its window.
    fn weights(&mut self, newest: usize) -> Vec<Vec<f64>> {
        let plain = self.step < self.settings.delay;
        let ridge = self.settings.ridge;
        let weigh = |memory: &mut Memory| if plain { memory.only(newest) } else { memory.weights(newest, ridge) };
        self.memories.iter_mut().map(weigh).collect()
    }
}

impl Iteration for AndersonIteration {
    fn next(&mut self, z: &Tensor<2>, residual: &Tensor<2>) -> Tensor<2> {
        if self.restart_is_due() {
            self.memories.iter_mut().for_each(Memory::forget);
        }
        let newest = self.step % (self.settings.memory + 1);
        self.points.set(newest, z.clone());
        self.residuals.set(newest, residual.clone());
        for (memory, dots) in self.memories.iter_mut().zip(self.residuals.dots(residual)) {
            memory.insert(newest, &dots);
        }
        let weights = self.weights(newest);
        self.step += 1;
        self.points.combine(&weights) + self.residuals.combine(&weights).mul_scalar(self.settings.mixing)
    }

    fn keep(&mut self, rows: &Tensor<1, Int>, indices: &[usize]) {
        self.points.keep(rows);
        self.residuals.keep(rows);
        self.memories = indices.iter().map(|&index| self.memories[index].clone()).collect();
    }
}

/// The Gram matrix of one sample's residuals and which of its slots hold something.
#[derive(Clone)]
struct Memory {
    gram: Vec<Vec<f64>>,
    filled: Vec<bool>,
}

impl Memory {
    fn new(width: usize) -> Self {
        Self { gram: vec![vec![0.0; width]; width], filled: vec![false; width] }
    }

    fn forget(&mut self) {
        self.filled.fill(false);
    }

    /// A new residual in `slot`, given its inner products with all slots.
    fn insert(&mut self, slot: usize, dots: &[f64]) {
        self.filled[slot] = true;
        for (other, &dot) in dots.iter().enumerate() {
            self.gram[slot][other] = dot;
            self.gram[other][slot] = dot;
        }
    }

    /// A plain step from `slot`.
    fn only(&self, slot: usize) -> Vec<f64> {
        (0..self.filled.len()).map(|each| f64::from(u8::from(each == slot))).collect()
    }

    /// The mixing weights; a plain step from `newest` where they cannot be trusted.
    fn weights(&mut self, newest: usize, ridge: Ridge) -> Vec<f64> {
        let slots: Vec<usize> = (0..self.filled.len()).filter(|&slot| self.filled[slot]).collect();
        let Some(alpha) = self.least_squares(&slots, ridge) else {
            self.forget();
            self.filled[newest] = true;
            return self.only(newest);
        };
        let mut weights = vec![0.0; self.filled.len()];
        slots.iter().zip(alpha).for_each(|(&slot, value)| weights[slot] = value);
        weights
    }

    /// Minimises `||sum alpha_i r_i||^2` plus the ridge subject to `sum alpha_i = 1`.
    ///
    /// Residuals shrink by orders of magnitude along a solve, so the system is written for `beta_i = alpha_i ||r_i||`: its matrix
    /// has a unit diagonal, and rounding stays relative to each residual's own size.
    fn least_squares(&self, slots: &[usize], ridge: Ridge) -> Option<Vec<f64>> {
        let norms: Vec<f64> = slots.iter().map(|&slot| self.gram[slot][slot].sqrt()).collect();
        if norms.iter().any(|&norm| norm == 0.0 || !norm.is_finite()) {
            return None;
        }
        let entry = |i: usize, j: usize| {
            let penalty = match ridge {
                _ if i != j => 0.0,
                Ridge::Relative(ridge) => ridge,
                Ridge::Absolute(ridge) => ridge / (norms[i] * norms[i]),
            };
            self.gram[slots[i]][slots[j]] / (norms[i] * norms[j]) + penalty
        };
        let matrix = (0..slots.len()).map(|i| (0..slots.len()).map(|j| entry(i, j)).collect()).collect();
        let beta = solve_positive_definite(matrix, norms.iter().map(|norm| norm.recip()).collect())?;
        normalised(beta.iter().zip(&norms).map(|(beta, norm)| beta / norm).collect())
    }
}

/// Scales the weights to sum to one, unless that is hopeless.
fn normalised(weights: Vec<f64>) -> Option<Vec<f64>> {
    let sum: f64 = weights.iter().sum();
    let scaled: Vec<f64> = weights.iter().map(|weight| weight / sum).collect();
    let size: f64 = scaled.iter().map(|weight| weight.abs()).sum();
    (size <= LARGEST_WEIGHT_SUM).then_some(scaled) // Also false for NaN.
}
