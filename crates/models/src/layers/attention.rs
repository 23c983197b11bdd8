//! Attention of a sequence to its own past.
use burn::module::Module;
use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Int, Tensor};

use super::Dense;
use crate::init::{Blueprint, Initializer};

/// What stands in for minus infinity: far below any score, and finite in half precision too, so that a position which may see
/// nothing at all still gets weights that are numbers.
const BLOCKED_SCORE: f64 = -1e4;

/// Multi-head self-attention with biased projections.
///
/// Per head, with queries, keys and values of `d` numbers: `softmax(Q K^T / sqrt(d)) V`; the heads' results side by side go
/// through the output projection. `[B, T, width] -> [B, T, width]`
#[derive(Module, Debug)]
pub(crate) struct Attention {
    /// `[width, width]`, all heads side by side.
    pub(crate) query: Dense,
    /// `[width, width]`.
    pub(crate) key: Dense,
    /// `[width, width]`.
    pub(crate) value: Dense,
    /// `[width, width]`.
    pub(crate) output: Dense,
    heads: usize,
}

impl Attention {
    pub(crate) fn new(at: &Blueprint, width: usize, heads: usize, init: Initializer) -> Self {
        let projection = |name| Dense::drawn(&at.at(name), [width, width], init);
        Self {
            query: projection("query"),
            key: projection("key"),
            value: projection("value"),
            output: projection("output"),
            heads,
        }
    }

    /// Applies the layer; `blocked` is true where a query (third axis) may not look at a key (last axis), `[B, 1, T, T]`.
    pub(crate) fn forward(&self, x: Tensor<3>, blocked: &Tensor<4, Bool>) -> Tensor<3> {
        let [batch, length, width] = x.dims();
        let [query, key, value] = [&self.query, &self.key, &self.value].map(|project| self.split(project.forward(x.clone())));
        let scale = 1.0 / ((width / self.heads) as f64).sqrt();
        let scores = query.matmul(key.transpose()) * scale;
        let blocked = blocked.clone().expand([batch, self.heads, length, length]);
        let weights = softmax(scores.mask_fill(blocked, BLOCKED_SCORE), 3);
        self.output.forward(weights.matmul(value).swap_dims(1, 2).reshape([batch, length, width]))
    }

    /// `[B, T, width] -> [B, heads, T, width / heads]`
    fn split(&self, x: Tensor<3>) -> Tensor<4> {
        let [batch, length, width] = x.dims();
        x.reshape([batch, length, self.heads, width / self.heads]).swap_dims(1, 2)
    }
}

/// Where attention may not go: to the future, and to padding (symbol 0). `[B, T] -> [B, 1, T, T]`
pub(crate) fn blocked_positions(symbols: &Tensor<2, Int>) -> Tensor<4, Bool> {
    let [batch, length] = symbols.dims();
    let shape = [batch, 1, length, length];
    let future = Tensor::<2, Bool>::tril_mask([length, length], 0, &symbols.device());
    let padding = symbols.clone().equal_elem(0);
    padding.reshape([batch, 1, 1, length]).expand(shape).bool_or(future.reshape([1, 1, length, length]).expand(shape))
}
