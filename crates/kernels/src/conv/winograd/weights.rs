//! Weights to points and back.
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::super::Geometry;
use super::super::panels::Panels;
use super::super::weights::Direction;
use super::POINTS;
use super::points::Points;
use super::transforms::{Weights, WeightsGradient, both_sides};
use crate::InstructionSet;
use crate::buffer::Buffer;
use crate::gemm::{load, store};
use crate::instructions::{WIDEST, from_array, to_array};

/// Rows of windows gathered at a time: a vector read at once after its numbers were written one by one waits for them.
const ROWS: usize = 8;

/// How prepared weights lie: at each point a matrix `[from, to]`.
pub(super) fn layout(set: InstructionSet, from: usize, to: usize) -> Points {
    Points::new(Panels::new(set, from, to))
}

/// The windows of a convolution as a matrix: `from` rows and `to` columns of the products they are used in.
#[derive(Clone, Copy)]
pub(super) struct Windows<'a> {
    weight: &'a [f32],
    rows: usize,
    columns: usize,
    row_step: usize,
    column_step: usize,
    flipped: bool,
}

impl<'a> Windows<'a> {
    /// For the backward direction the windows are flipped and channels have the other roles.
    pub(super) fn new(geometry: &Geometry, direction: Direction, weight: &'a [f32]) -> Self {
        let Geometry { from, to, .. } = *geometry;
        match direction {
            Direction::Forward => Self { weight, rows: from, columns: to, row_step: 9, column_step: 9 * from, flipped: false },
            Direction::Backward => Self { weight, rows: to, columns: from, row_step: 9 * from, column_step: 9, flipped: true },
        }
    }

    /// Some rows and columns.
    pub(super) fn part(self, rows: Range<usize>, columns: Range<usize>) -> Self {
        let weight = &self.weight[rows.start * self.row_step + columns.start * self.column_step..];
        Self { weight, rows: rows.len(), columns: columns.len(), ..self }
    }

    /// `G w G^T` of all windows; says how they lie.
    pub(super) fn prepare(self, set: InstructionSet, data: &mut Buffer) -> Points {
        let points = layout(set, self.rows, self.columns);
        set.run(Prepare { windows: self, points, data: data.take(points.len()) });
        points
    }

    /// The windows of one row and some columns, tap by tap; zeros for columns that do not exist.
    #[inline(always)]
    fn gather(&self, row: usize, column: usize, lanes: usize, taps: &mut [[f32; WIDEST]; 9]) {
        for lane in 0..lanes {
            if column + lane >= self.columns {
                for tap in 0..9 {
                    taps[tap][lane] = 0.0;
                }
                continue;
            }
            let window = &self.weight[row * self.row_step + (column + lane) * self.column_step..][..9];
            for tap in 0..9 {
                taps[tap][lane] = window[if self.flipped { 8 - tap } else { tap }];
            }
        }
    }
}

/// `G w G^T` for each pair of channels; for the backward direction of the weights flipped, with channels in the other roles.
pub(in super::super) fn prepare(
    set: InstructionSet,
    geometry: &Geometry,
    direction: Direction,
    weight: &[f32],
    data: &mut Buffer,
) {
    Windows::new(geometry, direction, weight).prepare(set, data);
}

struct Prepare<'a> {
    windows: Windows<'a>,
    points: Points,
    data: &'a mut [f32],
}

impl WithSimd for Prepare<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { windows, points, data } = self;
        let lanes = S::F32_LANES;
        let mut gathered = [[[[0.0; WIDEST]; 9]; 2]; ROWS];
        for start in (0..windows.columns).step_by(2 * lanes) {
            let vectors = if start + lanes < windows.columns { 2 } else { 1 };
            for first in (0..windows.rows).step_by(ROWS) {
                let rows = ROWS.min(windows.rows - first);
                for row in 0..rows {
                    for vector in 0..vectors {
                        windows.gather(first + row, start + vector * lanes, lanes, &mut gathered[row][vector]);
                    }
                }
                for row in 0..rows {
                    for vector in 0..vectors {
                        let (at, plane) = points.at(first + row, start + vector * lanes);
                        window_to_points(simd, &gathered[row][vector], &mut data[at..], plane);
                    }
                }
            }
        }
    }
}

/// `G w G^T` for a vector of windows.
#[inline(always)]
fn window_to_points<S: Simd>(simd: S, taps: &[[f32; WIDEST]; 9], data: &mut [f32], plane: usize) {
    let mut values = [[simd.splat_f32s(0.0); 3]; 3];
    for tap in 0..9 {
        values[tap / 3][tap % 3] = from_array(simd, &taps[tap]);
    }
    let points = both_sides(simd, Weights, Weights, values);
    for point in 0..POINTS {
        let to = &mut data[point * plane..][..S::F32_LANES];
        // SAFETY: the slice is as long as a vector.
        unsafe { store(simd, to.as_mut_ptr(), points[point / 6][point % 6], None) };
    }
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
                let values = both_sides(simd, WeightsGradient, WeightsGradient, points);
                for tap in 0..9 {
                    taps[tap] = to_array(simd, values[tap / 3][tap % 3]);
                }
                for lane in 0..lanes {
                    let window = &mut self.dw[((column + lane) * self.from + channel) * 9..][..9];
                    for tap in 0..9 {
                        window[tap] = taps[tap][lane];
                    }
                }
            }
        }
    }
}
