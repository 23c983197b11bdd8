//! Explicit transformers, the baselines for text.
use burn::module::Module;
use burn::tensor::{Bool, Int, Tensor};
use fedeq_kernels::tensor as kernels;
use fedeq_kernels::transformer::{LayerParts, Norm};
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::catalog::{Architecture, Inputs};
use crate::context::Context;
use crate::error::{ModelError, Result};
use crate::graph::{Dropout, Ends, Graph, ParameterId, Transformer as Stack, ValueId};
use crate::init::{Blueprint, Initializer};
use crate::layers::{Attention, Dense, Embedding, LayerNorm, blocked_positions, dropout_mask, gelu};
use crate::parameters::PERSONAL;
use crate::representation::{Features, Representation};
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

/// Refuses a share that is not one.
pub(crate) fn validate_dropout(rate: f64) -> Result<()> {
    if (0.0..1.0).contains(&rate) {
        return Ok(());
    }
    Err(ModelError::unfitting(format!("dropout `{rate}` is out of range"), "choose a dropout of at least 0 and below 1"))
}

/// `h_0 = 0`, `h_i = layer_i(h_(i-1); x)` with `x` the embedded symbols; the last layer, a normalisation and the logits are personal.
impl Architecture for TransformerOptions {
    type Size = usize;
    const INPUTS: Inputs = Inputs::Symbols;

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
    let mut player = net.personal();
    let layers = vec![layer(&mut player.at("layer"), depth)];
    let layers = Stack { layers, heads: HEADS, hidden: MLP_WIDTH, dropout: Dropout { name: PERSONAL, rate: dropout } };
    let h = player.transformer(Some(h), injection, layers);
    let embedding = player.layer_norm("norm", h);
    let classes = player.task().classes;
    Ends { logits: player.dense("output", embedding, classes, None), embedding }
}

/// A stack of [`Layer`]s; the last one is the player's. `[B, T] -> [B * T, classes]`
#[derive(Module, Debug)]
pub(crate) struct Transformer {
    embedding: TextEmbedding,
    layers: Vec<Layer>,
    pub(crate) player: Player,
    dropout: f64,
}

impl Transformer {
    pub(crate) fn new(at: &Blueprint, depth: usize, text: Text, dropout: f64) -> Self {
        Self {
            embedding: TextEmbedding::new(&at.at("embedding"), text),
            layers: (0..depth - 1).map(|index| Layer::new(&at.at("layers").at(index), depth)).collect(),
            player: Player::new(&at.at("player"), depth, text.classes, dropout),
            dropout,
        }
    }

    pub(crate) fn represent(&self, symbols: Tensor<2, Int>, context: &Context) -> Representation {
        let injection = self.embedding.with_positions(symbols.clone());
        let blocked = blocked_positions(&symbols);
        let masks = draw_masks(context, "layers", self.layers.len(), self.dropout, &injection);
        let hidden = run(&self.layers, injection.zeros_like(), &injection, &blocked, &masks);
        Representation::explicit(Features::Sequence { hidden, injection, blocked })
    }
}

/// The sizes that come with the task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Text {
    pub(crate) length: usize,
    pub(crate) vocabulary: usize,
    pub(crate) classes: usize,
}

/// Learned vectors of symbols and of positions.
#[derive(Module, Debug)]
pub(crate) struct TextEmbedding {
    tokens: Embedding,
    positions: Embedding,
}

impl TextEmbedding {
    pub(crate) fn new(at: &Blueprint, text: Text) -> Self {
        Self {
            tokens: Embedding::new(&at.at("tokens"), text.vocabulary, WIDTH),
            positions: Embedding::new(&at.at("positions"), text.length, WIDTH),
        }
    }

    /// `[B, T] -> [B, T, d]`
    pub(crate) fn without_positions(&self, symbols: Tensor<2, Int>) -> Tensor<3> {
        self.tokens.forward(symbols)
    }

    /// `[B, T] -> [B, T, d]`
    pub(crate) fn with_positions(&self, symbols: Tensor<2, Int>) -> Tensor<3> {
        let [_, length] = symbols.dims();
        self.tokens.forward(symbols) + self.positions.first(length)
    }
}

/// One transformer layer, on `[B, T, d]`:
///
/// `h <- h + injection`, `h <- h + drop(attention(norm_1(h)))`, `h <- h + drop(mlp(norm_2(h)))`
#[derive(Module, Debug)]
pub(crate) struct Layer {
    norm_1: LayerNorm,
    attention: Attention,
    norm_2: LayerNorm,
    widen: Dense,
    narrow: Dense,
}

impl Layer {
    /// A layer of a stack of `depth`.
    pub(crate) fn new(at: &Blueprint, depth: usize) -> Self {
        let init = |fan_in| Initializer::variance_scaling(2.0 / (depth as f64).sqrt(), fan_in);
        Self {
            norm_1: LayerNorm::new(&at.at("norm_1"), WIDTH),
            attention: Attention::new(&at.at("attention"), WIDTH, HEADS, init(WIDTH)),
            norm_2: LayerNorm::new(&at.at("norm_2"), WIDTH),
            widen: Dense::drawn(&at.at("widen"), [WIDTH, MLP_WIDTH], init(WIDTH)),
            narrow: Dense::drawn(&at.at("narrow"), [MLP_WIDTH, WIDTH], init(MLP_WIDTH)),
        }
    }

