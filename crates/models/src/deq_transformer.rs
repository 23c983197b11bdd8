//! DEQ-Transformer: text, with a stack of layers applied until nothing changes any more.
use burn::module::Module;
use burn::tensor::{Bool, Int, Tensor};
use fedeq_equilibrium::{Cell, Equilibrium, Injected, Rows, TensorMap, Transposed};
use fedeq_kernels::tensor::HeldStack;
use fedeq_kernels::transformer::Norm;
use serde::{Deserialize, Serialize};

use crate::catalog::{Architecture, Inputs};
use crate::context::Context;
use crate::error::Result;
use crate::graph::{self, Dropout, Graph};
use crate::init::Blueprint;
use crate::layers::{LayerNorm, blocked_positions};
use crate::probe::Probe;
use crate::representation::{Features, Representation, settle};
use crate::task::Task;
use crate::transformer::{
    Layer, Masks, Player, Text, TextEmbedding, TransformerOptions, WIDTH, draw_masks, embeddings, personal_end, run, stack,
    surroundings,
};

/// Layers in the cell, all with weights of their own.
const LAYERS: usize = 4;

/// The choices left open in a DEQ-Transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeqTransformerOptions {
    /// The share of numbers that dropout sets to zero in training.
    pub dropout: f64,
    /// How the fixed point is found and differentiated.
    pub equilibrium: Equilibrium,
}

impl Default for DeqTransformerOptions {
    fn default() -> Self {
        Self { dropout: TransformerOptions::default().dropout, equilibrium: Equilibrium::default() }
    }
}

/// `z = norm(layer_4(layer_3(layer_2(layer_1(z; x); x); x); x))` with `x` the embedded symbols, then the personal layer, into which the symbols
/// are injected once more, without their positions. States are `[length, 64]`.
impl Architecture for DeqTransformerOptions {
    type Size = ();
    const INPUTS: Inputs = Inputs::Symbols;

    fn graph(&self, task: &Task, (): ()) -> Result<Graph> {
        Graph::build(task, |net| {
            let [tokens, positions] = embeddings(net);
            let x = net.embed(tokens, Some(positions));
            let mut cell = net.at("cell");
            let layers = stack(&mut cell, "layers", LAYERS, LAYERS, Dropout { name: "cell", rate: self.dropout });
            let norm = cell.affine("norm", WIDTH);
            let z = net.equilibrium(x, graph::Cell::Transformer { layers, norm }, &self.equilibrium);
            let symbols = net.embed(tokens, None);
            personal_end(net, z, symbols, 1, self.dropout)
        })
    }

    fn equilibrium(&self) -> Option<&Equilibrium> {
        Some(&self.equilibrium)
    }
}

/// DEQ-Transformer: the fixed point of a [`SequenceCell`], then the player's layer, into which the symbols are injected once
/// more, without their positions. `[B, T] -> [B * T, classes]`, with states of `[B, T, 64]`.
#[derive(Module, Debug)]
pub(crate) struct DeqTransformer {
    embedding: TextEmbedding,
    cell: SequenceCell,
    pub(crate) player: Player,
    dropout: f64,
    #[module(skip)]
    pub(crate) equilibrium: Equilibrium,
}

impl DeqTransformer {
    pub(crate) fn new(at: &Blueprint, text: Text, options: &DeqTransformerOptions) -> Self {
        Self {
            embedding: TextEmbedding::new(&at.at("embedding"), text),
            cell: SequenceCell::new(&at.at("cell")),
            player: Player::new(&at.at("player"), 1, text.classes, options.dropout),
            dropout: options.dropout,
            equilibrium: options.equilibrium.clone(),
        }
    }

    /// The numbers of a state for sequences of that length.
    pub(crate) fn state_size(length: usize) -> usize {
        length * WIDTH
    }

