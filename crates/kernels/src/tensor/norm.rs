//! Normalisation of the channels, the last axis, with what is fused to it.
use burn::backend::DispatchTensor;
use burn::tensor::module as burn_module;
use burn::tensor::{Tensor, TensorData, activation};

use super::host;
use super::operation::{Operation, Past, apply, apply_saving, only};
use crate::InstructionSet;
use crate::activation::Activation;
use crate::norm::{self, EPSILON, Fusion, Moments, Norm, NormScope, Shape};

/// Scale and offset of every channel, `[C]` each.
#[derive(Clone, Debug)]
pub struct Affine {
    /// What a normalised number is multiplied by.
    pub scale: Tensor<1>,
    /// What is added then.
    pub offset: Tensor<1>,
}

/// What is computed along with a normalisation: an activation, and a shortcut to be added.
#[derive(Clone, Debug)]
pub struct Around<const D: usize> {
    /// The activation and its place.
    pub fusion: Fusion,
    /// Added to the normalised input, before an activation after it.
    pub shortcut: Option<Tensor<D>>,
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

/// Over everything but the channels, with the statistics of the batch: `[B, ..., C] -> [B, ..., C]`.
pub fn batch_norm_train<const D: usize>(x: Tensor<D>, affine: Affine, around: Around<D>) -> BatchNormalized<D> {
    let operation = Normalization::new(&x, Norm::batch(shape_of(&x), around.fusion), None);
    let fused = match &around.shortcut {
        None => apply_saving(operation, inputs(&x, &affine)),
        Some(shortcut) => apply_saving(operation, inputs_with(&x, &affine, shortcut)),
    };
    let Some((output, moments)) = fused else { return composed_batch_norm_train(x, affine, around) };
    let device = output.device().without_autodiff();
    let channels = [moments.mean.len()];
    let statistic = |values: Vec<f32>| Tensor::from_data(TensorData::new(values, channels), &device);
    BatchNormalized { output, mean: statistic(moments.mean), variance: statistic(moments.variance) }
}

fn composed_batch_norm_train<const D: usize>(x: Tensor<D>, affine: Affine, around: Around<D>) -> BatchNormalized<D> {
    let dims = x.dims();
    let rows = rows_of(around.before(x));
    let batch = burn_module::batch_norm_train(rows, affine.scale, affine.offset, EPSILON.into());
    let output = around.after(batch.output.reshape(dims));
    BatchNormalized { output, mean: batch.mean.without_autodiff(), variance: batch.variance.without_autodiff() }
}

/// Over everything but the channels, with given mean and variance: `[B, ..., C] -> [B, ..., C]`.
pub fn batch_norm<const D: usize>(x: Tensor<D>, affine: Affine, given: [Tensor<1>; 2], around: Around<D>) -> Tensor<D> {
    if !host::is_here(&x.clone().into_dispatch()) {
        return composed_batch_norm(x, affine, given, around); // Reading statistics from another device would wait for it.
    }
    let [mean, variance] = given.clone().map(|statistic| statistic.into_data().convert::<f32>().try_into_vec());
    let moments = Moments { mean: mean.expect("floats"), variance: variance.expect("floats") };
    let operation = Normalization::new(&x, Norm::batch(shape_of(&x), around.fusion), Some(moments));
    let fused = match &around.shortcut {
        None => apply(operation, inputs(&x, &affine)),
        Some(shortcut) => apply(operation, inputs_with(&x, &affine, shortcut)),
    };
    fused.unwrap_or_else(|| composed_batch_norm(x, affine, given, around))
}

fn composed_batch_norm<const D: usize>(
    x: Tensor<D>,
    affine: Affine,
    [mean, variance]: [Tensor<1>; 2],
    around: Around<D>,
) -> Tensor<D> {
    let dims = x.dims();
    let rows = rows_of(around.before(x));
    let normal = burn_module::batch_norm(rows, affine.scale, affine.offset, mean, variance, EPSILON.into());
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
pub fn group_norm<const D: usize>(x: Tensor<D>, affine: Affine, groups: Groups, around: Around<D>) -> Tensor<D> {
    let scope = if groups.by_row { NormScope::Row } else { NormScope::Plane };
    let norm = Norm { shape: shape_of(&x), groups: groups.count, scope, fusion: around.fusion };
    let operation = Normalization::new(&x, norm, None);
    let fused = match &around.shortcut {
        None => apply(operation, inputs(&x, &affine)),
        Some(shortcut) => apply(operation, inputs_with(&x, &affine, shortcut)),
    };
    fused.unwrap_or_else(|| composed_group_norm(x, affine, groups, around))
}

fn composed_group_norm<const D: usize>(x: Tensor<D>, affine: Affine, groups: Groups, around: Around<D>) -> Tensor<D> {
    let dims = x.dims();
    let Shape { batch, height, width, channels } = shape_of(&x);
    let grouped = around.before(x).reshape([batch, height, width, groups.count, channels / groups.count]);
    let axes: &[usize] = if groups.by_row { &[2, 4] } else { &[1, 2, 4] };
    let standard = standardize(grouped, axes).reshape(dims);
    let mut per_channel = [1; D];
    per_channel[D - 1] = channels;
    around.after(standard * affine.scale.reshape(per_channel) + affine.offset.reshape(per_channel))
}

/// `(x - mean) / sqrt(variance + epsilon)` over the given axes.
fn standardize<const D: usize>(x: Tensor<D>, axes: &[usize]) -> Tensor<D> {
    let centred = x.clone() - x.mean_dims(axes);
    let variance = centred.clone().square().mean_dims(axes);
    centred / (variance + f64::from(EPSILON)).sqrt()
}

impl<const D: usize> Around<D> {
    fn before(&self, x: Tensor<D>) -> Tensor<D> {
        match self.fusion {
            Fusion::Before(phi) => activated(phi, x),
            Fusion::None | Fusion::After(_) => x,
        }
    }

    fn after(self, x: Tensor<D>) -> Tensor<D> {
        let sum = match self.shortcut {
            Some(shortcut) => x + shortcut,
            None => x,
        };
        match self.fusion {
            Fusion::After(phi) => activated(phi, sum),
            Fusion::None | Fusion::Before(_) => sum,
        }
    }
}

fn activated<const D: usize>(phi: Activation, x: Tensor<D>) -> Tensor<D> {
    match phi {
        Activation::Relu => activation::relu(x),
        Activation::Softplus => activation::softplus(x, 1.0),
    }
}

fn inputs<const D: usize>(x: &Tensor<D>, affine: &Affine) -> [DispatchTensor; 3] {
    [x.clone().into_dispatch(), affine.scale.clone().into_dispatch(), affine.offset.clone().into_dispatch()]
}

fn inputs_with<const D: usize>(x: &Tensor<D>, affine: &Affine, shortcut: &Tensor<D>) -> [DispatchTensor; 4] {
    let [x, scale, offset] = inputs(x, affine);
    [x, scale, offset, shortcut.clone().into_dispatch()]
}

/// `[B, C]` is an image of one pixel.
pub(super) fn shape_of<const D: usize>(x: &Tensor<D>) -> Shape {
    let dims = x.dims();
    let (height, width) = if D == 4 { (dims[1], dims[2]) } else { (1, dims[1..D - 1].iter().product()) };
    Shape { batch: dims[0], height, width, channels: dims[D - 1] }
}

/// A normalisation of `x` with parameters `scale` and `offset`, and a shortcut if there is a fourth input.
#[derive(Clone, Debug)]
struct Normalization {
    norm: Norm,
    dims: Vec<usize>,
    /// Statistics to use instead of those of `x`.
    given: Option<Moments>,
}

impl Normalization {
    fn new<const D: usize>(x: &Tensor<D>, norm: Norm, given: Option<Moments>) -> Self {
        Self { norm, dims: x.dims().to_vec(), given }
    }
}

impl<const N: usize> Operation<N> for Normalization {
    type Saved = Moments;

    fn shape(&self) -> Vec<usize> {
        self.dims.clone()
    }

    fn run_saving(&self, inputs: [&[f32]; N]) -> (Vec<f32>, Moments) {
        let (set, x, shortcut) = (InstructionSet::best(), inputs[0], inputs.get(3).copied());
        let affine = norm::Affine { scale: inputs[1], offset: inputs[2] };
        let mut y = vec![0.0; x.len()];
        let moments = match &self.given {
            None => self.norm.forward(set, x, affine, shortcut, &mut y),
            Some(given) => {
                self.norm.apply(set, x, affine, given, shortcut, &mut y);
                given.clone()
            }
        };
        (y, moments)
    }

    /// From the output follows the derivative of an activation after the normalisation.
    fn keeps_output(&self) -> bool {
        matches!(self.norm.fusion, Fusion::After(_))
    }

    fn gradients(&self, past: Past<'_, Moments, N>, wanted: [bool; N]) -> [Option<Vec<f32>>; N] {
        let [x, scale, offset] = [past.inputs[0], past.inputs[1], past.inputs[2]];
        let saved = norm::Saved { x, y: past.output, moments: past.saved, given: self.given.is_some() };
        let mut dx = vec![0.0; x.len()];
        let mut d_shortcut = wanted.get(3).is_some_and(|&wanted| wanted).then(|| vec![0.0; x.len()]);
        let affine = norm::Affine { scale, offset };
        let set = InstructionSet::best();
        let of_affine = self.norm.backward(set, saved, affine, past.gradient, &mut dx, d_shortcut.as_deref_mut());
        only(wanted, [Some(dx), Some(of_affine.scale), Some(of_affine.offset), d_shortcut])
    }
}
