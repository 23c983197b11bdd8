//! The gradient of the weights.
use std::ops::Range;

use super::super::panels::{PanelProduct, Panels};
use super::super::{ConvScratch, Geometry};
use super::points::{Points, ToPoints};
use super::tiles::Tiles;
use super::transforms::{Input, OutputGradient};
use super::{POINTS, weights};
use crate::InstructionSet;
use crate::gemm::{Factor, Size};

/// `dw`, `[to, from, 3, 3]`: at each point the product of the transformed input and the transformed gradient of the output.
///
/// The 36 sums are four times as large as the weights. Some input channels are finished at a time, so that where a single block holds
/// all tiles, the sums never leave the cache.
pub(in super::super) fn weight_gradient(
    set: InstructionSet,
    geometry: &Geometry,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    scratch: &mut ConvScratch,
) {
    let ConvScratch { input, output, weights, zeros, .. } = scratch;
    let Geometry { from, to, .. } = *geometry;
    let (inputs, outputs) = (Tiles::of(geometry, from), Tiles::of(geometry, to));
    let zeros = zeros.take(from.max(to));
    let count = inputs.count();
    if count == 0 {
        return dw.fill(0.0);
    }
    let group = group(geometry);
    let sums = Points::new(Panels::single(set, group, to));
    for tiles in blocks(geometry) {
        let v = Points::new(Panels::single(set, tiles.len(), from));
        let m = Points::new(Panels::new(set, tiles.len(), to));
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
        let (first, last) = (tiles.start == 0, tiles.end == count);
        for (index, start) in (0..from).step_by(group).enumerate() {
            let channels = start..(start + group).min(from);
            let place = if first && last { 0 } else { index * sums.len() };
            let sum = &mut weights.take(place + sums.len())[place..];
            let at_work = |point| inputs.at_work(point, &tiles);
            products(set, channels.clone(), at_work, (v, input), (m, output), (sums, &mut *sum), !first);
            if last {
                weights::gradient(set, geometry, channels, sums, sum, dw);
            }
        }
    }
}

/// At all points the product of some input channels with all output channels.
fn products(
    set: InstructionSet,
    channels: Range<usize>,
    at_work: impl Fn(usize) -> Range<usize>,
    (v, input): (Points, &[f32]),
    (m, output): (Points, &[f32]),
    (sums, sum): (Points, &mut [f32]),
    accumulate: bool,
) {
    for point in 0..POINTS {
        let tiles = at_work(point);
        let size = Size { m: channels.len(), n: m.matrix.columns, k: tiles.len() };
        let stride = v.matrix.columns;
        let a = Factor::transposed(&input[v.of(point)][tiles.start * stride + channels.start..], stride);
        let b = &output[m.of(point)];
        let c = &mut sum[sums.of(point)];
        PanelProduct { size, a, b, panels: m.matrix, first: tiles.start, c, c_stride: sums.matrix.columns, accumulate }.run(set);
    }
}

/// Input channels finished at a time: their sums take half of a second-level cache.
fn group(geometry: &Geometry) -> usize {
    ((1 << 17) / (POINTS * geometry.to)).max(8) / 8 * 8
}

/// All tiles, in blocks: large where the sums are large, which are read and written once for each block.
fn blocks(geometry: &Geometry) -> impl Iterator<Item = Range<usize>> {
    let sums = POINTS * geometry.from * geometry.to;
    let numbers = if sums > 1 << 20 { 1 << 21 } else { sums.max(1 << 17) };
    Tiles::of(geometry, 1).blocks(numbers / (POINTS * (geometry.from + geometry.to)))
}
