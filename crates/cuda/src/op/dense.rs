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
    back: Option<Back>,
}

struct Back {
    dy: Slot,
    dx: Option<(Target, Parts)>,
    dw: bool,
    db: bool,
}

/// A long inner sum in parts, for more blocks than its results give.
#[derive(Clone, Copy, Debug)]
struct Parts {
    count: usize,
    slot: Slot,
}

/// Into how many parts an inner sum is cut: enough for two rounds of blocks of a usual cohort on a large card, of no less than 64 numbers each.
fn parts_for(plan: &Planner<'_>, inner: usize, results: usize) -> usize {
    let size = plan.purpose.size;
    let blocks = results.div_ceil(128) * size.most.div_ceil(32) * USUAL_LANES;
    528_usize.div_ceil(blocks).clamp(1, (inner / 64).max(1))
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
        let back = plan.incoming(y).map(|dy| Back {
            dy: dy.slot,
            dx: plan.target(x).map(|target| {
                let count = parts_for(plan, outputs, inputs);
                (target, Parts { count, slot: plan.scratch_back(4 * count * samples * inputs) })
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
        let count = parts_for(plan, inputs, outputs);
        let parts = Parts { count, slot: plan.scratch(4 * count * samples * outputs) };
        let (x, (y, y16)) = (plan.reads(x, Form::Numbers), plan.writes_numbers(y));
        Self { weight, bias, phi: phi(activation, plan.purpose.precision), inputs, outputs, x, y, y16, parts, back }
    }

    fn call(&self, run: &PassContext<'_>, dy: Pointer<f32>) -> DenseCall {
        let (inputs, outputs) = (self.inputs as i32, self.outputs as i32);
        let (x, w) = (run.at(self.x), run.parameter(self.weight));
        DenseCall { x, w, dy, cohort: run.cohort, w_stride: run.stride(), inputs, outputs, per: 1 }
    }

    /// One of the two products with rows of samples, of `n` numbers each.
    fn product(&self, run: &PassContext<'_>, kernel: &'static str, call: DenseCall, parts: Parts, n: usize) -> Result<()> {
        let grid = [n.div_ceil(128), run.size.most.div_ceil(32) * parts.count, run.size.lanes];
        let (count, samples) = (parts.count as i32, run.size.samples() as i32);
        launch!(run.device, Launch::new(kernel, grid, 256); call, run.at::<f32>(parts.slot), count, samples)
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
        self.product(run, "dense_forward", self.call(run, Pointer::NULL), self.parts, self.outputs)?;
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
        let call = self.call(run, dy);
        if back.dw {
            let kernel = Launch::new("dense_weights", [outputs.div_ceil(128), self.inputs.div_ceil(32), run.size.lanes], 256);
            launch!(run.device, kernel; call, run.gradient(self.weight))?;
        }
        if let Some(bias) = self.bias.filter(|_| back.db) {
            run.sum_samples(dy, run.gradient(bias), run.stride(), 1, outputs)?;
        }
        let Some((target, parts)) = back.dx else { return Ok(()) };
        self.product(run, "dense_input", call, parts, self.inputs)?;
        let dx = run.at(target.slot);
        let more = if target.add { dx } else { Pointer::NULL };
        self.finish(run, parts, [Pointer::NULL, more, dx], 0, self.inputs)
    }
}
