//! Where tiles lie in images.
use std::ops::Range;

use super::super::Geometry;
use crate::size::product;

/// Images, cut into tiles of 4x4 pixels; those at the right and at the bottom may reach outside.
///
/// Where no more than two pixels are left at an edge, the tiles there are *narrow*: two pixels wide or high, found by `F(2, 3)` in that
/// direction. The points of `F(2, 3)` are among those of `F(4, 3)`, so narrow tiles use the same prepared weights, but only at some of
/// the 36 points. Tiles are numbered over all images in such an order that those with work at a point are neighbours: narrow columns,
/// whole tiles, narrow rows, and corners.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tiles {
    batch: usize,
    height: usize,
    width: usize,
    pub(super) channels: usize,
    down: Cut,
    across: Cut,
}

/// How one side of an image is cut.
#[derive(Clone, Copy, Debug)]
struct Cut {
    whole: usize,
    narrow: usize,
}

impl Cut {
    fn of(size: usize) -> Self {
        let narrow = usize::from(matches!(size % 4, 1 | 2));
        Self { whole: size.div_ceil(4) - narrow, narrow }
    }
}

/// In which directions a tile is narrow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Narrow {
    pub(super) down: bool,
    pub(super) across: bool,
}

/// In the order in which tiles are numbered.
const KINDS: [Narrow; 4] = [
    Narrow { down: false, across: true },
    Narrow { down: false, across: false },
    Narrow { down: true, across: false },
    Narrow { down: true, across: true },
];

/// Whether this row or column of the points is missing in narrow tiles.
#[inline(always)]
pub(super) fn beyond_two(index: usize) -> bool {
    matches!(index, 3 | 4)
}

impl Tiles {
    pub(super) fn of(geometry: &Geometry, channels: usize) -> Self {
        let Geometry { batch, height, width, .. } = *geometry;
        Self { batch, height, width, channels, down: Cut::of(height), across: Cut::of(width) }
    }

    /// Tiles in all images.
    pub(super) fn count(&self) -> usize {
        self.range(0..KINDS.len()).end
    }

    /// How many rows and columns of tiles of a kind an image has.
    #[inline(always)]
    fn grid(&self, kind: Narrow) -> [usize; 2] {
        let of = |cut: Cut, narrow| if narrow { cut.narrow } else { cut.whole };
        [of(self.down, kind.down), of(self.across, kind.across)]
    }

    /// The numbers of the tiles of some neighbouring kinds.
    fn range(&self, kinds: Range<usize>) -> Range<usize> {
        let up_to = |end: usize| KINDS[..end].iter().map(|&kind| self.batch * self.grid(kind).iter().product::<usize>()).sum();
        up_to(kinds.start)..up_to(kinds.end)
    }

    /// Of a block of tiles, counted from its start, those with work at a point.
    pub(super) fn at_work(&self, point: usize, block: &Range<usize>) -> Range<usize> {
        let first = usize::from(beyond_two(point % 6));
        let last = if beyond_two(point / 6) { 2 } else { 4 - first };
        let Range { start, end } = self.range(first..last);
        let (start, end) = (start.max(block.start), end.min(block.end));
        if start < end { start - block.start..end - block.start } else { 0..0 }
    }

    /// The tiles of all images, in blocks of about `block`, of much the same size.
    pub(super) fn blocks(self, block: usize) -> impl Iterator<Item = Range<usize>> {
        let tiles = self.count();
        let count = tiles.div_ceil(block.max(8));
        let block = if count == 0 { 8 } else { tiles.div_ceil(count).next_multiple_of(8) };
        (0..tiles).step_by(block).map(move |start| start..(start + block).min(tiles))
    }

    /// In which directions a tile is narrow, its image, and its first row and column there.
    #[inline(always)]
    fn place(&self, mut tile: usize) -> (Narrow, [usize; 3]) {
        for kind in KINDS {
            let [rows, columns] = self.grid(kind);
            let count = self.batch * rows * columns;
            if tile < count {
                let before = |cut: Cut, narrow| if narrow { cut.whole } else { 0 };
                let row = tile / columns % rows + before(self.down, kind.down);
                let column = tile % columns + before(self.across, kind.across);
                return (kind, [tile / (rows * columns), 4 * row, 4 * column]);
            }
            tile -= count;
        }
        unreachable!("there are not so many tiles")
    }

    /// In which directions a tile is narrow, and where its pixels start, in a square of `N` pixels around a whole tile, as far as they
    /// are inside of the image: pixels of the images, whose channels all lie below [`len`](Tiles::len).
    #[inline(always)]
    pub(super) fn pixels<const N: usize>(&self, tile: usize) -> (Narrow, [[Option<usize>; N]; N]) {
        let (narrow, [image, top, left]) = self.place(tile);
        let margin = (N - 4) / 2;
        let mut pixels = [[None; N]; N];
        for (u, pixels) in pixels.iter_mut().enumerate() {
            let row = (top + u).wrapping_sub(margin);
            for (v, pixel) in pixels.iter_mut().enumerate() {
                let column = (left + v).wrapping_sub(margin);
                if row < self.height && column < self.width {
                    *pixel = Some(((image * self.height + row) * self.width + column) * self.channels);
                }
            }
        }
        (narrow, pixels)
    }

    /// Numbers in all images.
    pub(super) fn len(&self) -> usize {
        product([self.batch, self.height, self.width, self.channels])
    }
}
