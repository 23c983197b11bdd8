//! Convolution.
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use fedeq_kernels::tensor::conv2d;

use crate::init::{Blueprint, Initializer};

/// A convolution with SAME padding and no bias.
///
/// `[B, H, W, in] -> [B, ceil(H / stride), ceil(W / stride), out]`
#[derive(Module, Debug)]
pub(crate) struct Conv {
    /// The kernels, `[out, in, window, window]`.
    pub(crate) weight: Param<Tensor<4>>,
    /// How far the window moves.
    pub(crate) stride: usize,
}

impl Conv {
    /// Kernels drawn with the default deviation of `1 / sqrt(fan_in)`.
    pub(crate) fn new(at: &Blueprint, channels: [usize; 2], window: usize, stride: usize) -> Self {
        let init = Initializer::fan_in(channels[0] * window * window);
        Self::drawn(at, channels, window, stride, init)
    }

    /// Kernels drawn from `N(0, 0.01^2)`: 3x3, stride 1, as in the equilibrium networks.
    pub(crate) fn small(at: &Blueprint, channels: [usize; 2]) -> Self {
        Self::drawn(at, channels, 3, 1, Initializer::Normal { deviation: 0.01 })
    }

    fn drawn(at: &Blueprint, [from, to]: [usize; 2], window: usize, stride: usize, init: Initializer) -> Self {
        Self { weight: at.parameter("weight", [to, from, window, window], init), stride }
    }

    /// Applies the layer.
    pub(crate) fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        conv2d(x, self.weight.val(), self.stride)
    }
}
