//! Dense layers, `y = phi(x W + b)` with `W` of `[inputs, outputs]`, and their gradients.
//!
//! ```
//! use fedeq_kernels::InstructionSet;
//! use fedeq_kernels::activation::Activation;
//! use fedeq_kernels::dense::{self, Addend, DenseShape};
//!
//! let shape = DenseShape { rows: 1, inputs: 2, outputs: 2 };
//! let mut y = [0.0; 2];
//! let weight = [1.0, 2.0, 3.0, 4.0];
//! dense::forward(InstructionSet::best(), shape, &[1.0, -1.0], &weight, Addend::Bias(&[1.0, 3.0]), Some(Activation::Relu), &mut y);
//! assert_eq!(y, [0.0, 1.0]);
//! ```
use pulp::{Simd, WithSimd};

use crate::InstructionSet;
use crate::activation::Activation;
use crate::gemm::{Factor, Product, Size};
use crate::vectors::{read, write};

/// The extent of a dense layer: `[rows, inputs] -> [rows, outputs]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DenseShape {
    /// Samples, or positions of sequences.
    pub rows: usize,
    /// Numbers of a row before.
    pub inputs: usize,
    /// Numbers of a row after.
    pub outputs: usize,
}

impl DenseShape {
    fn check(self, x: usize, weight: usize, y: usize) {
        let Self { rows, inputs, outputs } = self;
        assert!(rows.checked_mul(inputs) == Some(x), "the input has `rows * inputs` numbers");
        assert!(inputs.checked_mul(outputs) == Some(weight), "the weight has `inputs * outputs` numbers");
        assert!(rows.checked_mul(outputs) == Some(y), "the output has `rows * outputs` numbers");
    }
}

