//! DEQ-ResNet: images, with one residual block applied until nothing changes any more.
use burn::module::Module;
use burn::tensor::{Int, Tensor};
use fedeq_equilibrium::{Cell, Equilibrium, Injected, TensorMap, Transposed};
use fedeq_kernels::padding::same_size;
use fedeq_kernels::tensor::{self as kernels, max_pool};
use serde::{Deserialize, Serialize};

use crate::catalog::{Architecture, Inputs};
use crate::context::Context;
use crate::error::Result;
use crate::graph::{Ends, Fusion, Graph};
use crate::init::Blueprint;
use crate::layers::{Activation, Around, Conv, Dense, GroupNorm, NormKind, Reach};
use crate::probe::Probe;
use crate::representation::{Representation, settle};
use crate::task::Task;
use crate::vision::{EmbeddingPoint, Head, Stem, Style, dense_end};

/// The choices left open in a DEQ-ResNet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeqResNetOptions {
    /// The normalisation outside the cell.
    pub norm: NormKind,
    /// What the cell's group normalisation takes its statistics over.
    pub cell_norm: Reach,
    /// The nonlinearity.
    pub activation: Activation,
    /// How the fixed point is found and differentiated.
    pub equilibrium: Equilibrium,
}

impl Default for DeqResNetOptions {
    fn default() -> Self {
        Self {
            norm: NormKind::Batch,
            cell_norm: Reach::Textbook,
            activation: Activation::Softplus,
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

    /// Inputs and outputs of the layer that grows with the pictures.
    pub(crate) fn largest_layer(self, [height, width, _]: [usize; 3]) -> [usize; 2] {
        let pooled = [height, width].map(|side| same_size(same_size(side, 2), 2));
        [pooled[0] * pooled[1] * self.channels, self.dense[0]]
    }
}

/// `u = pool(norm(phi(conv(x))))`, `z = g(z; u)` by a [residual cell](crate::graph::Cell::Residual), then `pool`, two dense layers, a
/// normalisation and the personal layer. States are `[ceil(H / 2), ceil(W / 2), C]`.
impl Architecture for DeqResNetOptions {
    type Size = DeqResNetSize;
    const INPUTS: Inputs = Inputs::Images;

    fn graph(&self, task: &Task, size: DeqResNetSize) -> Result<Graph> {
        let style = Style { norm: self.norm, activation: self.activation };
        Graph::build(task, |net| {
            let mut stem = net.at("stem");
            let x = stem.input();
            let x = stem.small_conv("conv", x, size.channels);
            let x = stem.norm("norm", x, style.norm, Fusion::Before(style.activation));
            let u = stem.max_pool(x);
            let cell = net.at("cell").residual_cell(size.channels, self.cell_norm, style.activation);
            let z = net.equilibrium(u, cell, &self.equilibrium);
            let z = net.max_pool(z);
            let [embedding, features] = dense_end(&mut net.at("head"), z, size.dense, style);
            Ends { logits: net.personal_dense(features), embedding }
        })
    }

    fn equilibrium(&self) -> Option<&Equilibrium> {
        Some(&self.equilibrium)
    }
}

/// DEQ-ResNet.
///
/// `u = pool(norm(phi(conv(x))))`, `z = g(z; u)` by [`ImageCell`], then `pool`, two dense layers, a normalisation and the
/// personal layer. `[B, H, W, c] -> [B, classes]`, with states of `[B, ceil(H / 2), ceil(W / 2), C]`.
#[derive(Module, Debug)]
pub(crate) struct DeqResNet {
    stem: Stem,
    cell: ImageCell,
    head: Head,
    pub(crate) player: Dense,
    #[module(skip)]
    pub(crate) equilibrium: Equilibrium,
    #[module(skip)]
    channels: usize,
}

impl DeqResNet {
    pub(crate) fn new(
        at: &Blueprint,
        size: DeqResNetSize,
        [height, width, channels]: [usize; 3],
        classes: usize,
        options: &DeqResNetOptions,
    ) -> Self {
        let style = Style { norm: options.norm, activation: options.activation };
        let conv = Conv::small(&at.at("stem").at("conv"), [channels, size.channels]);
        let [flat, _] = size.largest_layer([height, width, channels]);
        Self {
            stem: Stem::activating_first(&at.at("stem"), conv, size.channels, style),
            cell: ImageCell::new(&at.at("cell"), size.channels, options),
            head: Head::new(&at.at("head"), flat, size.dense, style, EmbeddingPoint::BeforeNorm),
            player: Dense::new(&at.at("player"), [size.dense[1], classes]),
            equilibrium: options.equilibrium.clone(),
            channels: size.channels,
        }
    }

    /// The numbers of a state for images of that height and width.
    pub(crate) fn state_size(&self, height: usize, width: usize) -> usize {
        same_size(height, 2) * same_size(width, 2) * self.channels
    }

    /// The spectral radius of the cell at some states, `[B, n]`.
    pub(crate) fn spectral_radius(&self, x: Tensor<4>, context: &mut Context, at: &Probe<'_>) -> Vec<f64> {
        let u = max_pool(self.stem.forward(x, context));
        at.radius(&self.cell, &u, u.dims())
    }

    pub(crate) fn represent(&self, x: Tensor<4>, context: &mut Context) -> Result<Representation> {
        let u = max_pool(self.stem.forward(x, context));
        let (z, equilibrated) = settle(&self.equilibrium, &self.cell, &u, u.clone(), context)?;
        let features = self.head.forward(max_pool(z).flatten(1, 3), context);
        Ok(Representation { features, equilibrium: Some(equilibrated) })
    }
}

/// The residual block of the fixed point, with `phi` the activation and `GN` group normalisation:
///
/// `g(z; u) = GN3(phi(z + GN2(u + conv_b(GN1(phi(conv_a(z)))))))`
///
/// on `[B, h, w, C]`; `conv_a` goes from `C` to `2C` channels and `conv_b` back.
#[derive(Module, Debug)]
pub(crate) struct ImageCell {
    conv_a: Conv,
    norm_1: GroupNorm,
    conv_b: Conv,
    norm_2: GroupNorm,
    norm_3: GroupNorm,
    #[module(skip)]
    activation: Activation,
}

impl ImageCell {
    fn new(at: &Blueprint, channels: usize, options: &DeqResNetOptions) -> Self {
        let norm = |name, channels| GroupNorm::new(&at.at(name), channels, options.cell_norm);
        Self {
            conv_a: Conv::small(&at.at("conv_a"), [channels, 2 * channels]),
            norm_1: norm("norm_1", 2 * channels),
            conv_b: Conv::small(&at.at("conv_b"), [2 * channels, channels]),
            norm_2: norm("norm_2", channels),
            norm_3: norm("norm_3", channels),
            activation: options.activation,
        }
    }
}

impl ImageCell {
    /// The cell as one operation, where there is one for its tensors.
    fn whole(&self) -> kernels::ImageCell {
        kernels::ImageCell {
            conv_a: self.conv_a.weight.val(),
            norm_1: self.norm_1.affine(),
            conv_b: self.conv_b.weight.val(),
            norm_2: self.norm_2.affine(),
            norm_3: self.norm_3.affine(),
            activation: self.activation.into(),
            groups: self.norm_1.groups(),
        }
    }

    /// The cell put together from its parts.
    fn composed(&self, z: Tensor<4>, u: &Tensor<4>) -> Tensor<4> {
        let inner = self.norm_1.forward(self.conv_a.forward(z.clone()), Around::before(self.activation));
        let change = self.norm_2.forward(u.clone() + self.conv_b.forward(inner), Around::nothing());
        self.norm_3.forward(z + change, Around::before(self.activation))
    }
}

impl Cell<4> for ImageCell {
    type Input = Tensor<4>;

    fn step(&self, z: Tensor<4>, u: &Tensor<4>) -> Tensor<4> {
        self.whole().step(&z, u).unwrap_or_else(|| self.composed(z, u))
    }

    fn held<'a>(&'a self, u: &Tensor<4>) -> Box<dyn TensorMap<4> + 'a> {
        match self.whole().hold(u) {
            Some(held) => Box::new(Held(held)),
            None => Box::new(Injected::new(self, u.clone())),
        }
    }

    fn transposed<'a>(&'a self, z: Tensor<4>, u: &Tensor<4>) -> Box<dyn TensorMap<4> + 'a> {
        match self.whole().linearise(&z, u) {
            Some(linear) => Box::new(move |v| linear.pull_back(v)),
            None => Box::new(Transposed::new(self, z, u.clone())),
        }
    }
}

struct Held(kernels::HeldImageCell);

impl TensorMap<4> for Held {
    fn apply(&mut self, z: Tensor<4>) -> Tensor<4> {
        self.0.step(z)
    }

    fn keep(&mut self, rows: &Tensor<1, Int>) -> bool {
        self.0.keep(rows);
        true
    }
}
