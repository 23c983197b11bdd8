//! Tiles of images to points and back.
use std::ops::Range;

use pulp::{MemMask, Simd, WithSimd};

use super::super::panels::Panels;
use super::POINTS;
use super::tiles::{Tiles, beyond_two};
use super::transforms::{Output, TileTransform, TileWork, Transform, both_sides};
use crate::gemm::{load, store};
use crate::size::product;

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
        product([POINTS, self.plane])
    }

    /// Whether there are so many rows, and vectors of so many lanes over so many columns: then at every point, for all rows below these and
    /// columns below these that are multiples of the lanes, a vector lies below [`len`](Points::len).
    fn hold(&self, rows: usize, columns: usize, lanes: usize) -> bool {
        let matrix = self.matrix;
        rows <= matrix.rows && columns <= matrix.columns && matrix.holds_vectors(lanes)
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
        assert!(self.points.len() <= self.to.len() && self.points.hold(self.tiles.len(), self.places.channels, S::F32_LANES));
        let to = self.to.as_mut_ptr();
        for (row, tile) in self.tiles.enumerate() {
            let (narrow, places) = self.places.pixels::<N>(tile);
            let mut pixels = [[self.zeros.as_ptr(); N]; N];
            for i in 0..N {
                for j in 0..N {
                    if let Some(at) = places[i][j] {
                        pixels[i][j] = self.image.as_ptr().wrapping_add(at);
                    }
                }
            }
            // SAFETY: all pixels have `channels` numbers, those outside as zeros; the points hold the row, and `to` the points.
            let work = unsafe { TileToPoints::new(simd, pixels, self.places.channels, self.points, row, to) };
            self.transform.for_tile(narrow, work);
        }
    }
}

/// One tile.
struct TileToPoints<S, const N: usize> {
    simd: S,
    pixels: [[*const f32; N]; N],
    channels: usize,
    points: Points,
    row: usize,
    to: *mut f32,
}

impl<S: Simd, const N: usize> TileToPoints<S, N> {
    /// # Safety
    ///
    /// While this exists, every pixel must point to `channels` numbers, the points [hold](Points::hold) vectors of so many columns in this
    /// row, and `to` point to as many numbers as they have.
    #[inline(always)]
    unsafe fn new(simd: S, pixels: [[*const f32; N]; N], channels: usize, points: Points, row: usize, to: *mut f32) -> Self {
        Self { simd, pixels, channels, points, row, to }
    }
}

impl<S: Simd, const N: usize> TileWork<N, 6> for TileToPoints<S, N> {
    #[inline(always)]
    fn run<A: Transform<N, 6>, D: Transform<N, 6>>(self, across: A, down: D) {
        let simd = self.simd;
        for channel in (0..self.channels).step_by(S::F32_LANES) {
            let mask = rest(simd, self.channels - channel);
            let (first, plane) = self.points.at(self.row, channel);
            // SAFETY: whoever made this guarantees that pixels and points are there; the mask leaves out what is behind the last channel of
            // a pixel, and points hold whole vectors.
            unsafe {
                let mut values = [[simd.splat_f32s(0.0); N]; N];
                for i in 0..N {
                    for j in 0..N {
                        values[i][j] = load(simd, self.pixels[i][j].add(channel), mask);
                    }
                }
                let points = both_sides(simd, across, down, values);
                for i in 0..6 {
                    for j in 0..6 {
                        if (D::COMPLETE || !beyond_two(i)) && (A::COMPLETE || !beyond_two(j)) {
                            store(simd, self.to.add(first + (6 * i + j) * plane), points[i][j], None);
                        }
                    }
                }
            }
        }
    }
}

/// The mask of the last vector, if it is not full.
#[inline(always)]
fn rest<S: Simd>(simd: S, left: usize) -> Option<MemMask<S::m32s>> {
    if left < S::F32_LANES { Some(simd.mask_between_m32s(0, left as u32)) } else { None }
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
        assert!(self.points.len() <= self.from.len() && self.points.hold(self.tiles.len(), count, S::F32_LANES));
        assert!(count <= self.waste.len());
        let (image, waste) = (self.image.as_mut_ptr().wrapping_add(self.channels.start), self.waste.as_mut_ptr());
        for (row, tile) in self.tiles.enumerate() {
            let (narrow, places) = self.places.pixels::<4>(tile);
            let mut pixels = [[waste; 4]; 4];
            for i in 0..4 {
                for j in 0..4 {
                    if let Some(at) = places[i][j] {
                        pixels[i][j] = image.wrapping_add(at);
                    }
                }
            }
            // SAFETY: from the first of the channels on all pixels have `count` numbers, those outside as waste; the points hold the row,
            // and `from` the points.
            let work = unsafe { TileFromPoints::new(simd, pixels, count, self.points, row, self.from.as_ptr()) };
            Output.for_tile(narrow, work);
        }
    }
}

/// One tile.
struct TileFromPoints<S> {
    simd: S,
    pixels: [[*mut f32; 4]; 4],
    channels: usize,
    points: Points,
    row: usize,
    from: *const f32,
}

impl<S: Simd> TileFromPoints<S> {
    /// # Safety
    ///
    /// While this exists, every pixel must point to `channels` numbers, the points [hold](Points::hold) vectors of so many columns in this
    /// row, and `from` point to as many numbers as they have.
    #[inline(always)]
    unsafe fn new(simd: S, pixels: [[*mut f32; 4]; 4], channels: usize, points: Points, row: usize, from: *const f32) -> Self {
        Self { simd, pixels, channels, points, row, from }
    }
}

impl<S: Simd> TileWork<6, 4> for TileFromPoints<S> {
    #[inline(always)]
    fn run<A: Transform<6, 4>, D: Transform<6, 4>>(self, across: A, down: D) {
        let simd = self.simd;
        for channel in (0..self.channels).step_by(S::F32_LANES) {
            let mask = rest(simd, self.channels - channel);
            let (first, plane) = self.points.at(self.row, channel);
            // SAFETY: whoever made this guarantees that pixels and points are there; the mask leaves out what is behind the last channel of
            // a pixel, and points hold whole vectors.
            unsafe {
                let mut points = [[simd.splat_f32s(0.0); 6]; 6];
                for i in 0..6 {
                    for j in 0..6 {
                        points[i][j] = load(simd, self.from.add(first + (6 * i + j) * plane), None);
                    }
                }
                let values = both_sides(simd, across, down, points);
                for i in 0..4 {
                    for j in 0..4 {
                        store(simd, self.pixels[i][j].add(channel), values[i][j], mask);
                    }
                }
            }
        }
    }
}
