//! The fully connected layer, in 32 bits: with a client's few samples it is bound by reading its weights.
use fedeq_core::Result;
use fedeq_models::Activation;
use fedeq_models::graph::{ParameterId, ValueId};

use super::{DenseCall, Op, PassContext, phi};
use crate::arena::Slot;
use crate::device::{Launch, Pointer, launch};
use crate::plan::{Form, Planner, Target, USUAL_LANES};

/// `y = phi(x W + b)`; a picture is the vector of its numbers.
pub(super) struct Dense {
    weight: ParameterId,
    bias: Option<ParameterId>,
    /// As kernels know it.
    phi: i32,
    inputs: usize,
    outputs: usize,
    x: Slot,
    y: Slot,
    /// The same in 16 bits, where that is wanted.
    y16: Option<Slot>,
    parts: Parts,
    /// Whether the kernels for many weights and few samples compute it.
    large: bool,
    back: Option<Back>,
}

struct Back {
    dy: Slot,
    /// Where the gradient of the input goes; none of the parts if it is written there at once.
    dx: Option<(Target, Option<Parts>)>,
    dw: bool,
    db: bool,
}

/// A long inner sum in parts, for more blocks than its results give.
#[derive(Clone, Copy, Debug)]
struct Parts {
    count: usize,
    slot: Slot,
}

/// Weights from which on a layer is bound by reading them, and computed by the kernels for that.
const MANY_WEIGHTS: usize = 1 << 18;
/// The samples of a client for which the gradient by many weights can be computed so.
const FEW_SAMPLES: usize = 32;
/// Dynamic shared memory of `dense_input_few`.
const INPUT_SHARED: usize = 69_120;

/// Into how many parts an inner sum is cut: enough for two rounds of blocks of a usual cohort on a large card, of no less than 64 numbers each; for `large` layers, whose blocks
/// continue by themselves, one round of no less than 128.
fn parts_for(plan: &Planner<'_>, inner: usize, results: usize, large: bool) -> usize {
    let size = plan.purpose.size;
    let blocks = results.div_ceil(128) * size.most.div_ceil(32) * USUAL_LANES;
    if large { (264 / blocks).clamp(1, (inner / 128).max(1)) } else { 528_usize.div_ceil(blocks).clamp(1, (inner / 64).max(1)) }
}

impl Dense {
    pub(super) fn new(
        plan: &mut Planner<'_>,
        x: ValueId,
        weight: ParameterId,
        bias: Option<ParameterId>,
        activation: Option<Activation>,
        y: ValueId,
    ) -> Self {
        let (inputs, outputs, samples) = (plan.count(x), plan.count(y), plan.purpose.size.samples());
        let large = inputs.is_multiple_of(4) && outputs.is_multiple_of(4) && inputs * outputs >= MANY_WEIGHTS;
        let back = plan.incoming(y).map(|dy| Back {
            dy: dy.slot,
            dx: plan.target(x).map(|target| {
                let count = parts_for(plan, outputs, inputs, large);
                let at_once = count == 1 && !target.add;
                let parts = (!at_once).then(|| Parts { count, slot: plan.scratch_back(4 * count * samples * inputs) });
                (target, parts)
            }),
            dw: plan.parameter(weight).is_some(),
            db: bias.is_some_and(|bias| plan.parameter(bias).is_some()),
        });
        if back.as_ref().is_some_and(|back| back.dw) {
            plan.reads_again(x, Form::Numbers);
        }
        if back.is_some() && activation.is_some() {
            plan.reads_again(y, Form::Numbers);
        }
        let count = parts_for(plan, inputs, outputs, large);
        let parts = Parts { count, slot: plan.scratch(4 * count * samples * outputs) };
        let (x, (y, y16)) = (plan.reads(x, Form::Numbers), plan.writes_numbers(y));
        Self { weight, bias, phi: phi(activation, plan.purpose.precision), inputs, outputs, x, y, y16, parts, large, back }
    }

    fn call(&self, run: &PassContext<'_>, dy: Pointer<f32>) -> DenseCall {
        let (inputs, outputs) = (self.inputs as i32, self.outputs as i32);
        let (x, w) = (run.at(self.x), run.parameter(self.weight));
        DenseCall { x, w, dy, cohort: run.cohort, w_stride: run.stride(), inputs, outputs, per: 1 }
    }

