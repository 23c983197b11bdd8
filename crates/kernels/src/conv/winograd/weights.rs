//! Weights to points and back.
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::super::Geometry;
use super::super::panels::Panels;
use super::super::weights::Direction;
use super::POINTS;
use super::points::Points;
use super::transforms::{Transform, Weights, WeightsGradient};
use crate::InstructionSet;
use crate::buffer::Buffer;
use crate::gemm::{load, store};

/// Numbers in the largest vector.
const WIDEST: usize = 16;

/// Rows of windows gathered at a time: a vector read at once after its numbers were written one by one waits for them.
const ROWS: usize = 8;

/// How prepared weights lie: at each point a matrix `[from, to]`.
pub(super) fn layout(set: InstructionSet, from: usize, to: usize) -> Points {
    Points::new(Panels::new(set, from, to))
}

/// `G w G^T` for each pair of channels; for the backward direction of the weights flipped, with channels in the other roles.
pub(in super::super) fn prepare(
    set: InstructionSet,
    geometry: &Geometry,
    direction: Direction,
    weight: &[f32],
    data: &mut Buffer,
) {
    let Geometry { from, to, .. } = *geometry;
    let (rows, columns, row_step, column_step) = match direction {
        Direction::Forward => (from, to, 9, 9 * from),
        Direction::Backward => (to, from, 9 * from, 9),
    };
    let points = layout(set, rows, columns);
    let flipped = direction == Direction::Backward;
    let data = data.take(points.len());
    set.run(Prepare { weight, rows, columns, row_step, column_step, flipped, points, data });
}

struct Prepare<'a> {
    weight: &'a [f32],
    rows: usize,
    columns: usize,
    row_step: usize,
    column_step: usize,
    flipped: bool,
    points: Points,
    data: &'a mut [f32],
}

impl WithSimd for Prepare<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut windows = [[[0.0; WIDEST]; 9]; 2 * ROWS];
        for start in (0..self.columns).step_by(2 * S::F32_LANES) {
            for rows in (0..self.rows).step_by(ROWS) {
                let rows = rows..self.rows.min(rows + ROWS);
                let columns = [start, start + S::F32_LANES].into_iter().filter(|&column| column < self.columns);
                let places = rows.flat_map(|row| columns.clone().map(move |column| (row, column)));
                for ((row, column), taps) in places.clone().zip(&mut windows) {
                    self.gather(row, column, S::F32_LANES, taps);
                }
                for ((row, column), taps) in places.zip(&windows) {
                    let (first, plane) = self.points.at(row, column);
                    window_to_points(simd, taps, &mut self.data[first..], plane);
                }
            }
        }
    }
}

impl Prepare<'_> {
    /// The windows of one row and some columns, tap by tap; zeros for columns that do not exist.
    #[inline(always)]
    fn gather(&self, row: usize, column: usize, lanes: usize, taps: &mut [[f32; WIDEST]; 9]) {
        for lane in 0..lanes {
            if column + lane >= self.columns {
                taps.iter_mut().for_each(|tap| tap[lane] = 0.0);
                continue;
            }
            let window = &self.weight[row * self.row_step + (column + lane) * self.column_step..][..9];
            for tap in 0..9 {
                taps[tap][lane] = window[if self.flipped { 8 - tap } else { tap }];
            }
        }
    }
}

/// `G w G^T` for a vector of windows.
#[inline(always)]
fn window_to_points<S: Simd>(simd: S, taps: &[[f32; WIDEST]; 9], data: &mut [f32], plane: usize) {
    let mut values = [[simd.splat_f32s(0.0); 3]; 3];
    for tap in 0..9 {
        values[tap / 3][tap % 3] = vector(simd, &taps[tap]);
    }
    let points = Weights.both_sides(simd, values);
    for point in 0..POINTS {
        let to = &mut data[point * plane..][..S::F32_LANES];
        // SAFETY: the slice is as long as a vector.
        unsafe { store(simd, to.as_mut_ptr(), points[point / 6][point % 6], None) };
    }
}

#[inline(always)]
fn vector<S: Simd>(simd: S, numbers: &[f32; WIDEST]) -> S::f32s {
    const { assert!(S::F32_LANES <= WIDEST) };
    // SAFETY: no vector is longer than the array.
    unsafe { load(simd, numbers.as_ptr(), None) }
}

/// `G^T dU G` for some input and all output channels, into `[to, from, 3, 3]`.
pub(super) fn gradient(
    set: InstructionSet,
    geometry: &Geometry,
    channels: Range<usize>,
    points: Points,
    data: &[f32],
    dw: &mut [f32],
) {
    set.run(Gradient { from: geometry.from, to: geometry.to, channels, points, data, dw });
}

struct Gradient<'a> {
    from: usize,
    to: usize,
    channels: Range<usize>,
    points: Points,
    data: &'a [f32],
    dw: &'a mut [f32],
}

impl WithSimd for Gradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let mut taps = [[0.0; WIDEST]; 9];
        for column in (0..self.to).step_by(S::F32_LANES) {
            let lanes = S::F32_LANES.min(self.to - column);
            for (row, channel) in self.channels.clone().enumerate() {
                let (first, plane) = self.points.at(row, column);
                let mut points = [[simd.splat_f32s(0.0); 6]; 6];
                for point in 0..POINTS {
                    let from = &self.data[first + point * plane..][..S::F32_LANES];
                    // SAFETY: the slice is as long as a vector.
                    points[point / 6][point % 6] = unsafe { load(simd, from.as_ptr(), None) };
                }
                let values = WeightsGradient.both_sides(simd, points);
                for tap in 0..9 {
                    // SAFETY: no vector is longer than the array, as `vector` asserts.
                    unsafe { store(simd, taps[tap].as_mut_ptr(), values[tap / 3][tap % 3], None) };
                }
                for lane in 0..lanes {
                    let window = &mut self.dw[((column + lane) * self.from + channel) * 9..][..9];
                    window.iter_mut().zip(&taps).for_each(|(number, tap)| *number = tap[lane]);
                }
            }
        }
    }
}