/// What is added to `x W`.
#[derive(Clone, Copy, Debug)]
pub enum Addend<'a> {
    /// Nothing.
    Nothing,
    /// The same numbers for every row, `[outputs]`.
    Bias(&'a [f32]),
    /// Numbers of its own for every row, `[rows, outputs]`: the injection of an equilibrium cell.
    Rows(&'a [f32]),
}

/// `y = phi(x W + addend)`. `[rows, inputs] -> [rows, outputs]`
///
/// # Panics
///
/// If a slice does not have the size that the shape says.
pub fn forward(
    set: InstructionSet,
    shape: DenseShape,
    x: &[f32],
    weight: &[f32],
    addend: Addend<'_>,
    activation: Option<Activation>,
    y: &mut [f32],
) {
    shape.check(x.len(), weight.len(), y.len());
    match addend {
        Addend::Nothing => set_product(set, x, weight, y, shape.outputs),
        Addend::Bias(bias) => {
            assert_eq!(bias.len(), shape.outputs, "the bias has `outputs` numbers");
            affine(set, x, weight, bias, y);
        }
        Addend::Rows(rows) => {
            y.copy_from_slice(rows);
            add_product(set, x, weight, y, shape.outputs);
        }
    }
    if let Some(activation) = activation {
        activation.forward_in_place(set, y);
    }
}

/// Adds the gradient of the weight, `dW += x^T g`, given that of `x W`.
///
/// With an activation, `g` is what [`Activation::backward`] makes of the gradient of the output.
///
/// # Panics
///
/// If a slice does not have the size that the shape says.
pub fn add_weight_gradient(set: InstructionSet, shape: DenseShape, x: &[f32], gradient: &[f32], sums: &mut [f32]) {
    shape.check(x.len(), sums.len(), gradient.len());
    if shape.rows > 0 && shape.outputs > 0 {
        add_transposed_product(set, x, gradient, shape.outputs, sums, shape.outputs);
    }
}

/// The same for some of the inputs, from number `first` on: as many rows of the weight's gradient as the sums hold.
///
/// # Panics
///
/// If a slice does not have the size that the shape says, or the sums are not whole rows of the weight.
pub fn add_weight_gradient_from(
    set: InstructionSet,
    shape: DenseShape,
    x: &[f32],
    gradient: &[f32],
    first: usize,
    sums: &mut [f32],
) {
    let DenseShape { rows, inputs, outputs } = shape;
    assert!(rows.checked_mul(inputs) == Some(x.len()), "the input has `rows * inputs` numbers");
    assert!(rows.checked_mul(outputs) == Some(gradient.len()), "the gradient has `rows * outputs` numbers");
    if rows == 0 || outputs == 0 {
        return;
    }
    let some = sums.len() / outputs;
    assert!(sums.len().is_multiple_of(outputs) && first <= inputs && some <= inputs - first, "whole rows of the weight");
    let (size, a) = (Size { m: some, n: outputs, k: rows }, Factor::transposed(&x[first..], inputs));
    Product { size, a, b: gradient, b_stride: outputs, c: sums, c_stride: outputs, accumulate: true }.run(set);
}

/// Adds the sum of all rows: the gradient of a bias, or of anything else that was added to every row.
///
/// # Panics
///
/// If the rows are not a whole number of times as long as the sums.
pub fn add_bias_gradient(set: InstructionSet, rows: &[f32], sums: &mut [f32]) {
    assert!(rows.is_empty() || (!sums.is_empty() && rows.len().is_multiple_of(sums.len())), "whole rows are summed");
    if !rows.is_empty() {
        add_column_sums(set, rows, sums);
    }
}

/// The gradient of the input, `dx = g W^T`, or that added to `dx`, given the [transposed](transpose) weight, `[outputs, inputs]`.
///
/// # Panics
///
/// If a slice does not have the size that the shape says.
pub fn input_gradient(
    set: InstructionSet,
    shape: DenseShape,
    gradient: &[f32],
    weight_transposed: &[f32],
    dx: &mut [f32],
    accumulate: bool,
) {
    shape.check(dx.len(), weight_transposed.len(), gradient.len());
    product(set, gradient, weight_transposed, dx, shape.inputs, accumulate);
}

/// The transpose of a matrix of `[rows, columns]`.
///
/// # Panics
///
/// If the columns do not divide the numbers, or the slices differ in length.
pub fn transpose(from: &[f32], columns: usize, to: &mut [f32]) {
    assert!(from.is_empty() || (columns > 0 && from.len().is_multiple_of(columns)), "a matrix has whole rows");
    assert_eq!(from.len(), to.len(), "a transpose has as many numbers");
    if !from.is_empty() {
        crate::vectors::transpose(from, columns, to);
    }
}

/// `y = x W + b`. `[rows, in] -> [rows, out]`
pub(crate) fn affine(set: InstructionSet, x: &[f32], weight: &[f32], bias: &[f32], y: &mut [f32]) {
    fill_rows(set, bias, y);
    add_product(set, x, weight, y, bias.len());
}

/// Makes every row of `y` the given one.
pub(crate) fn fill_rows(set: InstructionSet, row: &[f32], y: &mut [f32]) {
    set.run(FillRows { row, y });
}

/// `y += x W`, where `y` has rows of `to` numbers.
pub(crate) fn add_product(set: InstructionSet, x: &[f32], weight: &[f32], y: &mut [f32], to: usize) {
    product(set, x, weight, y, to, true);
}

/// `y = x W`, where `y` has rows of `to` numbers.
pub(crate) fn set_product(set: InstructionSet, x: &[f32], weight: &[f32], y: &mut [f32], to: usize) {
    product(set, x, weight, y, to, false);
}

fn product(set: InstructionSet, x: &[f32], weight: &[f32], y: &mut [f32], to: usize, accumulate: bool) {
    if to == 0 {
        return;
    }
    let (rows, from) = (y.len() / to, weight.len() / to);
    let size = Size { m: rows, n: to, k: from };
    Product { size, a: Factor::rows(x, from), b: weight, b_stride: to, c: y, c_stride: to, accumulate }.run(set);
}

/// `dW += x^T g`, where the rows of `dW` are `stride` apart: it may be some columns of a wider matrix.
pub(crate) fn add_transposed_product(
    set: InstructionSet,
    x: &[f32],
    gradient: &[f32],
    to: usize,
    sums: &mut [f32],
    stride: usize,
) {
    let rows = gradient.len() / to;
    let from = x.len() / rows;
    let size = Size { m: from, n: to, k: rows };
    let a = Factor::transposed(x, from);
    Product { size, a, b: gradient, b_stride: to, c: sums, c_stride: stride, accumulate: true }.run(set);
}

/// Adds the sum of all rows.
pub(crate) fn add_column_sums(set: InstructionSet, rows: &[f32], sums: &mut [f32]) {
    set.run(ColumnSums { rows, sums });
}

struct FillRows<'a> {
    row: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for FillRows<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        for at in (0..self.row.len()).step_by(S::F32_LANES) {
            let value = read(simd, &self.row[at..]);
            for y in self.y.chunks_exact_mut(self.row.len()) {
                write(simd, &mut y[at..], value);
            }
        }
    }
}

struct ColumnSums<'a> {
    rows: &'a [f32],
    sums: &'a mut [f32],
}

