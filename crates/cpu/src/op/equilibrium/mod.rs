//! The fixed point of a cell, or a cell applied a fixed number of times, and gradients through it.
mod dense;
mod repeat;
mod residual;
mod transformer;

use std::fmt::{self, Debug};

use fedeq_equilibrium::{Equilibrium as Settings, HostStates, Map, SolveReport, SolveWorkspace, diagnose};
use fedeq_kernels::InstructionSet;
use fedeq_kernels::transformer::Blocked;
use fedeq_models::graph::{self, ValueId};

use super::{Op, PassContext, Scratch};
use crate::memory::{Buffer, Numbers, Target, add};
use crate::parameters::{Gradients, Values};
use crate::plan::Planner;
use crate::pool::Pool;

pub(super) use repeat::Repeat;

/// What a cell is run under.
#[derive(Clone, Copy, Debug)]
pub(super) struct CellContext<'a> {
    pub(super) set: InstructionSet,
    pub(super) parameters: Values<'a>,
    /// Where attention may not go.
    pub(super) blocked: Option<&'a Blocked>,
    pub(super) dropout: Option<u64>,
}

/// `g(z; u)` on a batch of states, with its gradients by hand.
///
/// A pass goes: [`prepare`](CellOp::prepare), any number of [`steps`](CellOp::step), maybe for [fewer samples](CellOp::keep) from some point on;
/// [`linearise`](CellOp::linearise) for all samples; [`turn`](CellOp::turn); then products and gradients.
pub(super) trait CellOp: Debug + Send {
    /// A pass begins: what cells share is taken from there.
    fn begin(&mut self, _: &mut Scratch) {}

    /// It is over: what cells share goes back.
    fn end(&mut self, _: &mut Scratch) {}

    /// Takes memory for so many [linearisations](CellOp::linearise) of so many numbers each, and for the gradients.
    fn borrow(&mut self, _steps: usize, _numbers: usize, _: &mut Pool) {}

    /// Gives that memory back.
    fn give_back(&mut self, _: &mut Pool) {}

