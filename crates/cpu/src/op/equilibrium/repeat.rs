//! A cell applied a fixed number of times: layers with the same parameters, differentiated through all of them.
use fedeq_models::graph::{self, ValueId};

use super::{At, Back, CellOp, To, build, context};
use crate::memory::{Buffer, add};
use crate::op::{Op, PassContext};
use crate::plan::Planner;
use crate::pool::Pool;

#[derive(Debug)]
pub(in crate::op) struct Repeat {
    cell: Box<dyn CellOp>,
    times: usize,
    starts_at_injection: bool,
    len: usize,
    /// When it is computed.
    time: usize,
    injection: Buffer,
    y: Buffer,
    back: Option<Back>,
    /// Where steps start: all of them if there is a way back, else the newest alone.
    states: Vec<Vec<f32>>,
}

impl Repeat {
    pub(in crate::op) fn new(plan: &mut Planner<'_>, injection: ValueId, cell: &graph::Cell, times: usize, y: ValueId) -> Self {
        let back = Back::new(plan, injection, y);
        Self {
            cell: build(plan, cell, y, back.is_some()),
            times,
            starts_at_injection: cell.starts_at_injection(),
            len: plan.len(y),
            time: plan.time(),
            injection: plan.forward(injection),
            y: plan.forward(y),
            back,
            states: Vec::new(),
        }
    }
}

impl Op for Repeat {
    fn forward(&mut self, run: &mut PassContext<'_>) {
        let context = context(run);
        run.numbers.release_idle(self.time);
        let kept = if self.back.is_some() { self.times } else { 1 };
        while self.states.len() < kept {
            self.states.push(run.numbers.pool.take(self.len));
        }
        let Self { cell, states, times, injection, .. } = self;
        cell.begin(run.scratch);
        cell.prepare(&context);
        run.numbers.write(self.y, |numbers, y| {
            let u = numbers.read(*injection);
            cell.start(u, y);
            for step in 0..*times {
                let z = &mut states[step.min(kept - 1)];
                z.copy_from_slice(y);
                cell.step(&context, z, u, y);
            }
        });
        cell.end(run.scratch);
    }

    fn backward(&mut self, run: &mut PassContext<'_>) {
        let Some(Back { dy, du }) = self.back else { return };
        let context = context(run);
        let Self { cell, states, times, len, injection, starts_at_injection, .. } = self;
        let pool = &mut *run.numbers.pool;
        let [mut v, mut dz, mut part] = [(); 3].map(|()| pool.take(*len));
        cell.begin(run.scratch);
        cell.borrow(*times, *len, pool);
        cell.prepare(&context);
        for (index, z) in states.iter().enumerate() {
            cell.linearise(&context, index, z, run.numbers.read(*injection));
        }
        cell.turn(&context);
        v.copy_from_slice(run.numbers.read(dy));
        let gradients = &mut run.gradients;
        run.numbers.write_gradient(du, |_, du| {
            for (index, z) in states.iter().enumerate().rev() {
                let last = index + 1 == *times;
                let wanted = index > 0 || *starts_at_injection;
                let to = To { dz: wanted.then_some(&mut dz[..]), du: if last { &mut *du } else { &mut part } };
                cell.backward(&context, At { index, z, v: &v, add: !last }, to, gradients);
                if !last {
                    add(du, &part);
                }
                std::mem::swap(&mut v, &mut dz);
            }
            // What has come through all steps.
            if *starts_at_injection {
                add(du, &v);
            }
        });
        cell.give_back(run.numbers.pool);
        cell.end(run.scratch);
        [v, dz, part].into_iter().for_each(|memory| run.numbers.pool.give(memory));
    }

    fn release(&mut self, pool: &mut Pool) {
        self.states.drain(..).for_each(|state| pool.give(state));
    }
}
