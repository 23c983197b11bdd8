//! Explicit dense networks, down to a single layer.
use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use crate::catalog::{Architecture, Inputs};
use crate::error::{Result, ensure_within};
use crate::graph::{Ends, Graph};
use crate::init::Blueprint;
use crate::layers::{Activation, Dense};
use crate::parameters::Part;
use crate::representation::{Features, Representation};
use crate::task::Task;

/// The choices left open in a linear network: `y = W x + b`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LinearOptions {
    /// To whom its only layer belongs.
    pub layer: Part,
}

impl Default for LinearOptions {
    fn default() -> Self {
        Self { layer: Part::Shared }
    }
}

/// The choices left open in an explicit dense network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MlpOptions {
    /// The widths between input and output.
    pub hidden: Vec<usize>,
    /// The nonlinearity after each of them.
    pub activation: Activation,
    /// To whom the last layer belongs.
    pub last_layer: Part,
}

impl Default for MlpOptions {
    fn default() -> Self {
        Self { hidden: vec![128], activation: Activation::Relu, last_layer: Part::Personal }
    }
}

impl MlpOptions {
    pub(crate) fn linear(options: &LinearOptions) -> Self {
        Self { hidden: Vec::new(), last_layer: options.layer, ..Self::default() }
    }

    pub(crate) fn validate(&self) -> Result<()> {
        ensure_within("number of hidden layers", self.hidden.len(), 0..=64)?;
        self.hidden.iter().try_for_each(|&width| ensure_within("hidden width", width, 1..=16_384))
    }
}

/// A single layer: an MLP with nothing between input and output.
impl Architecture for LinearOptions {
    type Size = ();
    const INPUTS: Inputs = Inputs::Numbers;

    fn graph(&self, task: &Task, (): ()) -> Result<Graph> {
        MlpOptions::linear(self).graph(task, ())
    }
}

/// `h_0 = x`, `h_i = phi(W_i h_(i-1) + b_i)`, `logits = W h_n + b`
///
/// The last layer is `player` where it is personal and `output` where it is shared; the embedding is what it reads.
impl Architecture for MlpOptions {
    type Size = ();
    const INPUTS: Inputs = Inputs::Numbers;

    fn graph(&self, task: &Task, (): ()) -> Result<Graph> {
        self.validate()?;
        Graph::build(task, |net| {
            let mut h = net.input();
            for (index, &width) in self.hidden.iter().enumerate() {
                h = net.at("layers").dense(&index.to_string(), h, width, Some(self.activation));
            }
            let logits = match self.last_layer {
                Part::Shared => net.dense("output", h, task.classes, None),
                Part::Personal => net.personal_dense(h),
            };
            Ends { logits, embedding: h }
        })
    }
}

/// Dense layers one after the other; the last one is `player` where it is personal and `output` where it is shared.
///
/// `[B, n] -> [B, classes]`; the embedding is what the last layer reads.
#[derive(Module, Debug)]
pub(crate) struct Mlp {
    layers: Vec<Dense>,
    output: Option<Dense>,
    player: Option<Dense>,
    #[module(skip)]
    activation: Activation,
}

impl Mlp {
    pub(crate) fn new(at: &Blueprint, inputs: usize, classes: usize, options: &MlpOptions) -> Self {
        let widths: Vec<usize> = std::iter::once(inputs).chain(options.hidden.iter().copied()).collect();
        let layer = |(index, pair): (usize, &[usize])| Dense::new(&at.at("layers").at(index), [pair[0], pair[1]]);
        let last =
            |name, part| (options.last_layer == part).then(|| Dense::new(&at.at(name), [widths[widths.len() - 1], classes]));
        Self {
            layers: widths.windows(2).enumerate().map(layer).collect(),
            output: last("output", Part::Shared),
            player: last("player", Part::Personal),
            activation: options.activation,
        }
    }

    /// The last layer.
    pub(crate) fn last(&self) -> &Dense {
        self.output.as_ref().or(self.player.as_ref()).expect("built with one of the two")
    }

    pub(crate) fn represent(&self, x: Tensor<2>) -> Representation {
        let features = self.layers.iter().fold(x, |x, layer| self.activation.apply(layer.forward(x)));
        Representation::explicit(Features::Vector { embedding: features.clone(), features })
    }
}