    /// Takes the parameters as they are now.
    fn prepare(&mut self, context: &CellContext<'_>);

    /// Where a solve starts by itself.
    fn start(&self, u: &[f32], z: &mut [f32]);

    /// `out = g(z; u)`
    fn step(&mut self, context: &CellContext<'_>, z: &[f32], u: &[f32], out: &mut [f32]);

    /// Further steps are for these samples only, of those at present.
    fn keep(&mut self, _: &CellContext<'_>, _: &[usize]) {}

    /// Keeps what the gradients of step number `index`, at `z`, need.
    fn linearise(&mut self, context: &CellContext<'_>, index: usize, z: &[f32], u: &[f32]);

    /// There will be no further steps.
    fn turn(&mut self, _: &CellContext<'_>) {}

    /// `out = (dg/dz)^T v` at step number `index`.
    fn pull_back(&mut self, context: &CellContext<'_>, index: usize, v: &[f32], out: &mut [f32]);

    /// The gradients of step number `index`, at `z`, given that of its result: of the state if wanted, of what is injected, and of the
    /// parameters, which are added to those of the steps with higher numbers if `add` says so.
    fn backward(&mut self, context: &CellContext<'_>, at: At<'_>, to: To<'_>, gradients: &mut Gradients<'_>);
}

/// A step whose gradients are wanted.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'a> {
    pub(super) index: usize,
    pub(super) z: &'a [f32],
    /// The gradient of the step's result.
    pub(super) v: &'a [f32],
    /// Whether other steps have written gradients of the parameters already.
    pub(super) add: bool,
}

/// Where the gradients of a step go.
#[derive(Debug)]
pub(super) struct To<'a> {
    pub(super) dz: Option<&'a mut [f32]>,
    pub(super) du: &'a mut [f32],
}

pub(super) struct Equilibrium {
    settings: Settings,
    cell: Box<dyn CellOp>,
    batch: usize,
    width: usize,
    /// When it is computed.
    time: usize,
    injection: Buffer,
    y: Buffer,
    back: Option<Back>,
    /// The fixed point.
    z: HostStates,
    report: SolveReport,
    /// How the last adjoint was found; its memory serves the next one.
    adjoint_report: SolveReport,
    /// The states at which further steps are differentiated, after the fixed point.
    states: Vec<Vec<f32>>,
    /// What a further step but the last adds to the gradient of what is injected.
    du: Vec<f32>,
}

#[derive(Clone, Copy, Debug)]
struct Back {
    dy: Buffer,
    du: Target,
}

impl Debug for Equilibrium {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Equilibrium").field("settings", &self.settings).field("cell", &self.cell).finish_non_exhaustive()
    }
}

impl Equilibrium {
    pub(super) fn new(plan: &mut Planner<'_>, injection: ValueId, cell: &graph::Cell, settings: &Settings, y: ValueId) -> Self {
        let back = Back::new(plan, injection, y);
        Self {
            settings: settings.clone(),
            cell: build(plan, cell, y, back.is_some()),
            batch: plan.batch,
            width: plan.len(y) / plan.batch.max(1),
            time: plan.time(),
            injection: plan.forward(injection),
            y: plan.forward(y),
            back,
            z: HostStates::default(),
            report: SolveReport::default(),
            adjoint_report: SolveReport::default(),
            states: Vec::new(),
            du: Vec::new(),
        }
    }

    fn len(&self) -> usize {
        self.batch * self.width
    }

    /// States of the batch, in memory of the pool.
    fn states(&self, pool: &mut Pool) -> HostStates {
        HostStates::new(pool.take(self.len()), self.batch, self.width)
    }

    /// Finds the fixed point; gives what the cell makes of it, in memory of the pool.
    fn solve(
        &mut self,
        context: &CellContext<'_>,
        numbers: &mut Numbers<'_>,
        workspace: &mut SolveWorkspace<HostStates>,
        start: Start<'_>,
    ) -> HostStates {
        // Solvers need the memory of many states, and the way back as much for other things: they share it.
        self.settings.lend_for_solve(self.len(), workspace, &mut |len| numbers.pool.take(len));
        workspace.reuse(std::mem::take(&mut self.report));
        let (mut image, mut kept) = (self.states(numbers.pool), numbers.pool.take(self.len()));
        if self.z.rows() == 0 {
            self.z = self.states(numbers.pool);
        }
        let u = numbers.read(self.injection);
        self.cell.prepare(context);
        self.cell.start(u, self.z.values_mut());
        match start {
            Start::Model => {}
            Start::At(state) => self.z.values_mut().copy_from_slice(state.values()),
            Start::Recalled(memory, samples) => memory.recall(samples, &mut self.z),
        }
        let mut map = CellMap { cell: self.cell.as_mut(), context, u, kept: &mut kept, width: self.width, shrunk: false };
        self.report = self.settings.solve_into(&mut map, &mut self.z, &mut image, workspace);
        workspace.release(|memory| numbers.pool.give(memory));
        numbers.pool.give(kept);
        image
    }

    /// The steps after the fixed point that are differentiated, leaving the last state in `y`; the first of them is there already.
    fn go_on(&mut self, context: &CellContext<'_>, u: &[f32], image: &[f32], y: &mut [f32]) {
        let (steps, damping) = self.settings.adjoint.differentiated_steps();
        if self.back.is_none() || (steps, damping) == (1, 0.0) {
            return y.copy_from_slice(image);
        }
        // All samples again.
        self.cell.prepare(context);
        y.copy_from_slice(self.z.values());
        self.states.resize_with(steps, Vec::new);
        for state in &mut self.states {
            state.clear();
            state.extend_from_slice(y);
            self.cell.step(context, state, u, y);
            let (old, new) = (damping as f32, (1.0 - damping) as f32);
            y.iter_mut().zip(&*state).for_each(|(y, z)| *y = new * *y + old * z);
        }
    }
}

impl Back {
    /// The way back of a layer with a cell, if gradients flow through it.
    fn new(plan: &mut Planner<'_>, injection: ValueId, y: ValueId) -> Option<Self> {
        let (dy, len) = (plan.incoming(y)?, plan.len(y));
        let du = plan.target(injection).unwrap_or_else(|| Target { buffer: plan.temporary(len), added_by: None });
        plan.backward(injection);
        Some(Self { dy, du })
    }
}

fn build(plan: &mut Planner<'_>, cell: &graph::Cell, y: ValueId, differentiated: bool) -> Box<dyn CellOp> {
    match cell {
        graph::Cell::Dense { weight, activation } => {
            Box::new(dense::DenseCell::new(plan, *weight, *activation, y, differentiated))
        }
        graph::Cell::Residual { .. } => Box::new(residual::Residual::new(plan, cell, y, differentiated)),
        graph::Cell::Transformer { layers, norm } => {
            Box::new(transformer::Sequences::new(plan, layers, *norm, y, differentiated))
        }
    }
}

/// Where a solve starts.
#[derive(Clone, Copy, Debug, Default)]
pub enum Start<'a> {
    /// From the network's own choice.
    #[default]
    Model,
    /// From these states, one a sample.
    At(&'a HostStates),
    /// From the remembered states of these samples, and from the network's own choice for those not remembered.
    Recalled(&'a fedeq_equilibrium::WarmMemory, &'a [u64]),
}

/// A solve that has ended.
#[derive(Clone, Copy, Debug)]
pub struct Solved<'a> {
    /// The fixed point.
    pub z: &'a HostStates,
    /// How the solve went.
    pub report: &'a SolveReport,
}

fn context<'a>(run: &PassContext<'a>) -> CellContext<'a> {
    CellContext { set: run.set, parameters: run.parameters, blocked: run.symbols.blocked, dropout: run.dropout }
}

