//! Pooling over the plane of an image.
use std::sync::Arc;

use burn::tensor::Tensor;
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;

use super::norm::shape_of;
use super::operation::{Operation, Past, apply};
use crate::InstructionSet;
use crate::norm::Shape;
use crate::padding::same_padding;
use crate::pool;

/// The largest entry of every 3x3 window, moved by 2, with [SAME padding](same_padding) by minus infinity.
///
/// `[B, H, W, C] -> [B, ceil(H / 2), ceil(W / 2), C]`
pub fn max_pool(x: Tensor<4>) -> Tensor<4> {
    let operation = MaxPool(shape_of(&x));
    apply(operation, [x.clone().into_dispatch()]).unwrap_or_else(|| composed_max_pool(x))
}

fn composed_max_pool(x: Tensor<4>) -> Tensor<4> {
    let [_, height, width, _] = x.dims();
    let padding = [height, width].map(|size| same_padding(size, 3, 2));
    let options = MaxPoolOptions::new([3, 3]).with_stride([2, 2]).with_padding_pairs(padding);
    max_pool2d(x.permute([0, 3, 1, 2]), options).permute([0, 2, 3, 1])
}

/// The mean over the plane: `[B, H, W, C] -> [B, C]`.
pub fn global_average_pool(x: Tensor<4>) -> Tensor<2> {
    let operation = AveragePool(shape_of(&x));
    apply(operation, [x.clone().into_dispatch()]).unwrap_or_else(|| composed_average_pool(x))
}

fn composed_average_pool(x: Tensor<4>) -> Tensor<2> {
    let [batch, height, width, channels] = x.dims();
    x.reshape([batch, height * width, channels]).mean_dim(1).squeeze_dim(1)
}

#[derive(Clone, Debug)]
struct MaxPool(Shape);

impl MaxPool {
    fn output_len(&self) -> usize {
        pool::max_pool_shape(self.0).len()
    }
}

impl Operation<1> for MaxPool {
    /// Which entry of its window each output is.
    type Saved = Arc<[u8]>;

    fn shape(&self) -> Vec<usize> {
        let Shape { batch, height, width, channels } = pool::max_pool_shape(self.0);
        vec![batch, height, width, channels]
    }

    fn run_saving(&self, [x]: [&[f32]; 1]) -> (Vec<f32>, Arc<[u8]>) {
        let (mut y, mut places) = (vec![0.0; self.output_len()], vec![0; self.output_len()]);
        pool::max_pool_with_places(InstructionSet::best(), self.0, x, &mut y, &mut places);
        (y, places.into())
    }

    fn run(&self, [x]: [&[f32]; 1]) -> Vec<f32> {
        let mut y = vec![0.0; self.output_len()];
        pool::max_pool(InstructionSet::best(), self.0, x, &mut y);
        y
    }

    /// The places say enough, and take a sixteenth of the memory.
    fn keeps_inputs(&self) -> bool {
        false
    }

    fn gradients(&self, past: Past<'_, Arc<[u8]>, 1>, _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        let mut dx = vec![0.0; self.0.len()];
        pool::max_pool_backward(InstructionSet::best(), self.0, past.saved, past.gradient, &mut dx);
        [Some(dx)]
    }
}

#[derive(Clone, Debug)]
struct AveragePool(Shape);

impl Operation<1> for AveragePool {
    type Saved = ();

    fn shape(&self) -> Vec<usize> {
        vec![self.0.batch, self.0.channels]
    }

    fn run_saving(&self, [x]: [&[f32]; 1]) -> (Vec<f32>, ()) {
        let mut y = vec![0.0; self.0.batch * self.0.channels];
        pool::global_average_pool(InstructionSet::best(), self.0, x, &mut y);
        (y, ())
    }

    fn keeps_inputs(&self) -> bool {
        false
    }

    fn gradients(&self, past: Past<'_, (), 1>, _: [bool; 1]) -> [Option<Vec<f32>>; 1] {
        let mut dx = vec![0.0; self.0.len()];
        pool::global_average_pool_backward(self.0, past.gradient, &mut dx);
        [Some(dx)]
    }
}
