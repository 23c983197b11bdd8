//! Layer normalisation, over the last axis.
//!
//! `y = (x - mean) / sqrt(variance + 1e-5) * scale + offset`, with the biased variance.
use pulp::{Simd, WithSimd};

use super::parameters::NormParts;
use crate::InstructionSet;
use crate::instructions::multiply_add;
use crate::vectors::{fit, read, write};

/// What keeps the division finite.
const EPSILON: f32 = 1e-5;

/// What the backward pass of a layer normalisation needs.
#[derive(Clone, Debug, Default)]
pub struct Standardised {
    /// `(x - mean) / sqrt(variance + epsilon)`, `[rows, width]`.
    values: Vec<f32>,
    /// `1 / sqrt(variance + epsilon)`, `[rows]`.
    inverse_deviations: Vec<f32>,
}

impl Standardised {
    /// `y` once more.
    pub(super) fn output(&self, norm: NormParts<&[f32]>, y: &mut [f32]) {
        let width = norm.scale.len();
        for (y, x) in y.chunks_exact_mut(width).zip(self.values.chunks_exact(width)) {
            for (((y, x), scale), offset) in y.iter_mut().zip(x).zip(norm.scale).zip(norm.offset) {
                *y = x * scale + offset;
            }
        }
    }
}

/// Normalises rows. `[rows, width] -> [rows, width]`
///
/// # Panics
///
/// If something does not have the width or the rows of the others; so do its companions.
pub fn layer_norm(set: InstructionSet, x: &[f32], norm: NormParts<&[f32]>, y: &mut [f32]) {
    set.run(Forward { x, norm, y, saved: None });
}

/// Normalises rows, and keeps what [`layer_norm_backward`] needs. The result has the same bits as [`layer_norm`]'s.
pub fn layer_norm_saving(set: InstructionSet, x: &[f32], norm: NormParts<&[f32]>, y: &mut [f32], saved: &mut Standardised) {
    let values = fit(&mut saved.values, x.len());
    let inverse_deviations = fit(&mut saved.inverse_deviations, x.len() / norm.scale.len());
    set.run(Forward { x, norm, y, saved: Some((values, inverse_deviations)) });
}

/// Adds the gradient of the input to `input_gradient`, and those of scale and offset to `sums` if there are any.
///
/// With `d = gradient * scale` and `s` the standardised input: `(d - mean(d) - s mean(d s)) / sqrt(variance + epsilon)`
pub fn layer_norm_backward(
    set: InstructionSet,
    saved: &Standardised,
    norm: NormParts<&[f32]>,
    gradient: &[f32],
    input_gradient: &mut [f32],
    sums: Option<&mut NormParts<Vec<f32>>>,
) {
    assert!(gradient.len() == saved.values.len() && input_gradient.len() == gradient.len());
    if let Some(sums) = sums {
        set.run(ParameterGradients { saved, gradient, sums });
    }
    set.run(Backward { saved, scale: norm.scale, gradient, input_gradient });
}

struct Forward<'a> {
    x: &'a [f32],
    norm: NormParts<&'a [f32]>,
    y: &'a mut [f32],
    saved: Option<(&'a mut [f32], &'a mut [f32])>,
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        let width = self.norm.scale.len();
        assert!(self.y.len() == self.x.len() && self.norm.offset.len() == width && self.x.len().is_multiple_of(width));
        for (row, (x, y)) in self.x.chunks_exact(width).zip(self.y.chunks_exact_mut(width)).enumerate() {
            let inverse_deviation = centre(simd, x, y);
            let inverse = simd.splat_f32s(inverse_deviation);
            if let Some((values, inverse_deviations)) = &mut self.saved {
                scale_row(simd, y, inverse, &mut values[row * width..][..width]);
                inverse_deviations[row] = inverse_deviation;
            }
            finish(simd, y, inverse, self.norm);
        }
    }
}