    /// All parameters, for a kernel.
    pub(crate) fn tensors(&self) -> kernels::LayerTensors {
        let norm = |norm: &LayerNorm| Norm { scale: norm.scale.val().into_dispatch(), offset: norm.offset.val().into_dispatch() };
        LayerParts {
            norm_1: norm(&self.norm_1),
            query: self.attention.query.tensors(),
            key: self.attention.key.tensors(),
            value: self.attention.value.tensors(),
            output: self.attention.output.tensors(),
            norm_2: norm(&self.norm_2),
            widen: self.widen.tensors(),
            narrow: self.narrow.tensors(),
        }
    }

    fn forward(&self, h: Tensor<3>, injection: &Tensor<3>, blocked: &Tensor<4, Bool>, drop: [Option<Tensor<3>>; 2]) -> Tensor<3> {
        let [drop_1, drop_2] = drop;
        let h = h + injection.clone();
        let seen = self.attention.forward(self.norm_1.forward(h.clone()), blocked);
        let h = h + masked(seen, drop_1);
        let thought = self.narrow.forward(gelu(self.widen.forward(self.norm_2.forward(h.clone()))));
        h + masked(thought, drop_2)
    }
}

/// The masks of all dropout sites of a stack, two a layer: `[B, 2 * layers, T, d]`, or none.
pub(crate) type Masks = Option<Tensor<4>>;

/// Draws the masks of a stack, if the context has dropout on; the same context gives the same masks.
pub(crate) fn draw_masks(context: &Context, path: &'static str, layers: usize, rate: f64, like: &Tensor<3>) -> Masks {
    let seed = context.dropout.filter(|_| rate > 0.0 && layers > 0)?;
    let [batch, length, width] = like.dims();
    let device = like.device().without_autodiff();
    Some(dropout_mask(seed, path, [batch, 2 * layers, length, width], rate, (&device, like.dtype())))
}

/// Applies the layers one after the other.
pub(crate) fn run(layers: &[Layer], h: Tensor<3>, injection: &Tensor<3>, blocked: &Tensor<4, Bool>, masks: &Masks) -> Tensor<3> {
    let whole: Vec<_> = layers.iter().map(Layer::tensors).collect();
    let fused = kernels::transformer_layers(h.clone(), &whole, &surroundings(injection, blocked, masks));
    fused.unwrap_or_else(|| composed(layers, h, injection, blocked, masks))
}

/// What the layers of a stack share.
pub(crate) fn surroundings(injection: &Tensor<3>, blocked: &Tensor<4, Bool>, masks: &Masks) -> kernels::Surroundings {
    kernels::Surroundings { heads: HEADS, injection: injection.clone(), blocked: blocked.clone(), dropout: masks.clone() }
}

/// The layers put together from their parts.
fn composed(layers: &[Layer], h: Tensor<3>, injection: &Tensor<3>, blocked: &Tensor<4, Bool>, masks: &Masks) -> Tensor<3> {
    let site = |index: usize| masks.as_ref().map(|all| all.clone().narrow(1, index, 1).squeeze_dim(1));
    layers
        .iter()
        .enumerate()
        .fold(h, |h, (index, layer)| layer.forward(h, injection, blocked, [site(2 * index), site(2 * index + 1)]))
}

fn masked(x: Tensor<3>, mask: Option<Tensor<3>>) -> Tensor<3> {
    match mask {
        Some(mask) => x * mask,
        None => x,
    }
}

/// The personal end: one layer, a normalisation and the logits. The embedding is what the logits are read from.
#[derive(Module, Debug)]
pub(crate) struct Player {
    layer: Layer,
    norm: LayerNorm,
    output: Dense,
    dropout: f64,
}

impl Player {
    /// The end of a stack of `depth`.
    pub(crate) fn new(at: &Blueprint, depth: usize, classes: usize, dropout: f64) -> Self {
        Self {
            layer: Layer::new(&at.at("layer"), depth),
            norm: LayerNorm::new(&at.at("norm"), WIDTH),
            output: Dense::new(&at.at("output"), [WIDTH, classes]),
            dropout,
        }
    }

    /// Logits `[B * T, classes]` and embeddings `[B * T, d]`.
    pub(crate) fn predict(
        &self,
        hidden: Tensor<3>,
        injection: &Tensor<3>,
        blocked: &Tensor<4, Bool>,
        context: &Context,
    ) -> [Tensor<2>; 2] {
        let masks = draw_masks(context, "player", 1, self.dropout, &hidden);
        let h = run(std::slice::from_ref(&self.layer), hidden, injection, blocked, &masks);
        let embedding = self.norm.forward(h).flatten::<2>(0, 1);
        [self.output.forward(embedding.clone()), embedding]
    }
}
