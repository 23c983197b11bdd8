//! Numbers multiplied by a constant.
use fedeq_core::Result;
use fedeq_models::graph::ValueId;

use super::{Op, PassContext};
use crate::arena::Slot;
use crate::plan::{Form, Planner, Target};

pub(super) struct Scale {
    factor: f32,
    /// Numbers a sample, an even count.
    each: usize,
    x: Slot,
    y: Slot,
    /// The same in 16 bits, where that is wanted.
    halves: Option<Slot>,
    /// The gradient that comes in, and where its multiple goes.
    back: Option<(Slot, Target)>,
}

impl Scale {
    pub(super) fn new(plan: &mut Planner<'_>, x: ValueId, factor: f64, y: ValueId) -> Self {
        let back = plan.incoming(y).and_then(|dy| Some((dy.slot, plan.target(x)?)));
        let each = plan.count(x);
        let (y, halves) = plan.writes_numbers(y);
        Self { factor: factor as f32, each, x: plan.reads(x, Form::Numbers), y, halves, back }
    }
}

impl Op for Scale {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        let (x, y) = (run.at::<f32>(self.x), run.at::<f32>(self.y));
        run.combine([self.factor, 0.0], [x, x], y, self.each)?;
        self.halves.map_or(Ok(()), |halves| run.to_halves(y, run.at(halves), 1.0, self.each))
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let Some((dy, Target { slot, add, .. })) = self.back else { return Ok(()) };
        let (dy, dx) = (run.at::<f32>(dy), run.at::<f32>(slot));
        let (kept, before) = if add { (1.0, dx) } else { (0.0, dy) };
        run.combine([self.factor, kept], [dy, before], dx, self.each)
    }
}
