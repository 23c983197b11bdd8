//! Numbers multiplied by a constant.
use fedeq_models::graph::ValueId;

use super::{Op, PassContext};
use crate::memory::{Buffer, Target};
use crate::plan::Planner;

#[derive(Debug)]
pub(super) struct Scale {
    factor: f32,
    x: Buffer,
    y: Buffer,
    /// The gradient that comes in, and where its multiple goes.
    back: Option<(Buffer, Target)>,
}

impl Scale {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, factor: f64, y: ValueId) -> Self {
        let back = plan.incoming(y).and_then(|dy| Some((dy, plan.target(x)?)));
        Self { factor: factor as f32, x: plan.forward(x), y: plan.forward(y), back }
    }

    fn multiply(&self, from: &[f32], to: &mut [f32]) {
        to.iter_mut().zip(from).for_each(|(to, from)| *to = self.factor * from);
    }
}

impl Op for Scale {
    fn forward(&mut self, run: &mut PassContext<'_>) {
        run.numbers.write(self.y, |numbers, y| self.multiply(numbers.read(self.x), y));
    }

    fn backward(&mut self, run: &mut PassContext<'_>) {
        let Some((dy, dx)) = self.back else { return };
        run.numbers.write_gradient(dx, |numbers, dx| self.multiply(numbers.read(dy), dx));
    }
}
