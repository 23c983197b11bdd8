//! Explicit transformers, the baselines for text.
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::catalog::{Architecture, InputKind};
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TransformerOptions {
    /// The share of numbers that dropout sets to zero in training.
    pub dropout: f64,
}

impl Default for TransformerOptions {
    fn default() -> Self {
        Self { dropout: 0.1 }
    }
}

/// `h_0 = 0`, `h_i = layer_i(h_(i-1); x)` with `x` the embedded symbols; the last layer, a normalisation and the logits are personal.
impl Architecture for TransformerOptions {
    type Size = usize;
    const INPUTS: InputKind = InputKind::Symbols;

    fn graph(&self, task: &Task, depth: usize) -> Result<Graph> {
        Graph::build(task, |net| {
            let [tokens, positions] = embeddings(net);
            let x = net.embed(tokens, Some(positions));
            let shared = stack(net, "layers", depth - 1, depth, Dropout { name: "layers", rate: self.dropout });
            let h = net.transformer(None, x, shared);
            personal_end(net, h, x, depth, self.dropout)
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

/// So many layers, drawn as in a stack of `depth`.
pub(crate) fn stack(net: &mut Builder<'_>, name: &str, layers: usize, depth: usize, dropout: Dropout) -> Stack {
    let mut at = net.at(name);
    let layers = (0..layers).map(|index| layer(&mut at.at(index), depth)).collect();
    Stack { layers, heads: HEADS, hidden: MLP_WIDTH, dropout }
}

fn layer(at: &mut Builder<'_>, depth: usize) -> [ParameterId; 16] {
    at.transformer_layer(WIDTH, MLP_WIDTH, |inputs| Initializer::variance_scaling(2.0 / (depth as f64).sqrt(), inputs))
}

/// One layer, a normalisation and the logits. The embedding is what the logits are read from.
pub(crate) fn personal_end(net: &mut Builder<'_>, h: ValueId, injection: ValueId, depth: usize, dropout: f64) -> Ends {
    let mut head = net.personal();
    let layers = vec![layer(&mut head.at("layer"), depth)];
    let layers = Stack { layers, heads: HEADS, hidden: MLP_WIDTH, dropout: Dropout { name: PERSONAL, rate: dropout } };
    let h = head.transformer(Some(h), injection, layers);
    let embedding = head.layer_norm("norm", h);
    let classes = head.task().classes;
    Ends { logits: head.dense("output", embedding, classes, None), embedding }
}
