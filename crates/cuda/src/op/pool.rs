//! Pooling, and the shortcut that halves the plane and adds channels.
use fedeq_core::Result;
use fedeq_models::graph::ValueId;
use half::f16;

use super::{Op, PassContext};
use crate::arena::Slot;
use crate::device::{Launch, Pointer, launch};
use crate::plan::{Form, Planner, Written};

/// What these layers have in common: they read and write 32 bits, and have no parameters.
struct Plain {
    x: Slot,
    y: Slot,
    /// The same in 16 bits, where that is wanted.
    y16: Option<Slot>,
    back: Option<(Slot, Written)>,
    /// Rows, columns and channels.
    from: [usize; 3],
    to: [usize; 3],
}

impl Plain {
    fn new(plan: &mut Planner<'_>, x: ValueId, y: ValueId) -> Self {
        let back = plan.incoming(y).and_then(|dy| Some((dy.slot, plan.written(x)?)));
        let shape = |value| {
            let [height, width] = plan.plane(value);
            [height, width, plan.channels(value)]
        };
        let (from, to) = (shape(x), shape(y));
        let (y, y16) = plan.writes_numbers(y);
        Self { x: plan.reads(x, Form::Numbers), y, y16, back, from, to }
    }

    /// The output in 16 bits, if it is wanted.
    fn narrow(&self, run: &PassContext<'_>) -> Result<()> {
        let Some(y16) = self.y16 else { return Ok(()) };
        run.to_halves(run.at(self.y), run.at(y16), 1.0, self.to.into_iter().product())
    }

    /// Launches what computes the gradient of the input from that of the output.
    fn backward(&self, run: &PassContext<'_>, launch: impl FnOnce(Pointer<f32>, Pointer<f32>) -> Result<()>) -> Result<()> {
        let Some((dy, dx)) = &self.back else { return Ok(()) };
        launch(run.at(*dy), dx.numbers(run))?;
        dx.finish(run)
    }
}

pub(super) struct MaxPool {
    plain: Plain,
    /// Which number of its window each output is, if there is a way back.
    places: Option<Slot>,
}

impl MaxPool {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, y: ValueId) -> Self {
        let plain = Plain::new(plan, x, y);
        let bytes = plan.purpose.size.samples() * plan.count(y);
        Self { places: plain.back.is_some().then(|| plan.kept(bytes)), plain }
    }

    /// The kernel for four channels at once where that divides them, and how many numbers a block of it has.
    fn kernel(&self, run: &PassContext<'_>, [one, four]: [&'static str; 2], count: usize) -> Launch {
        let by_4 = self.plain.from[2].is_multiple_of(4);
        let (kernel, numbers) = if by_4 { (four, 1024) } else { (one, 256) };
        Launch::new(kernel, run.by_sample(count.div_ceil(numbers)), 256)
    }
}

impl Op for MaxPool {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        let Plain { x, y, from, to, .. } = &self.plain;
        let kernel = self.kernel(run, ["max_pool", "max_pool_by_4"], to.iter().product());
        let [height, width, channels] = from.map(|n| n as i32);
        let (x, y, places) = (run.at::<f32>(*x), run.at::<f32>(*y), run.maybe::<u8>(self.places));
        launch!(run.device, kernel; x, y, places, run.cohort, height, width, channels)?;
        self.plain.narrow(run)
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let from = self.plain.from;
        let kernel = self.kernel(run, ["max_pool_backward", "max_pool_backward_by_4"], from.into_iter().product());
        let ([height, width, channels], places) = (from.map(|n| n as i32), run.maybe::<u8>(self.places));
        self.plain.backward(run, |dy, dx| launch!(run.device, kernel; dy, places, dx, run.cohort, height, width, channels))
    }
}

/// Max pooling that the normalisation in front of it does with its own work.
pub(super) struct ByNorm;

impl Op for ByNorm {
    fn forward(&self, _: &PassContext<'_>) -> Result<()> {
        Ok(())
    }

    fn backward(&self, _: &PassContext<'_>) -> Result<()> {
        Ok(())
    }
}

pub(super) struct MeanPool(Plain);

impl MeanPool {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, y: ValueId) -> Self {
        Self(Plain::new(plan, x, y))
    }

    fn launch(&self, run: &PassContext<'_>, kernel: &'static str, x: Pointer<f32>, y: Pointer<f32>) -> Result<()> {
        let [height, width, channels] = self.0.from;
        let kernel = Launch::new(kernel, run.by_sample(channels.div_ceil(64)), 256);
        launch!(run.device, kernel; x, y, run.cohort, (height * width) as i32, channels as i32)
    }
}

impl Op for MeanPool {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        self.launch(run, "mean_pool_f32", run.at(self.0.x), run.at(self.0.y))?;
        self.0.narrow(run)
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        self.0.backward(run, |dy, dx| self.launch(run, "mean_pool_backward", dy, dx))
    }
}

/// Every second pixel, with channels of zero on both sides.
pub(super) struct Widen(Plain);

impl Widen {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, y: ValueId) -> Self {
        Self(Plain::new(plan, x, y))
    }
}

impl Op for Widen {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        let Plain { x, y, y16, from, to, .. } = &self.0;
        let kernel = Launch::new("widen", run.by_sample(to.iter().product::<usize>().div_ceil(256)), 256);
        let ([hs, ws, cs], [h, w, c]) = (from.map(|n| n as i32), to.map(|n| n as i32));
        let (x, y, y16) = (run.at::<f32>(*x), run.at::<f32>(*y), run.maybe::<f16>(*y16));
        launch!(run.device, kernel; x, y, y16, run.cohort, hs, ws, cs, h, w, c)
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let Plain { from, to, .. } = &self.0;
        let kernel = Launch::new("widen_backward", run.by_sample(from.iter().product::<usize>().div_ceil(256)), 256);
        let ([hs, ws, cs], [h, w, c]) = (from.map(|n| n as i32), to.map(|n| n as i32));
        self.0.backward(run, |dy, dx| launch!(run.device, kernel; dy, dx, run.cohort, hs, ws, cs, h, w, c))
    }
}
