//! A cell applied a fixed number of times: layers with the same parameters, differentiated through all of them.
use fedeq_core::Result;
use fedeq_models::graph::{self, ValueId};

use super::sums::Sums;
use super::{CellOp, Differentiated, State, To, build, each};
use crate::arena::Slot;
use crate::device::Pointer;
use crate::op::{Op, PassContext};
use crate::plan::{Form, Planner};

pub(crate) struct Repeat {
    cell: Box<dyn CellOp>,
    times: usize,
    /// Numbers of a state.
    each: usize,
    injection: Slot,
    /// The states that steps start from: all of them if there is a way back, else two in turns.
    from: Vec<Slot>,
    state_halves: Option<Slot>,
    y: Slot,
    y_halves: Option<Slot>,
    back: Option<Back>,
}

struct Back {
    dy: Slot,
    /// Where the gradient of what is injected goes, and whether it is added to what is there.
    du: Slot,
    add: bool,
    /// That of one step.
    du_part: Slot,
    /// Gradients of states, one step's and the next one's.
    states: [Slot; 2],
    state_halves: Option<Slot>,
    sums: Sums,
    starts_at_injection: bool,
}

impl Repeat {
    pub(crate) fn new(plan: &mut Planner<'_>, injection: ValueId, cell: &graph::Cell, times: usize, y: ValueId) -> Self {
        let each = each(plan, y);
        let bytes = 4 * plan.purpose.size.samples() * each;
        let incoming = plan.incoming(y);
        let differentiated = if incoming.is_some() { Differentiated::Fully } else { Differentiated::No };
        let starts_at_injection = cell.starts_at_injection();
        let cell = build(plan, cell, y, differentiated);
        let halves = cell.reads_halves();
        let back = incoming.map(|dy| {
            let (du, add) = match plan.target(injection) {
                Some(target) => (target.slot, target.add),
                None => (plan.scratch_back(bytes), false),
            };
            plan.reads_again(injection, Form::Numbers);
            Back {
                dy: dy.slot,
                du,
                add,
                du_part: plan.scratch_back(bytes),
                states: [bytes; 2].map(|bytes| plan.scratch_back(bytes)),
                state_halves: halves.then(|| plan.scratch_back(bytes / 2)),
                sums: Sums::new(plan, times),
                starts_at_injection,
            }
        });
        let from = match back {
            Some(_) => (0..times).map(|_| plan.kept(bytes)).collect(),
            None => (0..times.min(2)).map(|_| plan.scratch(bytes)).collect(),
        };
        let (y, y_halves) = plan.writes_numbers(y);
        let injection = plan.reads(injection, Form::Numbers);
        let state_halves = halves.then(|| plan.scratch(bytes / 2));
        Self { cell, times, each, injection, from, state_halves, y, y_halves, back }
    }

    /// A state in the forms that the cell reads, the second one made again.
    fn state(&self, run: &PassContext<'_>, numbers: Slot, halves: Option<Slot>) -> Result<State> {
        let state = State { numbers: run.at(numbers), halves: run.maybe(halves) };
        if halves.is_some() {
            run.to_halves(state.numbers, state.halves, 1.0, self.each)?;
        }
        Ok(state)
    }

    fn start_of(&self, step: usize) -> Slot {
        self.from[step % self.from.len()]
    }
}

impl Op for Repeat {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        let u = run.at(self.injection);
        self.cell.prepare(run)?;
        self.cell.start(run, u, State { numbers: run.at(self.start_of(0)), halves: Pointer::NULL })?;
        for step in 0..self.times {
            let state = self.state(run, self.start_of(step), self.state_halves)?;
            let to = if step + 1 == self.times { self.y } else { self.start_of(step + 1) };
            self.cell.step(run, run.cohort, state, u, run.at(to))?;
        }
        match self.y_halves {
            Some(halves) => run.to_halves(run.at(self.y), run.at(halves), 1.0, self.each),
            None => Ok(()),
        }
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let Some(back) = &self.back else { return Ok(()) };
        let (sum, u) = (run.at::<f32>(back.du), run.at(self.injection));
        let mut v = run.at::<f32>(back.dy);
        for step in (0..self.times).rev() {
            let add = back.add || step + 1 < self.times;
            let du = if add { run.at(back.du_part) } else { sum };
            let wanted = step > 0 || back.starts_at_injection;
            let dz = if wanted { run.at(back.states[step % 2]) } else { Pointer::NULL };
            let z = self.state(run, self.start_of(step), back.state_halves)?;
            self.cell.linearise(run, z, u)?;
            self.cell.backward(run, z, v, To { dz, du })?;
            back.sums.add(run, step, self.times)?;
            if add {
                run.add(du, sum, self.each)?;
            }
            v = dz;
        }
        // What has come through all steps.
        if back.starts_at_injection { run.add(v, sum, self.each) } else { Ok(()) }
    }
}
