//! Explicit residual networks, the baselines for images.
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::catalog::{Architecture, InputKind};
use crate::choices::{Activation, NormKind, Style, dense_end};
use crate::error::Result;
use crate::graph::{Ends, Fusion, Graph, Shape, ValueId};
use crate::init::Initializer;
use crate::task::{InputShape, Task};

/// The choices left open in a ResNet.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ResNetOptions {
    /// The normalisation.
    pub norm: NormKind,
    /// The nonlinearity.
    pub activation: Activation,
    /// Which of the paper's families; [the one that suits the task](Family::of) if none.
    pub family: Option<Family>,
}

impl Default for ResNetOptions {
    fn default() -> Self {
        Self { norm: NormKind::Batch, activation: Activation::Relu, family: None }
    }
}

impl ResNetOptions {
    /// The family of a network for a task.
    fn family_for(&self, task: &Task) -> Family {
        self.family.or(Family::of(task)).unwrap_or(Family::Femnist)
    }
}

/// The paper's explicit networks come in three forms, named after the data they were made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// Four stages of 32 to 256 channels, projected shortcuts.
    Femnist,
    /// Three stages of 64 to 256 channels, shortcuts without parameters.
    Cifar10,
    /// The same with the blocks spread differently.
    Cifar100,
}

impl Family {
    /// The family made for a task, or the nearest one: FEMNIST for one channel, CIFAR-10 for more.
    ///
    /// ```
    /// use fedeq_models::{Family, Task};
    /// assert_eq!(Family::of(&Task::image(32, 32, 3, 100)), Some(Family::Cifar100));
    /// assert_eq!(Family::of(&Task::image(8, 8, 1, 10)), Some(Family::Femnist));
    /// assert_eq!(Family::of(&Task::vector(20, 2)), None);
    /// ```
    pub fn of(task: &Task) -> Option<Self> {
        match task.input {
            InputShape::Image { channels: 1, .. } => Some(Self::Femnist),
            InputShape::Image { height: 32, width: 32, channels: 3 } if task.classes == 100 => Some(Self::Cifar100),
            InputShape::Image { .. } => Some(Self::Cifar10),
            _ => None,
        }
    }

    /// Whether the family was made for this very task.
    pub fn is_made_for(&self, task: &Task) -> bool {
        *task
            == match self {
                Self::Femnist => Task::image(28, 28, 1, 62),
                Self::Cifar10 => Task::image(32, 32, 3, 10),
                Self::Cifar100 => Task::image(32, 32, 3, 100),
            }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Femnist => "FEMNIST",
            Self::Cifar10 => "CIFAR-10",
            Self::Cifar100 => "CIFAR-100",
        })
    }
}

/// How deep a ResNet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResNetDepth {
    /// 8 layers, narrow ones.
    Xs,
    /// 14 layers.
    D14,
    /// 20 layers.
    D20,
    /// 34 layers.
    D34,
}

/// Everything that tells one ResNet from another.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Plan {
    /// Channels of each stage; every stage but the first halves the plane.
    channels: &'static [usize],
    /// Blocks of each stage.
    blocks: &'static [usize],
    /// Widths of the two dense layers.
    dense: [usize; 2],
    /// CIFAR's manner: activation before norm in the stem, shortcuts without parameters, logits of zero at first, and the
    /// embedding before the last norm. FEMNIST's manner is the opposite in all four.
    cifar_manner: bool,
}

