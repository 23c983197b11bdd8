//! The one loop: every solver, every map, every kind of states.
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::linear::{Gmres, LinearSolver};
use crate::map::Map;
use crate::solution::{Outcome, Solution, SolveReport};
use crate::solver::{Iteration, Iterations, Solver};
use crate::states::{HostStates, States};
use crate::stop::Stop;

/// What a solve does besides solving.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct SolveOptions {
    /// Samples that have converged are removed from the batch once at most this share of it is still being solved; 0 never removes any.
    /// Leaving them out copies the solver's memory once, so it pays where the map costs more than that: nearly always on a CPU.
    /// Devices that compile or tune for each new shape may prefer 0.
    #[schemars(range(min = 0.0, max = 1.0))]
    pub shrink_below: f64,
    /// Record the residual of every sample after every step.
    pub trace: bool,
}

impl Default for SolveOptions {
    fn default() -> Self {
        Self { shrink_below: 0.75, trace: false }
    }
}

/// Finds `z = f(z)` for every sample of a batch of states, from `z0`.
///
/// Each sample stops on its own; finished samples are frozen. The result holds, sample by sample, the best iterate seen.
///
/// ```
/// use fedeq_equilibrium::{HostStates, SolveOptions, Solver, Stop, solve};
///
/// let mut cosine = |z: &HostStates, out: &mut HostStates| {
///     out.values_mut().iter_mut().zip(z.values()).for_each(|(out, z)| *out = z.cos());
/// };
/// let z0 = HostStates::zeros(3, 4);
/// let solution = solve(&mut cosine, z0, &Solver::anderson(3), &Stop::relative(1e-6, 50), &SolveOptions::default());
/// assert!(solution.report.all_converged());
/// assert!(solution.z.values().iter().all(|z| (z - 0.739_085).abs() < 1e-5));
/// ```
///
/// # Panics
///
/// If the map changes the shape of the state.
pub fn solve<S: States>(
    map: &mut (impl Map<S> + ?Sized),
    z0: S,
    solver: &Solver,
    stop: &Stop,
    options: &SolveOptions,
) -> Solution<S> {
    let (mut z, mut image) = (z0, S::default());
    let report = solve_into(map, &mut z, &mut image, solver, stop, options, &mut SolveWorkspace::default());
    Solution { z, image, report }
}

/// The same in memory that is kept between solves: `z` is the start and becomes the solution, `image` becomes `f(z)`.
///
/// With a workspace and an `image` that have served a solve of this size before, nothing is allocated but the report, and not even that if the
/// workspace has got an earlier one [back](SolveWorkspace::reuse).
///
/// # Panics
///
/// If the map changes the shape of the state.
pub fn solve_into<S: States>(
    map: &mut (impl Map<S> + ?Sized),
    z: &mut S,
    image: &mut S,
    solver: &Solver,
    stop: &Stop,
    options: &SolveOptions,
    workspace: &mut SolveWorkspace<S>,
) -> SolveReport {
    if z.rows() == 0 || z.width() == 0 {
        image.copy_from(z);
        return SolveReport { trace: options.trace.then(Vec::new), ..SolveReport::default() };
    }
    let SolveWorkspace { iterations, residual, run, report, .. } = workspace;
    run.begin(z.rows(), options);
    let iteration = iterations.start(solver, z);
    loop {
        image.reserve_like(z);
        residual.reserve_like(z);
        map.apply(z, image);
        assert_eq!((image.rows(), image.width()), (z.rows(), z.width()), "the map must keep the shape of the state");
        residual.set_residual(image, z, &mut run.norms);
        if run.take_note(stop, options) {
            run.update_best(z, image);
            run.finish(z, image);
            return run.report(std::mem::take(report), options);
        }
        iteration.next(z, image, residual);
        run.update_best(z, image);
        run.freeze(residual, map, iteration, options);
        std::mem::swap(z, residual); // Which is the next iterate by now.
    }
}

/// Memory for solves. One that has served a solve serves the next one of the same size, or of a smaller one, without allocating.
///
/// It holds nothing that a later solve depends on.
pub struct SolveWorkspace<S: States> {
    iterations: Iterations<S>,
    residual: S,
    run: Run<S>,
    /// Memory for the next report.
    pub(crate) report: SolveReport,
    pub(crate) gmres: Gmres<S>,
    pub(crate) right_hand_side: S,
    pub(crate) adjoint_start: S,
    pub(crate) adjoint: S,
}

