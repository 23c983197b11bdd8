//! DEQ-Transformer: text, with a stack of layers applied until nothing changes any more.
use fedeq_equilibrium::Equilibrium;
use serde::{Deserialize, Serialize};

use crate::catalog::{Architecture, InputKind};
use crate::error::Result;
use crate::graph::{Cell, Dropout, Graph};
use crate::task::Task;
use crate::transformer::{TransformerOptions, WIDTH, embeddings, personal_end, stack};

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
    const INPUTS: InputKind = InputKind::Symbols;

    fn graph(&self, task: &Task, (): ()) -> Result<Graph> {
        Graph::build(task, |net| {
            let [tokens, positions] = embeddings(net);
            let x = net.embed(tokens, Some(positions));
            let mut cell = net.at("cell");
            let layers = stack(&mut cell, "layers", LAYERS, LAYERS, Dropout { name: "cell", rate: self.dropout });
            let norm = cell.affine("norm", WIDTH);
            let z = net.equilibrium(x, Cell::Transformer { layers, norm }, &self.equilibrium);
            let symbols = net.embed(tokens, None);
            personal_end(net, z, symbols, 1, self.dropout)
        })
    }

    fn equilibrium(&self) -> Option<&Equilibrium> {
        Some(&self.equilibrium)
    }
}
