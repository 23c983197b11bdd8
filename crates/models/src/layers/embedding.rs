//! Vectors that stand for symbols.
use burn::module::{Module, Param};
use burn::tensor::module::embedding;
use burn::tensor::{Int, Tensor};

use crate::init::{Blueprint, Initializer};

/// One learned vector a symbol: `[B, T] -> [B, T, width]`.
#[derive(Module, Debug)]
pub(crate) struct Embedding {
    /// The vectors, `[symbols, width]`.
    pub(crate) weight: Param<Tensor<2>>,
}

impl Embedding {
    /// Vectors drawn from a truncated `N(0, 0.02^2)`.
    pub(crate) fn new(at: &Blueprint, symbols: usize, width: usize) -> Self {
        Self { weight: at.parameter("weight", [symbols, width], Initializer::TruncatedNormal { deviation: 0.02 }) }
    }

    /// The vectors of the given symbols.
    pub(crate) fn forward(&self, symbols: Tensor<2, Int>) -> Tensor<3> {
        embedding(self.weight.val(), symbols)
    }

    /// The vectors of the symbols 0 to `count - 1`, `[1, count, width]`.
    pub(crate) fn first(&self, count: usize) -> Tensor<3> {
        self.weight.val().narrow(0, 0, count).unsqueeze_dim(0)
    }
}