impl WithSimd for ColumnSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.sums.len();
        for at in (0..width).step_by(S::F32_LANES) {
            // Two sums, because one alone would wait for each addition before the next.
            let mut even = read(simd, &self.sums[at..]);
            let mut odd = simd.splat_f32s(0.0);
            let mut pairs = self.rows.chunks_exact(2 * width);
            for pair in &mut pairs {
                even = simd.add_f32s(even, read(simd, &pair[at..width]));
                odd = simd.add_f32s(odd, read(simd, &pair[width + at..]));
            }
            if let Some(last) = pairs.remainder().get(at..) {
                even = simd.add_f32s(even, read(simd, last));
            }
            write(simd, &mut self.sums[at..], simd.add_f32s(even, odd));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|at| ((at * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
    }

    /// Shapes with rows that are whole vectors, parts of one, and none.
    const SHAPES: [[usize; 3]; 5] = [[1, 1, 1], [5, 7, 3], [12, 64, 32], [9, 33, 62], [0, 4, 5]];

    #[test]
    fn the_gradient_of_a_weight_is_the_same_in_pieces() {
        for set in InstructionSet::available() {
            for [rows, inputs, outputs] in SHAPES {
                let shape = DenseShape { rows, inputs, outputs };
                let (x, gradient) = (numbers(rows * inputs, 1), numbers(rows * outputs, 2));
                let [mut whole, mut pieces] = [(); 2].map(|()| numbers(inputs * outputs, 3));
                add_weight_gradient(set, shape, &x, &gradient, &mut whole);
                for (index, piece) in pieces.chunks_mut(5 * outputs).enumerate() {
                    add_weight_gradient_from(set, shape, &x, &gradient, 5 * index, piece);
                }
                assert_eq!(whole, pieces, "{shape:?}, {}", set.name());
            }
        }
    }

    #[test]
    fn a_layer_follows_its_formula_with_every_addend_and_activation() {
        for set in InstructionSet::available() {
            for [rows, inputs, outputs] in SHAPES {
                let shape = DenseShape { rows, inputs, outputs };
                let (x, weight) = (numbers(rows * inputs, 1), numbers(inputs * outputs, 2));
                let (bias, each) = (numbers(outputs, 3), numbers(rows * outputs, 4));
                for addend in [Addend::Nothing, Addend::Bias(&bias), Addend::Rows(&each)] {
                    for activation in [None, Some(Activation::Relu), Some(Activation::Softplus)] {
                        let mut y = vec![f32::NAN; rows * outputs];
                        forward(set, shape, &x, &weight, addend, activation, &mut y);
                        for (at, &found) in y.iter().enumerate() {
                            let (row, output) = (at / outputs, at % outputs);
                            let term = |j: usize| f64::from(x[row * inputs + j]) * f64::from(weight[j * outputs + output]);
                            let added = match addend {
                                Addend::Nothing => 0.0,
                                Addend::Bias(bias) => bias[output],
                                Addend::Rows(rows) => rows[at],
                            };
                            let sum = (0..inputs).map(term).sum::<f64>() + f64::from(added);
                            let exact = match activation {
                                None => sum,
                                Some(Activation::Relu) => sum.max(0.0),
                                Some(Activation::Softplus) => sum.max(0.0) + (-sum.abs()).exp().ln_1p(),
                            };
                            assert!((f64::from(found) - exact).abs() < 2e-5, "{} {shape:?}: {found} {exact}", set.name());
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn gradients_of_input_weight_and_bias_follow_their_formulas() {
        for set in InstructionSet::available() {
            for [rows, inputs, outputs] in SHAPES {
                let shape = DenseShape { rows, inputs, outputs };
                let (x, g, weight) = (numbers(rows * inputs, 1), numbers(rows * outputs, 2), numbers(inputs * outputs, 3));
                let mut turned = vec![0.0; weight.len()];
                transpose(&weight, outputs, &mut turned);
                let (mut dx, mut dw, mut db) = (vec![1.0; x.len()], vec![2.0; weight.len()], vec![3.0; outputs]);
                input_gradient(set, shape, &g, &turned, &mut dx, true);
                add_weight_gradient(set, shape, &x, &g, &mut dw);
                add_bias_gradient(set, &g, &mut db);
                let close = |found: f32, exact: f64| assert!((f64::from(found) - exact).abs() < 2e-5, "{found} {exact}");
                for (at, &found) in dx.iter().enumerate() {
                    let (row, input) = (at / inputs, at % inputs);
                    let term = |j: usize| f64::from(g[row * outputs + j]) * f64::from(weight[input * outputs + j]);
                    close(found, 1.0 + (0..outputs).map(term).sum::<f64>());
                }
                for (at, &found) in dw.iter().enumerate() {
                    let (input, output) = (at / outputs, at % outputs);
                    let term = |row: usize| f64::from(x[row * inputs + input]) * f64::from(g[row * outputs + output]);
                    close(found, 2.0 + (0..rows).map(term).sum::<f64>());
                }
                for (output, &found) in db.iter().enumerate() {
                    close(found, 3.0 + (0..rows).map(|row| f64::from(g[row * outputs + output])).sum::<f64>());
                }
            }
        }
    }

    #[test]
    #[should_panic = "the input has `rows * inputs` numbers"]
    fn a_shape_that_overflows_is_refused() {
        let shape = DenseShape { rows: usize::MAX / 2 + 1, inputs: 2, outputs: 0 };
        forward(InstructionSet::best(), shape, &[], &[], Addend::Nothing, None, &mut []);
    }
}
