//! 3x3 convolutions at stride one by Winograd's `F(4x4, 3x3)`.
//!
//! A tile of 4x4 outputs, `Y = A^T [(G w G^T) . (B^T X B)] A`, is found from 6x6 inputs by 36 multiplications for each pair of channels
//! instead of 144. Over many tiles and all channels these are 36 matrix products, one for each entry ("point") of the 6x6 matrices.
//! At the edges of an image [narrow tiles](tiles::Tiles) save some of them.
#![allow(clippy::needless_range_loop, reason = "squares of vectors are clearest by row and column")]

mod gradient;
mod once;
mod points;
mod tiles;
mod transforms;
mod weights;

use std::ops::Range;

use super::panels::{PanelProduct, Panels};
use super::{ConvScratch, Geometry};
use crate::InstructionSet;
use crate::gemm::{Factor, Size};
pub(super) use gradient::weight_gradient;
pub(super) use once::{convolve_once, goes_by_pieces};
use points::{FromPoints, Points, ToPoints};
use tiles::Tiles;
use transforms::Input;
pub(super) use weights::prepare;

/// Entries of the 6x6 matrices.
const POINTS: usize = 36;

/// `y = x * w` with prepared weights.
pub(super) fn convolve(
    set: InstructionSet,
    geometry: &Geometry,
    x: &[f32],
    weights: &[f32],
    y: &mut [f32],
    scratch: &mut ConvScratch,
) {
    let ConvScratch { input, output, zeros, waste, .. } = scratch;
    let (inputs, outputs) = (Tiles::of(geometry, geometry.from), Tiles::of(geometry, geometry.to));
    let (zeros, waste) = (zeros.take(geometry.from), waste.take(geometry.to));
    let prepared = weights::layout(set, geometry.from, geometry.to);
    for tiles in blocks(geometry) {
        let v = Points::new(Panels::single(set, tiles.len(), geometry.from));
        let m = Points::new(Panels::single(set, tiles.len(), geometry.to));
        let (input, output) = (input.take(v.len()), output.take(m.len()));
        set.run(ToPoints { transform: Input, image: x, places: inputs, tiles: tiles.clone(), zeros, points: v, to: input });
        for point in 0..POINTS {
            let rows = inputs.at_work(point, &tiles);
            let size = Size { m: rows.len(), n: prepared.matrix.columns, k: geometry.from };
            let a = Factor::rows(&input[v.of(point)][rows.start * v.matrix.columns..], v.matrix.columns);
            let b = &weights[prepared.of(point)];
            let c_stride = m.matrix.columns;
            let c = &mut output[m.of(point)][rows.start * c_stride..];
            PanelProduct { size, a, b, panels: prepared.matrix, first: 0, c, c_stride, accumulate: false }.run(set);
        }
        set.run(FromPoints { channels: 0..geometry.to, points: m, from: output, image: y, places: outputs, tiles, waste });
    }
}

/// `0..count`, in blocks of at most `most`.
fn blocks_of(count: usize, most: usize) -> impl Iterator<Item = Range<usize>> {
    (0..count).step_by(most).map(move |start| start..(start + most).min(count))
}

/// All tiles, in blocks: large where the weights are large, which are read once for each block, else such that a block fits a cache.
fn blocks(geometry: &Geometry) -> impl Iterator<Item = Range<usize>> {
    let numbers = (POINTS * geometry.from * geometry.to / 2).clamp(1 << 16, 1 << 18);
    Tiles::of(geometry, 1).blocks(numbers / (POINTS * (geometry.from + geometry.to)))
}
