//! Normalisation of the channels, the last axis, with what stands around it.
use burn::tensor::module as burn_module;
use burn::tensor::{Tensor, activation};

use crate::activation::Activation;

/// What stands around a normalisation: `after(norm(before(x)) + residual)`, each part if it is there.
#[derive(Clone, Debug, Default)]
pub struct Around<const D: usize> {
    /// Applied to the input.
    pub before: Option<Activation>,
    /// Added to the normalised input.
    pub residual: Option<Tensor<D>>,
    /// Applied to the result.
    pub after: Option<Activation>,
}

impl<const D: usize> Around<D> {
    fn before(&self, x: Tensor<D>) -> Tensor<D> {
        apply(self.before, x)
    }

    fn after(self, x: Tensor<D>) -> Tensor<D> {
        let sum = match self.residual {
            Some(residual) => x + residual,
            None => x,
        };
        apply(self.after, sum)
    }
}

fn apply<const D: usize>(phi: Option<Activation>, x: Tensor<D>) -> Tensor<D> {
    match phi {
        None => x,
        Some(Activation::Relu) => activation::relu(x),
        Some(Activation::Softplus) => activation::softplus(x, 1.0),
    }
}

/// The result of a batch normalisation in training.
#[derive(Clone, Debug)]
pub struct BatchNormalized<const D: usize> {
    /// The normalised batch.
    pub output: Tensor<D>,
    /// The batch's mean, `[C]`, without a gradient.
    pub mean: Tensor<1>,
    /// Its biased variance, `[C]`, without a gradient.
    pub variance: Tensor<1>,
}

/// Scale and offset of every channel, `[C]` each.
#[derive(Clone, Debug)]
pub struct Affine {
    /// What a normalised number is multiplied by.
    pub scale: Tensor<1>,
    /// What is added then.
    pub offset: Tensor<1>,
}

/// Over everything but the channels, with the statistics of the batch: `[B, ..., C] -> [B, ..., C]`.
pub fn batch_norm_train<const D: usize>(x: Tensor<D>, affine: Affine, epsilon: f64, around: Around<D>) -> BatchNormalized<D> {
    let dims = x.dims();
    let rows = rows_of(around.before(x));
    let batch = burn_module::batch_norm_train(rows, affine.scale, affine.offset, epsilon);
    let output = around.after(batch.output.reshape(dims));
    BatchNormalized { output, mean: batch.mean.without_autodiff(), variance: batch.variance.without_autodiff() }
}

/// Over everything but the channels, with given statistics: `[B, ..., C] -> [B, ..., C]`.
pub fn batch_norm<const D: usize>(
    x: Tensor<D>,
    affine: Affine,
    [mean, variance]: [Tensor<1>; 2],
    epsilon: f64,
    around: Around<D>,
) -> Tensor<D> {
    let dims = x.dims();
    let rows = rows_of(around.before(x));
    let normal = burn_module::batch_norm(rows, affine.scale, affine.offset, mean, variance, epsilon);
    around.after(normal.reshape(dims))
}

/// `[..., C] -> [n, C]`
fn rows_of<const D: usize>(x: Tensor<D>) -> Tensor<2> {
    let channels = x.dims()[D - 1];
    x.reshape([-1, channels as i64])
}

/// Which numbers of a sample are normalised together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Groups {
    /// How many groups of neighbouring channels.
    pub count: usize,
    /// Whether every row of an image is normalised on its own, instead of the whole plane.
    pub by_row: bool,
}

/// Over groups of channels of one sample: `[B, C] -> [B, C]` or `[B, H, W, C] -> [B, H, W, C]`.
pub fn group_norm<const D: usize>(x: Tensor<D>, affine: Affine, groups: Groups, epsilon: f64, around: Around<D>) -> Tensor<D> {
    let dims = x.dims();
    let (batch, channels) = (dims[0], dims[D - 1]);
    let (height, width) = if D == 4 { (dims[1], dims[2]) } else { (1, 1) };
    let grouped = around.before(x).reshape([batch, height, width, groups.count, channels / groups.count]);
    let axes: &[usize] = if groups.by_row { &[2, 4] } else { &[1, 2, 4] };
    let standard = standardize(grouped, axes, epsilon).reshape(dims);
    let mut per_channel = [1; D];
    per_channel[D - 1] = channels;
    around.after(standard * affine.scale.reshape(per_channel) + affine.offset.reshape(per_channel))
}

/// `(x - mean) / sqrt(variance + epsilon)` over the given axes.
fn standardize<const D: usize>(x: Tensor<D>, axes: &[usize], epsilon: f64) -> Tensor<D> {
    let centred = x.clone() - x.mean_dims(axes);
    let variance = centred.clone().square().mean_dims(axes);
    centred / (variance + epsilon).sqrt()
}
