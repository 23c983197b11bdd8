//! DEQ-MLP: a vector in, one dense layer applied until nothing changes any more.
use burn::module::Module;
use burn::tensor::Tensor;
use fedeq_equilibrium::{Cell, Equilibrium};
use serde::{Deserialize, Serialize};

use crate::catalog::{Architecture, Inputs};
use crate::context::Context;
use crate::error::{ModelError, Result, ensure_within};
use crate::graph::{Ends, Fusion, Graph};
use crate::init::Blueprint;
use crate::layers::{Activation, Around, Dense, GROUPS, Norm, NormKind};
use crate::probe::Probe;
use crate::representation::{Features, Representation, settle};
use crate::task::{InputShape, Task};

/// The choices left open in a DEQ-MLP.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeqMlpOptions {
    /// The width of the state; by default 1024 for colour images and 512 for anything else.
    pub hidden: Option<usize>,
    /// The width of the dense layer after the fixed point.
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
    pub(crate) fn validate(&self) -> Result<()> {
        let hidden = self.hidden.unwrap_or(512);
        ensure_within("hidden width", hidden, 1..=16_384)?;
        ensure_within("dense width", self.dense, 1..=16_384)?;
        if self.norm == Some(NormKind::Group) && (!hidden.is_multiple_of(GROUPS) || hidden == GROUPS) {
            let problem =
                format!("group normalisation cannot make {GROUPS} groups of several out of a hidden width of `{hidden}`");
            return Err(ModelError::unfitting(problem, format!("choose a multiple of {GROUPS} from {} on", 2 * GROUPS)));
        }
        Ok(self.equilibrium.validate()?)
    }

    /// The width of the state.
    pub(crate) fn hidden_for(&self, task: &Task) -> usize {
        let colour = matches!(task.input, InputShape::Image { channels: 3, .. });
        self.hidden.unwrap_or(if colour { 1024 } else { 512 })
    }
}

/// `u = C x + b`, `z = phi(B z + u)`, then a dense layer and the personal layer. States have `hidden` numbers.
impl Architecture for DeqMlpOptions {
    type Size = ();
    const INPUTS: Inputs = Inputs::Numbers;

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
            let h = net.dense("head", z, self.dense, Some(phi));
            Ends { logits: net.personal_dense(h), embedding: h }
        })
    }

    fn equilibrium(&self) -> Option<&Equilibrium> {
        Some(&self.equilibrium)
    }
}

/// DEQ-MLP.
///
/// `u = C x + b`, `z = phi(B z + u)` by [`VectorCell`], then one dense layer and the personal layer.
/// `[B, n] -> [B, classes]`, with states of `[B, hidden]`.
#[derive(Module, Debug)]
pub(crate) struct DeqMlp {
    c: Dense,
    cell: VectorCell,
    norm: Option<Norm>,
    head: Dense,
    pub(crate) player: Dense,
    #[module(skip)]
    activation: Activation,
    #[module(skip)]
    pub(crate) equilibrium: Equilibrium,
}

impl DeqMlp {
    /// The path of `B`.
    pub(crate) const RECURRENT_MATRIX: &'static str = "cell.b.weight";

    pub(crate) fn new(at: &Blueprint, inputs: usize, hidden: usize, classes: usize, options: &DeqMlpOptions) -> Self {
        let inject = if options.bias { Dense::new } else { Dense::without_bias };
        Self {
            c: inject(&at.at("c"), [inputs, hidden]),
            cell: VectorCell::new(&at.at("cell"), hidden, options.activation),
            norm: options.norm.map(|kind| Norm::new(&at.at("norm"), hidden, kind)),
            head: Dense::new(&at.at("head"), [hidden, options.dense]),
            player: Dense::new(&at.at("player"), [options.dense, classes]),
            activation: options.activation,
            equilibrium: options.equilibrium.clone(),
        }
    }

    /// The numbers of a state.
    pub(crate) fn state_size(&self) -> usize {
        self.cell.b.weight.lazy_shape()[1]
    }

    /// The spectral radius of the cell at some states, `[B, hidden]`.
    pub(crate) fn spectral_radius(&self, x: Tensor<2>, at: &Probe<'_>) -> Vec<f64> {
        let u = self.c.forward(x);
        at.radius(&self.cell, &u, u.dims())
    }

    pub(crate) fn represent(&self, x: Tensor<2>, context: &mut Context) -> Result<Representation> {
        let u = self.c.forward(x);
        let (mut z, equilibrated) = settle(&self.equilibrium, &self.cell, &u, u.clone(), context)?;
        if let Some(norm) = &self.norm {
            z = norm.forward(z, Around::nothing(), context);
        }
        let features = self.activation.apply(self.head.forward(z));
        let features = Features::Vector { embedding: features.clone(), features };
        Ok(Representation { features, equilibrium: Some(equilibrated) })
    }
}

/// `g(z; u) = phi(B z + u)` on `[B, hidden]`.
#[derive(Module, Debug)]
pub(crate) struct VectorCell {
    b: Dense,
    #[module(skip)]
    activation: Activation,
}

impl VectorCell {
    fn new(at: &Blueprint, hidden: usize, activation: Activation) -> Self {
        Self { b: Dense::without_bias(&at.at("b"), [hidden, hidden]), activation }
    }
}

impl Cell<2> for VectorCell {
    type Input = Tensor<2>;

    fn step(&self, z: Tensor<2>, u: &Tensor<2>) -> Tensor<2> {
        self.activation.apply(self.b.forward(z) + u.clone())
    }
}
