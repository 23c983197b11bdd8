//! Winograd's transforms of vectors: `B^T`, `A`, `A^T`, `G` and `G^T` of `F(4x4, 3x3)`, each lane on its own.
use pulp::Simd;

use crate::instructions::multiply_add;

/// A transform of both sides of a square matrix: of its rows, then of its columns.
#[inline(always)]
pub(super) fn both_sides<V: Copy, const N: usize, const M: usize>(
    square: [[V; N]; N],
    transform: impl Fn([V; N]) -> [V; M] + Copy,
) -> [[V; M]; M] {
    let rows = square.map(transform);
    let mut result = [[rows[0][0]; M]; M];
    for column in 0..M {
        let transformed = transform(std::array::from_fn(|row| rows[row][column]));
        for row in 0..M {
            result[row][column] = transformed[row];
        }
    }
    result
}

/// `B^T d`: six inputs.
#[inline(always)]
pub(super) fn input<S: Simd>(simd: S, d: [S::f32s; 6]) -> [S::f32s; 6] {
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

/// `A^T m`: four outputs.
#[inline(always)]
pub(super) fn output<S: Simd>(simd: S, m: [S::f32s; 6]) -> [S::f32s; 4] {
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

/// `A y`: the gradient of [`output`].
#[inline(always)]
pub(super) fn output_gradient<S: Simd>(simd: S, y: [S::f32s; 4]) -> [S::f32s; 6] {
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

/// `G w`: three weights.
#[inline(always)]
pub(super) fn weights<S: Simd>(simd: S, w: [S::f32s; 3]) -> [S::f32s; 6] {
    let times = |factor: f32, value| simd.mul_f32s(simd.splat_f32s(factor), value);
    let near = times(-1.0 / 6.0, simd.add_f32s(w[0], w[2]));
    let middle = times(1.0 / 6.0, w[1]);
    let far = multiply_add(simd, simd.splat_f32s(1.0 / 24.0), w[0], times(1.0 / 6.0, w[2]));
    let far_middle = times(1.0 / 12.0, w[1]);
    [
        times(0.25, w[0]),
        simd.sub_f32s(near, middle),
        simd.add_f32s(near, middle),
        simd.add_f32s(far, far_middle),
        simd.sub_f32s(far, far_middle),
        w[2],
    ]
}

/// `G^T u`: the gradient of [`weights`].
#[inline(always)]
pub(super) fn weights_gradient<S: Simd>(simd: S, u: [S::f32s; 6]) -> [S::f32s; 3] {
    let times = |factor: f32, value| simd.mul_f32s(simd.splat_f32s(factor), value);
    let (near, near_middle) = (times(-1.0 / 6.0, simd.add_f32s(u[1], u[2])), times(1.0 / 6.0, simd.sub_f32s(u[2], u[1])));
    let (far, far_middle) = (simd.add_f32s(u[3], u[4]), times(1.0 / 12.0, simd.sub_f32s(u[3], u[4])));
    let first = multiply_add(simd, simd.splat_f32s(0.25), u[0], near);
    let last = simd.add_f32s(near, u[5]);
    [
        multiply_add(simd, simd.splat_f32s(1.0 / 24.0), far, first),
        simd.add_f32s(near_middle, far_middle),
        multiply_add(simd, simd.splat_f32s(1.0 / 6.0), far, last),
    ]
}
