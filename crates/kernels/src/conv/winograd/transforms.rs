//! Winograd's transforms of vectors: `B^T`, `A`, `A^T`, `G` and `G^T` of `F(4x4, 3x3)`, each lane on its own.
use pulp::Simd;

use super::tiles::Narrow;
use crate::instructions::multiply_add;

/// A linear map of lines of `N` vectors to lines of `M`.
///
/// A trait and loops instead of closures, `map` and `from_fn`: what is called through those is not compiled for the kernel's
/// instructions.
pub(super) trait Transform<const N: usize, const M: usize>: Copy {
    /// Whether it has all six points, or lacks the fourth and the fifth.
    const COMPLETE: bool = true;

    fn line<S: Simd>(self, simd: S, line: [S::f32s; N]) -> [S::f32s; M];
}

/// The transforms of both sides of a square matrix: of its rows, then of its columns.
#[inline(always)]
pub(super) fn both_sides<S: Simd, const N: usize, const M: usize>(
    simd: S,
    across: impl Transform<N, M>,
    down: impl Transform<N, M>,
    square: [[S::f32s; N]; N],
) -> [[S::f32s; M]; M] {
    let mut rows = [[simd.splat_f32s(0.0); M]; N];
    for row in 0..N {
        rows[row] = across.line(simd, square[row]);
    }
    let mut result = [[simd.splat_f32s(0.0); M]; M];
    for column in 0..M {
        let mut line = [simd.splat_f32s(0.0); N];
        for row in 0..N {
            line[row] = rows[row][column];
        }
        let transformed = down.line(simd, line);
        for row in 0..M {
            result[row][column] = transformed[row];
        }
    }
    result
}

/// A transform that has another form for narrow tiles.
pub(super) trait TileTransform<const N: usize, const M: usize>: Transform<N, M> {
    /// Of `F(2, 3)`, at those of the points that it has: all but the fourth and the fifth.
    type Narrow: Transform<N, M>;

    fn narrow(self) -> Self::Narrow;

    /// Has something done with the transforms across and down a tile.
    #[inline(always)]
    fn for_tile(self, narrow: Narrow, work: impl TileWork<N, M>) {
        match (narrow.across, narrow.down) {
            (false, false) => work.run(self, self),
            (true, false) => work.run(self.narrow(), self),
            (false, true) => work.run(self, self.narrow()),
            (true, true) => work.run(self.narrow(), self.narrow()),
        }
    }
}

/// What is done with all channels of a tile: compiled for each kind of tile, since asking again for every vector costs more than it saves.
pub(super) trait TileWork<const N: usize, const M: usize> {
    fn run<A: Transform<N, M>, D: Transform<N, M>>(self, across: A, down: D);
}

/// `B^T d`: six inputs.
#[derive(Clone, Copy)]
pub(super) struct Input;

impl Transform<6, 6> for Input {
    #[inline(always)]
    fn line<S: Simd>(self, simd: S, d: [S::f32s; 6]) -> [S::f32s; 6] {
        let (two, four) = (simd.splat_f32s(2.0), simd.splat_f32s(4.0));
        let (minus_four, minus_five) = (simd.splat_f32s(-4.0), simd.splat_f32s(-5.0));
        let even = multiply_add(simd, minus_four, d[2], d[4]);
        let odd = multiply_add(simd, minus_four, d[1], d[3]);
        let (near, far) = (simd.sub_f32s(d[4], d[2]), simd.sub_f32s(d[3], d[1]));
        let minus_two = simd.splat_f32s(-2.0);
        [
            multiply_add(simd, four, d[0], multiply_add(simd, minus_five, d[2], d[4])),
            simd.add_f32s(even, odd),
            simd.sub_f32s(even, odd),
            multiply_add(simd, two, far, near),
            multiply_add(simd, minus_two, far, near),
            multiply_add(simd, four, d[1], multiply_add(simd, minus_five, d[3], d[5])),
        ]
    }
}

/// [`Input`] of a narrow tile: the first four inputs.
#[derive(Clone, Copy)]
pub(super) struct NarrowInput;

impl Transform<6, 6> for NarrowInput {
    const COMPLETE: bool = false;

    #[inline(always)]
    fn line<S: Simd>(self, simd: S, d: [S::f32s; 6]) -> [S::f32s; 6] {
        // The factors undo those in the weights, which are made for four outputs.
        [
            times(simd, 4.0, simd.sub_f32s(d[0], d[2])),
            times(simd, -3.0, simd.add_f32s(d[1], d[2])),
            times(simd, 3.0, simd.sub_f32s(d[1], d[2])),
            simd.splat_f32s(0.0),
            simd.splat_f32s(0.0),
            simd.sub_f32s(d[3], d[1]),
        ]
    }
}

impl TileTransform<6, 6> for Input {
    type Narrow = NarrowInput;

    #[inline(always)]
    fn narrow(self) -> NarrowInput {
        NarrowInput
    }
}

/// `A^T m`: four outputs.
#[derive(Clone, Copy)]
pub(super) struct Output;

