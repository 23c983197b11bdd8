//! Explicit transformers, the baselines for text.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::catalog::{Architecture, InputKind};
use crate::choices::{Personal, is_usual};
use crate::error::Result;
use crate::graph::{Dropout, Ends, Graph, ParameterId, Transformer as Stack, ValueId};
use crate::init::Initializer;
use crate::part::PERSONAL;
use crate::task::{InputShape, Task};

/// Numbers a position.
pub(crate) const WIDTH: usize = 64;
const HEADS: usize = 4;
const MLP_WIDTH: usize = 4 * WIDTH;

/// The choices left open in a transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct TransformerOptions {
    /// The share of numbers that dropout sets to zero in training.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// What stays with its client.
    #[serde(skip_serializing_if = "is_usual")]
    #[schemars(extend("default" = Personal::default()))]
    pub personal: Personal,
}

impl Default for TransformerOptions {
    fn default() -> Self {
        Self { dropout: 0.1, personal: Personal::LastLayer }
    }
}

/// `h_0 = 0`, `h_i = layer_i(h_(i-1); x)` with `x` the embedded symbols; the last layer, a normalisation and the logits are [personal](Personal), or the logits alone.
impl Architecture for TransformerOptions {
    type Size = usize;
    const INPUTS: InputKind = InputKind::Symbols;

    fn graph(&self, task: &Task, depth: usize) -> Result<Graph> {
        Graph::build(task, |net| {
            let [tokens, positions] = embeddings(net);
            let x = net.embed(tokens, Some(positions));
            let shared = stack(net, "layers", depth - 1, depth, Dropout { name: "layers", rate: self.dropout });
            let h = net.transformer(None, x, shared);
            end(net, [h, x], depth, self.dropout, self.personal)
        })
    }
}

/// The vectors of symbols and of positions.
pub(crate) fn embeddings(net: &mut Builder<'_>) -> [ParameterId; 2] {
    let (length, vocabulary) = match net.task().input {
        InputShape::Symbols { length, vocabulary } => (length, vocabulary),
        _ => (0, 0), // Refused by the layer that embeds them.
    };
    let init = Initializer::TruncatedNormal { deviation: 0.02 };
    let mut embedding = net.at("embedding");
    let mut vectors = |name, count| embedding.at(name).parameter("weight", &[count, WIDTH], init);
    [vectors("tokens", vocabulary), vectors("positions", length)]
}

/// So many layers with parameters of their own, drawn as in a stack of `depth`.
pub(crate) fn stack(net: &mut Builder<'_>, name: &str, layers: usize, depth: usize, dropout: Dropout) -> Stack {
    let mut at = net.at(name);
    let layers = (0..layers).map(|index| layer(&mut at.at(index), depth)).collect();
    Stack { layers, heads: HEADS, hidden: MLP_WIDTH, dropout }
}

fn layer(at: &mut Builder<'_>, depth: usize) -> [ParameterId; 16] {
    at.transformer_layer(WIDTH, MLP_WIDTH, |inputs| Initializer::variance_scaling(2.0 / (depth as f64).sqrt(), inputs))
}

/// The name of the last layer where it is shared, and of its dropout.
const LAST: &str = "last";

/// One layer that continues from `h`, a normalisation and the logits. The embedding is what the logits are read from.
pub(crate) fn end(net: &mut Builder<'_>, [h, injection]: [ValueId; 2], depth: usize, dropout: f64, personal: Personal) -> Ends {
    let name = match personal {
        Personal::LastLayer => PERSONAL,
        Personal::Output => LAST,
    };
    let mut at = match personal {
        Personal::LastLayer => net.personal(),
        Personal::Output => net.at(LAST),
    };
    let layers = vec![layer(&mut at.at("layer"), depth)];
    let layers = Stack { layers, heads: HEADS, hidden: MLP_WIDTH, dropout: Dropout { name, rate: dropout } };
    let h = at.transformer(Some(h), injection, layers);
    let embedding = at.layer_norm("norm", h);
    let mut head = net.personal();
    let classes = head.task().classes;
    Ends { logits: head.dense("output", embedding, classes, None), embedding }
}
