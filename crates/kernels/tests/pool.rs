//! Pooling agrees with its definition, and so does its gradient.
mod reference;

use fedeq_kernels::InstructionSet;
use fedeq_kernels::norm::{BatchShape, NormScratch};
use fedeq_kernels::padding::same_padding;
use fedeq_kernels::pool::{
    global_average_pool, global_average_pool_backward, max_pool, max_pool_backward, max_pool_shape, max_pool_with_places,
};
use reference::{assert_close, double, numbers};

fn shapes() -> impl Iterator<Item = BatchShape> {
    let sizes = (1..=9).flat_map(|height| [1, 2, 5, 8, 9].map(|width| (height, width)));
    sizes.flat_map(|(height, width)| [1, 8, 21, 40].map(|channels| BatchShape { batch: 2, height, width, channels }))
}

/// The index of the largest entry of every window, the first of equal ones.
fn largest(shape: BatchShape, x: &[f32]) -> Vec<usize> {
    let after = max_pool_shape(shape);
    let (top, left) = (same_padding(shape.height, 3, 2).0, same_padding(shape.width, 3, 2).0);
    let mut found = Vec::new();
    for to in 0..after.len() {
        let (channel, pixel) = (to % after.channels, to / after.channels);
        let (column, row, image) = (pixel % after.width, pixel / after.width % after.height, pixel / after.width / after.height);
        let mut best: Option<usize> = None;
        for (down, right) in (0..3).flat_map(|down| (0..3).map(move |right| (down, right))) {
            let (y, x_at) = (row * 2 + down, column * 2 + right);
            if y < top || x_at < left || y - top >= shape.height || x_at - left >= shape.width {
                continue;
            }
            let at = ((image * shape.height + y - top) * shape.width + x_at - left) * shape.channels + channel;
            if best.is_none_or(|best| x[at] > x[best]) {
                best = Some(at);
            }
        }
        found.push(best.expect("every window reaches the input"));
    }
    found
}

#[test]
fn the_largest_entry_is_taken_and_gets_the_gradient() {
    for shape in shapes() {
        // Few different numbers, so that many are equal.
        let x: Vec<f32> = numbers(shape.len(), 1).iter().map(|x| (x * 2.0).round()).collect();
        let chosen = largest(shape, &x);
        let dy = numbers(chosen.len(), 2);
        let mut expected = vec![0.0; x.len()];
        chosen.iter().zip(&dy).for_each(|(&at, dy)| expected[at] += f64::from(*dy));
        for set in InstructionSet::available() {
            let (mut y, mut same, mut places) = (vec![f32::NAN; dy.len()], vec![f32::NAN; dy.len()], vec![u8::MAX; dy.len()]);
            max_pool(set, shape, &x, &mut y);
            max_pool_with_places(set, shape, &x, &mut same, &mut places);
            assert_eq!(y, chosen.iter().map(|&at| x[at]).collect::<Vec<_>>(), "{} {shape:?}", set.name());
            assert_eq!(y, same, "{} {shape:?}", set.name());
            let mut dx = vec![f32::NAN; x.len()];
            max_pool_backward(set, shape, &places, &dy, &mut dx);
            assert_close(&dx, &expected, 1e-6, &format!("{} {shape:?}", set.name()));
        }
    }
}

#[test]
fn what_is_not_a_number_is_not_overlooked() {
    let shape = BatchShape { batch: 1, height: 4, width: 4, channels: 3 };
    for set in InstructionSet::available() {
        for at in 0..shape.len() {
            let (mut x, mut y) = (numbers(shape.len(), 1), vec![0.0; max_pool_shape(shape).len()]);
            x[at] = f32::NAN;
            max_pool(set, shape, &x, &mut y);
            assert!(y.iter().any(|y| y.is_nan()), "{} {at}", set.name());
        }
    }
}

#[test]
fn the_mean_over_the_plane_is_that_and_spreads_its_gradient() {
    for shape in shapes() {
        let pixels = shape.height * shape.width;
        let x = numbers(shape.len(), 1);
        let mut expected = vec![0.0; shape.batch * shape.channels];
        for (at, x) in double(&x).iter().enumerate() {
            expected[at / (pixels * shape.channels) * shape.channels + at % shape.channels] += x / pixels as f64;
        }
        for set in InstructionSet::available() {
            let mut y = vec![f32::NAN; expected.len()];
            global_average_pool(set, shape, &x, &mut y, &mut NormScratch::new());
            assert_close(&y, &expected, 1e-6, &format!("{} {shape:?}", set.name()));
        }
        let (dy, mut dx) = (numbers(expected.len(), 2), vec![f32::NAN; x.len()]);
        global_average_pool_backward(shape, &dy, &mut dx);
        for (at, dx) in dx.iter().enumerate() {
            let expected = dy[at / (pixels * shape.channels) * shape.channels + at % shape.channels] / pixels as f32;
            assert!((dx - expected).abs() < 1e-6, "{shape:?}");
        }
    }
}
