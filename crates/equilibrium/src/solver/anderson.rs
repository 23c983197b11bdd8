//! Anderson acceleration with a Gram matrix for every sample.
use super::{Anderson, Iteration, Ridge};
use crate::dense::solve_positive_definite;
use crate::solve::borrow;
use crate::states::{Changes, HostStates, PerSlot, States, keep_pieces};
use crate::stop::Stop;

/// Beyond this sum of absolute coefficients a combination amplifies rounding more than it extrapolates.
const LARGEST_COEFFICIENT_SUM: f64 = 1e6;

/// Works on differences of successive plain steps `p = x + mixing r` and residuals, `dp_j = p_{j+1} - p_j` and `dr_j = r_{j+1} - r_j`:
/// the next iterate is `p - sum_j gamma_j dp_j`, where `gamma` minimises `||r - sum_j gamma_j dr_j||^2` plus the ridge.
/// This is the problem of the weights with its constraint eliminated; it stays regular where an exact solution exists, and what is
/// added to `p` is small, which matters in f32.
pub(super) struct AndersonIteration<S: States> {
    settings: Anderson,
    plain_changes: S::Changes,
    residual_changes: S::Changes,
    /// Room for the plain step, where it is not the image.
    plain: S,
    past: Past,
    with_change: PerSlot,
    with_residual: PerSlot,
    gamma: PerSlot,
    step: usize,
}

impl<S: States> Default for AndersonIteration<S> {
    fn default() -> Self {
        Self {
            settings: Anderson::default(),
            plain_changes: S::Changes::default(),
            residual_changes: S::Changes::default(),
            plain: S::default(),
            past: Past::default(),
            with_change: PerSlot::default(),
            with_residual: PerSlot::default(),
            gamma: PerSlot::default(),
            step: 0,
        }
    }
}

impl<S: States> AndersonIteration<S> {
    pub(super) fn start(&mut self, settings: &Anderson, like: &S) {
        self.settings = settings.clone();
        self.plain_changes.clear(settings.memory, like);
        self.residual_changes.clear(settings.memory, like);
        self.past.clear(like.rows(), settings.memory);
        self.step = 0;
    }

    /// Takes note of the newest change; says in which slot it is.
    fn learn(&mut self, plain: &S, residual: &S) -> Option<usize> {
        self.plain_changes.observe(plain);
        self.residual_changes.observe(residual);
        let slot = self.residual_changes.newest_slot()?;
        self.residual_changes.dots(residual, &mut self.with_change, &mut self.with_residual);
        self.past.insert(slot, &self.with_change);
        Some(slot)
    }

    /// The coefficients that the past suggests for the next iterate.
    fn find_coefficients(&mut self, newest: usize, rows: usize) {
        self.gamma.clear(rows, self.settings.memory);
        for row in 0..rows {
            let dots = self.with_residual.row(row);
            self.past.coefficients(row, newest, dots, self.settings.ridge, self.gamma.row_mut(row));
        }
    }

    fn restart_is_due(&self) -> bool {
        self.settings.restart.is_some_and(|period| self.step.is_multiple_of(period))
    }

    /// The next iterate from the plain step, in place of the residual.
    fn advance(&mut self, plain: &S, residual: &mut S) {
        let learnt = self.learn(plain, residual);
        if self.restart_is_due() {
            self.past.forget();
        }
        self.step += 1;
        let rows = plain.rows();
        self.residual_changes.push(residual);
        match learnt {
            Some(newest) if self.step > self.settings.delay => {
                self.find_coefficients(newest, rows);
                self.plain_changes.subtract_combination(residual, plain, &self.gamma);
            }
            _ => residual.copy_from(plain),
        }
        self.plain_changes.push(plain);
    }
}

impl AndersonIteration<HostStates> {
    /// Borrows the memory of a solve for states of so many numbers.
    pub(super) fn borrow_memory(
        &mut self,
        settings: &Anderson,
        stop: &Stop,
        numbers: usize,
        lend: &mut dyn FnMut(usize) -> Vec<f32>,
    ) {
        let past = settings.memory.min(stop.max_steps) * numbers;
        borrow(self.plain_changes.memory(), past, lend);
        borrow(self.residual_changes.memory(), past, lend);
        if settings.mixing != 1.0 {
            borrow(self.plain.memory(), numbers, lend);
        }
    }

    /// Shows all memory of states.
    pub(super) fn memory(&mut self, show: &mut dyn FnMut(&mut Vec<f32>)) {
        [self.plain_changes.memory(), self.residual_changes.memory(), self.plain.memory()].into_iter().for_each(show);
    }
}