impl<S: States> Default for SolveWorkspace<S> {
    fn default() -> Self {
        Self {
            iterations: Iterations::default(),
            residual: S::default(),
            run: Run::default(),
            report: SolveReport::default(),
            gmres: Gmres::default(),
            right_hand_side: S::default(),
            adjoint_start: S::default(),
            adjoint: S::default(),
        }
    }
}

impl<S: States> SolveWorkspace<S> {
    /// Takes a report that is not needed any more, for the next solve to write in its memory.
    pub fn reuse(&mut self, report: SolveReport) {
        self.report = report;
    }
}

/// Memory that is used for something else between solves.
impl SolveWorkspace<HostStates> {
    /// Asks `lend` for the memory that a [solve](solve_into) needs for states of so many numbers in all: pieces of so many numbers each, whose values mean nothing.
    pub(crate) fn borrow_for_solve(
        &mut self,
        (solver, stop, options): (&Solver, &Stop, &SolveOptions),
        numbers: usize,
        lend: &mut dyn FnMut(usize) -> Vec<f32>,
    ) {
        self.iterations.borrow_memory(solver, stop, numbers, lend);
        let Run { best, gone, .. } = &mut self.run;
        let states = [&mut self.residual, &mut best.z, &mut best.image, &mut gone.z, &mut gone.image];
        let needed = if options.shrink_below > 0.0 { 5 } else { 3 };
        states.into_iter().take(needed).for_each(|states| borrow(states.memory(), numbers, lend));
    }

    /// The same for the solve of an [implicit gradient](crate::Adjoint::correct).
    pub(crate) fn borrow_for_adjoint(
        &mut self,
        (solver, stop): (&LinearSolver, &Stop),
        numbers: usize,
        lend: &mut dyn FnMut(usize) -> Vec<f32>,
    ) {
        borrow(self.adjoint.memory(), numbers, lend);
        solver.borrow_memory(stop, numbers, self, lend);
    }

    /// Gives back all memory of states, its own too.
    pub fn release(&mut self, mut to: impl FnMut(Vec<f32>)) {
        let mut release = |memory: &mut Vec<f32>| {
            if memory.capacity() > 0 {
                to(std::mem::take(memory));
            }
        };
        let Run { best, gone, .. } = &mut self.run;
        let states = [&mut self.residual, &mut best.z, &mut best.image, &mut gone.z, &mut gone.image];
        states.into_iter().for_each(|states| release(states.memory()));
        [&mut self.right_hand_side, &mut self.adjoint_start, &mut self.adjoint]
            .into_iter()
            .for_each(|states| release(states.memory()));
        self.iterations.memory(&mut release);
        self.gmres.memory(&mut release);
    }
}

/// Borrows memory unless there is enough.
pub(crate) fn borrow(memory: &mut Vec<f32>, numbers: usize, lend: &mut dyn FnMut(usize) -> Vec<f32>) {
    if memory.capacity() < numbers {
        *memory = lend(numbers);
    }
}

/// The state of a solve: which samples are still at work, and the best of each so far.
#[derive(Default)]
struct Run<S> {
    /// Original index of each present row.
    rows: Vec<usize>,
    /// Of all samples, by original index.
    samples: Vec<Sample>,
    /// Of the present rows, at the newest evaluation.
    norms: Vec<(f64, f64)>,
    /// Which of the present rows are better than ever.
    improved: Vec<bool>,
    /// Which of the present rows are finished, and the numbers of those that are not.
    done: Vec<bool>,
    alive: Vec<usize>,
    /// Of the present rows; nothing before the first evaluation.
    best: Best<S>,
    has_best: bool,
    /// Of all samples, once some have left; up to date for those.
    gone: Best<S>,
    has_shrunk: bool,
    can_shrink: bool,
    evaluated_rows: usize,
}

/// The best iterates seen and their images.
#[derive(Default)]
struct Best<S> {
    z: S,
    image: S,
}

#[derive(Clone)]
struct Sample {
    steps: usize,
    /// `||f(z) - z||` at the best iterate.
    smallest: f64,
    /// The same, relative to `||f(z)||`.
    relative: f64,
    outcome: Option<Outcome>,
    trace: Vec<f64>,
}

impl<S: States> Run<S> {
    fn begin(&mut self, count: usize, options: &SolveOptions) {
        let fresh = Sample { steps: 0, smallest: f64::INFINITY, relative: f64::INFINITY, outcome: None, trace: Vec::new() };
        self.rows.clear();
        self.rows.extend(0..count);
        self.samples.clear();
        self.samples.resize(count, fresh);
        (self.has_best, self.has_shrunk, self.can_shrink) = (false, false, options.shrink_below > 0.0);
        self.evaluated_rows = 0;
    }

