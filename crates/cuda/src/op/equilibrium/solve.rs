//! Fixed points by Anderson acceleration or by damped iteration, each sample for itself.
//!
//! All steps that are allowed are launched; samples that are finished leave the cohort on the device, and launches for an empty cohort end at once. So nothing has to be waited for,
//! and a solve can be recorded. Where nothing is being recorded, a long solve asks now and then whether anybody is left.
use fedeq_core::Result;
use fedeq_equilibrium::{Anderson, Ridge, Solver as Settings, Stop};
use half::f16;

use super::State;
use super::product::Moment;
use crate::arena::Slot;
use crate::device::{Launch, Pointer, argument, launch};
use crate::op::{Cohort, PassContext};
use crate::plan::{Form, Planner};

/// The largest memory of the kernels, and of those that are faster with less.
pub(super) const MOST: usize = 8;
const LITTLE: usize = 5;
/// Inner products of a sample in a step.
const SUMS: usize = 2 * MOST + 2;
/// Steps between two looks at who is left.
const LOOK_EVERY: usize = 8;

/// How the solve of one sample went. Kernels know it by the same fields.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Progress {
    /// The norm of the residual at the best iterate.
    pub(crate) smallest: f64,
    /// The same, relative to the norm of the iterate's image.
    pub(crate) relative: f32,
    /// Evaluations of the map.
    pub(crate) steps: i32,
    best: i32,
    /// 1 converged, 2 ended by the step limit, 3 not finite.
    pub(crate) outcome: i32,
    usable: i32,
    task: i16,
    saved: i16,
}

impl Progress {
    /// From its bytes, four by four.
    #[cfg(test)]
    pub(crate) fn of_words(words: &[f32; 8]) -> Self {
        let bits = words.map(f32::to_bits);
        let [relative, steps, best, outcome, usable] = [2, 3, 4, 5, 6].map(|at: usize| bits[at] as i32);
        let smallest = f64::from_bits(u64::from(bits[0]) | u64::from(bits[1]) << 32);
        let [task, saved] = [bits[7], bits[7] >> 16].map(|half| half as i16);
        Self { smallest, relative: f32::from_bits(relative as u32), steps, best, outcome, usable, task, saved }
    }
}

/// A solve's memory and rules.
#[derive(Clone, Copy, Debug)]
pub(super) struct Solver {
    /// Numbers of a state.
    each: usize,
    memory: usize,
    mixing: f32,
    rules: Rules,
    blocks: usize,
    /// In which residuals are kept.
    form: Form,
    residuals: Slot,
    plain: Slot,
    partial: Slot,
    gram: Slot,
    gamma: Slot,
    lists: [List; 2],
}

/// Where a solve starts and where it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ends {
    /// The start, and then the iterates.
    pub(super) z: State,
    /// The best iterate, and its image.
    pub(super) best: Pointer<f32>,
    pub(super) image: Pointer<f32>,
    pub(super) progress: Pointer<Progress>,
}

/// Memory for a list of those who continue.
#[derive(Clone, Copy, Debug)]
pub(super) struct List {
    spans: Slot,
    rows: Slot,
}

impl List {
    pub(super) fn new(plan: &mut Planner<'_>, moment: Moment) -> Self {
        let size = plan.purpose.size;
        Self { spans: moment.scratch(plan, 8 * size.lanes), rows: moment.scratch(plan, 4 * size.samples()) }
    }

    pub(super) fn cohort(&self, run: &PassContext<'_>) -> Cohort {
        Cohort { spans: run.at(self.spans), rows: run.at(self.rows) }
    }
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Rules {
    relative: f64,
    absolute: f64,
    ridge: f64,
    max_steps: i32,
    ridge_is_relative: i32,
    delay: i32,
    /// 0 for never.
    restart: i32,
}

argument!(Rules { relative, absolute, ridge, max_steps, ridge_is_relative, delay, restart });

#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Solve {
    z: Pointer<f32>,
    z16: Pointer<f16>,
    /// 32 bits, or 16 for the kernels called so.
    residuals: Pointer<u8>,
    plain: Pointer<f32>,
    best_z: Pointer<f32>,
    best_image: Pointer<f32>,
    partial: Pointer<f32>,
    gram: Pointer<f64>,
    gamma: Pointer<f32>,
    progress: Pointer<Progress>,
    cohort: Cohort,
    n: i64,
    samples: i32,
    memory: i32,
    mixing: f32,
}

argument!(Solve {
    z,
    z16,
    residuals,
    plain,
    best_z,
    best_image,
    partial,
    gram,
    gamma,
    progress,
    cohort,
    n,
    samples,
    memory,
    mixing
});

/// Past iterates that so many steps can use: the last step makes no further one, and the first has no past.
pub(super) fn usable_memory(memory: usize, stop: &Stop) -> usize {
    memory.min(stop.max_steps.saturating_sub(1).max(1))
}

/// Blocks that share the numbers of a sample. It depends on nothing else: what a sample gets must not depend on who else is there.
pub(super) fn blocks_for(each: usize) -> usize {
    each.div_ceil(8192).clamp(1, 16)
}

