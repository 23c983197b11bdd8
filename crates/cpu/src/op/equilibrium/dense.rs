//! `g(z; u) = phi(z B + u)`
use fedeq_kernels::activation::Activation;
use fedeq_kernels::dense::{self, Addend, DenseShape};
use fedeq_models::graph::{ParameterId, ValueId};

use super::{At, CellContext, CellOp, To, fit};
use crate::op::kernel_of;
use crate::parameters::{Gradients, ParameterTarget};
use crate::plan::Planner;

#[derive(Debug)]
pub(super) struct DenseCell {
    width: usize,
    weight: ParameterId,
    activation: Activation,
    target: Option<ParameterTarget>,
    /// The result of every step that is differentiated, which tells the derivative of the activation.
    results: Vec<Vec<f32>>,
    transposed: Vec<f32>,
    gradient: Vec<f32>,
}

impl DenseCell {
    pub(super) fn new(
        plan: &mut Planner<'_>,
        weight: ParameterId,
        activation: fedeq_models::Activation,
        y: ValueId,
        differentiated: bool,
    ) -> Self {
        Self {
            width: plan.width(y),
            weight,
            activation: kernel_of(activation),
            target: if differentiated { plan.parameter(weight) } else { None },
            results: Vec::new(),
            transposed: Vec::new(),
            gradient: Vec::new(),
        }
    }

    fn shape(&self, numbers: usize) -> DenseShape {
        DenseShape { rows: numbers / self.width, inputs: self.width, outputs: self.width }
    }

    /// The gradient in front of the activation.
    fn pull_activation(&mut self, context: &CellContext<'_>, index: usize, v: &[f32]) {
        let gradient = fit(&mut self.gradient, v.len());
        self.activation.backward(context.set, &self.results[index], v, gradient);
    }
}

impl CellOp for DenseCell {
    fn prepare(&mut self, _: &CellContext<'_>) {}

    fn start(&self, u: &[f32], z: &mut [f32]) {
        z.copy_from_slice(u);
    }

    fn step(&mut self, context: &CellContext<'_>, z: &[f32], u: &[f32], out: &mut [f32]) {
        let (shape, weight) = (self.shape(z.len()), context.parameters.get(self.weight));
        dense::forward(context.set, shape, z, weight, Addend::Rows(u), Some(self.activation), out);
    }

    fn linearise(&mut self, context: &CellContext<'_>, index: usize, z: &[f32], u: &[f32]) {
        if self.results.len() <= index {
            self.results.resize_with(index + 1, Vec::new);
        }
        let mut result = std::mem::take(&mut self.results[index]);
        self.step(context, z, u, fit(&mut result, z.len()));
        self.results[index] = result;
    }

    fn turn(&mut self, context: &CellContext<'_>) {
        let weight = context.parameters.get(self.weight);
        dense::transpose(weight, self.width, fit(&mut self.transposed, weight.len()));
    }

    fn pull_back(&mut self, context: &CellContext<'_>, index: usize, v: &[f32], out: &mut [f32]) {
        self.pull_activation(context, index, v);
        dense::input_gradient(context.set, self.shape(v.len()), &self.gradient, &self.transposed, out, false);
    }

    fn backward(&mut self, context: &CellContext<'_>, at: At<'_>, to: To<'_>, gradients: &mut Gradients<'_>) {
        let (shape, set) = (self.shape(at.v.len()), context.set);
        self.pull_activation(context, at.index, at.v);
        let gradient = &self.gradient;
        gradients.write(self.target.map(|target| target.adding(at.add)), |to| {
            to.fill(0.0);
            dense::add_weight_gradient(set, shape, at.z, gradient, to);
        });
        if let Some(dz) = to.dz {
            dense::input_gradient(set, shape, gradient, &self.transposed, dz, false);
        }
        to.du.copy_from_slice(gradient);
    }
}
