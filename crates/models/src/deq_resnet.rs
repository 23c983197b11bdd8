//! DEQ-ResNet: images, with one residual block applied until nothing changes any more.
use fedeq_equilibrium::Equilibrium;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::catalog::{Architecture, InputKind};
use crate::choices::{Activation, GroupNormScope, NormKind, Pooling, Style, dense_end};
use crate::error::Result;
use crate::graph::{Ends, Fusion, Graph, ValueId};
use crate::preset::{Preset, reference_images};
use crate::task::Task;

/// The choices left open in a DEQ-ResNet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeqResNetOptions {
    /// The normalisation outside the cell.
    pub norm: NormKind,
    /// What the cell's group normalisation takes its statistics over.
    pub cell_norm: GroupNormScope,
    /// The nonlinearity.
    pub activation: Activation,
    /// What the dense layers read of the state.
    #[serde(skip_serializing_if = "Pooling::is_flatten")]
    #[schemars(extend("default" = Pooling::default()))]
    pub pooling: Pooling,
    /// How the fixed point is found and differentiated.
    pub equilibrium: Equilibrium,
}

impl Default for DeqResNetOptions {
    fn default() -> Self {
        Self {
            norm: NormKind::Batch,
            cell_norm: GroupNormScope::Textbook,
            activation: Activation::Softplus,
            pooling: Pooling::Flatten,
            equilibrium: Equilibrium::default(),
        }
    }
}

/// The widths of a DEQ-ResNet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeqResNetSize {
    /// Channels of a state.
    pub channels: usize,
    /// Widths of the two dense layers.
    pub dense: [usize; 2],
}

impl DeqResNetSize {
    /// Small enough for a microcontroller. On 8x8x1 digits with 10 classes: 15,824 shared and 330 personal parameters, that
    /// is 64.6 kB in fp32; at one image, the largest tensor holds 1,024 numbers (4 kB) and the default solver's history of six
    /// states and six residuals 3,072 (12 kB).
    pub const XS: Self = Self { channels: 16, dense: [64, 32] };
    /// The paper's network for FEMNIST.
    pub const S: Self = Self { channels: 64, dense: [256, 128] };
    /// The paper's network for CIFAR.
    pub const M: Self = Self { channels: 128, dense: [256, 128] };
}

/// `u = pool(norm(phi(conv(x))))`, `z = g(z; u)` by a [residual cell](crate::graph::Cell::Residual), then `pool`, two dense layers, a
/// normalisation and the personal layer. States are `[ceil(H / 2), ceil(W / 2), C]`. The dense layers read all numbers of the pooled state, or their mean over the plane.
impl Architecture for DeqResNetOptions {
    type Size = DeqResNetSize;
    const INPUTS: InputKind = InputKind::Images;

    fn graph(&self, task: &Task, size: DeqResNetSize) -> Result<Graph> {
        let style = Style { norm: self.norm, activation: self.activation };
        Graph::build(task, |net| {
            let u = stem(net, size, style);
            let cell = net.at("cell").residual_cell(size.channels, self.cell_norm, style.activation);
            let z = net.equilibrium(u, cell, &self.equilibrium);
            end(net, z, size, self.pooling, style)
        })
    }

    fn apply_preset(&mut self, preset: Preset) {
        if preset == Preset::Reference {
            (self.cell_norm, self.equilibrium) = (GroupNormScope::RowWise, reference_images());
        }
    }

    fn equilibrium(&self) -> Option<&Equilibrium> {
        Some(&self.equilibrium)
    }
}

/// `u = pool(norm(phi(conv(x))))`
pub(crate) fn stem(net: &mut Builder<'_>, size: DeqResNetSize, style: Style) -> ValueId {
    let mut stem = net.at("stem");
    let x = stem.input();
    let x = stem.small_conv("conv", x, size.channels);
    let x = stem.norm("norm", x, style.norm, Fusion::Before(style.activation));
    stem.max_pool(x)
}

/// What comes behind the last state: `pool`, two dense layers, a normalisation and the personal layer.
pub(crate) fn end(net: &mut Builder<'_>, z: ValueId, size: DeqResNetSize, pooling: Pooling, style: Style) -> Ends {
    let z = net.max_pool(z);
    let z = match pooling {
        Pooling::Flatten => z,
        Pooling::Mean => net.mean_pool(z),
    };
    let [embedding, features] = dense_end(&mut net.at("dense"), z, size.dense, style);
    Ends { logits: net.personal_dense(features), embedding }
}
