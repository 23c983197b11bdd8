//! What all image networks have in common: how they begin and how they end.
use burn::module::Module;
use burn::tensor::Tensor;

use crate::builder::Builder;
use crate::context::Context;
use crate::graph::{Fusion, ValueId};
use crate::init::Blueprint;
use crate::layers::{Activation, Around, Conv, Dense, Norm, NormKind};
use crate::representation::Features;

/// The shared end of an image network: `before = phi(fc2(phi(fc1(x))))` and `norm(before)`.
pub(crate) fn dense_end(head: &mut Builder<'_>, x: ValueId, widths: [usize; 2], style: Style) -> [ValueId; 2] {
    let h = head.dense("fc1", x, widths[0], Some(style.activation));
    let before = head.dense("fc2", h, widths[1], Some(style.activation));
    [before, head.norm("norm", before, style.norm, Fusion::None)]
}

/// The first layer: a 3x3 convolution, an activation and a normalisation. `[B, H, W, in] -> [B, H, W, C]`
#[derive(Module, Debug)]
pub(crate) struct Stem {
    conv: Conv,
    norm: Norm,
    #[module(skip)]
    activation: Activation,
    norm_first: bool,
}

impl Stem {
    /// `norm(activation(conv(x)))`
    pub(crate) fn activating_first(at: &Blueprint, conv: Conv, channels: usize, style: Style) -> Self {
        Self { conv, norm: Norm::new(&at.at("norm"), channels, style.norm), activation: style.activation, norm_first: false }
    }

    /// `activation(norm(conv(x)))`
    pub(crate) fn normalizing_first(at: &Blueprint, conv: Conv, channels: usize, style: Style) -> Self {
        Self { norm_first: true, ..Self::activating_first(at, conv, channels, style) }
    }

    pub(crate) fn forward(&self, x: Tensor<4>, context: &mut Context) -> Tensor<4> {
        let x = self.conv.forward(x);
        let around = if self.norm_first { Around::after(self.activation) } else { Around::before(self.activation) };
        self.norm.forward(x, around, context)
    }
}

/// The choices that run through a whole network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) norm: NormKind,
    pub(crate) activation: Activation,
}

/// The shared end: two dense layers and a normalisation. `[B, n] -> [B, widths[1]]`
#[derive(Module, Debug)]
pub(crate) struct Head {
    fc1: Dense,
    fc2: Dense,
    norm: Norm,
    #[module(skip)]
    activation: Activation,
    #[module(skip)]
    embedding: EmbeddingPoint,
}

/// Which vector stands for a sample in nearest-neighbour methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EmbeddingPoint {
    BeforeNorm,
    AfterNorm,
}

impl Head {
    pub(crate) fn new(at: &Blueprint, inputs: usize, widths: [usize; 2], style: Style, embedding: EmbeddingPoint) -> Self {
        Self {
            fc1: Dense::new(&at.at("fc1"), [inputs, widths[0]]),
            fc2: Dense::new(&at.at("fc2"), widths),
            norm: Norm::new(&at.at("norm"), widths[1], style.norm),
            activation: style.activation,
            embedding,
        }
    }

    pub(crate) fn forward(&self, x: Tensor<2>, context: &mut Context) -> Features {
        let x = self.activation.apply(self.fc1.forward(x));
        let before = self.activation.apply(self.fc2.forward(x));
        let features = self.norm.forward(before.clone(), Around::nothing(), context);
        let embedding = match self.embedding {
            EmbeddingPoint::BeforeNorm => before,
            EmbeddingPoint::AfterNorm => features.clone(),
        };
        Features::Vector { features, embedding }
    }
}
