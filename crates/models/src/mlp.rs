//! Explicit dense networks, down to a single layer.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalog::{Architecture, InputKind};
use crate::choices::Activation;
use crate::error::{MOST_WIDTH, Result, ensure_within};
use crate::graph::{Ends, Graph};
use crate::part::Part;
use crate::task::Task;

/// Layers between input and output.
const MOST_LAYERS: usize = 64;

/// The choices left open in a linear network: `y = W x + b`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LinearOptions {
    /// Whether its only layer is shared or personal.
    pub layer: Part,
}

impl Default for LinearOptions {
    fn default() -> Self {
        Self { layer: Part::Shared }
    }
}

/// The choices left open in an explicit dense network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct MlpOptions {
    /// The widths between input and output.
    #[schemars(length(max = MOST_LAYERS), inner(range(min = 1, max = MOST_WIDTH)))]
    pub hidden: Vec<usize>,
    /// The nonlinearity after each of them.
    pub activation: Activation,
    /// Whether the last layer is shared or personal.
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
        ensure_within("number of hidden layers", self.hidden.len(), 0..=MOST_LAYERS)?;
        self.hidden.iter().try_for_each(|&width| ensure_within("hidden width", width, 1..=MOST_WIDTH))
    }
}

/// A single layer: an MLP with nothing between input and output.
impl Architecture for LinearOptions {
    type Size = ();
    const INPUTS: InputKind = InputKind::Numbers;

    fn graph(&self, task: &Task, (): ()) -> Result<Graph> {
        MlpOptions::linear(self).graph(task, ())
    }
}

/// `h_0 = x`, `h_i = phi(W_i h_(i-1) + b_i)`, `logits = W h_n + b`
///
/// The last layer is `head` where it is personal and `output` where it is shared; the embedding is what it reads.
impl Architecture for MlpOptions {
    type Size = ();
    const INPUTS: InputKind = InputKind::Numbers;

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
