//! Convolutions as products with gathered patches: what lies under each window, one row for each output pixel.
use std::ops::Range;

use super::buffer::Buffer;
use super::panels::{PanelProduct, Panels};
use super::{Geometry, Scratch};
use crate::InstructionSet;
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
    for to in 0..geometry.to {
        for from in 0..geometry.from {
            for tap in 0..taps {
                visit(to, tap * geometry.from + from, (to * geometry.from + from) * taps + tap);
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
    scratch: &mut Scratch,
) {
    let (inside, to, panels) = (geometry.patch_len(), geometry.to, forward_panels(set, geometry));
    for block in blocks(geometry) {
        let size = Size { m: block.len(), n: to, k: inside };
        let a = Factor::rows(patches(geometry, x, block.clone(), &mut scratch.input), inside);
        let c = &mut y[block.start * to..block.end * to];
        PanelProduct { size, a, b: weights, panels, c, c_stride: to, accumulate: false }.run(set);
    }
}

pub(super) fn input_gradient(
    set: InstructionSet,
    geometry: &Geometry,
    dy: &[f32],
    weights: &[f32],
    dx: &mut [f32],
    scratch: &mut Scratch,
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
        PanelProduct { size, a, b: weights, panels, c, c_stride: inside, accumulate: false }.run(set);
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
    scratch: &mut Scratch,
) {
    let (inside, to) = (geometry.patch_len(), geometry.to);
    let Scratch { input, weights, .. } = scratch;
    let gradient = weights.take(inside * to);
    gradient.fill(0.0);
    for block in blocks(geometry) {
        let size = Size { m: inside, n: to, k: block.len() };
        let a = Factor::transposed(patches(geometry, x, block.clone(), input), inside);
        let b = &dy[block.start * to..block.end * to];
        Product { size, a, b, b_stride: to, c: &mut *gradient, c_stride: to, accumulate: true }.run(set);
    }
    each_weight(geometry, |channel, inside, at| dw[at] = gradient[inside * to + channel]);
}

/// The output pixels, in blocks whose patches fit a cache.
fn blocks(geometry: &Geometry) -> impl Iterator<Item = Range<usize>> {
    let (pixels, block) = (geometry.output_pixels(), (BLOCK / geometry.patch_len().max(1)).clamp(8, 1024) / 8 * 8);
    (0..pixels).step_by(block).map(move |start| start..(start + block).min(pixels))
}

/// What lies under the windows of some output pixels, one row for each.
fn patches<'a>(geometry: &Geometry, x: &'a [f32], pixels: Range<usize>, buffer: &'a mut Buffer) -> &'a [f32] {
    let inside = geometry.patch_len();
    if geometry.is_pointwise() {
        return &x[pixels.start * inside..pixels.end * inside];
    }
    let rows = buffer.take(pixels.len() * inside);
    each_run(geometry, pixels, |run| match run.image {
        Some(image) => rows[run.patch..run.patch + run.len].copy_from_slice(&x[image..image + run.len]),
        None => rows[run.patch..run.patch + run.len].fill(0.0),
    });
    rows
}

/// Adds patches to the pixels they were gathered from.
fn scatter(geometry: &Geometry, rows: &[f32], pixels: Range<usize>, dx: &mut [f32]) {
    each_run(geometry, pixels, |run| {
        if let Some(image) = run.image {
            let patch = &rows[run.patch..run.patch + run.len];
            dx[image..image + run.len].iter_mut().zip(patch).for_each(|(sum, term)| *sum += term);
        }
    });
}

/// Numbers that lie together in the patches and, unless they are padding, in the image.
struct Run {
    patch: usize,
    image: Option<usize>,
    len: usize,
}

/// Tells all runs of the patches of some output pixels.
fn each_run(geometry: &Geometry, pixels: Range<usize>, mut visit: impl FnMut(Run)) {
    let Geometry { height, width, from, window, stride, .. } = *geometry;
    let ([rows, columns], [above, left]) = (geometry.output(), geometry.padding());
    let line = window * from;
    for (index, pixel) in pixels.enumerate() {
        let (sample, i, j) = (pixel / (rows * columns), pixel / columns % rows, pixel % columns);
        // Columns of the window before, inside and behind the image.
        let before = left.saturating_sub(j * stride).min(window);
        let end = (width + left).saturating_sub(j * stride).clamp(before, window);
        for u in 0..window {
            let patch = (index * window + u) * line;
            let row = (i * stride + u).checked_sub(above).filter(|&row| row < height);
            let Some(row) = row else {
                visit(Run { patch, image: None, len: line });
                continue;
            };
            if before > 0 {
                visit(Run { patch, image: None, len: before * from });
            }
            let image = ((sample * height + row) * width + j * stride + before - left) * from;
            visit(Run { patch: patch + before * from, image: Some(image), len: (end - before) * from });
            if end < window {
                visit(Run { patch: patch + end * from, image: None, len: (window - end) * from });
            }
        }
    }
}
