//! Looking at a network's fixed points: random states to start from, and how contractive the cell is where a solve ended.
use burn::tensor::{Tensor, TensorData};
use fedeq_equilibrium::{Cell, diagnose};

use crate::context::Context;
use crate::error::Result;
use crate::init::normal_numbers;
use crate::network::{Input, Model, Network};

/// Vector-Jacobian products of the power method.
const PRODUCTS: usize = 60;

/// States at which a cell is looked at, and a vector for the power method.
pub(crate) struct Probe<'a> {
    states: &'a Tensor<2>,
    vector: Tensor<2>,
}

impl Probe<'_> {
    /// The spectral radius of `dg/dz` at every state, where a batch of states has that shape.
    pub(crate) fn radius<const D: usize, C: Cell<D>>(&self, cell: &C, x: &C::Input, shape: [usize; D]) -> Vec<f64> {
        let [states, vector] = [self.states, &self.vector].map(|rows| rows.clone().reshape(shape));
        diagnose::spectral_radius(cell, x, states, vector, PRODUCTS)
    }
}

impl Network {
    /// The spectral radius of the cell's Jacobian at some states of these inputs, `[B, n]`, such as the fixed points of an
    /// [output](crate::Output); an estimate for every sample. Below 1 a fixed point is one that plain iteration finds. Nothing for a network that
    /// solves for no fixed point.
    pub fn spectral_radius(
        &self,
        input: &Input,
        context: &mut Context,
        states: &Tensor<2>,
        seed: u64,
    ) -> Result<Option<Vec<f64>>> {
        input.ensure_fits(&self.task().input)?;
        let at = Probe { states, vector: normal_like(states, seed, "power method") };
        Ok(match (self.model(), input) {
            (Model::DeqMlp(model), Input::Image(x)) => Some(model.spectral_radius(x.clone().flatten(1, 3), &at)),
            (Model::DeqMlp(model), Input::Vector(x)) => Some(model.spectral_radius(x.clone(), &at)),
            (Model::DeqResNet(model), Input::Image(x)) => Some(model.spectral_radius(x.clone(), context, &at)),
            (Model::DeqTransformer(model), Input::Symbols(x)) => Some(model.spectral_radius(x, context, &at)),
            _ => None,
        })
    }
}

/// States like these to start other solves from: as long as they are, sample by sample, in a random direction.
pub fn random_start(states: &Tensor<2>, seed: u64, number: usize) -> Tensor<2> {
    let noise = normal_like(states, seed, &format!("start {number}"));
    let length = |rows: &Tensor<2>| rows.clone().square().sum_dim(1).sqrt();
    let scale = length(states) / length(&noise);
    noise * scale
}

/// Normal numbers that depend on nothing but the seed and the name.
fn normal_like(states: &Tensor<2>, seed: u64, name: &str) -> Tensor<2> {
    let shape = states.dims();
    let values = normal_numbers(seed, name, shape[0] * shape[1]);
    Tensor::from_data(TensorData::new(values, shape), &states.device())
}
