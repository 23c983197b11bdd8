//! Broyden's good method on `h(z) = f(z) - z`, with the inverse Jacobian kept as a sum of rank-one terms for every sample.
use burn::tensor::{Int, Tensor};

use super::window::Window;
use super::{Evaluation, Iteration};
use crate::host::{column, to_host};
use crate::rows::Rows;

/// `B = -I + sum_i u_i v_i^T` approximates the inverse Jacobian of `h`; every sample has its own terms.
pub(super) struct BroydenIteration {
    memory: usize,
    u: Window,
    v: Window,
    /// How many terms are in use; the rest of the windows is zero for every sample.
    terms: usize,
    previous: Option<(Tensor<2>, Tensor<2>)>,
}

impl BroydenIteration {
    pub(super) fn new(memory: usize, like: &Tensor<2>) -> Self {
        Self { memory, u: Window::new(memory, like), v: Window::new(memory, like), terms: 0, previous: None }
    }

    /// `B x`, or `B^T x` with `left` and `right` exchanged.
    fn product(left: &Window, right: &Window, x: &Tensor<2>) -> Tensor<2> {
        left.combine(&x.clone().neg(), 1.0, &right.dots(x))
    }

    /// Adds the rank-one term that makes `B` map the newest change of `h` to the newest change of `z`.
    fn learn(&mut self, dz: &Tensor<2>, dh: &Tensor<2>) {
        if self.terms == self.memory {
            self.u = Window::new(self.memory, dz);
            self.v = Window::new(self.memory, dz);
            self.terms = 0;
        }
        let mapped = Self::product(&self.u, &self.v, dh);
        let v = Self::product(&self.v, &self.u, dz);
        let scale = inverse_scales(dz, &mapped);
        self.u.set(self.terms, (dz.clone() - mapped) * scale.clone());
        // A sample without a usable change learns nothing: both halves of its term are zero.
        self.v.set(self.terms, v.mask_fill(scale.equal_elem(0.0).expand(dz.dims()), 0.0));
        self.terms += 1;
    }
}

impl Iteration for BroydenIteration {
    fn next(&mut self, &Evaluation { z, residual, .. }: &Evaluation<'_>) -> Tensor<2> {
        if let Some((old_z, old_residual)) = self.previous.take() {
            self.learn(&(z.clone() - old_z), &(residual.clone() - old_residual));
        }
        self.previous = Some((z.clone(), residual.clone()));
        z.clone() - Self::product(&self.u, &self.v, residual)
    }

    fn keep(&mut self, rows: &Tensor<1, Int>, indices: &[usize]) {
        self.u.keep(rows, indices);
        self.v.keep(rows, indices);
        self.previous = self.previous.take().map(|pair| pair.pick(rows));
    }
}

/// `1 / <dz, B dh>` for every row as a column `[rows, 1]`; 0 where that is lost in rounding.
fn inverse_scales(dz: &Tensor<2>, mapped: &Tensor<2>) -> Tensor<2> {
    let dots = (dz.clone() * mapped.clone()).sum_dim(1);
    let sizes = dz.clone().square().sum_dim(1) * mapped.clone().square().sum_dim(1);
    let host = to_host(dots).into_iter().zip(to_host(sizes));
    column(host.map(|(dot, size)| usable_inverse(dot, size.sqrt())).collect(), dz)
}

fn usable_inverse(dot: f64, size: f64) -> f64 {
    let usable = dot.is_finite() && dot.abs() > 1e-6 * size && dot.abs() > f64::from(f32::MIN_POSITIVE);
    if usable { dot.recip() } else { 0.0 }
}
