//! Tiles of images to points and back.
use std::ops::Range;

use pulp::{Simd, WithSimd};

use super::super::panels::Panels;
use super::POINTS;
use super::tiles::{Narrow, Tiles};
use super::transforms::{Output, TileTransform};
use crate::gemm::{load, store};

/// 36 matrices, one for each point, with a row for each tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct Points {
    pub(super) matrix: Panels,
    plane: usize,
}

impl Points {
    pub(super) fn new(matrix: Panels) -> Self {
        // An odd number of cache lines from one point to the next: the 36 of a tile must not fall on the same lines of the cache.
        Self { matrix, plane: 16 * (matrix.len().div_ceil(16) | 1) }
    }

    pub(super) fn len(&self) -> usize {
        POINTS * self.plane
    }

    /// Where the matrix of a point lies.
    pub(super) fn of(&self, point: usize) -> Range<usize> {
        point * self.plane..point * self.plane + self.matrix.len()
    }

    /// Where an entry of the first point's matrix lies, and how far it is to the next point's.
    #[inline(always)]
    pub(super) fn at(&self, row: usize, column: usize) -> (usize, usize) {
        (self.matrix.at(row, column), self.plane)
    }
}

/// A tile, and where the pixels in a square around it are.
struct Square<P, const N: usize> {
    narrow: Narrow,
    pixels: [[P; N]; N],
}

/// The transform of tiles: `B^T X B` of the 6x6 inputs (`N = 6`), or `A dY A^T` of the 4x4 output gradients (`N = 4`).
pub(super) struct ToPoints<'a, const N: usize, T: TileTransform<N, 6>> {
    pub(super) transform: T,
    pub(super) image: &'a [f32],
    pub(super) places: Tiles,
    pub(super) tiles: Range<usize>,
    /// As many as there are channels.
    pub(super) zeros: &'a [f32],
    pub(super) points: Points,
    pub(super) to: &'a mut [f32],
}

impl<const N: usize, T: TileTransform<N, 6>> WithSimd for ToPoints<'_, N, T> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        assert!(
            self.tiles.end <= self.places.count()
                && self.places.len() <= self.image.len()
                && self.places.channels <= self.zeros.len()
        );
        assert!(self.points.len() <= self.to.len() && self.tiles.len() <= self.points.matrix.rows);
        assert!(self.places.channels.next_multiple_of(S::F32_LANES) <= self.points.matrix.columns);
        let to = self.to.as_mut_ptr();
        for (row, tile) in self.tiles.enumerate() {
            let (narrow, places) = self.places.pixels::<N>(tile);
            let mut square = Square { narrow, pixels: [[self.zeros.as_ptr(); N]; N] };
            for i in 0..N {
                for j in 0..N {
                    if let Some(at) = places[i][j] {
                        square.pixels[i][j] = self.image.as_ptr().wrapping_add(at);
                    }
                }
            }
            let mut channel = 0;
            while channel < self.places.channels {
                let (first, plane) = self.points.at(row, channel);
                // SAFETY: all pixels have `channels` numbers, by the first assertion; all points have a row of full vectors for each
                // tile, by the others.
                unsafe {
                    let (transform, channels, to) = (self.transform, self.places.channels, to.wrapping_add(first));
                    tile_to_points(simd, transform, &square, channel, channels, to, plane);
                }
                channel += S::F32_LANES;
            }
        }
    }
}

/// One vector of channels of one tile.
///
/// # Safety
///
/// Each pixel must have `channels` numbers, and a vector must be writable at `to` and at 35 multiples of `plane` behind it.
#[inline(always)]
unsafe fn tile_to_points<S: Simd, const N: usize>(
    simd: S,
    transform: impl TileTransform<N, 6>,
    square: &Square<*const f32, N>,
    channel: usize,
    channels: usize,
    to: *mut f32,
    plane: usize,
) {
    let left = channels - channel;
    let mask = if left < S::F32_LANES { Some(simd.mask_between_m32s(0, left as u32)) } else { None };
    // SAFETY: as the caller guarantees; the mask leaves out what is behind the last channel.
    unsafe {
        let mut values = [[simd.splat_f32s(0.0); N]; N];
        for i in 0..N {
            for j in 0..N {
                values[i][j] = load(simd, square.pixels[i][j].add(channel), mask);
            }
        }
        let points = transform.tile(simd, square.narrow, values);
        for i in 0..6 {
            for j in 0..6 {
                store(simd, to.add((6 * i + j) * plane), points[i][j], None);
            }
        }
    }
}

/// The tiles of the output: `A^T M A`, for some of its channels.
pub(super) struct FromPoints<'a> {
    /// The channels, which are all columns of the points' matrices.
    pub(super) channels: Range<usize>,
    pub(super) points: Points,
    pub(super) from: &'a [f32],
    pub(super) image: &'a mut [f32],
    pub(super) places: Tiles,
    pub(super) tiles: Range<usize>,
    /// As many as there are channels.
    pub(super) waste: &'a mut [f32],
}

impl WithSimd for FromPoints<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let count = self.channels.len();
        assert!(
            self.tiles.end <= self.places.count()
                && self.places.len() <= self.image.len()
                && self.channels.end <= self.places.channels
        );
        assert!(self.points.len() <= self.from.len() && self.tiles.len() <= self.points.matrix.rows);
        assert!(count.next_multiple_of(S::F32_LANES) <= self.points.matrix.columns && count <= self.waste.len());
        let (image, waste) = (self.image.as_mut_ptr().wrapping_add(self.channels.start), self.waste.as_mut_ptr());
        for (row, tile) in self.tiles.enumerate() {
            let (narrow, places) = self.places.pixels::<4>(tile);
            let mut square = Square { narrow, pixels: [[waste; 4]; 4] };
            for i in 0..4 {
                for j in 0..4 {
                    if let Some(at) = places[i][j] {
                        square.pixels[i][j] = image.wrapping_add(at);
                    }
                }
            }
            let mut channel = 0;
            while channel < count {
                let (first, plane) = self.points.at(row, channel);
                let from = self.from.as_ptr().wrapping_add(first);
                // SAFETY: all pixels have `channels` numbers, by the first assertion; all points have a row of full vectors for each
                // tile, by the others.
                unsafe { tile_from_points(simd, from, plane, &square, channel, count) };
                channel += S::F32_LANES;
            }
        }
    }
}

/// One vector of channels of one tile.
///
/// # Safety
///
/// A vector must be readable at `from` and at 35 multiples of `plane` behind it, and each pixel must have `channels` numbers.
#[inline(always)]
unsafe fn tile_from_points<S: Simd>(
    simd: S,
    from: *const f32,
    plane: usize,
    square: &Square<*mut f32, 4>,
    channel: usize,
    channels: usize,
) {
    let left = channels - channel;
    let mask = if left < S::F32_LANES { Some(simd.mask_between_m32s(0, left as u32)) } else { None };
    // SAFETY: as the caller guarantees; the mask leaves out what is behind the last channel.
    unsafe {
        let mut points = [[simd.splat_f32s(0.0); 6]; 6];
        for i in 0..6 {
            for j in 0..6 {
                points[i][j] = load(simd, from.add((6 * i + j) * plane), None);
            }
        }
        let values = Output.tile(simd, square.narrow, points);
        for i in 0..4 {
            for j in 0..4 {
                store(simd, square.pixels[i][j].add(channel), values[i][j], mask);
            }
        }
    }
}