impl Transform<6, 4> for Output {
    #[inline(always)]
    fn line<S: Simd>(self, simd: S, m: [S::f32s; 6]) -> [S::f32s; 4] {
        let (two, four, eight) = (simd.splat_f32s(2.0), simd.splat_f32s(4.0), simd.splat_f32s(8.0));
        let (sum1, difference1) = (simd.add_f32s(m[1], m[2]), simd.sub_f32s(m[1], m[2]));
        let (sum2, difference2) = (simd.add_f32s(m[3], m[4]), simd.sub_f32s(m[3], m[4]));
        [
            simd.add_f32s(m[0], simd.add_f32s(sum1, sum2)),
            multiply_add(simd, two, difference2, difference1),
            multiply_add(simd, four, sum2, sum1),
            simd.add_f32s(multiply_add(simd, eight, difference2, difference1), m[5]),
        ]
    }
}

/// [`Output`] of a narrow tile: the first two outputs.
#[derive(Clone, Copy)]
pub(super) struct NarrowOutput;

impl Transform<6, 4> for NarrowOutput {
    const COMPLETE: bool = false;

    #[inline(always)]
    fn line<S: Simd>(self, simd: S, m: [S::f32s; 6]) -> [S::f32s; 4] {
        let (sum, difference) = (simd.add_f32s(m[1], m[2]), simd.sub_f32s(m[1], m[2]));
        let zero = simd.splat_f32s(0.0);
        [simd.add_f32s(m[0], sum), simd.add_f32s(difference, m[5]), zero, zero]
    }
}

impl TileTransform<6, 4> for Output {
    type Narrow = NarrowOutput;

    #[inline(always)]
    fn narrow(self) -> NarrowOutput {
        NarrowOutput
    }
}

/// `A y`: the gradient of [`Output`].
#[derive(Clone, Copy)]
pub(super) struct OutputGradient;

impl Transform<4, 6> for OutputGradient {
    #[inline(always)]
    fn line<S: Simd>(self, simd: S, y: [S::f32s; 4]) -> [S::f32s; 6] {
        let (two, four, eight) = (simd.splat_f32s(2.0), simd.splat_f32s(4.0), simd.splat_f32s(8.0));
        let (even, odd) = (simd.add_f32s(y[0], y[2]), simd.add_f32s(y[1], y[3]));
        let far_even = multiply_add(simd, four, y[2], y[0]);
        let far_odd = multiply_add(simd, eight, y[3], simd.mul_f32s(two, y[1]));
        [
            y[0],
            simd.add_f32s(even, odd),
            simd.sub_f32s(even, odd),
            simd.add_f32s(far_even, far_odd),
            simd.sub_f32s(far_even, far_odd),
            y[3],
        ]
    }
}

/// [`OutputGradient`] of a narrow tile: the first two outputs.
#[derive(Clone, Copy)]
pub(super) struct NarrowOutputGradient;

impl Transform<4, 6> for NarrowOutputGradient {
    const COMPLETE: bool = false;

    #[inline(always)]
    fn line<S: Simd>(self, simd: S, y: [S::f32s; 4]) -> [S::f32s; 6] {
        let zero = simd.splat_f32s(0.0);
        [y[0], simd.add_f32s(y[0], y[1]), simd.sub_f32s(y[0], y[1]), zero, zero, y[1]]
    }
}

impl TileTransform<4, 6> for OutputGradient {
    type Narrow = NarrowOutputGradient;

    #[inline(always)]
    fn narrow(self) -> NarrowOutputGradient {
        NarrowOutputGradient
    }
}

/// `G w`: three weights.
#[derive(Clone, Copy)]
pub(super) struct Weights;

impl Transform<3, 6> for Weights {
    #[inline(always)]
    fn line<S: Simd>(self, simd: S, w: [S::f32s; 3]) -> [S::f32s; 6] {
        let near = times(simd, -1.0 / 6.0, simd.add_f32s(w[0], w[2]));
        let middle = times(simd, 1.0 / 6.0, w[1]);
        let far = multiply_add(simd, simd.splat_f32s(1.0 / 24.0), w[0], times(simd, 1.0 / 6.0, w[2]));
        let far_middle = times(simd, 1.0 / 12.0, w[1]);
        [
            times(simd, 0.25, w[0]),
            simd.sub_f32s(near, middle),
            simd.add_f32s(near, middle),
            simd.add_f32s(far, far_middle),
            simd.sub_f32s(far, far_middle),
            w[2],
        ]
    }
}

/// `G^T u`: the gradient of [`Weights`].
#[derive(Clone, Copy)]
pub(super) struct WeightsGradient;

impl Transform<6, 3> for WeightsGradient {
    #[inline(always)]
    fn line<S: Simd>(self, simd: S, u: [S::f32s; 6]) -> [S::f32s; 3] {
        let (near, near_middle) =
            (times(simd, -1.0 / 6.0, simd.add_f32s(u[1], u[2])), times(simd, 1.0 / 6.0, simd.sub_f32s(u[2], u[1])));
        let (far, far_middle) = (simd.add_f32s(u[3], u[4]), times(simd, 1.0 / 12.0, simd.sub_f32s(u[3], u[4])));
        let first = multiply_add(simd, simd.splat_f32s(0.25), u[0], near);
        let last = simd.add_f32s(near, u[5]);
        [
            multiply_add(simd, simd.splat_f32s(1.0 / 24.0), far, first),
            simd.add_f32s(near_middle, far_middle),
            multiply_add(simd, simd.splat_f32s(1.0 / 6.0), far, last),
        ]
    }
}

#[inline(always)]
fn times<S: Simd>(simd: S, factor: f32, value: S::f32s) -> S::f32s {
    simd.mul_f32s(simd.splat_f32s(factor), value)
}
