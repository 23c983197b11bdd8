//! Pooling, and the shortcut that halves the plane and adds channels.
use fedeq_kernels::norm::Shape;
use fedeq_kernels::pool;
use fedeq_models::graph::ValueId;

use super::{Op, Run};
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
    shape: Shape,
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
    fn forward(&mut self, run: &mut Run<'_>) {
        run.numbers.write(self.y, |numbers, y| match self.back {
            Some(_) => pool::max_pool_with_places(run.set, self.shape, numbers.read(self.x), y, &mut self.places),
            None => pool::max_pool(run.set, self.shape, numbers.read(self.x), y),
        });
    }

    fn backward(&mut self, run: &mut Run<'_>) {
        let Some(Back { dy, dx }) = self.back else { return };
        run.numbers.write_gradient(dx, |numbers, dx| {
            pool::max_pool_backward(run.set, self.shape, &self.places, numbers.read(dy), dx);
        });
    }
}

#[derive(Debug)]
pub(super) struct MeanPool {
    shape: Shape,
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
    fn forward(&mut self, run: &mut Run<'_>) {
        run.numbers.write(self.y, |numbers, y| pool::global_average_pool(run.set, self.shape, numbers.read(self.x), y));
    }

    fn backward(&mut self, run: &mut Run<'_>) {
        let Some(Back { dy, dx }) = self.back else { return };
        run.numbers.write_gradient(dx, |numbers, dx| pool::global_average_pool_backward(self.shape, numbers.read(dy), dx));
    }
}

/// Every second pixel, with channels of zero on both sides.
#[derive(Debug)]
pub(super) struct Widen {
    from: Shape,
    to: Shape,
    x: Buffer,
    y: Buffer,
    back: Option<Back>,
}

impl Widen {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, y: ValueId) -> Self {
        let back = Back::new(plan, x, y);
        Self { from: plan.images(x), to: plan.images(y), x: plan.forward(x), y: plan.forward(y), back }
    }

    /// Where each pixel of the output begins among the numbers of the input, and where its first channel that is not zero is.
    fn pixels(&self) -> impl Iterator<Item = (usize, usize)> {
        let (from, to) = (self.from, self.to);
        let before = (to.channels - from.channels) / 2;
        let rows = (0..to.batch).flat_map(move |image| (0..to.height).map(move |row| (image, row)));
        rows.flat_map(move |(image, row)| {
            (0..to.width).map(move |column| {
                let here = ((image * from.height + 2 * row) * from.width + 2 * column) * from.channels;
                (here, ((image * to.height + row) * to.width + column) * to.channels + before)
            })
        })
    }
}

impl Op for Widen {
    fn forward(&mut self, run: &mut Run<'_>) {
        let channels = self.from.channels;
        run.numbers.write(self.y, |numbers, y| {
            let x = numbers.read(self.x);
            y.fill(0.0);
            for (from, to) in self.pixels() {
                y[to..to + channels].copy_from_slice(&x[from..from + channels]);
            }
        });
    }

    fn backward(&mut self, run: &mut Run<'_>) {
        let Some(Back { dy, dx }) = self.back else { return };
        let channels = self.from.channels;
        run.numbers.write_gradient(dx, |numbers, dx| {
            let dy = numbers.read(dy);
            dx.fill(0.0);
            for (from, to) in self.pixels() {
                dx[from..from + channels].copy_from_slice(&dy[to..to + channels]);
            }
        });
    }
}
