//! Pooling over the planes of images, and its gradients.
use pulp::{MemMask, Simd, WithSimd};

use crate::InstructionSet;
use crate::access::{Readable, Writable};
use crate::elementary::select;
use crate::instructions::{WIDEST, from_array, to_array};
use crate::norm::{BatchShape, NormScratch, passes::Total};
use crate::padding::{same_padding, same_size};
use crate::size::product;
use crate::sweep::sweep;

/// Side of the windows of [`max_pool`].
const WINDOW: usize = 3;
/// How far they move.
const STRIDE: usize = 2;

/// What [`max_pool`] makes of a shape: half the height and width, rounded up.
pub fn max_pool_shape(shape: BatchShape) -> BatchShape {
    BatchShape { height: same_size(shape.height, STRIDE), width: same_size(shape.width, STRIDE), ..shape }
}

/// The largest entry of every 3x3 window, moved by 2, with [SAME padding](same_padding) by minus infinity.
///
/// `[B, H, W, C] -> [B, ceil(H / 2), ceil(W / 2), C]`
///
/// # Panics
///
/// If the slices do not have the shapes before and after.
pub fn max_pool(set: InstructionSet, shape: BatchShape, x: &[f32], y: &mut [f32]) {
    check(shape, x.len(), y.len());
    set.run(Forward { shape, x: x.into(), y: y.into(), places: None });
}

/// The same, with the place of each output: the first of the largest entries of its window, counted without the padding.
///
/// # Panics
///
/// As [`max_pool`], or if there are not as many places as outputs.
pub fn max_pool_with_places(set: InstructionSet, shape: BatchShape, x: &[f32], y: &mut [f32], places: &mut [u8]) {
    check(shape, x.len(), y.len());
    assert_eq!(y.len(), places.len(), "every output has its place");
    set.run(Forward { shape, x: x.into(), y: y.into(), places: Some(places) });
}

/// The gradient of the input of [`max_pool`], given the places: all of a window's goes to the entry that was its output.
///
/// # Panics
///
/// As [`max_pool_with_places`].
pub fn max_pool_backward(set: InstructionSet, shape: BatchShape, places: &[u8], dy: &[f32], dx: &mut [f32]) {
    check(shape, dx.len(), dy.len());
    assert_eq!(dy.len(), places.len(), "every output has its place");
    dx.fill(0.0);
    set.run(Backward { shape, places, dy: dy.into(), dx: dx.into() });
}

fn check(shape: BatchShape, before: usize, after: usize) {
    assert_eq!(before, shape.len(), "the input has its shape");
    assert_eq!(after, max_pool_shape(shape).len(), "the output has half the height and width");
}

/// The mean over the plane: `[B, H, W, C] -> [B, C]`, in the memory that normalisations work in.
///
/// # Panics
///
/// If the slices do not have these shapes.
pub fn global_average_pool(set: InstructionSet, shape: BatchShape, x: &[f32], y: &mut [f32], scratch: &mut NormScratch) {
    assert!(x.len() == shape.len() && y.len() == product([shape.batch, shape.channels]), "the output has one number a channel");
    set.run(Average { shape, x, y, totals: scratch.totals(shape.channels) });
}

/// The gradient of the input of [`global_average_pool`].
///
/// # Panics
///
/// As [`global_average_pool`].
pub fn global_average_pool_backward(shape: BatchShape, dy: &[f32], dx: &mut [f32]) {
    let BatchShape { batch, height, width, channels } = shape;
    assert!(dx.len() == shape.len() && dy.len() == product([batch, channels]), "the output has one number a channel");
    if shape.is_empty() {
        return;
    }
    let share = 1.0 / (height * width) as f32;
    for (dx, dy) in dx.chunks_exact_mut(height * width * channels).zip(dy.chunks_exact(channels)) {
        for pixel in dx.chunks_exact_mut(channels) {
            for (dx, dy) in pixel.iter_mut().zip(dy) {
                *dx = dy * share;
            }
        }
    }
}

