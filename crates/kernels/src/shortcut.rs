//! The shortcut without parameters of a residual block that halves the plane and widens the channels.
use crate::norm::BatchShape;
use crate::padding::same_size;

/// How far apart the pixels are that a shortcut keeps.
const STRIDE: usize = 2;

/// What [`widen`] makes of a shape: half the height and width, rounded up, and this many channels.
pub fn widen_shape(shape: BatchShape, channels: usize) -> BatchShape {
    BatchShape { height: same_size(shape.height, STRIDE), width: same_size(shape.width, STRIDE), channels, ..shape }
}

/// Every second pixel, with channels of zero added on both sides up to `channels`; of an odd number, the last side has one more.
///
/// `[B, H, W, c] -> [B, ceil(H / 2), ceil(W / 2), channels]`
///
/// # Panics
///
/// If there are fewer channels than before, or the slices do not have the shapes before and after.
pub fn widen(shape: BatchShape, channels: usize, x: &[f32], y: &mut [f32]) {
    check(shape, channels, x.len(), y.len());
    y.fill(0.0);
    for (from, to) in pixels(shape, channels) {
        y[to..to + shape.channels].copy_from_slice(&x[from..from + shape.channels]);
    }
}

/// Adds the gradient of the input of [`widen`], given that of its output.
///
/// # Panics
///
/// As [`widen`].
pub fn add_widen_gradient(shape: BatchShape, channels: usize, dy: &[f32], dx: &mut [f32]) {
    check(shape, channels, dx.len(), dy.len());
    for (from, to) in pixels(shape, channels) {
        for (dx, dy) in dx[from..from + shape.channels].iter_mut().zip(&dy[to..to + shape.channels]) {
            *dx += dy;
        }
    }
}

/// Where each pixel that is kept begins in the input, and where its channels begin in the output.
fn pixels(shape: BatchShape, channels: usize) -> impl Iterator<Item = (usize, usize)> {
    let rows =
        (0..shape.batch).flat_map(move |image| (0..shape.height).step_by(STRIDE).map(move |row| image * shape.height + row));
    let pixels = rows.flat_map(move |row| (0..shape.width).step_by(STRIDE).map(move |column| row * shape.width + column));
    let before = (channels - shape.channels) / 2;
    pixels.enumerate().map(move |(to, from)| (from * shape.channels, to * channels + before))
}

fn check(shape: BatchShape, channels: usize, before: usize, after: usize) {
    assert!(channels >= shape.channels, "a shortcut adds channels");
    assert_eq!(before, shape.len(), "the input has its shape");
    assert_eq!(after, widen_shape(shape, channels).len(), "the output has half the height and width and more channels");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_second_pixel_is_kept_between_channels_of_zero() {
        let shape = BatchShape { batch: 1, height: 3, width: 2, channels: 1 };
        let mut y = [f32::NAN; 8];
        widen(shape, 4, &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], &mut y);
        assert_eq!(y, [0.0, 1.0, 0.0, 0.0, 0.0, 5.0, 0.0, 0.0]);
    }

    #[test]
    fn the_gradient_is_the_adjoint() {
        for [batch, height, width, channels, wide] in [[2, 4, 4, 3, 8], [1, 5, 3, 2, 2], [3, 1, 1, 4, 7]] {
            let shape = BatchShape { batch, height, width, channels };
            let numbers =
                |count: usize, seed: usize| -> Vec<f32> { (0..count).map(|at| ((at * 31 + seed) % 17) as f32 - 8.0).collect() };
            let (x, dy) = (numbers(shape.len(), 1), numbers(widen_shape(shape, wide).len(), 2));
            let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
            widen(shape, wide, &x, &mut y);
            add_widen_gradient(shape, wide, &dy, &mut dx);
            let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f32>();
            assert_eq!(dot(&y, &dy), dot(&x, &dx));
        }
    }
}
