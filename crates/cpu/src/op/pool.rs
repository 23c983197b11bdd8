//! Pooling, and the shortcut that halves the plane and adds channels.
use fedeq_kernels::norm::BatchShape;
use fedeq_kernels::{pool, shortcut};
use fedeq_models::graph::ValueId;

use super::{Op, PassContext};
use crate::memory::{Buffer, Target};
use crate::plan::Planner;

/// The way back of a layer without parameters.
#[derive(Clone, Copy, Debug)]
struct Back {
    dy: Buffer,
    dx: Target,
}

impl Back {
    fn new(plan: &mut Planner<'_>, x: ValueId, y: ValueId) -> Option<Self> {
        let dy = plan.incoming(y)?;
        Some(Self { dy, dx: plan.target(x)? })
    }
}

#[derive(Debug)]
pub(super) struct MaxPool {
    shape: BatchShape,
    x: Buffer,
    y: Buffer,
    /// Which number of its window each output is, if there is a way back.
    places: Vec<u8>,
    back: Option<Back>,
}

impl MaxPool {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, y: ValueId) -> Self {
        let back = Back::new(plan, x, y);
        let places = if back.is_some() { vec![0; plan.len(y)] } else { Vec::new() };
        Self { shape: plan.images(x), x: plan.forward(x), y: plan.forward(y), places, back }
    }
}

impl Op for MaxPool {
    fn forward(&mut self, run: &mut PassContext<'_>) {
        run.numbers.write(self.y, |numbers, y| match self.back {
            Some(_) => pool::max_pool_with_places(run.set, self.shape, numbers.read(self.x), y, &mut self.places),
            None => pool::max_pool(run.set, self.shape, numbers.read(self.x), y),
        });
    }

    fn backward(&mut self, run: &mut PassContext<'_>) {
        let Some(Back { dy, dx }) = self.back else { return };
        run.numbers.write_gradient(dx, |numbers, dx| {
            pool::max_pool_backward(run.set, self.shape, &self.places, numbers.read(dy), dx);
        });
    }
}

#[derive(Debug)]
pub(super) struct MeanPool {
    shape: BatchShape,
    x: Buffer,
    y: Buffer,
    back: Option<Back>,
}

impl MeanPool {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, y: ValueId) -> Self {
        let back = Back::new(plan, x, y);
        Self { shape: plan.images(x), x: plan.forward(x), y: plan.forward(y), back }
    }
}

impl Op for MeanPool {
    fn forward(&mut self, run: &mut PassContext<'_>) {
        let scratch = &mut run.scratch.norm;
        run.numbers.write(self.y, |numbers, y| pool::global_average_pool(run.set, self.shape, numbers.read(self.x), y, scratch));
    }

    fn backward(&mut self, run: &mut PassContext<'_>) {
        let Some(Back { dy, dx }) = self.back else { return };
        run.numbers.write_gradient(dx, |numbers, dx| pool::global_average_pool_backward(self.shape, numbers.read(dy), dx));
    }
}

/// Every second pixel, with channels of zero on both sides.
#[derive(Debug)]
pub(super) struct Widen {
    shape: BatchShape,
    channels: usize,
    x: Buffer,
    y: Buffer,
    back: Option<Back>,
}

impl Widen {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, y: ValueId) -> Self {
        let back = Back::new(plan, x, y);
        Self { shape: plan.images(x), channels: plan.images(y).channels, x: plan.forward(x), y: plan.forward(y), back }
    }
}

impl Op for Widen {
    fn forward(&mut self, run: &mut PassContext<'_>) {
        run.numbers.write(self.y, |numbers, y| shortcut::widen(self.shape, self.channels, numbers.read(self.x), y));
    }

    fn backward(&mut self, run: &mut PassContext<'_>) {
        let Some(Back { dy, dx }) = self.back else { return };
        run.numbers.write_gradient(dx, |numbers, dx| {
            dx.fill(0.0);
            shortcut::add_widen_gradient(self.shape, self.channels, numbers.read(dy), dx);
        });
    }
}
