//! Attention of one sequence to itself: per head, `softmax(Q K^T / sqrt(d)) V`.
//!
//! Scores are kept transposed, `[key, query]`: the softmax of many queries then runs side by side in a vector, and needs no sums
//! across one.
use pulp::{Simd, WithSimd};

use super::parameters::LayerShape;
use super::vectors::{read, transpose, write};
use crate::elementary::{exp, select};
use crate::gemm::{Factor, Product, Size};
use crate::instructions::multiply_add;

/// What stands in for minus infinity: a position which may see nothing at all still gets weights that are numbers.
const BLOCKED_SCORE: f32 = -1e4;

/// Queries, keys and values of a sequence, `[length, width]` each, all heads side by side.
#[derive(Clone, Copy)]
pub(super) struct Projections<'a> {
    pub(super) query: &'a [f32],
    pub(super) key: &'a [f32],
    pub(super) value: &'a [f32],
}

/// Attention, forward.
pub(super) struct Attend<'a> {
    pub(super) shape: LayerShape,
    pub(super) projections: Projections<'a>,
    /// `[key, query]`.
    pub(super) blocked: &'a [f32],
    /// Scratch, `[width, length]`.
    pub(super) transposed: &'a mut [f32],
    /// The softmax, `[heads, key, query]`.
    pub(super) weights: &'a mut [f32],
    /// The result, `[length, width]`.
    pub(super) attended: &'a mut [f32],
}

impl WithSimd for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let LayerShape { length, width, heads, .. } = self.shape;
        let (size, each) = (length * length, width / heads);
        let scale = 1.0 / (each as f32).sqrt();
        transpose(self.projections.query, width, self.transposed);
        for head in 0..heads {
            let at = head * each;
            let weights = &mut self.weights[head * size..][..size];
            let queries = &self.transposed[at * length..];
            simd.vectorize(among_positions(length, each, &self.projections.key[at..], width, queries, weights));
            softmax_columns(simd, weights, self.blocked, length, scale);
            let a = Factor::transposed(weights, length);
            simd.vectorize(along_positions(length, each, a, &self.projections.value[at..], &mut self.attended[at..], width));
        }
    }
}

/// `C = A B` of `[length, each] x [each, length]`, where the rows of `A` are `width` apart.
#[inline(always)]
fn among_positions<'a>(length: usize, each: usize, a: &'a [f32], width: usize, b: &'a [f32], c: &'a mut [f32]) -> Product<'a> {
    let size = Size { m: length, n: length, k: each };
    Product { size, a: Factor::rows(a, width), b, b_stride: length, c, c_stride: length, accumulate: false }
}

/// `C = A B` of `[length, length] x [length, each]`, where the rows of `B` and `C` are `width` apart.
#[inline(always)]
fn along_positions<'a>(length: usize, each: usize, a: Factor<'a>, b: &'a [f32], c: &'a mut [f32], width: usize) -> Product<'a> {
    let size = Size { m: length, n: each, k: length };
    Product { size, a, b, b_stride: width, c, c_stride: width, accumulate: false }
}

/// From scores to weights, in place: scaled, blocked, and each column made positive with the sum 1.
#[inline(always)]
fn softmax_columns<S: Simd>(simd: S, scores: &mut [f32], blocked: &[f32], length: usize, scale: f32) {
    let (scale, zero) = (simd.splat_f32s(scale), simd.splat_f32s(0.0));
    for at in (0..length).step_by(S::F32_LANES) {
        let mut largest = simd.splat_f32s(f32::NEG_INFINITY);
        for (scores, blocked) in scores.chunks_exact_mut(length).zip(blocked.chunks_exact(length)) {
            let hidden = simd.less_than_f32s(zero, read(simd, &blocked[at..]));
            let score = simd.mul_f32s(read(simd, &scores[at..]), scale);
            let score = select(simd, hidden, simd.splat_f32s(BLOCKED_SCORE), score);
            largest = simd.max_f32s(largest, score);
            write(simd, &mut scores[at..], score);
        }
        let mut sum = zero;
        for scores in scores.chunks_exact_mut(length) {
            let weight = exp(simd, simd.sub_f32s(read(simd, &scores[at..]), largest));
            sum = simd.add_f32s(sum, weight);
            write(simd, &mut scores[at..], weight);
        }
        let share = simd.div_f32s(simd.splat_f32s(1.0), sum);
        for scores in scores.chunks_exact_mut(length) {
            let weight = simd.mul_f32s(read(simd, &scores[at..]), share);
            write(simd, &mut scores[at..], weight);
        }
    }
}

