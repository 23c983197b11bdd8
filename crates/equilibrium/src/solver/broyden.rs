//! Broyden's good method on `h(z) = f(z) - z`, with the inverse Jacobian kept as a sum of rank-one terms for every sample.
use super::Iteration;
use crate::solve::borrow;
use crate::states::{HostStates, PerSlot, States, Window};
use crate::stop::Stop;

/// `B = -I + sum_i u_i v_i^T` approximates the inverse Jacobian of `h`; every sample has its own terms.
pub(super) struct BroydenIteration<S: States> {
    memory: usize,
    u: S::Window,
    v: S::Window,
    /// How many terms are in use; the rest of the windows is zero for every sample.
    terms: usize,
    has_previous: bool,
    previous_z: S,
    previous_residual: S,
    /// Room for products.
    mapped: S,
    back: S,
    dots: PerSlot,
    scales: Scales,
}

/// What a new term is divided by, and what goes into that.
#[derive(Default)]
struct Scales {
    products: Vec<f64>,
    of_change: Vec<f64>,
    of_mapped: Vec<f64>,
    inverse: Vec<f64>,
}

impl<S: States> Default for BroydenIteration<S> {
    fn default() -> Self {
        Self {
            memory: 0,
            u: S::Window::default(),
            v: S::Window::default(),
            terms: 0,
            has_previous: false,
            previous_z: S::default(),
            previous_residual: S::default(),
            mapped: S::default(),
            back: S::default(),
            dots: PerSlot::default(),
            scales: Scales::default(),
        }
    }
}

impl<S: States> BroydenIteration<S> {
    pub(super) fn start(&mut self, memory: usize, like: &S) {
        self.memory = memory;
        self.has_previous = false;
        self.forget(like);
    }

    fn forget(&mut self, like: &S) {
        self.u.clear(self.memory, like);
        self.v.clear(self.memory, like);
        self.terms = 0;
    }

    /// Adds the rank-one term that makes `B` map the newest change of `h` to the newest change of `z`, which are where the previous ones were.
    fn learn(&mut self) {
        if self.terms == self.memory {
            let like = std::mem::take(&mut self.previous_z);
            self.forget(&like);
            self.previous_z = like;
        }
        let (dz, dh) = (&self.previous_z, &self.previous_residual);
        self.mapped.copy_from(dh);
        multiply(&self.u, &self.v, &mut self.mapped, &mut self.dots);
        self.back.copy_from(dz);
        multiply(&self.v, &self.u, &mut self.back, &mut self.dots);
        self.scales.find(dz, &self.mapped);
        self.mapped.subtract_from(dz);
        self.mapped.scale_rows(&self.scales.inverse);
        self.u.set(self.terms, &self.mapped);
        // A sample without a usable change learns nothing: both halves of its term are zero.
        self.scales.inverse.iter_mut().for_each(|scale| *scale = if *scale == 0.0 { 0.0 } else { 1.0 });
        self.back.scale_rows(&self.scales.inverse);
        self.v.set(self.terms, &self.back);
        self.terms += 1;
    }
}

impl BroydenIteration<HostStates> {
    /// Borrows the memory of a solve for states of so many numbers.
    pub(super) fn borrow_memory(&mut self, memory: usize, stop: &Stop, numbers: usize, lend: &mut dyn FnMut(usize) -> Vec<f32>) {
        let terms = memory.min(stop.max_steps) * numbers;
        borrow(self.u.memory(), terms, lend);
        borrow(self.v.memory(), terms, lend);
        let states = [&mut self.previous_z, &mut self.previous_residual, &mut self.mapped, &mut self.back];
        states.into_iter().for_each(|states| borrow(states.memory(), numbers, lend));
    }

    /// Shows all memory of states.
    pub(super) fn memory(&mut self, show: &mut dyn FnMut(&mut Vec<f32>)) {
        let Self { u, v, previous_z, previous_residual, mapped, back, .. } = self;
        [u.memory(), v.memory()].into_iter().for_each(&mut *show);
        [previous_z, previous_residual, mapped, back].into_iter().for_each(|states| show(states.memory()));
    }
}

/// `x <- B x`, or `B^T x` with `left` and `right` exchanged.
fn multiply<S: States>(left: &S::Window, right: &S::Window, x: &mut S, dots: &mut PerSlot) {
    right.dots(x, dots);
    x.negate();
    left.add_combination(x, 1.0, dots);
}

impl<S: States> Iteration<S> for BroydenIteration<S> {
    fn next(&mut self, z: &S, _: &S, residual: &mut S) {
        if self.has_previous {
            self.previous_z.subtract_from(z);
            self.previous_residual.subtract_from(residual);
            self.learn();
        }
        self.previous_z.copy_from(z);
        self.previous_residual.copy_from(residual);
        self.has_previous = true;
        multiply(&self.u, &self.v, residual, &mut self.dots);
        residual.subtract_from(z);
    }

    fn keep_rows(&mut self, rows: &[usize]) {
        self.u.keep_rows(rows);
        self.v.keep_rows(rows);
        if self.has_previous {
            self.previous_z.keep_rows(rows);
            self.previous_residual.keep_rows(rows);
        }
    }
}

impl Scales {
    /// `1 / <dz, B dh>` for every row; 0 where that is lost in rounding.
    fn find<S: States>(&mut self, dz: &S, mapped: &S) {
        dz.dots(mapped, &mut self.products);
        dz.dots(dz, &mut self.of_change);
        mapped.dots(mapped, &mut self.of_mapped);
        let sizes = self.of_change.iter().zip(&self.of_mapped).map(|(a, b)| (a * b).sqrt());
        self.inverse.clear();
        self.inverse.extend(self.products.iter().zip(sizes).map(|(&dot, size)| usable_inverse(dot, size)));
    }
}

fn usable_inverse(dot: f64, size: f64) -> f64 {
    let usable = dot.is_finite() && dot.abs() > 1e-6 * size && dot.abs() > f64::from(f32::MIN_POSITIVE);
    if usable { dot.recip() } else { 0.0 }
}
