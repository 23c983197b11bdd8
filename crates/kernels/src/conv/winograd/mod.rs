//! 3x3 convolutions at stride one by Winograd's `F(4x4, 3x3)`.
//!
//! A tile of 4x4 outputs, `Y = A^T [(G w G^T) . (B^T X B)] A`, is found from 6x6 inputs by 36 multiplications for each pair of channels
//! instead of 144. Over many tiles and all channels these are 36 matrix products, one for each entry ("point") of the 6x6 matrices.
#![allow(clippy::needless_range_loop, reason = "squares of vectors are clearest by row and column")]

mod points;
mod tiles;
mod transforms;
mod weights;

use std::ops::Range;

use super::panels::{PanelProduct, Panels};
use super::{Geometry, Scratch};
use crate::InstructionSet;
use crate::gemm::{Factor, Size};
use points::{FromPoints, Points, ToPoints};
use tiles::Tiles;
use transforms::{Input, OutputGradient};
pub(super) use weights::prepare;

/// Entries of the 6x6 matrices.
const POINTS: usize = 36;

/// Numbers in the transformed input and output of a block of tiles.
const BLOCK: usize = 1 << 18;

/// `y = x * w` with prepared weights.
pub(super) fn convolve(
    set: InstructionSet,
    geometry: &Geometry,
    x: &[f32],
    weights: &[f32],
    y: &mut [f32],
    scratch: &mut Scratch,
) {
    let Scratch { input, output, zeros, waste, .. } = scratch;
    let (inputs, outputs) = (Tiles::of(geometry, geometry.from), Tiles::of(geometry, geometry.to));
    let (zeros, waste) = (zeros.take(geometry.from), waste.take(geometry.to));
    let prepared = weights::layout(set, geometry.from, geometry.to);
    for tiles in blocks(geometry) {
        let v = Points::new(Panels::single(set, tiles.len(), geometry.from));
        let m = Points::new(Panels::single(set, tiles.len(), geometry.to));
        let (input, output) = (input.take(v.len()), output.take(m.len()));
        set.run(ToPoints { transform: Input, image: x, places: inputs, tiles: tiles.clone(), zeros, points: v, to: input });
        for point in 0..POINTS {
            let size = Size { m: tiles.len(), n: prepared.matrix.columns, k: geometry.from };
            let a = Factor::rows(&input[v.of(point)], v.matrix.columns);
            let b = &weights[prepared.of(point)];
            let c = &mut output[m.of(point)];
            let c_stride = m.matrix.columns;
            PanelProduct { size, a, b, panels: prepared.matrix, c, c_stride, accumulate: false }.run(set);
        }
        set.run(FromPoints { points: m, from: output, image: y, places: outputs, tiles, waste });
    }
}

/// `dw`, `[to, from, 3, 3]`: at each point the product of the transformed input and the transformed gradient of the output.
pub(super) fn weight_gradient(
    set: InstructionSet,
    geometry: &Geometry,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    scratch: &mut Scratch,
) {
    let Scratch { input, output, weights, zeros, .. } = scratch;
    let (inputs, outputs) = (Tiles::of(geometry, geometry.from), Tiles::of(geometry, geometry.to));
    let zeros = zeros.take(geometry.from.max(geometry.to));
    let sums = Points::new(Panels::single(set, geometry.from, geometry.to));
    let gradient = weights.take(sums.len());
    for tiles in blocks(geometry) {
        let v = Points::new(Panels::single(set, tiles.len(), geometry.from));
        let m = Points::new(Panels::new(set, tiles.len(), geometry.to));
        let (input, output) = (input.take(v.len()), output.take(m.len()));
        set.run(ToPoints { transform: Input, image: x, places: inputs, tiles: tiles.clone(), zeros, points: v, to: input });
        set.run(ToPoints {
            transform: OutputGradient,
            image: dy,
            places: outputs,
            tiles: tiles.clone(),
            zeros,
            points: m,
            to: output,
        });
        for point in 0..POINTS {
            let size = Size { m: geometry.from, n: m.matrix.columns, k: tiles.len() };
            let a = Factor::transposed(&input[v.of(point)], v.matrix.columns);
            let b = &output[m.of(point)];
            let c = &mut gradient[sums.of(point)];
            let c_stride = sums.matrix.columns;
            let accumulate = tiles.start > 0;
            PanelProduct { size, a, b, panels: m.matrix, c, c_stride, accumulate }.run(set);
        }
    }
    if geometry.batch == 0 {
        gradient.fill(0.0);
    }
    weights::gradient(set, geometry, sums, gradient, dw);
}

/// All tiles, in blocks that fit a cache.
fn blocks(geometry: &Geometry) -> impl Iterator<Item = Range<usize>> {
    let tiles = Tiles::of(geometry, 1).count(geometry.batch);
    let block = (BLOCK / (POINTS * (geometry.from + geometry.to))).max(8) / 8 * 8;
    (0..tiles).step_by(block).map(move |start| start..(start + block).min(tiles))
}
