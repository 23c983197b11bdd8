//! The fully connected layer.
use std::ops::Range;

use fedeq_kernels::InstructionSet;
use fedeq_kernels::activation::Activation;
use fedeq_kernels::dense::{self, Addend, DenseShape};
use fedeq_models::graph::{ParameterId, ValueId};

use super::{Op, PassContext, Pieces, Scratch};
use crate::memory::{Buffer, Target};
use crate::op::kernel_of;
use crate::parameters::ParameterTarget;
use crate::plan::Planner;

/// The rows of a weight in a piece of its gradient: whole vectors of every instruction set, so that pieces are updated as the whole would be.
const ROWS: usize = 16;

/// Weights of at least so many numbers have gradients in pieces of about as many.
const LARGE: usize = 1 << 16;

/// `y = phi(x W + b)`
#[derive(Debug)]
pub(super) struct Dense {
    shape: DenseShape,
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
    pieces: Option<Pieces>,
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
        let shape = DenseShape { rows: plan.rows(y), inputs: plan.width(x), outputs: plan.width(y) };
        let each = (LARGE / shape.outputs.max(1)).next_multiple_of(ROWS).max(ROWS) * shape.outputs;
        let pieces = Pieces { id: weight, all: shape.inputs * shape.outputs, each };
        let in_pieces = pieces.all > each && plan.is_alone(weight);
        let back = plan.incoming(y).map(|dy| {
            let dx = plan.target(x);
            let dw = if in_pieces { plan.parameter_in_pieces(weight) } else { plan.parameter(weight) };
            let db = bias.and_then(|bias| plan.parameter(bias));
            Back { dy, dx, dw, db, pieces: dw.and(in_pieces.then_some(pieces)) }
        });
        if let Some(back) = &back {
            if back.dw.is_some() {
                plan.backward(x);
            }
            if activation.is_some() {
                plan.backward(y);
            }
        }
        Self { shape, weight, bias, activation: activation.map(kernel_of), x: plan.forward(x), y: plan.forward(y), back }
    }
}

impl Op for Dense {
    fn pieces(&self) -> Option<Pieces> {
        self.back.as_ref().and_then(|back| back.pieces)
    }

    fn gradient_piece(&mut self, run: &mut PassContext<'_>, numbers: Range<usize>, to: &mut [f32]) {
        let Some(back) = &self.back else { return };
        let (x, dy) = (run.numbers.read(self.x), run.numbers.read(back.dy));
        to.fill(0.0);
        dense::add_weight_gradient_from(run.set, self.shape, x, dy, numbers.start / self.shape.outputs, to);
    }

    fn forward(&mut self, run: &mut PassContext<'_>) {
        let weight = run.parameters.get(self.weight);
        let bias = self.bias.map(|bias| run.parameters.get(bias));
        run.numbers.write(self.y, |numbers, y| {
            let addend = bias.map_or(Addend::Nothing, Addend::Bias);
            dense::forward(run.set, self.shape, numbers.read(self.x), weight, addend, self.activation, y);
        });
    }

    fn backward(&mut self, run: &mut PassContext<'_>) {
        let Some(back) = &self.back else { return };
        if let Some(phi) = self.activation {
            run.numbers.write(back.dy, |numbers, dy| phi.backward_in_place(run.set, numbers.read(self.y), dy));
        }
        let (numbers, shape) = (&mut run.numbers, self.shape);
        let dw = back.dw.filter(|dw| run.gradients.has(*dw));
        run.gradients.write(dw, |dw| {
            dw.fill(0.0);
            dense::add_weight_gradient(run.set, shape, numbers.read(self.x), numbers.read(back.dy), dw);
        });
        run.gradients.write(back.db, |db| {
            db.fill(0.0);
            dense::add_bias_gradient(run.set, numbers.read(back.dy), db);
        });
        if let Some(dx) = back.dx {
            let weight = run.parameters.get(self.weight);
            numbers.write_gradient(dx, |numbers, dx| {
                input_gradient(run.set, shape, numbers.read(back.dy), weight, dx, run.scratch);
            });
        }
    }
}

/// `dx = dy W^T`, by way of whichever transpose is the smaller one.
fn input_gradient(set: InstructionSet, shape: DenseShape, dy: &[f32], weight: &[f32], dx: &mut [f32], scratch: &mut Scratch) {
    let DenseShape { rows, inputs, outputs } = shape;
    let Scratch { transposed, gradient, .. } = scratch;
    if rows * (inputs + outputs) < inputs * outputs {
        // dx^T = W dy^T
        transposed.resize(dy.len(), 0.0);
        gradient.resize(dx.len(), 0.0);
        dense::transpose(dy, outputs, transposed);
        let turned = DenseShape { rows: inputs, inputs: outputs, outputs: rows };
        dense::forward(set, turned, weight, transposed, Addend::Nothing, None, gradient);
        dense::transpose(gradient, rows, dx);
    } else {
        transposed.resize(weight.len(), 0.0);
        dense::transpose(weight, outputs, transposed);
        dense::input_gradient(set, shape, dy, transposed, dx, false);
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
            let shape = DenseShape { rows, inputs: from, outputs: to };
            input_gradient(InstructionSet::best(), shape, &dy, &weight, &mut dx, &mut Scratch::default());
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
