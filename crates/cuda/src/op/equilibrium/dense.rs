//! The cell of DEQ-MLP, `g(z; u) = phi(z B + u)`, in 32 bits in either precision.
use fedeq_core::Result;
use fedeq_models::Activation;
use fedeq_models::graph::ParameterId;

use super::product::{Moment, Product};
use super::{CellOp, Differentiated, State, To};
use crate::arena::Slot;
use crate::device::{Launch, Pointer, launch};
use crate::op::{Cohort, PassContext, phi};
use crate::plan::Planner;

pub(super) struct Dense {
    width: usize,
    weight: ParameterId,
    activation: Activation,
    product: Product,
    back: Option<Back>,
}

#[derive(Clone, Copy)]
struct Back {
    product: Product,
    /// The result of the cell, which tells the derivative of the activation.
    result: Slot,
    /// The gradient in front of the activation, for products with vectors.
    gradient: Option<Slot>,
    trained: bool,
}

impl Dense {
    pub(super) fn new(
        plan: &mut Planner<'_>,
        width: usize,
        weight: ParameterId,
        activation: Activation,
        differentiated: Differentiated,
    ) -> Self {
        let bytes = 4 * plan.purpose.size.samples() * width;
        let back = differentiated.any().then(|| Back {
            product: Product::new(plan, Moment::Back, width, width),
            result: plan.scratch_back(bytes),
            gradient: differentiated.state().then(|| plan.scratch_back(bytes)),
            trained: plan.parameter(weight).is_some(),
        });
        Self { width, weight, activation, product: Product::new(plan, Moment::Forward, width, width), back }
    }

    fn phi(&self, run: &PassContext<'_>) -> i32 {
        phi(Some(self.activation), run.precision)
    }

    fn back(&self) -> Back {
        self.back.expect("there is a way back")
    }

    /// The gradient in front of the activation.
    fn pull_activation(&self, run: &PassContext<'_>, v: Pointer<f32>, to: Pointer<f32>) -> Result<()> {
        let result = run.at::<f32>(self.back().result);
        let launch = Launch::new("activation_backward", run.by_sample(self.width.div_ceil(256)), 256);
        launch!(run.device, launch; result, v, to, run.cohort, self.width as i32, self.phi(run))
    }
}

impl CellOp for Dense {
    fn reads_halves(&self) -> bool {
        false
    }

    fn prepare(&self, _: &PassContext<'_>) -> Result<()> {
        Ok(())
    }

    fn start(&self, run: &PassContext<'_>, u: Pointer<f32>, z: State) -> Result<()> {
        run.device.copy(u, z.numbers, run.size.samples() * self.width)
    }

    fn step(&self, run: &PassContext<'_>, cohort: Cohort, z: State, u: Pointer<f32>, out: Pointer<f32>) -> Result<()> {
        self.product.forward(&run.of(cohort), z.numbers, run.parameter(self.weight), u, self.phi(run), out)
    }

    fn linearise(&self, run: &PassContext<'_>, z: State, u: Pointer<f32>) -> Result<()> {
        let Back { product, result, .. } = self.back();
        product.forward(run, z.numbers, run.parameter(self.weight), u, self.phi(run), run.at(result))
    }

    fn pull_back(&self, run: &PassContext<'_>, cohort: Cohort, v: Pointer<f32>, out: Pointer<f32>) -> Result<()> {
        let Back { product, gradient, .. } = self.back();
        let (run, gradient) = (&run.of(cohort), run.maybe(gradient));
        self.pull_activation(run, v, gradient)?;
        product.input_gradient(run, gradient, run.parameter(self.weight), out)
    }

    fn backward(&self, run: &PassContext<'_>, z: State, v: Pointer<f32>, to: To) -> Result<()> {
        let Back { product, trained, .. } = self.back();
        self.pull_activation(run, v, to.du)?;
        if trained {
            product.weight_gradient(run, z.numbers, to.du, run.gradient(self.weight))?;
        }
        if to.dz.is_null() {
            return Ok(());
        }
        product.input_gradient(run, to.du, run.parameter(self.weight), to.dz)
    }
}
