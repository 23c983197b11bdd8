//! The linear system `(I - J^T) u = v` of an implicit gradient, each sample for itself.
use fedeq_core::Result;
use fedeq_equilibrium::{Adjoint, LinearSolver, Solver as Settings, Stop};
use half::f16;

use super::product::Moment;
use super::solve::{Ends, List, Progress, Solver, blocks_for, none_is_left};
use super::{CellOp, State};
use crate::arena::Slot;
use crate::device::{Launch, Pointer, argument, launch};
use crate::op::{Cohort, PassContext};
use crate::plan::{Form, Planner};

/// The largest number of directions that kernels keep.
pub(super) const MOST: usize = 24;
/// Bytes of a sample's least-squares problem: its triangle, rotations, right-hand side, two norms and four small numbers.
const SPACE: usize = 8 * (MOST * MOST + 2 * MOST + MOST + 1 + 2) + 16;

/// How the gradient that arrives at a fixed point is made the one that continues from it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Correction {
    /// It is the same.
    None,
    Gmres(Gmres),
    Iteration(Iteration),
}

impl Correction {
    pub(super) fn new(plan: &mut Planner<'_>, each: usize, adjoint: &Adjoint) -> Self {
        let Adjoint::Implicit { solver, stop } = adjoint else { return Self::None };
        match solver {
            LinearSolver::Gmres { memory } => Self::Gmres(Gmres::new(plan, each, *memory, stop)),
            LinearSolver::Anderson { memory } => Self::Iteration(Iteration::new(plan, each, &Settings::anderson(*memory), stop)),
            LinearSolver::Neumann => Self::Iteration(Iteration::new(plan, each, &Settings::fixed_point(), stop)),
            LinearSolver::Broyden { .. } => unreachable!("a network that was checked"),
        }
    }

    /// Where `u` is, given `v`; the cell has been linearised.
    pub(super) fn run(&self, run: &PassContext<'_>, cell: &dyn CellOp, v: Pointer<f32>) -> Result<Pointer<f32>> {
        match self {
            Self::None => Ok(v),
            Self::Gmres(gmres) => gmres.run(run, cell, v),
            Self::Iteration(iteration) => iteration.run(run, cell, v),
        }
    }
}

/// The fixed point of `u -> v + J^T u`, from `u = v`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Iteration {
    each: usize,
    solver: Solver,
    iterate: Slot,
    best: Slot,
    image: Slot,
    progress: Slot,
}

impl Iteration {
    fn new(plan: &mut Planner<'_>, each: usize, settings: &Settings, stop: &Stop) -> Self {
        let samples = plan.purpose.size.samples();
        let solver = Solver::new(plan, Moment::Back, each, settings, stop, Form::Numbers);
        let [iterate, best, image] = [4 * samples * each; 3].map(|bytes| plan.scratch_back(bytes));
        Self { each, solver, iterate, best, image, progress: plan.scratch_back(samples * size_of::<Progress>()) }
    }

    fn run(&self, run: &PassContext<'_>, cell: &dyn CellOp, v: Pointer<f32>) -> Result<Pointer<f32>> {
        let z = State { numbers: run.at(self.iterate), halves: Pointer::NULL };
        run.device.copy(v, z.numbers, run.size.samples() * self.each)?;
        let ends = Ends { z, best: run.at(self.best), image: run.at(self.image), progress: run.at(self.progress) };
        self.solver.run(run, ends, |cohort, out| {
            cell.pull_back(run, cohort, z.numbers, out)?;
            run.of(cohort).add(v, out, self.each)
        })?;
        Ok(ends.image)
    }
}

/// GMRES: the smallest residual for the products spent. It keeps some directions, then starts again from what it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gmres {
    each: usize,
    memory: usize,
    rules: Rules,
    blocks: usize,
    basis: Slot,
    image: Slot,
    through: Slot,
    u: Slot,
    partial: Slot,
    weights: Slot,
    spaces: Slot,
    lists: [List; 3],
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Rules {
    relative: f64,
    absolute: f64,
    max_steps: i32,
}

argument!(Rules { relative, absolute, max_steps });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Call {
    basis: Pointer<f32>,
    newest16: Pointer<f16>,
    image: Pointer<f32>,
    u: Pointer<f32>,
    b: Pointer<f32>,
    partial: Pointer<f32>,
    weights: Pointer<f32>,
    spaces: Pointer<u8>,
    cohort: Cohort,
    n: i64,
    samples: i32,
    memory: i32,
}

argument!(Call { basis, newest16, image, u, b, partial, weights, spaces, cohort, n, samples, memory });

impl Gmres {
    fn new(plan: &mut Planner<'_>, each: usize, memory: usize, stop: &Stop) -> Self {
        let (memory, samples, blocks) = (memory.min(stop.max_steps), plan.purpose.size.samples(), blocks_for(each));
        let states = |count: usize| 4 * count * samples * each;
        Self {
            each,
            memory,
            rules: Rules { relative: stop.relative, absolute: stop.absolute, max_steps: stop.max_steps as i32 },
            blocks,
            basis: plan.scratch_back(states(memory)),
            image: plan.scratch_back(states(1)),
            through: plan.scratch_back(states(1)),
            u: plan.scratch_back(states(1)),
            partial: plan.scratch_back(4 * 3 * samples * blocks * MOST),
            weights: plan.scratch_back(4 * samples * MOST),
            spaces: plan.scratch_back(samples * SPACE),
            lists: [(); 3].map(|()| List::new(plan, Moment::Back)),
        }
    }

