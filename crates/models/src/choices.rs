//! What networks of several kinds leave open.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::graph::{Fusion, ValueId};

/// How many groups a group normalisation makes of the channels.
pub(crate) const GROUPS: usize = 8;

/// The nonlinearity of a network, as a choice; the enum of the same name in `fedeq-kernels` computes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Activation {
    /// `max(x, 0)`.
    Relu,
    /// `log(1 + e^x)`, a smooth version of it.
    Softplus,
}

/// Which normalisation a network uses outside its equilibrium cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NormKind {
    /// Over the batch, with running statistics that travel between clients and server.
    #[default]
    Batch,
    /// Over groups of channels of one sample, without any state.
    Group,
}

/// What group normalisation takes its statistics over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum GroupNormScope {
    /// The whole plane of a group of channels, as in textbooks.
    #[default]
    Textbook,
    /// One image row of a group of channels, as in the authors' code.
    RowWise,
}

/// What the dense layers of a network for images read of a picture.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Pooling {
    /// All its numbers, as in the paper.
    #[default]
    Flatten,
    /// The mean over its plane, a number a channel.
    Mean,
}

impl Pooling {
    /// Whether it is the usual one, which files leave out: experiments of before it was a choice keep their identity.
    pub(crate) fn is_flatten(&self) -> bool {
        *self == Self::Flatten
    }
}

/// What of a network for text stays with its client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Personal {
    /// The last transformer layer, the normalisation behind it and the logits, as in the paper.
    #[default]
    LastLayer,
    /// The logits alone.
    Output,
}

/// Whether a setting has its usual value, which files leave out: experiments of before it was a choice keep their identity.
pub(crate) fn is_usual<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// The same for a factor, which is usually 1.
pub(crate) fn is_one(factor: &f64) -> bool {
    *factor == 1.0
}

/// The choices that run through a whole network.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) norm: NormKind,
    pub(crate) activation: Activation,
}

/// The shared end of an image network: `before = phi(fc2(phi(fc1(x))))` and `norm(before)`.
pub(crate) fn dense_end(dense: &mut Builder<'_>, x: ValueId, widths: [usize; 2], style: Style) -> [ValueId; 2] {
    let h = dense.dense("fc1", x, widths[0], Some(style.activation));
    let before = dense.dense("fc2", h, widths[1], Some(style.activation));
    [before, dense.norm("norm", before, style.norm, Fusion::None)]
}
