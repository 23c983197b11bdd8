//! What layers compute, as formulas. Pictures are `[B, height, width, channels]`, sequences `[B, T, width]`.
use burn::tensor::activation::{relu, softmax, softplus};
use burn::tensor::module::{conv2d, max_pool2d};
use burn::tensor::ops::{ConvOptions, MaxPoolOptions, PadMode};
use burn::tensor::{Bool, Int, Tensor, s};
use fedeq_models::Activation;
use fedeq_models::graph::{ParameterId, Transformer};

use crate::parameters::Parameters;

/// What keeps the division of a normalisation finite.
const EPSILON: f64 = 1e-5;

/// What stands in for minus infinity, so that a position which may see nothing at all still gets weights that are numbers.
const BLOCKED_SCORE: f64 = -1e4;

pub(crate) fn activate<const D: usize>(activation: Activation, x: Tensor<D>) -> Tensor<D> {
    match activation {
        Activation::Relu => relu(x),
        Activation::Softplus => softplus(x, 1.0),
    }
}

/// `x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))`
fn gelu(x: Tensor<3>) -> Tensor<3> {
    let cube = x.clone() * x.clone() * x.clone();
    let inner = (x.clone() + cube * 0.044715) * (2.0 / std::f64::consts::PI).sqrt();
    x * (inner.tanh() + 1.0) * 0.5
}

/// SAME padding: what is missing for `ceil(size / stride)` windows, half of it on each side and an odd one at the end.
fn same_padding(size: usize, window: usize, stride: usize) -> (usize, usize) {
    let missing = ((size.div_ceil(stride) - 1) * stride + window).saturating_sub(size);
    (missing / 2, missing - missing / 2)
}

pub(crate) fn convolve(x: Tensor<4>, weight: Tensor<4>, stride: usize) -> Tensor<4> {
    let ([_, height, width, _], [_, _, window, _]) = (x.dims(), weight.dims());
    let padding = [height, width].map(|size| same_padding(size, window, stride));
    let options = ConvOptions::new_with_padding([stride; 2], padding, [1, 1], 1);
    conv2d(x.permute([0, 3, 1, 2]), weight, None, options).permute([0, 2, 3, 1])
}

/// The largest of every 3 x 3 pixels around every second one.
pub(crate) fn max_pool(x: Tensor<4>) -> Tensor<4> {
    let [_, height, width, _] = x.dims();
    let padding = [height, width].map(|size| same_padding(size, 3, 2));
    let options = MaxPoolOptions::new([3, 3]).with_stride([2, 2]).with_padding_pairs(padding);
    max_pool2d(x.permute([0, 3, 1, 2]), options).permute([0, 2, 3, 1])
}

pub(crate) fn mean_pool(x: Tensor<4>) -> Tensor<2> {
    let [samples, height, width, channels] = x.dims();
    x.reshape([samples, height * width, channels]).mean_dim(1).squeeze_dim(1)
}

/// Every second pixel, and channels of zero on both sides.
pub(crate) fn widen(x: Tensor<4>, channels: usize) -> Tensor<4> {
    let missing = channels - x.dims()[3];
    let padding = [(0, 0), (0, 0), (missing / 2, missing - missing / 2)];
    x.slice(s![.., ..;2, ..;2, ..]).pad(padding, PadMode::Constant(0.0))
}

/// `[N, P, G, c]` to mean 0 and variance 1 over the second and the last axis; also the means and the (biased) variances, `[N, 1, G, 1]`.
pub(crate) fn normalise(x: Tensor<4>) -> [Tensor<4>; 3] {
    let mean = x.clone().mean_dim(3).mean_dim(1);
    let variance = (x.clone() - mean.clone()).square().mean_dim(3).mean_dim(1);
    [standardise(x, mean.clone(), variance.clone()), mean, variance]
}

pub(crate) fn standardise(x: Tensor<4>, mean: Tensor<4>, variance: Tensor<4>) -> Tensor<4> {
    (x - mean) / (variance + EPSILON).sqrt()
}