/// Gradients of queries, keys and values of a sequence, `[length, width]` each.
pub(super) struct ProjectionGradients<'a> {
    pub(super) query: &'a mut [f32],
    pub(super) key: &'a mut [f32],
    pub(super) value: &'a mut [f32],
}

/// Attention, backward.
pub(super) struct AttendBackward<'a> {
    pub(super) shape: LayerShape,
    pub(super) projections: Projections<'a>,
    /// `[key, query]`.
    pub(super) blocked: &'a [f32],
    /// The softmax, `[heads, key, query]`.
    pub(super) weights: &'a [f32],
    /// The gradient of the result, `[length, width]`.
    pub(super) gradient: &'a [f32],
    /// Scratch, `[width, length]`.
    pub(super) transposed: &'a mut [f32],
    /// Scratch, `[key, query]`.
    pub(super) scores: &'a mut [f32],
    /// What is asked for.
    pub(super) gradients: ProjectionGradients<'a>,
}

impl WithSimd for AttendBackward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let LayerShape { length, width, heads, .. } = self.shape;
        let (size, each) = (length * length, width / heads);
        let scale = 1.0 / (each as f32).sqrt();
        let (Projections { query, key, value }, scores) = (self.projections, self.scores);
        transpose(self.gradient, width, self.transposed);
        for head in 0..heads {
            let at = head * each;
            let weights = &self.weights[head * size..][..size];
            let a = Factor::rows(weights, length);
            simd.vectorize(along_positions(length, each, a, &self.gradient[at..], &mut self.gradients.value[at..], width));
            simd.vectorize(among_positions(length, each, &value[at..], width, &self.transposed[at * length..], scores));
            softmax_columns_backward(simd, weights, self.blocked, scores, length, scale);
            let a = Factor::transposed(scores, length);
            simd.vectorize(along_positions(length, each, a, &key[at..], &mut self.gradients.query[at..], width));
            let a = Factor::rows(scores, length);
            simd.vectorize(along_positions(length, each, a, &query[at..], &mut self.gradients.key[at..], width));
        }
    }
}

/// From the gradient of the weights to that of the unscaled scores, in place: `scale w (g - sum(g w))`, zero where blocked.
#[inline(always)]
fn softmax_columns_backward<S: Simd>(simd: S, weights: &[f32], blocked: &[f32], gradient: &mut [f32], length: usize, scale: f32) {
    let (scale, zero) = (simd.splat_f32s(scale), simd.splat_f32s(0.0));
    for at in (0..length).step_by(S::F32_LANES) {
        let mut mean = zero;
        for (gradient, weights) in gradient.chunks_exact(length).zip(weights.chunks_exact(length)) {
            mean = multiply_add(simd, read(simd, &gradient[at..]), read(simd, &weights[at..]), mean);
        }
        let rows = weights.chunks_exact(length).zip(blocked.chunks_exact(length));
        for (gradient, (weights, blocked)) in gradient.chunks_exact_mut(length).zip(rows) {
            let weight = simd.mul_f32s(read(simd, &weights[at..]), scale);
            let value = simd.mul_f32s(weight, simd.sub_f32s(read(simd, &gradient[at..]), mean));
            // A blocked weight is zero already, except where everything is blocked and all weights are the same.
            let hidden = simd.less_than_f32s(zero, read(simd, &blocked[at..]));
            write(simd, &mut gradient[at..], select(simd, hidden, zero, value));
        }
    }
}
