//! Attention of one sequence to itself: per head, `softmax(Q K^T / sqrt(d)) V`.
//!
//! Scores are kept transposed, `[key, query]`: the softmax of many queries then runs side by side in a vector, and needs no sums
//! across one.
use pulp::{Simd, WithSimd};

use super::blocked::{BlockedSequence, Panel};
use super::parameters::LayerShape;
use crate::elementary::{exp, select};
use crate::gemm::{Factor, Product, Size};
use crate::instructions::multiply_add;
use crate::vectors::{read, transpose, write};

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
    pub(super) blocked: BlockedSequence<'a>,
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
        let Projections { query, key, value } = self.projections;
        transpose(query, width, self.transposed);
        for head in 0..heads {
            for &panel in self.blocked.panels {
                let (at, part) = (head * each, HeadPanel { length, width, each, panel });
                let weights = &mut self.weights[head * size..][..size];
                simd.vectorize(part.scores(&key[at..], &self.transposed[at * length..], weights));
                part.softmax(simd, self.blocked.flags, weights);
                simd.vectorize(part.to_queries(weights, &value[at..], &mut self.attended[at..]));
            }
        }
    }
}

/// One head and the queries of a panel. What belongs to a position is `width` from what belongs to the next.
#[derive(Clone, Copy)]
struct HeadPanel {
    length: usize,
    width: usize,
    /// Numbers of a head.
    each: usize,
    panel: Panel,
}

impl HeadPanel {
    /// `C = A B`: keys `A` of `[length, each]` and transposed queries `B` of `[each, length]` to `C` of `[key, query]`.
    #[inline(always)]
    fn scores<'a>(self, a: &'a [f32], b: &'a [f32], c: &'a mut [f32]) -> Product<'a> {
        let Self { length, width, each, panel: Panel { first, count, horizon } } = self;
        let (b, c, size) = (&b[first..], &mut c[first..], Size { m: horizon, n: count, k: each });
        Product { size, a: Factor::rows(a, width), b, b_stride: length, c, c_stride: length, accumulate: false }
    }

    /// `C = A^T B`: `A` of `[key, query]` and keys' numbers `B` of `[length, each]` to queries' numbers `C`.
    #[inline(always)]
    fn to_queries<'a>(self, a: &'a [f32], b: &'a [f32], c: &'a mut [f32]) -> Product<'a> {
        let Self { length, width, each, panel: Panel { first, count, horizon } } = self;
        let (a, c) = (Factor::transposed(&a[first..], length), &mut c[first * width..]);
        let size = Size { m: count, n: each, k: horizon };
        Product { size, a, b, b_stride: width, c, c_stride: width, accumulate: false }
    }

    /// `C += A B`: `A` of `[key, query]` and queries' numbers `B` of `[length, each]` to keys' numbers `C`.
    #[inline(always)]
    fn add_to_keys<'a>(self, a: &'a [f32], b: &'a [f32], c: &'a mut [f32]) -> Product<'a> {
        let Self { length, width, each, panel: Panel { first, count, horizon } } = self;
        let (a, b, size) = (Factor::rows(&a[first..], length), &b[first * width..], Size { m: horizon, n: each, k: count });
        Product { size, a, b, b_stride: width, c, c_stride: width, accumulate: true }
    }

    /// From scores to weights, in place: scaled, blocked, and each column made positive with the sum 1.
    #[inline(always)]
    fn softmax<S: Simd>(self, simd: S, blocked: &[f32], scores: &mut [f32]) {
        let (length, end) = (self.length, self.panel.first + self.panel.count);
        let scores = &mut scores[..self.panel.horizon * length];
        let (scale, zero) = (simd.splat_f32s(self.scale()), simd.splat_f32s(0.0));
        for at in (self.panel.first..end).step_by(S::F32_LANES) {
            let mut largest = simd.splat_f32s(f32::NEG_INFINITY);
            for (scores, blocked) in scores.chunks_exact_mut(length).zip(blocked.chunks_exact(length)) {
                let hidden = simd.less_than_f32s(zero, read(simd, &blocked[at..end]));
                let score = simd.mul_f32s(read(simd, &scores[at..end]), scale);
                let score = select(simd, hidden, simd.splat_f32s(BLOCKED_SCORE), score);
                largest = simd.max_f32s(largest, score);
                write(simd, &mut scores[at..end], score);
            }
            let mut sum = zero;
            for scores in scores.chunks_exact_mut(length) {
                let weight = exp(simd, simd.sub_f32s(read(simd, &scores[at..end]), largest));
                sum = simd.add_f32s(sum, weight);
                write(simd, &mut scores[at..end], weight);
            }
            let share = simd.div_f32s(simd.splat_f32s(1.0), sum);
            for scores in scores.chunks_exact_mut(length) {
                let weight = simd.mul_f32s(read(simd, &scores[at..end]), share);
                write(simd, &mut scores[at..end], weight);
            }
        }
    }

    /// From the gradient of the weights to that of the unscaled scores, in place: `scale w (g - sum(g w))`, zero where blocked.
    #[inline(always)]
    fn softmax_backward<S: Simd>(self, simd: S, weights: &[f32], blocked: &[f32], gradient: &mut [f32]) {
        let (length, end) = (self.length, self.panel.first + self.panel.count);
        let gradient = &mut gradient[..self.panel.horizon * length];
        let (scale, zero) = (simd.splat_f32s(self.scale()), simd.splat_f32s(0.0));
        for at in (self.panel.first..end).step_by(S::F32_LANES) {
            let mut mean = zero;
            for (gradient, weights) in gradient.chunks_exact(length).zip(weights.chunks_exact(length)) {
                mean = multiply_add(simd, read(simd, &gradient[at..end]), read(simd, &weights[at..end]), mean);
            }
            let rows = weights.chunks_exact(length).zip(blocked.chunks_exact(length));
            for (gradient, (weights, blocked)) in gradient.chunks_exact_mut(length).zip(rows) {
                let weight = simd.mul_f32s(read(simd, &weights[at..end]), scale);
                let value = simd.mul_f32s(weight, simd.sub_f32s(read(simd, &gradient[at..end]), mean));
                // A blocked weight is zero already, except where everything is blocked and all weights are the same.
                let hidden = simd.less_than_f32s(zero, read(simd, &blocked[at..end]));
                write(simd, &mut gradient[at..end], select(simd, hidden, zero, value));
            }
        }
    }

    fn scale(self) -> f32 {
        1.0 / (self.each as f32).sqrt()
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
    pub(super) blocked: BlockedSequence<'a>,
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
        let (Projections { query, key, value }, scores) = (self.projections, self.scores);
        let ProjectionGradients { query: query_gradient, key: key_gradient, value: value_gradient } = self.gradients;
        transpose(self.gradient, width, self.transposed);
        key_gradient.fill(0.0);
        value_gradient.fill(0.0);
        for head in 0..heads {
            for &panel in self.blocked.panels {
                let (at, part) = (head * each, HeadPanel { length, width, each, panel });
                let weights = &self.weights[head * size..][..size];
                simd.vectorize(part.add_to_keys(weights, &self.gradient[at..], &mut value_gradient[at..]));
                simd.vectorize(part.scores(&value[at..], &self.transposed[at * length..], scores));
                part.softmax_backward(simd, weights, self.blocked.flags, scores);
                simd.vectorize(part.to_queries(scores, &key[at..], &mut query_gradient[at..]));
                simd.vectorize(part.add_to_keys(scores, &query[at..], &mut key_gradient[at..]));
            }
        }
    }
}
