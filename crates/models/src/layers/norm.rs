//! Normalisation: to mean 0 and variance 1 over some of the axes, then a learned scale and offset a channel.
//!
//! `y = (x - mean) / sqrt(variance + 1e-5) * scale + offset`; the layers differ in what the mean and the (biased) variance are
//! taken over.
use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::module::layer_norm;
use fedeq_kernels::norm::Fusion;
use fedeq_kernels::tensor as kernels;
use serde::{Deserialize, Serialize};

use super::Activation;
use crate::context::{Context, Mode};
use crate::init::{Blueprint, Initializer};
use crate::statistics::Moments;

/// What keeps the division finite.
const EPSILON: f64 = 1e-5;

/// How many groups [`GroupNorm`] makes of the channels.
pub(crate) const GROUPS: usize = 8;

/// Which normalisation a network uses outside its equilibrium cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// Over the batch, with running statistics that travel between clients and server.
    #[default]
    Batch,
    /// Over groups of channels of one sample, without any state.
    Group,
}

/// What group normalisation takes its statistics over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reach {
    /// The whole plane of a group of channels, as in textbooks.
    #[default]
    Textbook,
    /// One image row of a group of channels, as in the authors' code.
    RowWise,
}

/// Batch or group normalisation, as the configuration has it.
#[derive(Module, Debug)]
pub(crate) enum Norm {
    /// Over the batch.
    Batch(BatchNorm),
    /// Over groups of channels.
    Group(GroupNorm),
}

/// What is computed along with a normalisation, so that one pass over the numbers does it all.
#[derive(Clone, Debug)]
pub(crate) struct Around<const D: usize>(kernels::Around<D>);

impl<const D: usize> Around<D> {
    /// `norm(x)`
    pub(crate) fn nothing() -> Self {
        Self(kernels::Around { fusion: Fusion::None, shortcut: None })
    }

    /// `norm(phi(x))`
    pub(crate) fn before(phi: Activation) -> Self {
        Self(kernels::Around { fusion: Fusion::Before(phi.into()), shortcut: None })
    }

    /// `phi(norm(x))`
    pub(crate) fn after(phi: Activation) -> Self {
        Self(kernels::Around { fusion: Fusion::After(phi.into()), shortcut: None })
    }

    /// `phi(norm(x) + shortcut)`
    pub(crate) fn adding(shortcut: Tensor<D>, phi: Activation) -> Self {
        Self(kernels::Around { shortcut: Some(shortcut), ..Self::after(phi).0 })
    }
}

impl Norm {
    pub(crate) fn new(at: &Blueprint, channels: usize, kind: NormKind) -> Self {
        match kind {
            NormKind::Batch => Self::Batch(BatchNorm::new(at, channels)),
            NormKind::Group => Self::Group(GroupNorm::new(at, channels, Reach::Textbook)),
        }
    }

    /// Applies the layer to `[B, C]` or `[B, H, W, C]`.
    pub(crate) fn forward<const D: usize>(&self, x: Tensor<D>, around: Around<D>, context: &mut Context) -> Tensor<D> {
        match self {
            Self::Batch(norm) => norm.forward(x, around, context),
            Self::Group(norm) => norm.forward(x, around),
        }
    }
}

/// Over everything but the channels: the batch's own statistics in training, the running ones in evaluation.
///
/// The running statistics live in the [`Context`], under this layer's path.
#[derive(Module, Debug)]
pub(crate) struct BatchNorm {
    /// `[C]`, ones at first.
    pub(crate) scale: Param<Tensor<1>>,
    /// `[C]`, zeros at first.
    pub(crate) offset: Param<Tensor<1>>,
    path: String,
}

impl BatchNorm {
    pub(crate) fn new(at: &Blueprint, channels: usize) -> Self {
        let (scale, offset) = affine(at, channels);
        Self { scale, offset, path: at.path().to_owned() }
    }

    /// Applies the layer to `[B, ..., C]`; in training, the context's statistics move.
    pub(crate) fn forward<const D: usize>(&self, x: Tensor<D>, around: Around<D>, context: &mut Context) -> Tensor<D> {
        let affine = kernels::Affine { scale: self.scale.val(), offset: self.offset.val() };
        match context.mode {
            Mode::Train => {
                let batch = kernels::batch_norm_train(x, affine, around.0);
                context.statistics.observe(&self.path, batch.mean, batch.variance);
                batch.output
            }
            Mode::Evaluate => {
                let running = context.statistics.get(&self.path).cloned();
                let running = running.unwrap_or_else(|| Moments::fresh_like(&self.scale.val()));
                kernels::batch_norm(x, affine, [running.mean, running.variance], around.0)
            }
        }
    }
}

/// Over one of [`GROUPS`] groups of neighbouring channels of one sample.
#[derive(Module, Debug)]
pub(crate) struct GroupNorm {
    /// `[C]`, ones at first.
    pub(crate) scale: Param<Tensor<1>>,
    /// `[C]`, zeros at first.
    pub(crate) offset: Param<Tensor<1>>,
    #[module(skip)]
    reach: Reach,
}

impl GroupNorm {
    pub(crate) fn new(at: &Blueprint, channels: usize, reach: Reach) -> Self {
        let (scale, offset) = affine(at, channels);
        Self { scale, offset, reach }
    }

    /// Applies the layer to `[B, C]` or `[B, H, W, C]`.
    pub(crate) fn forward<const D: usize>(&self, x: Tensor<D>, around: Around<D>) -> Tensor<D> {
        kernels::group_norm(x, self.affine(), self.groups(), around.0)
    }

    pub(crate) fn affine(&self) -> kernels::Affine {
        kernels::Affine { scale: self.scale.val(), offset: self.offset.val() }
    }

    pub(crate) fn groups(&self) -> kernels::Groups {
        kernels::Groups { count: GROUPS, by_row: self.reach == Reach::RowWise }
    }
}

/// Over the last axis.
#[derive(Module, Debug)]
pub(crate) struct LayerNorm {
    /// `[width]`, ones at first.
    pub(crate) scale: Param<Tensor<1>>,
    /// `[width]`, zeros at first.
    pub(crate) offset: Param<Tensor<1>>,
}

impl LayerNorm {
    pub(crate) fn new(at: &Blueprint, width: usize) -> Self {
        let (scale, offset) = affine(at, width);
        Self { scale, offset }
    }

    /// Applies the layer to `[..., width]`.
    pub(crate) fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let (scale, offset) = (self.scale.val(), self.offset.val());
        kernels::layer_norm(&x, &scale, &offset).unwrap_or_else(|| layer_norm(x, scale, Some(offset), EPSILON))
    }
}

fn affine(at: &Blueprint, channels: usize) -> (Param<Tensor<1>>, Param<Tensor<1>>) {
    (at.parameter("scale", [channels], Initializer::Ones), at.parameter("offset", [channels], Initializer::Zeros))
}