/// The entries of a window that are not padding: where each begins in the input, of which it is a pixel.
struct Window {
    offsets: [usize; WINDOW * WINDOW],
    count: usize,
}

impl Window {
    /// The window of the output pixel in `row` and `column` of an image: pixels of that image, so below `shape.len()` where the image is
    /// one of the batch.
    #[inline(always)]
    fn new(shape: BatchShape, image: usize, row: usize, column: usize) -> Self {
        let (rows, columns) = (Self::range(row, shape.height), Self::range(column, shape.width));
        let mut window = Self { offsets: [0; WINDOW * WINDOW], count: 0 };
        for row in rows {
            for column in columns.clone() {
                window.offsets[window.count] = ((image * shape.height + row) * shape.width + column) * shape.channels;
                window.count += 1;
            }
        }
        window
    }

    #[inline(always)]
    fn range(at: usize, size: usize) -> std::ops::Range<usize> {
        let before = same_padding(size, WINDOW, STRIDE).0;
        let first = at * STRIDE;
        first.saturating_sub(before)..(first + WINDOW - before).min(size)
    }

    /// The largest entries of the window for the channels from `channel` on, and which entry of the window each is.
    ///
    /// # Safety
    ///
    /// The lanes of the mask, or all without one, must be channels, and the window must lie in `x`.
    #[inline(always)]
    unsafe fn largest<S: Simd>(
        &self,
        simd: S,
        x: Readable<'_>,
        channel: usize,
        mask: Option<MemMask<S::m32s>>,
    ) -> (S::f32s, S::f32s) {
        // SAFETY: a pixel of the window has all channels, and the caller asks for no others.
        let read = |at: usize| unsafe { x.load(simd, self.offsets[at] + channel, mask) };
        let (mut largest, mut place) = (read(0), simd.splat_f32s(0.0));
        for at in 1..self.count {
            let (value, here) = (read(at), simd.splat_f32s(at as f32));
            let larger = simd.greater_than_f32s(value, largest);
            (largest, place) = (select(simd, larger, value, largest), select(simd, larger, here, place));
            // What is not a number wins, so that it is not overlooked.
            let number = simd.equal_f32s(value, value);
            (largest, place) = (select(simd, number, largest, value), select(simd, number, place, here));
        }
        (largest, place)
    }
}

/// Something done for every window and vector of channels.
///
/// # Safety
///
/// What [`covers`](Visit::covers) says must be true, and stay true as long as the visitor exists: [`for_each_window`] reads and writes where it says.
unsafe trait Visit {
    /// Whether inputs and outputs, or their gradients, are at least so many.
    fn covers(&self, before: usize, after: usize) -> bool;

    /// # Safety
    ///
    /// What this covers must hold the window before, and the output's pixel from `to` on after; the lanes of the mask, or all without one,
    /// must be channels.
    unsafe fn visit<S: Simd>(&mut self, simd: S, window: &Window, to: usize, channel: usize, mask: Option<MemMask<S::m32s>>);
}

#[inline(always)]
fn for_each_window<S: Simd>(simd: S, shape: BatchShape, visitor: &mut impl Visit) {
    let (after, lanes, channels) = (max_pool_shape(shape), S::F32_LANES, shape.channels);
    assert!(visitor.covers(shape.len(), after.len()), "slices have the shapes before and after");
    if shape.is_empty() {
        return;
    }
    let mut to = 0;
    for image in 0..shape.batch {
        for row in 0..after.height {
            for column in 0..after.width {
                let window = Window::new(shape, image, row, column);
                let mut channel = 0;
                // SAFETY: the visitor covers both shapes, as asserted and as its `unsafe impl` vouches for; windows consist of pixels of the input, and `to` has gone through
                // the pixels of the output; vectors of channels that exist, then the mask of what is left.
                unsafe {
                    while channel + lanes <= channels {
                        visitor.visit(simd, &window, to, channel, None);
                        channel += lanes;
                    }
                    if channel < channels {
                        let mask = simd.mask_between_m32s(0, (channels - channel) as u32);
                        visitor.visit(simd, &window, to, channel, Some(mask));
                    }
                }
                to += channels;
            }
        }
    }
}

