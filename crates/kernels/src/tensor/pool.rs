//! Pooling over the plane of an image.
use burn::tensor::Tensor;
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;

use crate::padding::same_padding;

/// The largest entry of every 3x3 window, moved by 2, with [SAME padding](same_padding) by minus infinity.
///
/// `[B, H, W, C] -> [B, ceil(H / 2), ceil(W / 2), C]`
pub fn max_pool(x: Tensor<4>) -> Tensor<4> {
    composed_max_pool(x)
}

fn composed_max_pool(x: Tensor<4>) -> Tensor<4> {
    let [_, height, width, _] = x.dims();
    let padding = [height, width].map(|size| same_padding(size, 3, 2));
    let options = MaxPoolOptions::new([3, 3]).with_stride([2, 2]).with_padding_pairs(padding);
    max_pool2d(x.permute([0, 3, 1, 2]), options).permute([0, 2, 3, 1])
}

/// The mean over the plane: `[B, H, W, C] -> [B, C]`.
pub fn global_average_pool(x: Tensor<4>) -> Tensor<2> {
    let [batch, height, width, channels] = x.dims();
    x.reshape([batch, height * width, channels]).mean_dim(1).squeeze_dim(1)
}