    /// Takes note of one evaluation; says whether all samples are finished.
    fn take_note(&mut self, stop: &Stop, options: &SolveOptions) -> bool {
        self.evaluated_rows += self.rows.len();
        self.improved.clear();
        for (&row, &(residual, scale)) in self.rows.iter().zip(&self.norms) {
            self.improved.push(self.samples[row].take_note(residual, scale, stop, options.trace));
        }
        self.samples.iter().all(|sample| sample.outcome.is_some())
    }

    /// Keeps the newest iterate and its image where they are the best. They may be exchanged for other memory: whoever comes next has no use
    /// for them.
    fn update_best(&mut self, z: &mut S, image: &mut S) {
        let best = &mut self.best;
        if self.improved.iter().all(|&each| each) {
            std::mem::swap(&mut best.z, z); // The usual case costs no copy.
            std::mem::swap(&mut best.image, image);
        } else {
            if !self.has_best {
                best.z.copy_from(z);
                best.image.copy_from(z);
            }
            if self.improved.contains(&true) {
                best.z.overwrite_rows(&self.improved, z);
                best.image.overwrite_rows(&self.improved, image);
            }
        }
        self.has_best = true;
    }

    /// Holds finished samples at their best, or leaves them out of the work if that pays.
    fn freeze(
        &mut self,
        next: &mut S,
        map: &mut (impl Map<S> + ?Sized),
        iteration: &mut dyn Iteration<S>,
        options: &SolveOptions,
    ) {
        self.done.clear();
        self.done.extend(self.rows.iter().map(|&row| self.samples[row].outcome.is_some()));
        self.alive.clear();
        self.alive.extend((0..self.done.len()).filter(|&row| !self.done[row]));
        if self.alive.len() == self.done.len() {
            return;
        }
        let few = self.alive.len() as f64 <= options.shrink_below * self.done.len() as f64;
        if few && self.can_shrink {
            self.can_shrink = map.keep(&self.alive);
            if self.can_shrink {
                iteration.keep_rows(&self.alive);
                next.keep_rows(&self.alive);
                return self.shrink();
            }
        }
        next.overwrite_rows(&self.done, &self.best.z);
    }

    fn shrink(&mut self) {
        self.save_best();
        self.best.z.keep_rows(&self.alive);
        self.best.image.keep_rows(&self.alive);
        for (to, &from) in self.alive.iter().enumerate() {
            self.rows[to] = self.rows[from];
        }
        self.rows.truncate(self.alive.len());
    }

    /// Writes down the best of the present rows among those of all samples.
    fn save_best(&mut self) {
        if self.has_shrunk {
            self.gone.z.put_rows(&self.rows, &self.best.z);
            self.gone.image.put_rows(&self.rows, &self.best.image);
        } else {
            self.gone.z.copy_from(&self.best.z);
            self.gone.image.copy_from(&self.best.image);
            self.has_shrunk = true;
        }
    }

    /// The best of all samples, in the original order.
    fn finish(&mut self, z: &mut S, image: &mut S) {
        if self.has_shrunk {
            self.save_best();
        }
        let best = if self.has_shrunk { &mut self.gone } else { &mut self.best };
        std::mem::swap(&mut best.z, z);
        std::mem::swap(&mut best.image, image);
    }

    /// How it went, in the memory of an old report.
    fn report(&mut self, old: SolveReport, options: &SolveOptions) -> SolveReport {
        let samples = &mut self.samples;
        let trace = options.trace.then(|| samples.iter_mut().map(|sample| std::mem::take(&mut sample.trace)).collect());
        let outcome = |sample: &Sample| sample.outcome.expect("all are finished");
        SolveReport { trace, ..old.of(samples, |sample| (sample.steps, sample.relative, outcome(sample)), self.evaluated_rows) }
    }
}

impl Sample {
    /// One more evaluation with the given residual norm; says whether it is the best so far.
    fn take_note(&mut self, residual: f64, scale: f64, stop: &Stop, trace: bool) -> bool {
        if self.outcome.is_some() {
            return false;
        }
        self.steps += 1;
        let relative = if residual == 0.0 { 0.0 } else { residual / scale };
        if trace {
            self.trace.push(relative);
        }
        if !(residual.is_finite() && scale.is_finite()) {
            self.outcome = Some(Outcome::NotFinite);
            return false;
        }
        let improved = residual < self.smallest;
        if improved {
            (self.smallest, self.relative) = (residual, relative);
        }
        if stop.is_met(residual, scale) {
            self.outcome = Some(Outcome::Converged);
        } else if self.steps >= stop.max_steps {
            self.outcome = Some(Outcome::StepLimit);
        }
        improved
    }
}