    /// One of the two products with rows of samples, of `n` numbers each, cut into so many parts.
    fn product(
        &self,
        run: &PassContext<'_>,
        kernel: Launch,
        call: DenseCall,
        (parts, to): (usize, Pointer<f32>),
        n: usize,
    ) -> Result<()> {
        let grid = [n.div_ceil(128), run.size.most.div_ceil(32) * parts, run.size.lanes];
        let (count, samples) = (parts as i32, run.size.samples() as i32);
        launch!(run.device, Launch { grid, ..kernel }; call, to, count, samples)
    }

    /// The kernels of the products: forward, by input and by weights. Their grids are still to be told.
    fn kernels(&self, run: &PassContext<'_>) -> [Launch; 3] {
        let launch = |kernel, threads| Launch::new(kernel, [1; 3], threads);
        let by_weights = match self.large && run.size.most <= FEW_SAMPLES {
            true => launch("dense_weights_few", 128),
            false => launch("dense_weights", 256),
        };
        match self.large {
            true => [launch("dense_forward_few", 128), launch("dense_input_few", 128).shared(INPUT_SHARED), by_weights],
            false => [launch("dense_forward", 256), launch("dense_input", 256), by_weights],
        }
    }

    /// `y = phi(sum of parts + bias + more)`
    fn finish(&self, run: &PassContext<'_>, parts: Parts, [bias, more, y]: [Pointer<f32>; 3], phi: i32, n: usize) -> Result<()> {
        let kernel = Launch::new("dense_finish", run.by_sample(n.div_ceil(256)), 256);
        let (n, count, samples) = (n as i32, parts.count as i32, run.size.samples() as i32);
        launch!(run.device, kernel; run.at::<f32>(parts.slot), bias, more, y, run.cohort, run.stride(), n, 1_i32, count, samples, phi)
    }
}

impl Op for Dense {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        let [kernel, ..] = self.kernels(run);
        let to = (self.parts.count, run.at(self.parts.slot));
        self.product(run, kernel, self.call(run, Pointer::NULL), to, self.outputs)?;
        let bias = self.bias.map_or(Pointer::NULL, |bias| run.parameter(bias));
        self.finish(run, self.parts, [bias, Pointer::NULL, run.at(self.y)], self.phi, self.outputs)?;
        match self.y16 {
            Some(y16) => run.to_halves(run.at(self.y), run.at(y16), 1.0, self.outputs),
            None => Ok(()),
        }
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let Some(back) = &self.back else { return Ok(()) };
        let (dy, outputs) = (run.at::<f32>(back.dy), self.outputs);
        if self.phi != 0 {
            let kernel = Launch::new("activation_backward", run.by_sample(outputs.div_ceil(256)), 256);
            launch!(run.device, kernel; run.at::<f32>(self.y), dy, dy, run.cohort, outputs as i32, self.phi)?;
        }
        let (call, [_, by_input, by_weights]) = (self.call(run, dy), self.kernels(run));
        if back.dw {
            // Blocks of 256 threads have 32 inputs, those of 128 have 128.
            let rows = if by_weights.threads[0] == 128 { 128 } else { 32 };
            let grid = [outputs.div_ceil(128), self.inputs.div_ceil(rows), run.size.lanes];
            launch!(run.device, Launch { grid, ..by_weights }; call, run.gradient(self.weight))?;
        }
        if let Some(bias) = self.bias.filter(|_| back.db) {
            run.sum_samples(dy, run.gradient(bias), run.stride(), 1, outputs)?;
        }
        let Some((target, parts)) = back.dx else { return Ok(()) };
        let dx = run.at(target.slot);
        let Some(parts) = parts else { return self.product(run, by_input, call, (1, dx), self.inputs) };
        self.product(run, by_input, call, (parts.count, run.at(parts.slot)), self.inputs)?;
        let more = if target.add { dx } else { Pointer::NULL };
        self.finish(run, parts, [Pointer::NULL, more, dx], 0, self.inputs)
    }
}
