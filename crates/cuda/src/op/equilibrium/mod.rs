//! The fixed point of a cell, or a cell applied a fixed number of times, and gradients through it.
//!
//! # Layout
//! - this file: the layer that solves, forward and back; `repeat`: the one that does not
//! - `cell`: what it wants of a cell; `dense`, `residual` and `transformer` are cells
//! - `solve`: finding the fixed point
//! - `product`, `norm`: launches of theirs
//! - `adjoint`: the linear system of an implicit gradient
//! - `sums`: gradients of several differentiated steps added up
//! - `limits`: what is refused
mod adjoint;
mod cell;
mod dense;
mod limits;
mod norm;
mod product;
mod repeat;
mod residual;
mod solve;
mod sums;
#[cfg(test)]
mod tests;
mod transformer;

use fedeq_core::Result;
use fedeq_equilibrium::{Adjoint, Equilibrium as Settings};
use fedeq_models::graph::{self, ValueId};

use adjoint::Correction;
pub(crate) use cell::{CellOp, Differentiated, State, To};
pub(crate) use limits::{ensure_cell, ensure_settings};
use product::Moment;
pub(crate) use repeat::Repeat;
pub(crate) use solve::Progress;
use solve::{Ends, Solver};
pub(crate) use sums::Sums;

use super::{Op, PassContext};
use crate::arena::Slot;
use crate::device::Pointer;
use crate::plan::{Form, Planner};

/// What is done before and after a solve.
pub(crate) trait SolveHook {
    /// The network's own start is in `z`, in all forms that are there, `each` numbers a sample. States of samples of the cohort may be overwritten by better ones, in all forms.
    fn before(&self, run: &PassContext<'_>, z: State, each: usize) -> Result<()>;

    /// The solve has ended.
    fn after(&self, run: &PassContext<'_>, solved: Solved) -> Result<()>;
}

/// Where a solve left what it found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Solved {
    /// The [`Progress`] of every sample; there until the whole pass is over.
    pub(crate) progress: Slot,
    /// The fixed points; there until the layer's way back if there is one, and until the pass is over if there is none.
    pub(crate) z: Slot,
    /// Numbers of a state.
    pub(crate) each: usize,
}

/// The layer.
pub(crate) struct Equilibrium {
    cell: Box<dyn CellOp>,
    solver: Solver,
    injection: Slot,
    /// Iterates, in the forms that the cell reads.
    iterate: Slot,
    iterate_halves: Option<Slot>,
    solved: Solved,
    y: Slot,
    y_halves: Option<Slot>,
    /// Steps after the fixed point that are differentiated; the first of them starts there.
    steps: Steps,
    back: Option<Back>,
}

/// Differentiated steps `z <- damping z + (1 - damping) g(z; u)`.
#[derive(Clone, Debug)]
struct Steps {
    damping: f32,
    /// The states they start from.
    from: Vec<Slot>,
}

struct Back {
    dy: Slot,
    /// Where the gradient of what is injected goes, and whether it is added to what is there.
    du: Slot,
    add: bool,
    /// That of one step, where several or another layer's are added up.
    du_part: Option<Slot>,
    state_halves: Option<Slot>,
    correction: Correction,
    several: Option<Several>,
}

/// Memory for the way back through several steps.
struct Several {
    /// Gradients of states, one step's and the next one's.
    states: [Slot; 2],
    /// What goes through a step, where some of it passes by.
    through: Option<Slot>,
    sums: Sums,
}

impl Equilibrium {
    pub(crate) fn new(plan: &mut Planner<'_>, injection: ValueId, cell: &graph::Cell, settings: &Settings, y: ValueId) -> Self {
        let (samples, each) = (plan.purpose.size.samples(), each(plan, y));
        let bytes = 4 * samples * each;
        let incoming = plan.incoming(y);
        let (steps, damping) = if incoming.is_some() { settings.adjoint.differentiated_steps() } else { (1, 0.0) };
        let differentiated = match incoming {
            None => Differentiated::No,
            Some(_) if steps == 1 && !settings.adjoint.solves_a_system() => Differentiated::Once,
            Some(_) => Differentiated::Fully,
        };
        let cell = build(plan, cell, y, differentiated);
        let halves = cell.reads_halves();
        let back = incoming.map(|dy| Back::new(plan, dy.slot, injection, each, &settings.adjoint, halves));
        if back.is_some() {
            plan.reads_again(injection, Form::Numbers);
        }
        let z = if back.is_some() { plan.kept(bytes) } else { plan.lasting(bytes) };
        let from = (0..steps).map(|index| if index == 0 { z } else { plan.kept(bytes) }).collect();
        let (y, y_halves) = plan.writes_numbers(y);
        let form = if halves { Form::Halves } else { Form::Numbers };
        Self {
            solver: Solver::new(plan, Moment::Forward, each, &settings.solver, &settings.stop, form),
            injection: plan.reads(injection, Form::Numbers),
            iterate: plan.scratch(bytes),
            iterate_halves: halves.then(|| plan.scratch(bytes / 2)),
            solved: Solved { progress: plan.lasting(samples * size_of::<Progress>()), z, each },
            y,
            y_halves,
            steps: Steps { damping: damping as f32, from },
            back,
            cell,
        }
    }

    /// The fixed point, with its image in the place of the output.
    fn solve(&self, run: &PassContext<'_>) -> Result<()> {
        let (cell, u) = (self.cell.as_ref(), run.at(self.injection));
        let z = State { numbers: run.at(self.iterate), halves: run.maybe(self.iterate_halves) };
        cell.prepare(run)?;
        cell.start(run, u, z)?;
        if let Some(hook) = run.hook {
            hook.before(run, z, self.solved.each)?;
        }
        let ends = Ends { z, best: run.at(self.solved.z), image: run.at(self.y), progress: run.at(self.solved.progress) };
        self.solver.run(run, ends, |cohort, out| cell.step(run, cohort, z, u, out))?;
        run.hook.map_or(Ok(()), |hook| hook.after(run, self.solved))
    }

