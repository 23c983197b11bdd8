//! Convolutions as products with gathered patches: what lies under each window, one row for each output pixel.
use std::ops::Range;

use super::gather::{patches, scatter};
use super::panels::{PanelProduct, Panels};
use super::{ConvScratch, Geometry};
use crate::InstructionSet;
use crate::buffer::Buffer;
use crate::gemm::{Factor, Product, Size};

/// Numbers in a block of patches: half of a second-level cache.
const BLOCK: usize = 1 << 17;

/// The weights as `[window, window, from, to]`, in panels.
pub(super) fn prepare_forward(set: InstructionSet, geometry: &Geometry, weight: &[f32], data: &mut Buffer) {
    let panels = forward_panels(set, geometry);
    let data = data.take(panels.len());
    each_weight(geometry, |to, inside, at| data[panels.at(inside, to)] = weight[at]);
}

/// The weights as `[to, window, window, from]`, in panels.
pub(super) fn prepare_backward(set: InstructionSet, geometry: &Geometry, weight: &[f32], data: &mut Buffer) {
    let panels = backward_panels(set, geometry);
    let data = data.take(panels.len());
    each_weight(geometry, |to, inside, at| data[panels.at(to, inside)] = weight[at]);
}

fn forward_panels(set: InstructionSet, geometry: &Geometry) -> Panels {
    Panels::new(set, geometry.patch_len(), geometry.to)
}

fn backward_panels(set: InstructionSet, geometry: &Geometry) -> Panels {
    Panels::new(set, geometry.to, geometry.patch_len())
}

/// Tells for each weight its output channel, its place in a patch and its place in `[to, from, window, window]`.
fn each_weight(geometry: &Geometry, mut visit: impl FnMut(usize, usize, usize)) {
    let taps = geometry.window * geometry.window;
    // Sixteen output channels at a time: a cache line on one side, and few enough lines on the other.
    for start in (0..geometry.to).step_by(16) {
        for from in 0..geometry.from {
            for tap in 0..taps {
                for to in start..geometry.to.min(start + 16) {
                    visit(to, tap * geometry.from + from, (to * geometry.from + from) * taps + tap);
                }
            }
        }
    }
}

pub(super) fn forward(
    set: InstructionSet,
    geometry: &Geometry,
    x: &[f32],
    weights: &[f32],
    y: &mut [f32],
    scratch: &mut ConvScratch,
) {
    let (inside, to, panels) = (geometry.patch_len(), geometry.to, forward_panels(set, geometry));
    for block in blocks(geometry) {
        let size = Size { m: block.len(), n: to, k: inside };
        let a = patches(geometry, x, block.clone(), &mut scratch.input);
        let c = &mut y[block.start * to..block.end * to];
        PanelProduct { size, a, b: weights, panels, first: 0, c, c_stride: to, accumulate: false }.run(set);
    }
}

pub(super) fn input_gradient(
    set: InstructionSet,
    geometry: &Geometry,
    dy: &[f32],
    weights: &[f32],
    dx: &mut [f32],
    scratch: &mut ConvScratch,
) {
    let (inside, to, panels) = (geometry.patch_len(), geometry.to, backward_panels(set, geometry));
    if !geometry.is_pointwise() {
        dx.fill(0.0);
    }
    for block in blocks(geometry) {
        let size = Size { m: block.len(), n: inside, k: to };
        let a = Factor::rows(&dy[block.start * to..block.end * to], to);
        let straight = geometry.is_pointwise();
        let c = if straight { &mut dx[block.start * inside..] } else { scratch.input.take(block.len() * inside) };
        PanelProduct { size, a, b: weights, panels, first: 0, c, c_stride: inside, accumulate: false }.run(set);
        if !straight {
            scatter(geometry, scratch.input.all(), block, dx);
        }
    }
}

pub(super) fn weight_gradient(
    set: InstructionSet,
    geometry: &Geometry,
    x: &[f32],
    dy: &[f32],
    dw: &mut [f32],
    scratch: &mut ConvScratch,
) {
    let (inside, to) = (geometry.patch_len(), geometry.to);
    let ConvScratch { input, weights, .. } = scratch;
    let gradient = weights.take(inside * to);
    if geometry.batch == 0 {
        gradient.fill(0.0);
    }
    for block in blocks(geometry) {
        let size = Size { m: inside, n: to, k: block.len() };
        let a = patches(geometry, x, block.clone(), input).transpose();
        let b = &dy[block.start * to..block.end * to];
        Product { size, a, b, b_stride: to, c: &mut *gradient, c_stride: to, accumulate: block.start > 0 }.run(set);
    }
    each_weight(geometry, |channel, inside, at| dw[at] = gradient[inside * to + channel]);
}

/// The output pixels, in blocks of whole rows whose patches fit a cache.
fn blocks(geometry: &Geometry) -> impl Iterator<Item = Range<usize>> {
    let (pixels, [_, columns]) = (geometry.output_pixels(), geometry.output());
    let rows = (BLOCK / ((geometry.patch_len() + geometry.to) * columns).max(1)).clamp(1, 1024usize.div_ceil(columns.max(1)));
    let block = (rows * columns).max(1);
    (0..pixels).step_by(block).map(move |start| start..(start + block).min(pixels))
}
