//! Convolution.
use burn::tensor::Tensor;
use burn::tensor::module;
use burn::tensor::ops::ConvOptions;

use crate::padding::same_padding;

/// A convolution with [SAME padding](same_padding) and no bias.
///
/// `[B, H, W, in] -> [B, ceil(H / stride), ceil(W / stride), out]`, with kernels of `[out, in, window, window]`.
pub fn conv2d(x: Tensor<4>, weight: Tensor<4>, stride: usize) -> Tensor<4> {
    composed(x, weight, stride)
}

fn composed(x: Tensor<4>, weight: Tensor<4>, stride: usize) -> Tensor<4> {
    let [_, height, width, _] = x.dims();
    let [_, _, window, _] = weight.dims();
    let padding = [height, width].map(|size| same_padding(size, window, stride));
    let options = ConvOptions::new_with_padding([stride; 2], padding, [1, 1], 1);
    module::conv2d(x.permute([0, 3, 1, 2]), weight, None, options).permute([0, 2, 3, 1])
}