impl<S: States> Iteration<S> for AndersonIteration<S> {
    fn next(&mut self, z: &S, image: &S, residual: &mut S) {
        if self.settings.mixing == 1.0 {
            return self.advance(image, residual);
        }
        let mut plain = std::mem::take(&mut self.plain);
        plain.copy_from(residual);
        plain.scale_and_add(self.settings.mixing, z);
        self.advance(&plain, residual);
        self.plain = plain;
    }

    fn keep_rows(&mut self, rows: &[usize]) {
        self.plain_changes.keep_rows(rows);
        self.residual_changes.keep_rows(rows);
        self.past.keep_rows(rows);
    }
}

/// The Gram matrices of the samples' residual changes, in f64, and how many of the newest changes of each may be used.
#[derive(Default)]
struct Past {
    grams: Vec<f64>,
    usable: Vec<usize>,
    width: usize,
    system: System,
}

/// One sample's least-squares problem, and room for the next one's.
#[derive(Default)]
struct System {
    /// Oldest first.
    slots: Vec<usize>,
    norms: Vec<f64>,
    matrix: Vec<f64>,
    /// The right-hand side, and then the solution.
    gamma: Vec<f64>,
}

impl Past {
    fn clear(&mut self, rows: usize, width: usize) {
        self.width = width;
        self.grams.clear();
        self.grams.resize(rows * width * width, 0.0);
        self.usable.clear();
        self.usable.resize(rows, 0);
    }

    fn forget(&mut self) {
        self.usable.fill(0);
    }

    /// A new change in `slot`, given its inner products with all slots.
    fn insert(&mut self, slot: usize, dots: &PerSlot) {
        let width = self.width;
        for (row, (gram, usable)) in self.grams.chunks_exact_mut(width * width).zip(&mut self.usable).enumerate() {
            *usable = (*usable + 1).min(width);
            for (other, &dot) in dots.row(row).iter().enumerate() {
                gram[slot * width + other] = dot;
                gram[other * width + slot] = dot;
            }
        }
    }

    fn keep_rows(&mut self, rows: &[usize]) {
        keep_pieces(&mut self.grams, self.width * self.width, rows);
        keep_pieces(&mut self.usable, 1, rows);
    }

    /// `gamma` over the slots, given the inner products of the residual with all changes. Zero (a plain step) where it cannot be
    /// trusted; what led there is then forgotten.
    fn coefficients(&mut self, row: usize, newest: usize, dots: &[f64], ridge: Ridge, gamma: &mut [f64]) {
        let (width, system) = (self.width, &mut self.system);
        let gram = &self.grams[row * width * width..(row + 1) * width * width];
        system.slots.clear();
        system.slots.extend((0..self.usable[row]).rev().map(|age| (newest + width - age) % width));
        if system.solve(gram, width, dots, ridge) {
            system.slots.iter().zip(&system.gamma).for_each(|(&slot, &value)| gamma[slot] = value);
        } else {
            self.usable[row] = 0;
        }
    }
}

impl System {
    /// Changes shrink by orders of magnitude along a solve, so the system is written for `gamma_j ||dr_j||`: rounding then stays
    /// relative to each change's own size.
    fn solve(&mut self, gram: &[f64], width: usize, dots: &[f64], ridge: Ridge) -> bool {
        let Self { slots, norms, matrix, gamma } = self;
        norms.clear();
        norms.extend(slots.iter().map(|&slot| gram[slot * width + slot].sqrt()));
        if norms.iter().any(|&norm| norm == 0.0 || !norm.is_finite()) {
            return false;
        }
        let count = slots.len();
        let entry =
            |i: usize, j: usize| (gram[slots[i] * width + slots[j]] + penalty(ridge, i, j, norms[i])) / (norms[i] * norms[j]);
        matrix.clear();
        matrix.extend((0..count * count).map(|at| entry(at / count, at % count)));
        gamma.clear();
        gamma.extend((0..count).map(|i| (dots[slots[i]] + pull(ridge, i + 1 == count)) / norms[i]));
        if !solve_positive_definite(matrix, gamma) {
            return false;
        }
        gamma.iter_mut().zip(norms).for_each(|(value, norm)| *value /= *norm);
        let size: f64 = gamma.iter().map(|value| value.abs()).sum();
        size <= LARGEST_COEFFICIENT_SUM // Also false for NaN.
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
