//! The fully connected layer.
use fedeq_kernels::InstructionSet;
use fedeq_kernels::activation::Activation;
use fedeq_kernels::gemm::{Factor, Product, Size};
use fedeq_models::graph::{ParameterId, ValueId};

use super::{Op, Run};
use crate::memory::{Buffer, Target, add};
use crate::parameters::ParameterTarget;
use crate::plan::Planner;

/// `y = phi(x W + b)`
#[derive(Debug)]
pub(super) struct Dense {
    sizes: Sizes,
    weight: ParameterId,
    bias: Option<ParameterId>,
    activation: Option<Activation>,
    x: Buffer,
    y: Buffer,
    back: Option<Back>,
}

#[derive(Debug)]
struct Back {
    dy: Buffer,
    dx: Option<Target>,
    dw: Option<ParameterTarget>,
    db: Option<ParameterTarget>,
}

impl Dense {
    pub(super) fn new(
        plan: &mut Planner<'_>,
        x: ValueId,
        weight: ParameterId,
        bias: Option<ParameterId>,
        activation: Option<fedeq_models::Activation>,
        y: ValueId,
    ) -> Self {
        let sizes = Sizes { rows: plan.rows(y), from: plan.width(x), to: plan.width(y) };
        let back = plan.incoming(y).map(|dy| Back {
            dy,
            dx: plan.target(x),
            dw: plan.parameter(weight),
            db: bias.and_then(|bias| plan.parameter(bias)),
        });
        if let Some(back) = &back {
            if back.dw.is_some() {
                plan.backward(x);
            }
            if activation.is_some() {
                plan.backward(y);
            }
        }
        Self { sizes, weight, bias, activation: activation.map(Into::into), x: plan.forward(x), y: plan.forward(y), back }
    }
}

impl Op for Dense {
    fn forward(&mut self, run: &mut Run<'_>) {
        let weight = run.parameters.get(self.weight);
        let bias = self.bias.map(|bias| run.parameters.get(bias));
        run.numbers.write(self.y, |numbers, y| {
            self.sizes.forward(run.set, numbers.read(self.x), weight, bias, y);
            if let Some(phi) = self.activation {
                in_place(phi, run.set, y, &mut run.scratch.gradient);
            }
        });
    }

    fn backward(&mut self, run: &mut Run<'_>) {
        let Some(back) = &self.back else { return };
        if let Some(phi) = self.activation {
            let (y, scratch) = (self.y, &mut run.scratch.gradient);
            run.numbers.write(back.dy, |numbers, dy| {
                scratch.clear();
                scratch.extend_from_slice(dy);
                phi.backward(run.set, numbers.read(y), scratch, dy);
            });
        }
        let (numbers, sizes) = (&mut run.numbers, self.sizes);
        run.gradients.write(back.dw, |dw| sizes.weight_gradient(run.set, numbers.read(self.x), numbers.read(back.dy), dw));
        run.gradients.write(back.db, |db| {
            db.fill(0.0);
            numbers.read(back.dy).chunks_exact(sizes.to).for_each(|row| add(db, row));
        });
        if let Some(dx) = back.dx {
            let weight = run.parameters.get(self.weight);
            numbers.write_gradient(dx, |numbers, dx| {
                sizes.input_gradient(run.set, numbers.read(back.dy), weight, dx, run.scratch);
            });
        }
    }
}

/// `y = phi(y)`
fn in_place(phi: Activation, set: InstructionSet, y: &mut [f32], scratch: &mut Vec<f32>) {
    scratch.clear();
    scratch.extend_from_slice(y);
    phi.forward(set, scratch, y);
}

/// `[rows, from] x [from, to]`
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) rows: usize,
    pub(crate) from: usize,
    pub(crate) to: usize,
}

impl Sizes {
    /// `y = x W + b`
    pub(crate) fn forward(&self, set: InstructionSet, x: &[f32], weight: &[f32], bias: Option<&[f32]>, y: &mut [f32]) {
        let Self { rows, from, to } = *self;
        if let Some(bias) = bias {
            y.chunks_exact_mut(to).for_each(|y| y.copy_from_slice(bias));
        }
        let (size, a) = (Size { m: rows, n: to, k: from }, Factor::rows(x, from));
        Product { size, a, b: weight, b_stride: to, c: y, c_stride: to, accumulate: bias.is_some() }.run(set);
    }

    /// `dW = x^T dy`
    pub(crate) fn weight_gradient(&self, set: InstructionSet, x: &[f32], dy: &[f32], dw: &mut [f32]) {
        let Self { rows, from, to } = *self;
        let (size, a) = (Size { m: from, n: to, k: rows }, Factor::transposed(x, from));
        Product { size, a, b: dy, b_stride: to, c: dw, c_stride: to, accumulate: false }.run(set);
    }

    /// `dx = dy W^T`, by way of whichever transpose is the smaller one.
    pub(crate) fn input_gradient(
        &self,
        set: InstructionSet,
        dy: &[f32],
        weight: &[f32],
        dx: &mut [f32],
        scratch: &mut super::Scratch,
    ) {
        let Self { rows, from, to } = *self;
        let super::Scratch { transposed, gradient, .. } = scratch;
        if rows * (from + to) < from * to {
            // dx^T = W dy^T
            transpose(dy, to, transposed);
            gradient.resize(from * rows, 0.0);
            let size = Size { m: from, n: rows, k: to };
            let c = &mut gradient[..from * rows];
            Product { size, a: Factor::rows(weight, to), b: transposed, b_stride: rows, c, c_stride: rows, accumulate: false }
                .run(set);
            transpose_to(&gradient[..from * rows], rows, dx);
        } else {
            transpose(weight, to, transposed);
            let (size, a) = (Size { m: rows, n: from, k: to }, Factor::rows(dy, to));
            Product { size, a, b: transposed, b_stride: from, c: dx, c_stride: from, accumulate: false }.run(set);
        }
    }
}

/// The transpose of a matrix of so many columns.
pub(crate) fn transpose(x: &[f32], columns: usize, y: &mut Vec<f32>) {
    y.clear();
    y.resize(x.len(), 0.0);
    transpose_to(x, columns, y);
}

fn transpose_to(x: &[f32], columns: usize, y: &mut [f32]) {
    let rows = x.len() / columns;
    // In blocks, so that both sides stay in the cache.
    for first in (0..rows).step_by(16) {
        let last = rows.min(first + 16);
        for column in 0..columns {
            for row in first..last {
                y[column * rows + row] = x[row * columns + column];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_gradient_of_the_input_is_the_same_by_either_transpose() {
        let numbers = |count: usize, seed: usize| -> Vec<f32> {
            (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
        };
        for (rows, from, to) in [(3, 40, 20), (50, 7, 9), (1, 1, 1), (17, 33, 18)] {
            let (dy, weight, mut dx) = (numbers(rows * to, 1), numbers(from * to, 2), vec![0.0; rows * from]);
            let sizes = Sizes { rows, from, to };
            sizes.input_gradient(InstructionSet::best(), &dy, &weight, &mut dx, &mut super::super::Scratch::default());
            for row in 0..rows {
                for column in 0..from {
                    let term = |at: usize| f64::from(dy[row * to + at]) * f64::from(weight[column * to + at]);
                    let expected: f64 = (0..to).map(term).sum();
                    assert!((f64::from(dx[row * from + column]) - expected).abs() < 1e-5);
                }
            }
        }
    }
}
