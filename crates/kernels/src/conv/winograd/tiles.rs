//! Where tiles lie in images.
use std::ops::Range;

use super::super::Geometry;

/// Images, cut into tiles of 4x4 pixels; those at the right and at the bottom may reach outside.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    height: usize,
    width: usize,
    pub(super) channels: usize,
    rows: usize,
    columns: usize,
}

impl Tiles {
    pub(super) fn of(geometry: &Geometry, channels: usize) -> Self {
        let Geometry { height, width, .. } = *geometry;
        Self { height, width, channels, rows: height.div_ceil(4), columns: width.div_ceil(4) }
    }

    /// Tiles in all images.
    pub(super) fn count(&self, batch: usize) -> usize {
        batch * self.rows * self.columns
    }

    /// The tiles of all images, in blocks of about `block`, of much the same size.
    pub(super) fn blocks(self, batch: usize, block: usize) -> impl Iterator<Item = Range<usize>> {
        let tiles = self.count(batch);
        let count = tiles.div_ceil(block.max(8));
        let block = if count == 0 { 8 } else { tiles.div_ceil(count).next_multiple_of(8) };
        (0..tiles).step_by(block).map(move |start| start..(start + block).min(tiles))
    }

    /// Where the pixels of a tile start, in a square of `N` pixels around it, as far as they are inside of the image.
    #[inline(always)]
    pub(super) fn pixels<const N: usize>(&self, tile: usize) -> [[Option<usize>; N]; N] {
        let (sample, i, j) = (tile / (self.rows * self.columns), tile / self.columns % self.rows, tile % self.columns);
        let margin = (N - 4) / 2;
        let mut pixels = [[None; N]; N];
        for (u, pixels) in pixels.iter_mut().enumerate() {
            let row = (4 * i + u).wrapping_sub(margin);
            for (v, pixel) in pixels.iter_mut().enumerate() {
                let column = (4 * j + v).wrapping_sub(margin);
                if row < self.height && column < self.width {
                    *pixel = Some(((sample * self.height + row) * self.width + column) * self.channels);
                }
            }
        }
        pixels
    }

    /// Numbers in the images up to the one with this tile.
    pub(super) fn len_up_to(&self, tile: usize) -> usize {
        (tile / (self.rows * self.columns) + 1) * self.height * self.width * self.channels
    }
}
