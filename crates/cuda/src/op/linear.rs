//! A linear layer over the positions of texts, with its gradients: launches that layers and cells share.
use fedeq_core::Result;
use fedeq_models::Activation;
use fedeq_models::graph::ParameterId;
use half::f16;

use super::convolution::{self, ByWeights, Geometry, Into, Storage, Weights};
use super::{Cohort, DenseCall, PassContext, phi};
use crate::device::{Launch, Pointer, launch};
use crate::plan::{Planner, Precision};

/// `y = phi(x W + b)` at every position.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Linear {
    weights: Weights,
    weight: ParameterId,
    bias: Option<ParameterId>,
    by_weights: Option<ByWeights>,
    by_bias: Option<ParameterId>,
}

/// The most blocks that a grid has in its second direction.
const MOST_ROWS: usize = 65_535;

impl Linear {
    /// Plans a layer from `from` numbers a position to `to`. `differentiated` says whether there is a way back.
    pub(crate) fn new(
        plan: &mut Planner<'_>,
        weight: ParameterId,
        bias: Option<ParameterId>,
        [from, to]: [usize; 2],
        differentiated: bool,
    ) -> Self {
        let geometry = Geometry::new([1, plan.purpose.size.length], from, to, 1, 1);
        let mut trained = |id: ParameterId| differentiated && plan.parameter(id).is_some();
        let (weight_trained, by_bias) = (trained(weight), bias.filter(|&bias| trained(bias)));
        let by_weights = weight_trained.then(|| ByWeights::new(plan, geometry, Storage::Linear));
        Self { weights: Weights::new(plan, geometry, Storage::Linear, differentiated), weight, bias, by_weights, by_bias }
    }

    /// Takes the weights as they are now.
    pub(crate) fn prepare(&self, run: &PassContext<'_>) -> Result<()> {
        convolution::prepare(run, [self.stored(run)])
    }

    /// Its weights, and where those of the first lane are.
    pub(crate) fn stored(&self, run: &PassContext<'_>) -> (&Weights, Pointer<f32>) {
        (&self.weights, run.parameter(self.weight))
    }

    /// What kernels of their own read: the weights in 16 bits, output by input, and the bias of the first lane. None where everything is exact or there is no bias.
    pub(crate) fn halves(&self, run: &PassContext<'_>) -> Option<(Pointer<f16>, Pointer<f32>)> {
        Some((run.at(self.weights.halves()?), run.parameter(self.bias?)))
    }

    /// `x` is in the form of factors.
    pub(crate) fn forward(
        &self,
        run: &PassContext<'_>,
        cohort: Cohort,
        x: Pointer<u8>,
        activation: Option<Activation>,
        y: Into,
    ) -> Result<()> {
        let w = run.parameter(self.weight);
        let bias = self.bias.map_or(Pointer::NULL, |bias| run.parameter(bias));
        if run.precision == Precision::Mixed {
            return self.weights.forward(run, cohort, x, [w, bias], activation, y);
        }
        let Into::Numbers(y) = y else { unreachable!("exact results are 32 bits") };
        let call = DenseCall { x: x.cast(), ..self.dense(run, cohort) };
        self.product(run, "dense_forward", call, call.outputs, y)?;
        let (to, per, rows) = (call.outputs as usize, call.per as usize, run.size.most * call.per as usize);
        let finish = Launch::new("dense_finish", [to.div_ceil(256), rows.min(MOST_ROWS), run.size.lanes], 256);
        let (more, phi) = (Pointer::<f32>::NULL, phi(activation, run.precision));
        launch!(run.device, finish; y, bias, more, y, cohort, run.stride(), to as i32, per as i32, 1_i32, run.size.samples() as i32, phi)
    }

    /// `dx = alpha dy W^T`, `dy` in the form of factors; never a sum where everything is exact.
    pub(crate) fn input_gradient(
        &self,
        run: &PassContext<'_>,
        cohort: Cohort,
        dy: Pointer<u8>,
        alpha: f32,
        dx: Into,
    ) -> Result<()> {
        if run.precision == Precision::Mixed {
            return self.weights.input_gradient(run, cohort, dy, run.parameter(self.weight), alpha, dx);
        }
        let Into::Numbers(dx) = dx else { unreachable!("exact gradients are 32 bits, and added by whoever wants a sum") };
        let call = DenseCall { dy: dy.cast(), ..self.dense(run, cohort) };
        self.product(run, "dense_input", call, call.inputs, dx)
    }

    /// The gradients of weights and bias, as far as they are trained; `x` and `dy` are in the form of factors.
    pub(crate) fn parameter_gradients(
        &self,
        run: &PassContext<'_>,
        cohort: Cohort,
        x: Pointer<u8>,
        dy: Pointer<u8>,
    ) -> Result<()> {
        let alpha = 1.0 / run.gradient_scale();
        if let Some(by_weights) = &self.by_weights {
            by_weights.run(run, cohort, x, dy, alpha, run.gradient(self.weight))?;
        }
        let Some(bias) = self.by_bias else { return Ok(()) };
        let to = self.weights.geometry.to;
        let kernel = match run.precision {
            Precision::Mixed => "sum_samples_f16",
            Precision::Exact => "sum_samples",
        };
        let sum = Launch::new(kernel, [(to as usize).div_ceil(32), run.size.lanes, 1], 1024);
        launch!(run.device, sum; dy, run.gradient(bias), cohort, run.stride(), alpha, run.size.length as i32, to)
    }

    fn dense(&self, run: &PassContext<'_>, cohort: Cohort) -> DenseCall {
        let Geometry { from, to, .. } = self.weights.geometry;
        let (none, w, per) = (Pointer::NULL, run.parameter(self.weight), run.size.length as i32);
        DenseCall { x: none, w, dy: none, cohort, w_stride: run.stride(), inputs: from, outputs: to, per }
    }

    /// An exact product in one part.
    fn product(
        &self,
        run: &PassContext<'_>,
        kernel: &'static str,
        call: DenseCall,
        columns: i32,
        out: Pointer<f32>,
    ) -> Result<()> {
        let rows = run.size.most * run.size.length;
        let grid = [(columns as usize).div_ceil(128), rows.div_ceil(32), run.size.lanes];
        launch!(run.device, Launch::new(kernel, grid, 256); call, out, 1_i32, run.size.samples() as i32)
    }
}
