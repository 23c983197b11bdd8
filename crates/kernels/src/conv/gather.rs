//! What lies under the windows of a convolution, gathered and put back.
use std::ops::Range;

use super::Geometry;
use crate::buffer::Buffer;
use crate::gemm::Factor;

/// What lies under the windows of some output pixels, which are whole rows: a matrix with a row for each pixel.
pub(super) fn patches<'a>(geometry: &Geometry, x: &'a [f32], pixels: Range<usize>, buffer: &'a mut Buffer) -> Factor<'a> {
    let inside = geometry.patch_len();
    if geometry.is_pointwise() {
        Factor::rows(&x[pixels.start * inside..pixels.end * inside], inside)
    } else if geometry.from < 8 {
        by_columns(geometry, x, pixels, buffer)
    } else {
        by_rows(geometry, x, pixels, buffer)
    }
}

/// Patches one after the other: all channels of a pixel are copied at once.
fn by_rows<'a>(geometry: &Geometry, x: &[f32], pixels: Range<usize>, buffer: &'a mut Buffer) -> Factor<'a> {
    let inside = geometry.patch_len();
    let rows = buffer.take(pixels.len() * inside);
    each_run(geometry, pixels, |run| match run.image {
        Some(image) => rows[run.patch..run.patch + run.len].copy_from_slice(&x[image..image + run.len]),
        None => rows[run.patch..run.patch + run.len].fill(0.0),
    });
    Factor::rows(rows, inside)
}

/// One place of the window after the other: where channels are few, a row of pixels is copied at once.
fn by_columns<'a>(geometry: &Geometry, x: &[f32], pixels: Range<usize>, buffer: &'a mut Buffer) -> Factor<'a> {
    let Geometry { height, width, from, window, stride, .. } = *geometry;
    let ([rows, columns], [above, left]) = (geometry.output(), geometry.padding());
    // Not a power of two, whose places would fall on the same lines of the first cache.
    let line = pixels.len().next_multiple_of(16) | 16;
    let places = buffer.take(geometry.patch_len() * line);
    for (index, row) in (pixels.start / columns..pixels.end / columns).enumerate() {
        let (sample, i) = (row / rows, row % rows);
        for place in 0..geometry.patch_len() {
            let (u, v, channel) = (place / from / window, place / from % window, place % from);
            let to = &mut places[place * line + index * columns..][..columns];
            let image = (i * stride + u).checked_sub(above).filter(|&row| row < height);
            let Some(image) = image.map(|row| &x[(sample * height + row) * width * from..][..width * from]) else {
                to.fill(0.0);
                continue;
            };
            let start = left.saturating_sub(v).div_ceil(stride).min(columns);
            let end = (width + left).saturating_sub(v).div_ceil(stride).clamp(start, columns);
            to[..start].fill(0.0);
            to[end..].fill(0.0);
            if start < end {
                let image = &image[(start * stride + v - left) * from + channel..];
                copy(image, from * stride, &mut to[start..end]);
            }
        }
    }
    Factor::transposed(places, line)
}

/// Every `step`th number.
fn copy(from: &[f32], step: usize, to: &mut [f32]) {
    match step {
        1 => to.copy_from_slice(&from[..to.len()]),
        _ => to.iter_mut().zip(from.iter().step_by(step)).for_each(|(to, from)| *to = *from),
    }
}

/// Adds patches to the pixels they were gathered from.
pub(super) fn scatter(geometry: &Geometry, rows: &[f32], pixels: Range<usize>, dx: &mut [f32]) {
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