impl Plan {
    fn of(depth: ResNetDepth, family: Family) -> Self {
        let blocks: &'static [usize] = match (depth, family) {
            (ResNetDepth::Xs, _) => return Self { channels: &[16, 32], blocks: &[1, 2], dense: [64, 32], cifar_manner: false },
            (ResNetDepth::D14, Family::Femnist) => &[1, 2, 2, 1],
            (ResNetDepth::D20, Family::Femnist) => &[2, 3, 2, 2],
            (ResNetDepth::D34, Family::Femnist) => &[3, 4, 5, 3],
            (ResNetDepth::D14, Family::Cifar10) => &[2, 2, 2],
            (ResNetDepth::D20, Family::Cifar10) => &[3, 3, 3],
            (ResNetDepth::D34, Family::Cifar10) => &[5, 6, 5],
            (ResNetDepth::D14, Family::Cifar100) => &[1, 2, 3],
            (ResNetDepth::D20, Family::Cifar100) => &[2, 3, 4],
            (ResNetDepth::D34, Family::Cifar100) => &[3, 5, 8],
        };
        let cifar_manner = family != Family::Femnist;
        let channels: &'static [usize] = if cifar_manner { &[64, 128, 256] } else { &[32, 64, 128, 256] };
        Self { channels, blocks, dense: [256, 128], cifar_manner }
    }

    fn logits(&self) -> Initializer {
        if self.cifar_manner { Initializer::Zeros } else { Initializer::fan_in(self.dense[1]) }
    }
}

/// A stem, stages of residual blocks, the mean over the plane, two dense layers, a normalisation and the personal layer.
impl Architecture for ResNetOptions {
    type Size = ResNetDepth;
    const INPUTS: InputKind = InputKind::Images;

    fn graph(&self, task: &Task, depth: ResNetDepth) -> Result<Graph> {
        let plan = Plan::of(depth, self.family_for(task));
        let style = Style { norm: self.norm, activation: self.activation };
        let fusion = if plan.cifar_manner { Fusion::Before(style.activation) } else { Fusion::After(style.activation) };
        Graph::build(task, |net| {
            let mut stem = net.at("stem");
            let x = stem.input();
            let x = stem.conv("conv", x, plan.channels[0], 3, 1);
            let mut x = stem.norm("norm", x, style.norm, fusion);
            for (stage, (&channels, &blocks)) in plan.channels.iter().zip(plan.blocks).enumerate() {
                for block in 0..blocks {
                    x = residual_block(&mut net.at("stages").at(stage).at(block), x, channels, !plan.cifar_manner, style);
                }
            }
            let x = net.mean_pool(x);
            let [before, features] = dense_end(&mut net.at("dense"), x, plan.dense, style);
            let embedding = if plan.cifar_manner { before } else { features };
            Ends { logits: net.drawn_personal_dense(features, plan.logits()), embedding }
        })
    }

    fn note(&self, task: &Task, depth: ResNetDepth) -> Option<String> {
        let family = self.family_for(task);
        (depth != ResNetDepth::Xs && !family.is_made_for(task)).then(|| format!("using its {family} family"))
    }
}

/// `phi(norm(conv(phi(norm(conv(x))))) + shortcut(x))`, with 3x3 convolutions.
///
/// A block that changes the number of channels also halves the plane, and its shortcut too: by `norm(conv(x))`, 1x1, every second pixel, where it
/// has parameters (`project`), and by [`Builder::widen`] where it has none.
fn residual_block(block: &mut Builder<'_>, x: ValueId, to: usize, project: bool, style: Style) -> ValueId {
    let phi = style.activation;
    let grows = !matches!(block.shape(x), Shape::Image([_, _, from]) if from == to);
    let h = block.conv("conv_1", x, to, 3, if grows { 2 } else { 1 });
    let h = block.norm("norm_1", h, style.norm, Fusion::After(phi));
    let h = block.conv("conv_2", h, to, 3, 1);
    let shortcut = match (grows, project) {
        (false, _) => x,
        (true, false) => block.widen(x, to),
        (true, true) => {
            let mut shortcut = block.at("shortcut");
            let s = shortcut.conv("conv", x, to, 1, 2);
            shortcut.norm("norm", s, style.norm, Fusion::None)
        }
    };
    block.norm("norm_2", h, style.norm, Fusion::AddThen(shortcut, phi))
}