/// Takes what passes a damped step by out of `v`; the rest goes through it.
fn take_share(share: f32, v: &mut [f32], past: &mut [f32]) {
    past.iter_mut().zip(&*v).for_each(|(past, v)| *past = share * v);
    v.iter_mut().for_each(|v| *v *= 1.0 - share);
}

impl Op for Equilibrium {
    fn forward(&mut self, run: &mut PassContext<'_>) {
        let context = context(run);
        run.numbers.release_idle(self.time);
        self.cell.begin(run.scratch);
        let image = self.solve(&context, &mut run.numbers, &mut run.scratch.solver, run.start);
        run.numbers.write(self.y, |numbers, y| self.go_on(&context, numbers.read(self.injection), image.values(), y));
        run.numbers.pool.give(image.into_values());
        self.cell.end(run.scratch);
    }

    fn backward(&mut self, run: &mut PassContext<'_>) {
        let Some(Back { dy, du }) = self.back else { return };
        let context = context(run);
        let (steps, damping) = self.settings.adjoint.differentiated_steps();
        let (len, pool) = (self.len(), &mut *run.numbers.pool);
        let (mut gradient, further) = (self.states(pool), if (steps, damping) == (1, 0.0) { 0 } else { len });
        let [mut dz, mut past] = [(); 2].map(|()| pool.take(further));
        let Self { settings, cell, z, states, du: part, adjoint_report, .. } = self;
        cell.begin(run.scratch);
        cell.borrow(steps, len, pool);
        let at = |index: usize| if further == 0 { z.values() } else { &states[index][..] };
        cell.prepare(&context);
        for index in 0..steps {
            cell.linearise(&context, index, at(index), run.numbers.read(self.injection));
        }
        cell.turn(&context);
        gradient.values_mut().copy_from_slice(run.numbers.read(dy));
        if settings.adjoint.solves_a_system() {
            let (mut transposed, workspace) = (Transposed { cell: cell.as_mut(), context: &context }, &mut run.scratch.solver);
            settings.lend_for_adjoint(len, workspace, &mut |len| run.numbers.pool.take(len));
            workspace.reuse(std::mem::take(adjoint_report));
            *adjoint_report = settings.adjoint.correct(&mut transposed, &mut gradient, workspace).unwrap_or_default();
            workspace.release(|memory| run.numbers.pool.give(memory));
        }
        let gradients = &mut run.gradients;
        run.numbers.write_gradient(du, |_, du| {
            for index in (0..steps).rev() {
                let last = index + 1 == steps;
                let (v, old) = (gradient.values_mut(), damping as f32);
                if damping != 0.0 {
                    take_share(old, v, &mut past);
                }
                let to_du = if last { &mut *du } else { fit(part, du.len()) };
                let to = To { dz: (index > 0).then_some(&mut dz[..]), du: to_du };
                cell.backward(&context, At { index, z: at(index), v, add: !last }, to, gradients);
                if !last {
                    add(du, part);
                }
                if index > 0 {
                    v.copy_from_slice(&dz);
                    if damping != 0.0 {
                        add(v, &past);
                    }
                }
            }
        });
        cell.give_back(run.numbers.pool);
        cell.end(run.scratch);
        [gradient.into_values(), dz, past].into_iter().for_each(|memory| run.numbers.pool.give(memory));
    }

