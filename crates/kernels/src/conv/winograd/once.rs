//! Convolutions whose weights are used once, as in the layers of an explicit network.
use super::super::panels::{PanelProduct, Panels};
use super::super::weights::Direction;
use super::super::{ConvScratch, Geometry};
use super::points::{FromPoints, Points, ToPoints};
use super::tiles::Tiles;
use super::transforms::Input;
use super::weights::Windows;
use super::{POINTS, blocks_of};
use crate::InstructionSet;
use crate::gemm::{Factor, Size};

/// Numbers in a piece of prepared weights: half of a second-level cache.
const PIECE: usize = 1 << 17;

/// Whether weights are better prepared piece by piece, each used while it is in the cache.
///
/// Prepared weights are four times as large as they were. Where images are small, writing them to memory and reading them again takes longer
/// than the convolution. But all tiles must be transformed before the first piece is used, and they should not go far either.
pub(in super::super) fn goes_by_pieces(geometry: &Geometry) -> bool {
    let tiles = Tiles::of(geometry, 1).count();
    POINTS * geometry.from * geometry.to > 2 * PIECE && POINTS * tiles * geometry.from.max(geometry.to) <= 8 * PIECE
}

/// `y = x * w`, or, for the backward direction, `dx` of `dy`; the geometry is that of the forward direction.
pub(in super::super) fn convolve_once(
    set: InstructionSet,
    geometry: &Geometry,
    direction: Direction,
    x: &[f32],
    weight: &[f32],
    y: &mut [f32],
    scratch: &mut ConvScratch,
) {
    let windows = Windows::new(geometry, direction, weight);
    let Geometry { from, to, .. } = match direction {
        Direction::Forward => *geometry,
        Direction::Backward => geometry.reversed(),
    };
    let ConvScratch { input, output, prepared, zeros, waste, .. } = scratch;
    let (inputs, outputs) = (Tiles::of(geometry, from), Tiles::of(geometry, to));
    let (zeros, waste) = (zeros.take(from), waste.take(to));
    let tiles = 0..inputs.count();
    if tiles.is_empty() {
        return;
    }
    let v = Points::new(Panels::single(set, tiles.len(), from));
    let input = input.take(v.len());
    set.run(ToPoints { transform: Input, image: x, places: inputs, tiles: tiles.clone(), zeros, points: v, to: input });
    for channels in blocks_of(to, 2 * set.lanes()) {
        let m = Points::new(Panels::single(set, tiles.len(), channels.len()));
        let output = output.take(m.len());
        let pieces = (POINTS * channels.len() * from).div_ceil(PIECE);
        for rows in blocks_of(from, from.div_ceil(pieces)) {
            let piece = windows.part(rows.clone(), channels.clone()).prepare(set, prepared);
            for point in 0..POINTS {
                let at_work = inputs.at_work(point, &tiles);
                let size = Size { m: at_work.len(), n: piece.matrix.columns, k: rows.len() };
                let stride = v.matrix.columns;
                let a = Factor::rows(&input[v.of(point)][at_work.start * stride + rows.start..], stride);
                let b = &prepared.all()[piece.of(point)];
                let c_stride = m.matrix.columns;
                let c = &mut output[m.of(point)][at_work.start * c_stride..];
                PanelProduct { size, a, b, panels: piece.matrix, first: 0, c, c_stride, accumulate: rows.start > 0 }.run(set);
            }
        }
        let tiles = tiles.clone();
        set.run(FromPoints { channels, points: m, from: output, image: y, places: outputs, tiles, waste });
    }
}