impl Solver {
    /// Plans a solve for states of so many numbers, a multiple of 4, with residuals kept in the given form. They say how steps are weighed, and need no more than 16 bits where
    /// the map itself multiplies these; residuals of gradients, which may be small beyond what 16 bits can tell, are kept in 32.
    pub(super) fn new(plan: &mut Planner<'_>, moment: Moment, each: usize, settings: &Settings, stop: &Stop, form: Form) -> Self {
        let plain_steps = |damping: f64| Anderson { memory: 0, mixing: 1.0 - damping, ..Anderson::default() };
        let Anderson { memory, ridge, mixing, delay, restart } = match settings {
            Settings::FixedPoint { damping } => plain_steps(*damping),
            Settings::Anderson(anderson) => anderson.clone(),
            Settings::Broyden { .. } => unreachable!("a network that was checked"),
        };
        let (memory, samples, blocks) = (usable_memory(memory, stop), plan.purpose.size.samples(), blocks_for(each));
        let (ridge, ridge_is_relative) = match ridge {
            Ridge::Relative(ridge) => (ridge, 1),
            Ridge::Absolute(ridge) => (ridge, 0),
        };
        let mut scratch = |bytes: usize| moment.scratch(plan, bytes);
        let ring = (memory + 1) * samples * each;
        let residuals = scratch(ring * if form == Form::Halves { size_of::<f16>() } else { size_of::<f32>() });
        let plain = scratch(ring * size_of::<f32>());
        let partial = scratch(4 * samples * blocks * SUMS);
        let gram = scratch(8 * samples * memory * memory);
        let gamma = scratch(4 * samples * MOST);
        let rules = Rules {
            relative: stop.relative,
            absolute: stop.absolute,
            ridge,
            max_steps: stop.max_steps as i32,
            ridge_is_relative,
            delay: delay.min(stop.max_steps) as i32,
            // Beyond the last step it does not matter when.
            restart: restart.map_or(0, |period| period.min(stop.max_steps)) as i32,
        };
        let lists = [(); 2].map(|()| List::new(plan, moment));
        Self { each, memory, mixing: mixing as f32, rules, blocks, form, residuals, plain, partial, gram, gamma, lists }
    }

    /// Finds the fixed points of `map`, which is asked to write the images of the iterates of a cohort.
    pub(super) fn run(&self, run: &PassContext<'_>, ends: Ends, map: impl Fn(Cohort, Pointer<f32>) -> Result<()>) -> Result<()> {
        let (samples, most) = (run.size.samples(), self.rules.max_steps as usize);
        run.device.fill_zero(ends.progress, samples)?;
        for step in 0..most {
            let now = if step == 0 { run.cohort } else { self.lists[step % 2].cohort(run) };
            let slot = step % (self.memory + 1) * samples * self.each;
            map(now, run.at::<f32>(self.plain).add(slot))?;
            let next = self.lists[(step + 1) % 2].cohort(run);
            self.advance(run, self.call(run, ends, now), step, next)?;
            if none_is_left(run, next, step + 1, most)? {
                break;
            }
        }
        Ok(())
    }

    /// Judges the samples and makes the next iterates of those that continue.
    fn advance(&self, run: &PassContext<'_>, call: Solve, step: usize, next: Cohort) -> Result<()> {
        let (grid, step) = (run.by_sample(self.blocks), step as i32);
        let [look, decide, mix] = match (self.form, self.memory) {
            (Form::Numbers, ..=LITTLE) => ["anderson_look_5", "anderson_decide_5", "anderson_mix_5"],
            (Form::Halves, ..=LITTLE) => ["anderson_look_f16_5", "anderson_decide_5", "anderson_mix_f16_5"],
            (Form::Numbers, _) => ["anderson_look", "anderson_decide", "anderson_mix"],
            (Form::Halves, _) => ["anderson_look_f16", "anderson_decide", "anderson_mix_f16"],
        };
        launch!(run.device, Launch::new(look, grid, 256); call, step)?;
        let decide = Launch::new(decide, [run.size.lanes, 1, 1], 128);
        launch!(run.device, decide; call, self.rules, step, self.blocks as i32, next.spans, next.rows)?;
        launch!(run.device, Launch::new(mix, grid, 256); call, step)
    }

    fn call(&self, run: &PassContext<'_>, ends: Ends, cohort: Cohort) -> Solve {
        Solve {
            z: ends.z.numbers,
            z16: ends.z.halves,
            residuals: run.at(self.residuals),
            plain: run.at(self.plain),
            best_z: ends.best,
            best_image: ends.image,
            partial: run.at(self.partial),
            gram: run.at(self.gram),
            gamma: run.at(self.gamma),
            progress: ends.progress,
            cohort,
            n: self.each as i64,
            samples: run.size.samples() as i32,
            memory: self.memory as i32,
            mixing: self.mixing,
        }
    }
}

/// Whether a loop may end after so many of its steps, since all samples are finished. It only looks now and then, where that may spare many steps, and never while recording.
pub(super) fn none_is_left(run: &PassContext<'_>, cohort: Cohort, done: usize, most: usize) -> Result<bool> {
    if !done.is_multiple_of(LOOK_EVERY) || done + LOOK_EVERY > most || run.device.is_recording()? {
        return Ok(false);
    }
    let mut spans = vec![[0_i32; 2]; run.size.lanes];
    run.device.read_now(cohort.spans, &mut spans)?;
    Ok(spans.iter().all(|&[_, count]| count == 0))
}