    fn injected(&self, symbols: &Tensor<2, Int>, context: &Context) -> Injection {
        let injection = self.embedding.with_positions(symbols.clone());
        // Drawn here, once: every step of the solve sees the same masks, or there would be no fixed point to find.
        let masks = draw_masks(context, "cell", LAYERS, self.dropout, &injection);
        (injection, blocked_positions(symbols), masks)
    }

    /// The spectral radius of the cell at some states, `[B, T * 64]`.
    pub(crate) fn spectral_radius(&self, symbols: &Tensor<2, Int>, context: &Context, at: &Probe<'_>) -> Vec<f64> {
        let injected = self.injected(symbols, context);
        let shape = injected.0.dims();
        at.radius(&self.cell, &injected, shape)
    }

    pub(crate) fn represent(&self, symbols: Tensor<2, Int>, context: &Context) -> Result<Representation> {
        let injected = self.injected(&symbols, context);
        let (zero, blocked) = (injected.0.zeros_like(), injected.1.clone());
        let (hidden, equilibrated) = settle(&self.equilibrium, &self.cell, &injected, zero, context)?;
        let injection = self.embedding.without_positions(symbols);
        let features = Features::Sequence { hidden, injection, blocked };
        Ok(Representation { features, equilibrium: Some(equilibrated) })
    }
}

/// `g(z; x) = norm(layer_4(layer_3(layer_2(layer_1(z; x); x); x); x))` on `[B, T, d]`.
#[derive(Module, Debug)]
pub(crate) struct SequenceCell {
    layers: Vec<Layer>,
    norm: LayerNorm,
}

impl SequenceCell {
    fn new(at: &Blueprint) -> Self {
        Self {
            layers: (0..LAYERS).map(|index| Layer::new(&at.at("layers").at(index), LAYERS)).collect(),
            norm: LayerNorm::new(&at.at("norm"), WIDTH),
        }
    }
}

impl SequenceCell {
    /// The cell with its parameters prepared for one input, where there is a kernel for its tensors.
    fn hold(&self, (injection, blocked, masks): &Injection) -> Option<HeldStack> {
        let layers: Vec<_> = self.layers.iter().map(Layer::tensors).collect();
        let norm = Norm { scale: self.norm.scale.val(), offset: self.norm.offset.val() };
        HeldStack::new(&layers, &norm, &surroundings(injection, blocked, masks))
    }
}

/// The embedded symbols, where attention may not go, and the dropout masks.
type Injection = (Tensor<3>, Tensor<4, Bool>, Masks);

impl Cell<3> for SequenceCell {
    type Input = Injection;

    fn step(&self, z: Tensor<3>, (injection, blocked, masks): &Injection) -> Tensor<3> {
        self.norm.forward(run(&self.layers, z, injection, blocked, masks))
    }

    fn held<'a>(&'a self, x: &Injection) -> Box<dyn TensorMap<3> + 'a> {
        match self.hold(x) {
            Some(held) => Box::new(Held { cell: self, x: x.clone(), held }),
            None => Box::new(Injected::new(self, x.clone())),
        }
    }

    fn transposed<'a>(&'a self, z: Tensor<3>, x: &Injection) -> Box<dyn TensorMap<3> + 'a> {
        match self.hold(x) {
            Some(held) => {
                let linear = held.linearise(z);
                Box::new(move |v| linear.pull_back(v))
            }
            None => Box::new(Transposed::new(self, z, x.clone())),
        }
    }
}

struct Held<'a> {
    cell: &'a SequenceCell,
    x: Injection,
    held: HeldStack,
}

impl TensorMap<3> for Held<'_> {
    fn apply(&mut self, z: Tensor<3>) -> Tensor<3> {
        self.held.step(z)
    }

    fn keep(&mut self, rows: &Tensor<1, Int>) -> bool {
        let x = self.x.pick(rows);
        // Preparing again is a copy of the parameters, far less than a step.
        let Some(held) = self.cell.hold(&x) else { return false };
        (self.x, self.held) = (x, held);
        true
    }
}