/// `y = x - mean`; says `1 / sqrt(variance + epsilon)`.
#[inline(always)]
fn centre<S: Simd>(simd: S, x: &[f32], y: &mut [f32]) -> f32 {
    let count = x.len() as f32;
    let mut sum = simd.splat_f32s(0.0);
    for at in (0..x.len()).step_by(S::F32_LANES) {
        sum = simd.add_f32s(sum, read(simd, &x[at..]));
    }
    let mean = simd.splat_f32s(simd.reduce_sum_f32s(sum) / count);
    let mut squares = simd.splat_f32s(0.0);
    for at in (0..x.len()).step_by(S::F32_LANES) {
        let centred = simd.sub_f32s(read(simd, &x[at..]), mean);
        write(simd, &mut y[at..], centred);
        // Read back, because beyond the end of the row there must be zeros and not `-mean`.
        let centred = read(simd, &y[at..]);
        squares = multiply_add(simd, centred, centred, squares);
    }
    1.0 / (simd.reduce_sum_f32s(squares) / count + EPSILON).sqrt()
}

#[inline(always)]
fn scale_row<S: Simd>(simd: S, x: &[f32], factor: S::f32s, y: &mut [f32]) {
    for at in (0..x.len()).step_by(S::F32_LANES) {
        write(simd, &mut y[at..], simd.mul_f32s(read(simd, &x[at..]), factor));
    }
}

/// `y = y inverse scale + offset`.
#[inline(always)]
fn finish<S: Simd>(simd: S, y: &mut [f32], inverse: S::f32s, norm: NormParts<&[f32]>) {
    for at in (0..y.len()).step_by(S::F32_LANES) {
        let standard = simd.mul_f32s(read(simd, &y[at..]), inverse);
        let value = multiply_add(simd, standard, read(simd, &norm.scale[at..]), read(simd, &norm.offset[at..]));
        write(simd, &mut y[at..], value);
    }
}

struct Backward<'a> {
    saved: &'a Standardised,
    scale: &'a [f32],
    gradient: &'a [f32],
    input_gradient: &'a mut [f32],
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.scale.len();
        let rows = self.gradient.chunks_exact(width).zip(self.saved.values.chunks_exact(width));
        let results = self.input_gradient.chunks_exact_mut(width).zip(&self.saved.inverse_deviations);
        for ((gradient, standard), (result, &inverse)) in rows.zip(results) {
            backward_row(simd, gradient, standard, self.scale, inverse, result);
        }
    }
}

#[inline(always)]
fn backward_row<S: Simd>(simd: S, gradient: &[f32], standard: &[f32], scale: &[f32], inverse: f32, result: &mut [f32]) {
    let (mut sum, mut along) = (simd.splat_f32s(0.0), simd.splat_f32s(0.0));
    for at in (0..scale.len()).step_by(S::F32_LANES) {
        let d = simd.mul_f32s(read(simd, &gradient[at..]), read(simd, &scale[at..]));
        sum = simd.add_f32s(sum, d);
        along = multiply_add(simd, d, read(simd, &standard[at..]), along);
    }
    let share = -1.0 / scale.len() as f32;
    let minus_mean = simd.splat_f32s(simd.reduce_sum_f32s(sum) * share);
    let minus_along = simd.splat_f32s(simd.reduce_sum_f32s(along) * share);
    let inverse = simd.splat_f32s(inverse);
    for at in (0..scale.len()).step_by(S::F32_LANES) {
        let d = multiply_add(simd, read(simd, &gradient[at..]), read(simd, &scale[at..]), minus_mean);
        let d = multiply_add(simd, read(simd, &standard[at..]), minus_along, d);
        let value = multiply_add(simd, d, inverse, read(simd, &result[at..]));
        write(simd, &mut result[at..], value);
    }
}

struct ParameterGradients<'a> {
    saved: &'a Standardised,
    gradient: &'a [f32],
    sums: &'a mut NormParts<Vec<f32>>,
}

impl WithSimd for ParameterGradients<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let width = self.sums.scale.len();
        for at in (0..width).step_by(S::F32_LANES) {
            let mut scale = read(simd, &self.sums.scale[at..]);
            let mut offset = read(simd, &self.sums.offset[at..]);
            for (gradient, standard) in self.gradient.chunks_exact(width).zip(self.saved.values.chunks_exact(width)) {
                let gradient = read(simd, &gradient[at..]);
                scale = multiply_add(simd, gradient, read(simd, &standard[at..]), scale);
                offset = simd.add_f32s(offset, gradient);
            }
            write(simd, &mut self.sums.scale[at..], scale);
            write(simd, &mut self.sums.offset[at..], offset);
        }
    }
}
