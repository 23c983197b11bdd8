//! Products of states with a matrix a lane, in 32 bits.
use fedeq_core::Result;

use crate::arena::Slot;
use crate::device::{Launch, Pointer, launch};
use crate::op::{DenseCall, PassContext};
use crate::plan::Planner;

/// A matrix `[inputs][outputs]` a lane, and memory for parts of sums.
#[derive(Clone, Copy, Debug)]
pub(super) struct Product {
    inputs: usize,
    outputs: usize,
    partial: Slot,
}

/// When memory is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    Forward,
    Back,
}

impl Moment {
    /// Memory of a layer at this moment alone.
    pub(super) fn scratch(self, plan: &mut Planner<'_>, bytes: usize) -> Slot {
        match self {
            Self::Forward => plan.scratch(bytes),
            Self::Back => plan.scratch_back(bytes),
        }
    }
}

/// Into how many parts an inner sum is cut, for more blocks. It depends on its length alone: what a sample gets must not depend on who else is there.
fn parts(inner: usize) -> usize {
    (inner / 64).clamp(1, 8)
}

impl Product {
    pub(super) fn new(plan: &mut Planner<'_>, moment: Moment, inputs: usize, outputs: usize) -> Self {
        let numbers = (parts(inputs) * outputs).max(parts(outputs) * inputs);
        let partial = moment.scratch(plan, 4 * plan.purpose.size.samples() * numbers);
        Self { inputs, outputs, partial }
    }

    /// `y = phi(x w + more)`
    pub(super) fn forward(
        &self,
        run: &PassContext<'_>,
        x: Pointer<f32>,
        w: Pointer<f32>,
        more: Pointer<f32>,
        phi: i32,
        y: Pointer<f32>,
    ) -> Result<()> {
        let call = DenseCall { x, w, ..self.call(run) };
        self.multiply(run, "dense_forward", call, [self.inputs, self.outputs])?;
        self.finish(run, [self.inputs, self.outputs], more, phi, y)
    }

    /// `dx = dy w^T`
    pub(super) fn input_gradient(
        &self,
        run: &PassContext<'_>,
        dy: Pointer<f32>,
        w: Pointer<f32>,
        dx: Pointer<f32>,
    ) -> Result<()> {
        let call = DenseCall { dy, w, ..self.call(run) };
        self.multiply(run, "dense_input", call, [self.outputs, self.inputs])?;
        self.finish(run, [self.outputs, self.inputs], Pointer::NULL, 0, dx)
    }

    /// `dw = x^T dy`
    pub(super) fn weight_gradient(
        &self,
        run: &PassContext<'_>,
        x: Pointer<f32>,
        dy: Pointer<f32>,
        dw: Pointer<f32>,
    ) -> Result<()> {
        let call = DenseCall { x, dy, ..self.call(run) };
        let grid = [self.outputs.div_ceil(128), self.inputs.div_ceil(32), run.size.lanes];
        launch!(run.device, Launch::new("dense_weights", grid, 256); call, dw)
    }

    fn call(&self, run: &PassContext<'_>) -> DenseCall {
        let none = Pointer::NULL;
        let [inputs, outputs] = [self.inputs, self.outputs].map(|n| n as i32);
        DenseCall { x: none, w: none, dy: none, cohort: run.cohort, w_stride: run.stride(), inputs, outputs, per: 1 }
    }

    fn multiply(&self, run: &PassContext<'_>, kernel: &'static str, call: DenseCall, [inner, outer]: [usize; 2]) -> Result<()> {
        let parts = parts(inner);
        let grid = [outer.div_ceil(128), run.size.most.div_ceil(32) * parts, run.size.lanes];
        launch!(run.device, Launch::new(kernel, grid, 256); call, run.at::<f32>(self.partial), parts as i32, run.size.samples() as i32)
    }

    fn finish(
        &self,
        run: &PassContext<'_>,
        [inner, outer]: [usize; 2],
        more: Pointer<f32>,
        phi: i32,
        y: Pointer<f32>,
    ) -> Result<()> {
        let (bias, launch) = (Pointer::<f32>::NULL, Launch::new("dense_finish", run.by_sample(outer.div_ceil(256)), 256));
        let (parts, samples) = (parts(inner) as i32, run.size.samples() as i32);
        launch!(run.device, launch; run.at::<f32>(self.partial), bias, more, y, run.cohort, 0_i64, outer as i32, 1_i32, parts, samples, phi)
    }
}
