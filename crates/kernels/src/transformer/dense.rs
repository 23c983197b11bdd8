//! Rows times weights: `y = x W + b` with `W` of `[in, out]`, and its gradients.
use pulp::{Simd, WithSimd};

use super::parameters::Linear;
use super::vectors::{read, write};
use crate::InstructionSet;
use crate::gemm::{Factor, Product, Size};

/// `y = x W + b`. `[rows, in] -> [rows, out]`
pub(super) fn affine(set: InstructionSet, x: &[f32], weight: &[f32], bias: &[f32], y: &mut [f32]) {
    fill_rows(set, bias, y);
    add_product(set, x, weight, y, bias.len());
}

/// Makes every row of `y` the given one.
pub(super) fn fill_rows(set: InstructionSet, row: &[f32], y: &mut [f32]) {
    set.run(FillRows { row, y });
}

/// `y += x W`, where `y` has rows of `to` numbers.
pub(super) fn add_product(set: InstructionSet, x: &[f32], weight: &[f32], y: &mut [f32], to: usize) {
    product(set, x, weight, y, to, true);
}

/// `y = x W`, where `y` has rows of `to` numbers.
pub(super) fn set_product(set: InstructionSet, x: &[f32], weight: &[f32], y: &mut [f32], to: usize) {
    product(set, x, weight, y, to, false);
}

fn product(set: InstructionSet, x: &[f32], weight: &[f32], y: &mut [f32], to: usize, accumulate: bool) {
    let (rows, from) = (y.len() / to, weight.len() / to);
    let size = Size { m: rows, n: to, k: from };
    Product { size, a: Factor::rows(x, from), b: weight, b_stride: to, c: y, c_stride: to, accumulate }.run(set);
}

/// Adds the gradients of the weight and the bias, given the input and the gradient of the output.
pub(super) fn add_gradients(set: InstructionSet, x: &[f32], gradient: &[f32], sums: &mut Linear<Vec<f32>>) {
    let to = sums.bias.len();
    add_weight_gradient(set, x, gradient, to, &mut sums.weight, to);
    add_column_sums(set, gradient, &mut sums.bias);
}

/// `dW += x^T g`, where the rows of `dW` are `stride` apart: it may be some columns of a wider matrix.
pub(super) fn add_weight_gradient(set: InstructionSet, x: &[f32], gradient: &[f32], to: usize, sums: &mut [f32], stride: usize) {
    let rows = gradient.len() / to;
    let from = x.len() / rows;
    let size = Size { m: from, n: to, k: rows };
    let a = Factor::transposed(x, from);
    Product { size, a, b: gradient, b_stride: to, c: sums, c_stride: stride, accumulate: true }.run(set);
}

/// Adds the sum of all rows.
pub(super) fn add_column_sums(set: InstructionSet, rows: &[f32], sums: &mut [f32]) {
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
