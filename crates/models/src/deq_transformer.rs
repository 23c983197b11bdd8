//! DEQ-Transformer: text, with a stack of layers applied until nothing changes any more.
use fedeq_equilibrium::Equilibrium;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::builder::Builder;
use crate::catalog::{Architecture, InputKind};
use crate::choices::{Personal, is_one, is_usual};
use crate::error::{LEAST_FACTOR, MOST_FACTOR, ModelError, Result, ensure_factor, ensure_within};
use crate::graph::{Cell, Dropout, Graph, ValueId};
use crate::preset::{Preset, reference_text};
use crate::task::Task;
use crate::transformer::{TransformerOptions, WIDTH, embeddings, end, stack};

/// Layers in the cell of the authors' code.
const LAYERS: usize = 4;

/// The most layers in a cell.
const MOST_LAYERS: usize = 16;

/// How many times as large `recommended` injects embedded symbols: with their deviation of 0.02 beside states of unit size, training stays at the frequencies of symbols for
/// long (see fig-shakespeare).
const INJECTION: f64 = 8.0;

/// The choices left open in a DEQ-Transformer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeqTransformerOptions {
    /// The share of numbers that dropout sets to zero in training.
    #[schemars(range(min = 0.0), extend("exclusiveMaximum" = 1))]
    pub dropout: f64,
    /// What embedded symbols are multiplied by before they are injected, into the cell and into the last layer. They start with a deviation of 0.02 beside states of
    /// unit size, so that a small factor lets training begin with what does not depend on the input.
    #[serde(skip_serializing_if = "is_one")]
    #[schemars(range(min = LEAST_FACTOR, max = MOST_FACTOR), extend("default" = 1.0))]
    pub injection: f64,
    /// Normalises every embedded symbol before that, with a scale and an offset that are learned and shared.
    #[serde(skip_serializing_if = "is_usual")]
    #[schemars(extend("default" = false))]
    pub injection_norm: bool,
    /// Layers in the cell.
    #[serde(skip_serializing_if = "are_usual_layers")]
    #[schemars(range(min = 1, max = MOST_LAYERS), extend("default" = LAYERS))]
    pub layers: usize,
    /// Whether all layers in the cell have the same parameters.
    #[serde(skip_serializing_if = "is_usual")]
    #[schemars(extend("default" = false))]
    pub tied: bool,
    /// What the fixed point is multiplied by before the last layer reads it.
    #[serde(skip_serializing_if = "is_one")]
    #[schemars(range(min = LEAST_FACTOR, max = MOST_FACTOR), extend("default" = 1.0))]
    pub state_scale: f64,
    /// What stays with its client.
    #[serde(skip_serializing_if = "is_usual")]
    #[schemars(extend("default" = Personal::default()))]
    pub personal: Personal,
    /// How the fixed point is found and differentiated.
    pub equilibrium: Equilibrium,
}

impl Default for DeqTransformerOptions {
    fn default() -> Self {
        Self {
            dropout: TransformerOptions::default().dropout,
            injection: 1.0,
            injection_norm: false,
            layers: LAYERS,
            tied: false,
            state_scale: 1.0,
            personal: Personal::LastLayer,
            equilibrium: Equilibrium::default(),
        }
    }
}

fn are_usual_layers(layers: &usize) -> bool {
    *layers == LAYERS
}

/// `z = norm(layer_n(... layer_1(z; x) ...; x))` with `x = injection * embedded symbols`, then one more layer on `state_scale * z`, into which the symbols
/// are injected once more, without their positions; then a normalisation and the logits. States are `[length, 64]`.
impl Architecture for DeqTransformerOptions {
    type Size = ();
    const INPUTS: InputKind = InputKind::Symbols;

    fn graph(&self, task: &Task, (): ()) -> Result<Graph> {
        self.validate()?;
        Graph::build(task, |net| {
            let [tokens, positions] = embeddings(net);
            let x = net.embed(tokens, Some(positions));
            let x = self.injected(net, "norm", x);
            let cell = self.cell(&mut net.at("cell"));
            let z = net.equilibrium(x, cell, &self.equilibrium);
            let z = net.scale(z, self.state_scale);
            let symbols = net.embed(tokens, None);
            let symbols = self.injected(net, "symbols_norm", symbols);
            end(net, [z, symbols], 1, self.dropout, self.personal)
        })
    }

    fn apply_preset(&mut self, preset: Preset) {
        match preset {
            Preset::Recommended => self.injection = INJECTION,
            Preset::Paper => {}
            Preset::Reference => self.equilibrium = reference_text(),
        }
    }

    fn equilibrium(&self) -> Option<&Equilibrium> {
        Some(&self.equilibrium)
    }
}

impl DeqTransformerOptions {
    fn validate(&self) -> Result<()> {
        ensure_factor("injection", self.injection)?;
        ensure_factor("state_scale", self.state_scale)?;
        ensure_within("number of layers", self.layers, 1..=MOST_LAYERS)?;
        if self.tied && self.layers == 1 {
            return Err(ModelError::unfitting(
                "`tied` says nothing of `1` layer",
                "set `tied` to false, or `layers` to more than 1",
            ));
        }
        Ok(())
    }

    /// Embedded symbols as they are injected.
    fn injected(&self, net: &mut Builder<'_>, norm: &str, x: ValueId) -> ValueId {
        let x = if self.injection_norm { net.at("embedding").layer_norm(norm, x) } else { x };
        net.scale(x, self.injection)
    }

    fn cell(&self, cell: &mut Builder<'_>) -> Cell {
        let own = if self.tied { 1 } else { self.layers };
        let mut layers = stack(cell, "layers", own, self.layers, Dropout { name: "cell", rate: self.dropout });
        // Tied layers are the first one, again and again.
        layers.layers = layers.layers.iter().copied().cycle().take(self.layers).collect();
        Cell::Transformer { layers, norm: cell.affine("norm", WIDTH) }
    }
}