    fn run(&self, run: &PassContext<'_>, cell: &dyn CellOp, v: Pointer<f32>) -> Result<Pointer<f32>> {
        let (u, through) = (run.at::<f32>(self.u), run.at::<f32>(self.through));
        let lists = self.lists.map(|list| list.cohort(run));
        let most = self.rules.max_steps as usize;
        let mut began = run.cohort;
        // Of the three lists, those that do not say who began: none does at first.
        let mut free = [0, 1];
        let mut done = 0;
        while done < most {
            let cycle = RestartCycle { gmres: self, run, v, began, lists: free.map(|index| lists[index]), first: done };
            let (steps, now, finished) = cycle.run(cell)?;
            done += steps;
            let now = free[now];
            began = lists[now];
            if finished || done == most {
                break;
            }
            cell.pull_back(run, began, u, through)?;
            free = [(now + 1) % 3, (now + 2) % 3];
        }
        Ok(u)
    }

    fn call(&self, run: &PassContext<'_>, b: Pointer<f32>, cohort: Cohort) -> Call {
        Call {
            basis: run.at(self.basis),
            newest16: Pointer::NULL,
            image: run.at(self.image),
            u: run.at(self.u),
            b,
            partial: run.at(self.partial),
            weights: run.at(self.weights),
            spaces: run.at(self.spaces),
            cohort,
            n: self.each as i64,
            samples: run.size.samples() as i32,
            memory: self.memory as i32,
        }
    }
}

/// The steps between two restarts.
#[derive(Clone, Copy)]
struct RestartCycle<'a> {
    gmres: &'a Gmres,
    run: &'a PassContext<'a>,
    v: Pointer<f32>,
    began: Cohort,
    /// Two that alternate: who continues.
    lists: [Cohort; 2],
    /// How many steps came before.
    first: usize,
}

impl RestartCycle<'_> {
    /// How many steps it took, which list says who continues, and whether none is known to.
    fn run(&self, cell: &dyn CellOp) -> Result<(usize, usize, bool)> {
        let Self { gmres, run, first, .. } = *self;
        let most = gmres.rules.max_steps as usize;
        let steps = gmres.memory.min(most - first);
        self.begin()?;
        let (mut now, mut finished) = (0, false);
        for column in 0..steps {
            self.advance(cell, column, now, column + 1 < steps)?;
            now = 1 - now;
            finished = none_is_left(run, self.lists[now], first + column + 1, most)?;
            if finished {
                break;
            }
        }
        self.end()?;
        Ok((steps, now, finished))
    }

    /// The first direction: the residual, which is `v` itself at the start.
    fn begin(&self) -> Result<()> {
        let Self { gmres, run, v, began, lists: [next, _], first } = *self;
        let fresh = first == 0;
        let through = if fresh { Pointer::NULL } else { run.at::<f32>(gmres.through) };
        let call = gmres.call(run, v, began);
        launch!(run.device, self.pass("gmres_begin"); call, through)?;
        let start = self.decision("gmres_start");
        launch!(run.device, start; call, gmres.rules, i32::from(fresh), gmres.blocks as i32, next.spans, next.rows)?;
        launch!(run.device, self.pass("gmres_unit"); gmres.call(run, v, next), 0_i32, 1.0_f32)
    }

    /// One more product, orthogonalised against the directions (twice: once loses orthogonality in 32 bits); it becomes a direction if there is a next step.
    fn advance(&self, cell: &dyn CellOp, column: usize, now: usize, more: bool) -> Result<()> {
        let Self { gmres, run, v, lists, .. } = *self;
        let (who, next) = (lists[now], lists[1 - now]);
        let newest = run.at::<f32>(gmres.basis).add(column * run.size.samples() * gmres.each);
        let (through, call, index) = (run.at::<f32>(gmres.through), gmres.call(run, v, who), column as i32);
        cell.pull_back(run, who, newest, through)?;
        for pass in 0..3_i32 {
            launch!(run.device, self.pass("gmres_project"); call, through, index, pass)?;
        }
        launch!(run.device, self.decision("gmres_decide"); call, gmres.rules, index, gmres.blocks as i32, next.spans, next.rows)?;
        if more {
            launch!(run.device, self.pass("gmres_unit"); gmres.call(run, v, next), index + 1, 1.0_f32)?;
        }
        Ok(())
    }

    /// Adds to the solution what was found, for all who began.
    fn end(&self) -> Result<()> {
        let Self { gmres, run, v, began, .. } = *self;
        let call = gmres.call(run, v, began);
        launch!(run.device, self.decision("gmres_weigh"); call)?;
        launch!(run.device, self.pass("gmres_correct"); call, Pointer::<f16>::NULL, 1.0_f32)
    }

    fn pass(&self, kernel: &'static str) -> Launch {
        Launch::new(kernel, self.run.by_sample(self.gmres.blocks), 256)
    }

    fn decision(&self, kernel: &'static str) -> Launch {
        Launch::new(kernel, [self.run.size.lanes, 1, 1], 128)
    }
}
