//! DEQ-ResNet without its equilibrium: explicit networks of the same size, to tell what the equilibrium itself is good for.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::catalog::{Architecture, InputKind};
use crate::choices::{Activation, GROUPS, GroupNormScope, NormKind, Pooling, Style};
use crate::deq_resnet::{DeqResNetSize, end, stem};
use crate::error::{ModelError, Result, ensure_within};
use crate::graph::{Fusion, Graph, ValueId};
use crate::preset::Preset;
use crate::task::Task;

/// The most steps of a weight-tied network: their states are kept for the way back.
const MOST_STEPS: usize = 64;
/// The most blocks that the largest cell can be shared by.
const MOST_BLOCKS: usize = DeqResNetSize::M.channels / GROUPS;

/// The choices left open in a weight-tied ResNet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TiedResNetOptions {
    /// How often the cell is applied.
    #[schemars(range(min = 1, max = MOST_STEPS))]
    pub steps: usize,
    /// The normalisation outside the cell.
    pub norm: NormKind,
    /// What the cell's group normalisation takes its statistics over.
    pub cell_norm: GroupNormScope,
    /// The nonlinearity.
    pub activation: Activation,
    /// What the dense layers read of the last state.
    pub pooling: Pooling,
}

impl Default for TiedResNetOptions {
    fn default() -> Self {
        Self {
            steps: 8,
            norm: NormKind::Batch,
            cell_norm: GroupNormScope::Textbook,
            activation: Activation::Softplus,
            pooling: Pooling::Flatten,
        }
    }
}

/// DEQ-ResNet with its cell applied a fixed number of times, `z_k = g(z_(k-1); u)` from `z_0 = u`, and differentiated through all of them: the same parameters by the same
/// names, and no fixed point.
impl Architecture for TiedResNetOptions {
    type Size = DeqResNetSize;
    const INPUTS: InputKind = InputKind::Images;

    fn graph(&self, task: &Task, size: DeqResNetSize) -> Result<Graph> {
        ensure_within("number of steps", self.steps, 1..=MOST_STEPS)?;
        let style = Style { norm: self.norm, activation: self.activation };
        Graph::build(task, |net| {
            let u = stem(net, size, style);
            let cell = net.at("cell").residual_cell(size.channels, self.cell_norm, style.activation);
            let z = net.repeat(u, cell, self.steps);
            end(net, z, size, self.pooling, style)
        })
    }

    fn apply_preset(&mut self, preset: Preset) {
        if preset == Preset::Reference {
            self.cell_norm = GroupNormScope::RowWise;
        }
    }
}

/// The choices left open in a ResNet whose blocks have parameters of their own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct UntiedResNetOptions {
    /// How many blocks share the parameters that the cell of DEQ-ResNet has: 1, 2, 4, 8 or 16, as far as its channels go.
    #[schemars(range(min = 1, max = MOST_BLOCKS))]
    pub blocks: usize,
    /// The normalisation outside the blocks; inside they are normalised by groups, as the cell is.
    pub norm: NormKind,
    /// The nonlinearity.
    pub activation: Activation,
    /// What the dense layers read of what the last block gives.
    pub pooling: Pooling,
}

impl Default for UntiedResNetOptions {
    fn default() -> Self {
        Self { blocks: 2, norm: NormKind::Batch, activation: Activation::Softplus, pooling: Pooling::Flatten }
    }
}

/// DEQ-ResNet with residual blocks in place of its equilibrium, each with parameters of its own:
/// `z_k = GN3(phi(z_(k-1) + GN2(conv_b(GN1(phi(conv_a(z_(k-1))))))))` from `z_0 = u`, where `conv_a` goes from `C` to `2C / blocks` channels and `conv_b` back.
///
/// All convolutions together have as many weights as the cell's. Every block but the first adds the `4C` scales and offsets of its own `GN2` and `GN3`.
impl Architecture for UntiedResNetOptions {
    type Size = DeqResNetSize;
    const INPUTS: InputKind = InputKind::Images;

    fn graph(&self, task: &Task, size: DeqResNetSize) -> Result<Graph> {
        let hidden = self.hidden(size.channels)?;
        let style = Style { norm: self.norm, activation: self.activation };
        Graph::build(task, |net| {
            let mut z = stem(net, size, style);
            for index in 0..self.blocks {
                z = block(&mut net.at("blocks").at(index), z, size.channels, hidden, style.activation);
            }
            end(net, z, size, self.pooling, style)
        })
    }
}

impl UntiedResNetOptions {
    /// Channels between the two convolutions of a block: they must be a multiple of twice the groups, so that a normalised group has several.
    fn hidden(&self, channels: usize) -> Result<usize> {
        let most = channels / GROUPS;
        let fits = self.blocks > 0 && most.is_multiple_of(self.blocks);
        fits.then(|| 2 * channels / self.blocks).ok_or_else(|| {
            let choices: Vec<String> =
                (1..=most).filter(|blocks| most.is_multiple_of(*blocks)).map(|blocks| blocks.to_string()).collect();
            let problem = format!("`{}` blocks cannot share the channels of one cell", self.blocks);
            ModelError::unfitting(problem, format!("choose one of {} for `blocks`", choices.join(", ")))
        })
    }
}

fn block(block: &mut Builder<'_>, z: ValueId, channels: usize, hidden: usize, phi: Activation) -> ValueId {
    let h = block.small_conv("conv_a", z, hidden);
    let h = block.norm("norm_1", h, NormKind::Group, Fusion::Before(phi));
    let h = block.small_conv("conv_b", h, channels);
    let h = block.norm("norm_2", h, NormKind::Group, Fusion::AddThen(z, phi));
    block.norm("norm_3", h, NormKind::Group, Fusion::None)
}
