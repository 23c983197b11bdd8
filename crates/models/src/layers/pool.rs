//! Pooling over the plane of an image.
use burn::tensor::Tensor;
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::MaxPoolOptions;

use super::same_padding;

/// The largest entry of every 3x3 window, moved by 2, with [SAME padding](same_padding) by minus infinity.
///
/// `[B, C, H, W] -> [B, C, ceil(H / 2), ceil(W / 2)]`
pub(crate) fn max_pool(x: Tensor<4>) -> Tensor<4> {
    let [_, _, height, width] = x.dims();
    let padding = [height, width].map(|size| same_padding(size, 3, 2));
    max_pool2d(x, MaxPoolOptions::new([3, 3]).with_stride([2, 2]).with_padding_pairs(padding))
}

/// The mean over the plane: `[B, C, H, W] -> [B, C]`.
pub(crate) fn global_average_pool(x: Tensor<4>) -> Tensor<2> {
    x.flatten::<3>(2, 3).mean_dim(2).squeeze_dim(2)
}