/// Group normalisation of `[B, height, width, C]`: over the plane of a group of channels, or over every row of it.
pub(crate) fn group_norm(x: Tensor<4>, groups: usize, by_row: bool, affine: [Tensor<1>; 2]) -> Tensor<4> {
    let dims @ [samples, height, width, channels] = x.dims();
    let [count, pixels] = if by_row { [samples * height, width] } else { [samples, height * width] };
    let [normal, _, _] = normalise(x.reshape([count, pixels, groups, channels / groups]));
    scaled(normal.reshape(dims), affine)
}

/// `x scale + offset` on the last axis.
pub(crate) fn scaled<const D: usize>(x: Tensor<D>, [scale, offset]: [Tensor<1>; 2]) -> Tensor<D> {
    x * scale.unsqueeze() + offset.unsqueeze()
}

/// Normalisation of every position.
pub(crate) fn layer_norm(x: Tensor<3>, affine: [Tensor<1>; 2]) -> Tensor<3> {
    let dims @ [samples, length, width] = x.dims();
    let [normal, _, _] = normalise(x.reshape([samples * length, 1, 1, width]));
    scaled(normal.reshape(dims), affine)
}

/// Where attention may not go: to the future, and to padding (symbol 0). `[B, T] -> [B, 1, T, T]`, queries first.
pub(crate) fn blocked_positions(symbols: &Tensor<2, Int>) -> Tensor<4, Bool> {
    let [samples, length] = symbols.dims();
    let shape = [samples, 1, length, length];
    let future = Tensor::<2, Bool>::tril_mask([length, length], 0, &symbols.device());
    let padding = symbols.clone().equal_elem(0);
    padding.reshape([samples, 1, 1, length]).expand(shape).bool_or(future.reshape([1, 1, length, length]).expand(shape))
}

/// A stack of transformer layers on `[B, T, d]`, with multipliers of dropout `[B, 2 * layers, T, d]`.
pub(crate) fn transformer(
    parameters: &Parameters,
    stack: &Transformer,
    h: Tensor<3>,
    injection: &Tensor<3>,
    symbols: &Tensor<2, Int>,
    masks: Option<&Tensor<4>>,
) -> Tensor<3> {
    let blocked = blocked_positions(symbols);
    let dropped = |x: Tensor<3>, site: usize| match masks {
        Some(masks) => x * masks.clone().narrow(1, site, 1).squeeze_dim(1),
        None => x,
    };
    stack.layers.iter().enumerate().fold(h, |h, (index, ids)| {
        let norm = |x: &Tensor<3>, at: usize| layer_norm(x.clone(), [parameters.get(ids[at]), parameters.get(ids[at + 1])]);
        let linear = |x: Tensor<3>, at: usize| dense(parameters, x, ids[at], ids[at + 1]);
        let h = h + injection.clone();
        let x = norm(&h, 0);
        let [query, key, value] = [2, 4, 6].map(|at| linear(x.clone(), at));
        let seen = linear(attention(query, key, value, &blocked, stack.heads), 8);
        let h = h + dropped(seen, 2 * index);
        let inner = linear(gelu(linear(norm(&h, 10), 12)), 14);
        h + dropped(inner, 2 * index + 1)
    })
}

fn dense(parameters: &Parameters, x: Tensor<3>, weight: ParameterId, bias: ParameterId) -> Tensor<3> {
    let [samples, length, width] = x.dims();
    let y = x.reshape([samples * length, width]).matmul(parameters.get(weight)) + parameters.get::<1>(bias).unsqueeze();
    let to = y.dims()[1];
    y.reshape([samples, length, to])
}

/// `softmax(Q K^T / sqrt(d)) V` for every head.
fn attention(query: Tensor<3>, key: Tensor<3>, value: Tensor<3>, blocked: &Tensor<4, Bool>, heads: usize) -> Tensor<3> {
    let dims @ [samples, length, width] = query.dims();
    let split = |x: Tensor<3>| x.reshape([samples, length, heads, width / heads]).swap_dims(1, 2);
    let scores = split(query).matmul(split(key).transpose()) / ((width / heads) as f64).sqrt();
    let blocked = blocked.clone().expand([samples, heads, length, length]);
    let weights = softmax(scores.mask_fill(blocked, BLOCKED_SCORE), 3);
    weights.matmul(split(value)).swap_dims(1, 2).reshape(dims)
}