    /// The steps after the fixed point, the last of which gives the output. One without damping is the fixed point's image.
    fn go_on(&self, run: &PassContext<'_>) -> Result<()> {
        let Steps { damping, from } = &self.steps;
        if from.len() == 1 && *damping == 0.0 {
            return Ok(());
        }
        let (u, each) = (run.at(self.injection), self.solved.each);
        for (index, &slot) in from.iter().enumerate() {
            let state = self.state(run, slot, self.iterate_halves)?;
            let to = run.at::<f32>(from.get(index + 1).copied().unwrap_or(self.y));
            let image = if *damping == 0.0 { to } else { run.at(self.iterate) };
            self.cell.step(run, run.cohort, state, u, image)?;
            if *damping != 0.0 {
                run.combine([*damping, 1.0 - damping], [state.numbers, image], to, each)?;
            }
        }
        Ok(())
    }

    /// States in the forms that the cell reads, the second one made again.
    fn state(&self, run: &PassContext<'_>, numbers: Slot, halves: Option<Slot>) -> Result<State> {
        let state = State { numbers: run.at(numbers), halves: run.maybe(halves) };
        if halves.is_some() {
            run.to_halves(state.numbers, state.halves, 1.0, self.solved.each)?;
        }
        Ok(state)
    }

    /// From the gradient of the state behind a step to that of the state it starts from, if there is one before it; the gradient of what is injected goes to `du`.
    fn step_back(
        &self,
        run: &PassContext<'_>,
        back: &Back,
        index: usize,
        v: Pointer<f32>,
        du: Pointer<f32>,
    ) -> Result<Pointer<f32>> {
        let (each, damping) = (self.solved.each, self.steps.damping);
        let z = self.state(run, self.steps.from[index], back.state_halves)?;
        self.cell.linearise(run, z, run.at(self.injection))?;
        let v = back.correction.run(run, self.cell.as_ref(), v)?;
        let Some(Several { states, through, sums }) = &back.several else {
            self.cell.backward(run, z, v, To { dz: Pointer::NULL, du })?;
            return Ok(Pointer::NULL);
        };
        let through = match through {
            Some(slot) => {
                run.combine([1.0 - damping, 0.0], [v, v], run.at(*slot), each)?;
                run.at(*slot)
            }
            None => v,
        };
        let dz = if index == 0 { Pointer::NULL } else { run.at(states[index % 2]) };
        self.cell.backward(run, z, through, To { dz, du })?;
        sums.add(run, index, self.steps.from.len())?;
        if index > 0 && damping != 0.0 {
            run.combine([damping, 1.0], [v, dz], dz, each)?;
        }
        Ok(dz)
    }
}

impl Op for Equilibrium {
    fn forward(&self, run: &PassContext<'_>) -> Result<()> {
        self.solve(run)?;
        self.go_on(run)?;
        match self.y_halves {
            Some(halves) => run.to_halves(run.at(self.y), run.at(halves), 1.0, self.solved.each),
            None => Ok(()),
        }
    }

    fn backward(&self, run: &PassContext<'_>) -> Result<()> {
        let Some(back) = &self.back else { return Ok(()) };
        let (each, sum) = (self.solved.each, run.at::<f32>(back.du));
        let mut v = run.at(back.dy);
        let mut add = back.add;
        for index in (0..self.steps.from.len()).rev() {
            let du = if add { run.maybe(back.du_part) } else { sum };
            v = self.step_back(run, back, index, v, du)?;
            if add {
                run.add(du, sum, each)?;
            }
            add = true;
        }
        Ok(())
    }

    #[cfg(test)]
    fn solved(&self) -> Option<Solved> {
        Some(self.solved)
    }
}

impl Back {
    fn new(plan: &mut Planner<'_>, dy: Slot, injection: ValueId, each: usize, adjoint: &Adjoint, halves: bool) -> Self {
        let bytes = 4 * plan.purpose.size.samples() * each;
        let (steps, damping) = adjoint.differentiated_steps();
        let (du, add) = match plan.target(injection) {
            Some(target) => (target.slot, target.add),
            None => (plan.scratch_back(bytes), false),
        };
        Self {
            dy,
            du,
            add,
            du_part: (add || steps > 1).then(|| plan.scratch_back(bytes)),
            state_halves: halves.then(|| plan.scratch_back(bytes / 2)),
            correction: Correction::new(plan, each, adjoint),
            several: (steps > 1 || damping != 0.0).then(|| Several {
                states: [bytes; 2].map(|bytes| plan.scratch_back(bytes)),
                through: (damping != 0.0).then(|| plan.scratch_back(bytes)),
                sums: Sums::new(plan, steps),
            }),
        }
    }
}

fn build(plan: &mut Planner<'_>, cell: &graph::Cell, y: ValueId, differentiated: Differentiated) -> Box<dyn CellOp> {
    match cell {
        graph::Cell::Dense { weight, activation } => {
            Box::new(dense::Dense::new(plan, plan.channels(y), *weight, *activation, differentiated))
        }
        graph::Cell::Residual { .. } => {
            Box::new(residual::Residual::new(plan, cell, plan.plane(y), plan.channels(y), differentiated))
        }
        graph::Cell::Transformer { layers, norm } => Box::new(transformer::Sequences::new(plan, layers, *norm, differentiated)),
    }
}

/// Numbers of a state of one sample.
fn each(plan: &Planner<'_>, y: ValueId) -> usize {
    let [height, width] = plan.plane(y);
    height * width * plan.channels(y)
}
