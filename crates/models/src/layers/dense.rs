//! The fully connected layer.
use burn::backend::DispatchTensor;
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::module::linear;
use fedeq_kernels::transformer::Linear;

use crate::init::{Blueprint, Initializer};

/// `y = x W + b`, or without the `b`.
///
/// `[..., in] -> [..., out]`
#[derive(Module, Debug)]
pub(crate) struct Dense {
    /// `W`, `[in, out]`.
    pub(crate) weight: Param<Tensor<2>>,
    /// `b`, `[out]`.
    pub(crate) bias: Option<Param<Tensor<1>>>,
}

impl Dense {
    /// Weights of deviation `1 / sqrt(in)`, a bias of zero.
    pub(crate) fn new(at: &Blueprint, [from, to]: [usize; 2]) -> Self {
        Self::drawn(at, [from, to], Initializer::fan_in(from))
    }

    /// Weights drawn from `init`, a bias of zero.
    pub(crate) fn drawn(at: &Blueprint, shape: [usize; 2], init: Initializer) -> Self {
        let bias = at.parameter("bias", [shape[1]], Initializer::Zeros);
        Self { weight: at.parameter("weight", shape, init), bias: Some(bias) }
    }

    /// Weights of deviation `1 / sqrt(in)` and no bias.
    pub(crate) fn without_bias(at: &Blueprint, [from, to]: [usize; 2]) -> Self {
        Self { weight: at.parameter("weight", [from, to], Initializer::fan_in(from)), bias: None }
    }

    /// Weight and bias, for a kernel.
    ///
    /// # Panics
    ///
    /// If there is no bias.
    pub(crate) fn tensors(&self) -> Linear<DispatchTensor> {
        let bias = self.bias.as_ref().expect("layers of attention have biases");
        Linear { weight: self.weight.val().into_dispatch(), bias: bias.val().into_dispatch() }
    }

    /// Applies the layer to the last axis.
    pub(crate) fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        linear(x, self.weight.val(), self.bias.as_ref().map(Param::val))
    }
}