    fn release(&mut self, pool: &mut Pool) {
        pool.give(std::mem::take(&mut self.z).into_values());
    }

    fn solved(&self) -> Option<Solved<'_>> {
        Some(Solved { z: &self.z, report: &self.report })
    }

    fn spectral_radius(&mut self, run: &mut PassContext<'_>, probe: HostStates, products: usize) -> Option<Vec<f64>> {
        let context = context(run);
        self.cell.begin(run.scratch);
        self.cell.borrow(1, self.len(), run.numbers.pool);
        self.cell.prepare(&context);
        self.cell.linearise(&context, 0, self.z.values(), run.numbers.read(self.injection));
        self.cell.turn(&context);
        let mut transposed = Transposed { cell: self.cell.as_mut(), context: &context };
        let radii = diagnose::spectral_radius_of(&mut transposed, probe, products);
        self.cell.give_back(run.numbers.pool);
        self.cell.end(run.scratch);
        Some(radii)
    }
}

/// As many numbers as wanted, in memory that is kept.
pub(super) fn fit(memory: &mut Vec<f32>, len: usize) -> &mut [f32] {
    memory.resize(len, 0.0);
    memory
}

/// `z -> g(z; u)`
struct CellMap<'a> {
    cell: &'a mut dyn CellOp,
    context: &'a CellContext<'a>,
    u: &'a [f32],
    /// What is injected into the samples that are left, once some are gone.
    kept: &'a mut Vec<f32>,
    width: usize,
    shrunk: bool,
}

impl Map<HostStates> for CellMap<'_> {
    fn apply(&mut self, z: &HostStates, out: &mut HostStates) {
        let u = if self.shrunk { self.kept.as_slice() } else { self.u };
        self.cell.step(self.context, z.values(), u, out.values_mut());
    }

    fn keep(&mut self, rows: &[usize]) -> bool {
        if !self.shrunk {
            self.kept.clear();
            self.kept.extend_from_slice(self.u);
            self.shrunk = true;
        }
        // Rows only move towards the front.
        for (to, &from) in rows.iter().enumerate() {
            self.kept.copy_within(from * self.width..(from + 1) * self.width, to * self.width);
        }
        self.kept.truncate(rows.len() * self.width);
        self.cell.keep(self.context, rows);
        true
    }
}

/// `v -> (dg/dz)^T v`
struct Transposed<'a> {
    cell: &'a mut dyn CellOp,
    context: &'a CellContext<'a>,
}

impl Map<HostStates> for Transposed<'_> {
    fn apply(&mut self, v: &HostStates, out: &mut HostStates) {
        self.cell.pull_back(self.context, 0, v.values(), out.values_mut());
    }
}