struct Forward<'a> {
    shape: BatchShape,
    x: Readable<'a>,
    y: Writable<'a>,
    places: Option<&'a mut [u8]>,
}

// SAFETY: `covers` looks at both views, which keep their lengths; places are a slice, whose own bounds are checked.
unsafe impl Visit for Forward<'_> {
    #[inline(always)]
    fn covers(&self, before: usize, after: usize) -> bool {
        self.x.len() >= before && self.y.len() >= after
    }

    #[inline(always)]
    unsafe fn visit<S: Simd>(&mut self, simd: S, window: &Window, to: usize, channel: usize, mask: Option<MemMask<S::m32s>>) {
        // SAFETY: the window lies in the input and the pixel in the output, as the caller guarantees.
        let place = unsafe {
            let (largest, place) = window.largest(simd, self.x, channel, mask);
            self.y.store(simd, to + channel, largest, mask);
            place
        };
        if let Some(places) = &mut self.places {
            let left = S::F32_LANES.min(self.shape.channels - channel);
            for (place, lane) in places[to + channel..][..left].iter_mut().zip(&to_array(simd, place)) {
                *place = *lane as u8;
            }
        }
    }
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for_each_window(simd, self.shape, &mut self);
    }
}

struct Backward<'a> {
    shape: BatchShape,
    places: &'a [u8],
    dy: Readable<'a>,
    dx: Writable<'a>,
}

// SAFETY: `covers` looks at both views, which keep their lengths; places are a slice, whose own bounds are checked.
unsafe impl Visit for Backward<'_> {
    #[inline(always)]
    fn covers(&self, before: usize, after: usize) -> bool {
        self.dx.len() >= before && self.dy.len() >= after
    }

    #[inline(always)]
    unsafe fn visit<S: Simd>(&mut self, simd: S, window: &Window, to: usize, channel: usize, mask: Option<MemMask<S::m32s>>) {
        let mut lanes = [0.0; WIDEST];
        let left = S::F32_LANES.min(self.shape.channels - channel);
        for (lane, place) in lanes.iter_mut().zip(&self.places[to + channel..][..left]) {
            *lane = f32::from(*place);
        }
        let place = from_array(simd, &lanes);
        // SAFETY: the pixel lies in the output and the window in the input, as the caller guarantees.
        unsafe {
            let dy = self.dy.load(simd, to + channel, mask);
            for (at, &offset) in window.offsets[..window.count].iter().enumerate() {
                let before = Readable::from(self.dx).load(simd, offset + channel, mask);
                let chosen = simd.equal_f32s(place, simd.splat_f32s(at as f32));
                self.dx.store(simd, offset + channel, select(simd, chosen, simd.add_f32s(before, dy), before), mask);
            }
        }
    }
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for_each_window(simd, self.shape, &mut self);
    }
}

struct Average<'a> {
    shape: BatchShape,
    x: &'a [f32],
    y: &'a mut [f32],
    totals: &'a mut [Vec<f64>; 2],
}

impl WithSimd for Average<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let BatchShape { height, width, channels, .. } = self.shape;
        if self.shape.is_empty() {
            return;
        }
        let pixels = height * width;
        let totals = self.totals;
        for (x, y) in self.x.chunks_exact(pixels * channels).zip(self.y.chunks_exact_mut(channels)) {
            totals[0][..channels].fill(0.0);
            sweep(simd, &Total { x: x.into() }, pixels, channels, totals);
            for (y, total) in y.iter_mut().zip(&totals[0]) {
                *y = (total / pixels as f64) as f32;
            }
        }
    }
}
