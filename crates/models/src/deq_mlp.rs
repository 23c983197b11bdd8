//! DEQ-MLP: a vector in, one dense layer applied until nothing changes any more.
use fedeq_equilibrium::Equilibrium;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::catalog::{Architecture, InputKind};
use crate::choices::{Activation, GROUPS, NormKind};
use crate::error::{MOST_WIDTH, ModelError, Result, ensure_within};
use crate::graph::{Ends, Fusion, Graph};
use crate::preset::{Preset, reference_images};
use crate::task::{InputShape, Task};

/// The choices left open in a DEQ-MLP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct DeqMlpOptions {
    /// The width of the state; by default 1024 for colour images and 512 for anything else.
    #[schemars(range(min = 1, max = MOST_WIDTH))]
    pub hidden: Option<usize>,
    /// The width of the dense layer after the fixed point.
    #[schemars(range(min = 1, max = MOST_WIDTH))]
    pub dense: usize,
    /// The bias `b` inside the cell, which the paper has and the authors' code has not.
    pub bias: bool,
    /// A normalisation of the fixed point.
    pub norm: Option<NormKind>,
    /// The nonlinearity.
    pub activation: Activation,
    /// How the fixed point is found and differentiated.
    pub equilibrium: Equilibrium,
}

impl Default for DeqMlpOptions {
    fn default() -> Self {
        Self {
            hidden: None,
            dense: 128,
            bias: false,
            norm: None,
            activation: Activation::Relu,
            equilibrium: Equilibrium::default(),
        }
    }
}

impl DeqMlpOptions {
    fn validate(&self) -> Result<()> {
        let hidden = self.hidden.unwrap_or(512);
        ensure_within("hidden width", hidden, 1..=MOST_WIDTH)?;
        ensure_within("dense width", self.dense, 1..=MOST_WIDTH)?;
        if self.norm == Some(NormKind::Group) && (!hidden.is_multiple_of(GROUPS) || hidden == GROUPS) {
            let problem =
                format!("group normalisation cannot make {GROUPS} groups of several out of a hidden width of `{hidden}`");
            return Err(ModelError::unfitting(problem, format!("choose a multiple of {GROUPS} from {} on", 2 * GROUPS)));
        }
        Ok(self.equilibrium.validate()?)
    }

    /// The width of the state.
    fn hidden_for(&self, task: &Task) -> usize {
        let colour = matches!(task.input, InputShape::Image { channels: 3, .. });
        self.hidden.unwrap_or(if colour { 1024 } else { 512 })
    }
}

/// `u = C x + b`, `z = phi(B z + u)`, then a dense layer and the personal layer. States have `hidden` numbers.
impl Architecture for DeqMlpOptions {
    type Size = ();
    const INPUTS: InputKind = InputKind::Numbers;

    fn graph(&self, task: &Task, (): ()) -> Result<Graph> {
        self.validate()?;
        let (hidden, phi) = (self.hidden_for(task), self.activation);
        Graph::build(task, |net| {
            let x = net.input();
            let u = if self.bias { net.dense("c", x, hidden, None) } else { net.matrix("c", x, hidden) };
            let cell = net.at("cell").dense_cell("b", hidden, phi);
            let mut z = net.equilibrium(u, cell, &self.equilibrium);
            if let Some(kind) = self.norm {
                z = net.norm("norm", z, kind, Fusion::None);
            }
            let h = net.dense("dense", z, self.dense, Some(phi));
            Ends { logits: net.personal_dense(h), embedding: h }
        })
    }

    /// The authors' code has no bias in the cell.
    fn apply_preset(&mut self, preset: Preset) {
        self.bias = preset != Preset::Reference;
        if preset == Preset::Reference {
            self.equilibrium = reference_images();
        }
    }

    fn has_projected_matrix(&self) -> bool {
        true
    }

    fn equilibrium(&self) -> Option<&Equilibrium> {
        Some(&self.equilibrium)
    }
}
