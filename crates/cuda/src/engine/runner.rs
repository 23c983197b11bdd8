//! A cohort's models, ready to take steps.
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use fedeq_core::{Optimiser, Projection, Result, Trains};
use fedeq_models::Mode;
use fedeq_models::Part;
use fedeq_models::graph::{Cell, Layer};

use super::contrast::{Contrasting, Embeddings, embedding_width};
use super::lanes::{Lanes, Table};
use super::optimiser::{Extras, GradientNorms, OptimiserStep, Rates, moments_of, optimiser_step};
use super::parts::{Parts, Section};
use super::schedule::Schedule;
use super::solves::SolveHooks;
use super::state::Home;
use crate::data::DeviceData;
use crate::device::{Buffer, Launch, Number, Pointer, Repeatable, launch};
use crate::executor::{Executor, Lanes as Weights, Score};
use crate::op::{DropoutKeys, PassContext, PictureChanges, dropout_keys};
use crate::plan::{NetworkPlan, Purpose};
use crate::projection::Projected;

/// Steps that are launched one by one before they are recorded: the first loads kernels, the second shows where the time goes.
const LAUNCHED: usize = 2;
/// Fewer steps than this are not worth recording.
const WORTH_RECORDING: usize = 4;

/// Recorded steps that are kept: those of the phases that train the same.
const RECORDED: usize = 4;

/// A network for a cohort, with the models of its lanes and the tables of their batches. All of it stays where it is, so that a recorded step can be repeated in later rounds.
pub(crate) struct Runner {
    pub(crate) executor: Executor,
    /// `[lanes][stride]`
    parameters: Arc<Buffer<f32>>,
    /// `[lanes][statistics stride]`
    statistics: Arc<Buffer<f32>>,
    /// As parameters, where something is trained.
    gradients: Option<Arc<Buffer<f32>>>,
    /// As parameters, of proximal terms.
    offset: Option<Arc<Buffer<f32>>>,
    /// As parameters, of optimisers that have them.
    moments: Moments,
    /// Where something is trained.
    norms: Option<GradientNorms>,
    /// `[samples][length]` of the loss on embeddings, where there is one.
    losses: Option<Buffer<f64>>,
    /// What that loss compares with in this phase.
    contrasting: Option<Contrasting>,
    tables: Tables,
    pub(crate) hooks: SolveHooks,
    /// Steps that were recorded, the last one first.
    recorded: Vec<(Fingerprint, Repeatable)>,
    /// The shares of forward passes, backward passes and updates in the time of a step.
    pub(crate) shares: [f64; 3],
    /// Bytes of a lane's parameters.
    stride_bytes: u64,
    /// Numbers of a row of embeddings.
    embedding_width: usize,
}

/// Bytes of the memory that runners share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) scratch: u64,
    pub(crate) tables: u64,
}

impl Wanted {
    /// What is enough for both, one after the other.
    pub(crate) fn or(self, other: Self) -> Self {
        Self { scratch: self.scratch.max(other.scratch), tables: self.tables.max(other.tables) }
    }

    pub(crate) fn bytes(self) -> u64 {
        self.scratch + self.tables
    }
}

/// Tables of batches on the device.
struct Tables {
    /// The number of the step.
    counter: Buffer<i32>,
    counts: Buffer<i32>,
    samples: Buffer<i32>,
    /// `[steps][lanes]`, written by the steps.
    scores: Buffer<Score>,
    /// `[steps][lanes]`, where it is told by step: as many numbers each as the optimiser has.
    rates: Buffer<f32>,
    /// `[steps][lanes][most]`, where pictures are changed by chance.
    changes: Option<Buffer<i32>>,
    /// `[steps][lanes][most]`: where embeddings of the samples are, where there is a loss on them.
    embedded: Option<Buffer<i32>>,
    /// `[steps][lanes]` of eight words, where the network drops anything.
    keys: Option<Buffer<u32>>,
}

/// How the parameters move in a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct StepRule {
    /// The same in all steps; 0 where it is told by a table.
    pub(crate) rate: f32,
    /// Whether the rate changes from step to step, as a table says.
    pub(crate) scheduled: bool,
    /// Of the proximal term.
    pub(crate) strength: f32,
    pub(crate) per_prediction: bool,
    /// On which [sections](Section::PARAMETERS) the proximal term acts.
    pub(crate) proximal: [bool; 4],
    pub(crate) projection: Option<Projection>,
    pub(crate) optimiser: Optimiser,
    /// The longest gradient.
    pub(crate) clip: Option<f64>,
}

impl StepRule {
    /// Whether every step goes along the gradient as it is.
    fn is_plain(&self) -> bool {
        self.optimiser == Optimiser::PLAIN && self.clip.is_none()
    }
}

/// All that a recorded step depends on, as long as the buffers are there that it was recorded with.
#[derive(Clone, Debug, PartialEq)]
struct Fingerprint {
    rule: StepRule,
    tables: [u64; 8],
    offset: u64,
    data: u64,
    hooks: Vec<u64>,
    contrasting: Option<[u64; 5]>,
}

/// Memory that runners share: one of them works at a time, and takes its models again for every phase.
#[derive(Default)]
pub(crate) struct Shared {
    scratch: Option<Arc<Buffer<u8>>>,
    parameters: Option<Arc<Buffer<f32>>>,
    statistics: Option<Arc<Buffer<f32>>>,
    gradients: Option<Arc<Buffer<f32>>>,
    offset: Option<Arc<Buffer<f32>>>,
    moments: Moments,
}

/// The first and second moments of optimisers, as far as they have them.
type Moments = [Option<Arc<Buffer<f32>>>; 2];

impl Shared {
    /// Bytes of all of it.
    pub(crate) fn bytes(&self) -> u64 {
        let tables = [&self.parameters, &self.statistics, &self.gradients, &self.offset];
        let tables: u64 = tables.into_iter().chain(&self.moments).flatten().map(|buffer| buffer.bytes()).sum();
        tables + self.scratch.as_ref().map_or(0, |scratch| scratch.bytes())
    }
}

/// Memory for so many elements: what is there, if it is large enough, else new memory of zeros in its place, after what was there is given back.
fn enough<T: Number>(home: &Home, there: &mut Option<Arc<Buffer<T>>>, len: usize) -> Result<Arc<Buffer<T>>> {
    if there.as_ref().is_none_or(|buffer| buffer.len() < len) {
        *there = None;
        *there = Some(Arc::new(Buffer::zeros(&home.device, len.max(1))?));
    }
    let Some(buffer) = there else { unreachable!("it was made above") };
    Ok(Arc::clone(buffer))
}

impl Runner {
    /// A runner in memory that others use too; all others must be gone if that has to grow.
    pub(crate) fn new(home: &Home, purpose: Purpose, extras: Extras, shared: &mut Shared) -> Result<Self> {
        let (device, layout, lanes) = (&home.device, &home.layout, purpose.size.lanes);
        let all = lanes * layout.stride();
        let plan = NetworkPlan::new(device, &home.graph, layout, purpose);
        let scratch = enough(home, &mut shared.scratch, plan.arena.bytes())?;
        let trains = purpose.trains.is_some();
        let mut moments = Moments::default();
        for (own, shared) in moments.iter_mut().zip(&mut shared.moments).take(extras.moments) {
            *own = Some(enough(home, shared, all)?);
        }
        Ok(Self {
            executor: Executor::of(device, &home.graph, layout, purpose, plan, scratch)?,
            parameters: enough(home, &mut shared.parameters, all)?,
            statistics: enough(home, &mut shared.statistics, lanes * layout.statistics_stride())?,
            // What is between parameters has no gradient and stays zero.
            gradients: trains.then(|| enough(home, &mut shared.gradients, all)).transpose()?,
            offset: extras.proximal.then(|| enough(home, &mut shared.offset, all)).transpose()?,
            moments,
            norms: trains.then(|| GradientNorms::new(device, lanes)).transpose()?,
            losses: purpose.contrasts.then(|| Buffer::new(device, purpose.size.samples() * purpose.size.length)).transpose()?,
            contrasting: None,
            tables: Tables::new(home, lanes, purpose.size.most, 0)?,
            hooks: SolveHooks::new(home, purpose)?,
            recorded: Vec::new(),
            shares: [1.0 / 3.0; 3],
            stride_bytes: 4 * layout.stride() as u64,
            embedding_width: embedding_width(home, purpose.precision),
        })
    }

    /// What it has beside models and gradients.
    pub(crate) fn extras(&self) -> Extras {
        Extras { proximal: self.offset.is_some(), moments: self.moments.iter().flatten().count() }
    }

    /// What a runner takes of the memory that is shared.
    pub(crate) fn wants(home: &Home, purpose: Purpose, extras: Extras) -> Wanted {
        let lanes = purpose.size.lanes;
        let tables = 1 + usize::from(purpose.trains.is_some()) + extras.tables();
        let scratch = NetworkPlan::new(&home.device, &home.graph, &home.layout, purpose).arena.bytes();
        let tables = lanes * (tables * home.layout.stride() + home.layout.statistics_stride());
        Wanted { scratch: scratch as u64, tables: 4 * tables as u64 }
    }

    /// The bytes a lane takes.
    pub(crate) fn bytes_a_lane(&self) -> u64 {
        let tables = 1 + u64::from(self.gradients.is_some()) + self.extras().tables() as u64;
        let lanes = self.executor.purpose.size.lanes as u64;
        self.executor.bytes() / lanes + tables * self.stride_bytes
    }

    fn weights(&self) -> Weights {
        Weights {
            parameters: self.parameters.pointer(),
            gradients: self.gradients.as_ref().map_or(Pointer::NULL, |gradients| gradients.pointer()),
            statistics: self.statistics.pointer(),
        }
    }

    pub(crate) fn gradients(&self) -> Option<&Buffer<f32>> {
        self.gradients.as_deref()
    }

    pub(crate) fn parameters(&self) -> Pointer<f32> {
        self.parameters.pointer()
    }

    /// Takes the lanes' models: whole ones, but for statistics, which are fresh where there are none.
    pub(crate) fn load(&mut self, home: &Home, lanes: Lanes<'_>, model: &Parts<Table>) -> Result<()> {
        for section in Section::MODEL.into_iter().filter(|section| section.is_in(&home.graph)) {
            let (to, stride) = self.place(home, section);
            match (model.get(section), section) {
                (Some(table), _) => lanes.copy_to(section, table, to, stride)?,
                (None, Section::Statistics) => {
                    let fresh = home.upload(&fedeq_core::Weights { statistics: fresh(home), ..Default::default() })?;
                    let fresh = fresh.get(section).expect("the network has statistics");
                    lanes.copy_to(section, &Table::Same(Arc::clone(fresh)), to, stride)?;
                }
                (None, _) => {
                    let name = section.first_name(&home.graph).unwrap_or_default();
                    return Err(fedeq_core::Error::message(format!("`{name}` is missing")));
                }
            }
        }
        Ok(())
    }

    /// Takes the offsets of proximal terms.
    pub(crate) fn load_offset(&self, home: &Home, lanes: Lanes<'_>, offset: &Parts<Table>) -> Result<()> {
        let to = self.offset.as_ref().map_or(Pointer::NULL, |offset| offset.pointer());
        for (section, table) in offset.iter() {
            lanes.copy_to(section, table, to.add(section.range(&home.layout).start), home.layout.stride())?;
        }
        Ok(())
    }

    /// A part of the lanes' models as they are now, in memory of its own.
    pub(crate) fn part(&self, home: &Home, lanes: Lanes<'_>, section: Section) -> Result<Table> {
        let (from, stride) = self.place(home, section);
        lanes.copy_from(section, from, stride)
    }

    fn place(&self, home: &Home, section: Section) -> (Pointer<f32>, usize) {
        match section {
            Section::Statistics => (self.statistics.pointer(), home.layout.statistics_stride()),
            _ => (self.parameters.pointer().add(section.range(&home.layout).start), home.layout.stride()),
        }
    }

    /// Takes the batches of some steps, which are then taken from the first one on.
    pub(crate) fn schedule(&mut self, home: &Home, schedule: &Schedule) -> Result<()> {
        let size = self.executor.purpose.size;
        debug_assert_eq!((schedule.lanes(), schedule.most()), (size.lanes, size.most));
        if self.tables.scores.len() < schedule.counts().len() {
            // Some more than asked for: phases of other rounds may be a little longer.
            let steps = (schedule.steps() + schedule.steps() / 4).next_multiple_of(16);
            self.tables = Tables::new(home, size.lanes, size.most, steps)?;
        }
        let Tables { counter, counts, samples, .. } = &mut self.tables;
        counter.write(&home.device, 0, &[0])?;
        counts.write(&home.device, 0, schedule.counts())?;
        samples.write(&home.device, 0, schedule.samples())
    }

    /// Takes the seeds of dropout's masks, by lane, epoch and batch.
    pub(crate) fn drop_by(&mut self, home: &Home, schedule: &Schedule, seed: impl Fn(usize, u64, u64) -> u64) -> Result<()> {
        let Some(keys) = &mut self.tables.keys else { return Ok(()) };
        let seeds = schedule.by_batch(0, |lane, epoch, batch| [seed(lane, epoch, batch)]);
        keys.write(&home.device, 0, &dropout_keys(seeds))
    }

    /// Takes the numbers by which the optimiser goes, by lane, epoch and batch.
    pub(crate) fn move_by(&mut self, home: &Home, schedule: &Schedule, rates: &mut Rates<'_>) -> Result<()> {
        self.tables.rates.write(&home.device, 0, &rates.of(schedule))
    }

    /// Takes how pictures are changed, sample by sample as in the batches.
    pub(crate) fn change_by(&mut self, home: &Home, changes: &[i32]) -> Result<()> {
        let room = self.tables.samples.len();
        written(home, &mut self.tables.changes, room, changes)
    }

    /// Takes embeddings to compare with, for the batches of some steps; or nothing any more.
    pub(crate) fn contrast_by(&mut self, home: &Home, with: Option<(&Embeddings, &Schedule)>) -> Result<()> {
        self.contrasting = with.map(|(embeddings, _)| embeddings.of_step());
        let Some((embeddings, schedule)) = with else { return Ok(()) };
        let room = self.tables.samples.len();
        written(home, &mut self.tables.embedded, room, &embeddings.places(schedule))
    }

    /// A phase begins: the optimiser remembers nothing.
    pub(crate) fn forget_moments(&self, home: &Home) -> Result<()> {
        self.moments.iter().flatten().try_for_each(|moments| home.device.fill_zero(moments.pointer(), moments.len()))
    }

    /// The scores of so many steps, `[steps][lanes]`; waits for them.
    pub(crate) fn scores(&self, home: &Home, steps: usize) -> Result<Vec<Score>> {
        let mut scores = vec![Score::default(); steps * self.executor.purpose.size.lanes];
        self.tables.scores.read(&home.device, 0, &mut scores)?;
        Ok(scores)
    }

    pub(crate) fn counter(&self) -> Pointer<i32> {
        self.tables.counter.pointer()
    }

    /// What layers work with.
    pub(crate) fn run<'a>(&'a self, home: &'a Home, data: &DeviceData) -> PassContext<'a> {
        let run = self.executor.run(&home.layout, self.weights(), data.symbols());
        let keys = self.tables.keys.as_ref().filter(|_| self.executor.purpose.mode == Mode::Train);
        let dropout = keys.map(|keys| DropoutKeys { step: self.counter(), keys: keys.pointer() });
        let changes = self.tables.changes.as_ref().filter(|_| self.executor.purpose.mode == Mode::Train);
        let changes = changes.map(|table| PictureChanges { step: self.counter(), table: table.pointer() });
        self.hooks.of(PassContext { dropout, changes, ..run })
    }

    /// Takes so many training steps; `begins` tells whether they are the first of a phase.
    pub(crate) fn train(
        &mut self,
        home: &Home,
        data: &DeviceData,
        rule: StepRule,
        steps: usize,
        [record, begins]: [bool; 2],
    ) -> Result<()> {
        let fingerprint = self.fingerprint(data, rule);
        // A table that has gone may have left its address to another one.
        self.recorded.retain(|(_, recorded)| recorded.is_whole());
        let known = self.recorded.iter().position(|(of, _)| record && *of == fingerprint);
        let launched = match known {
            Some(_) => 0,
            None if record && steps >= WORTH_RECORDING => LAUNCHED,
            None => steps,
        };
        for step in 0..launched {
            self.launched_step(home, data, rule)?;
            self.after_step(home, step == 0 && begins)?;
        }
        if launched == steps {
            return Ok(());
        }
        let (of, mut recorded) = match known {
            Some(at) => self.recorded.remove(at),
            None => (fingerprint, home.device.capture(|| self.step(home, data, rule))?),
        };
        for step in launched..steps {
            // SAFETY: it was recorded for this fingerprint, which is all that a step depends on, in buffers that are still there: it is the launches of `step`, each of which is vouched
            // for where it is written.
            unsafe { recorded.run() }?;
            self.after_step(home, step == 0 && begins)?;
        }
        self.recorded.insert(0, (of, recorded));
        self.recorded.truncate(RECORDED);
        Ok(())
    }

    fn after_step(&mut self, home: &Home, first: bool) -> Result<()> {
        if first { self.hooks.after_first_step(home) } else { Ok(()) }
    }

    fn fingerprint(&self, data: &DeviceData, rule: StepRule) -> Fingerprint {
        let Tables { counter, counts, samples, scores, keys, rates, changes, embedded } = &self.tables;
        let keys = keys.as_ref().map_or(0, |keys| keys.pointer().address());
        let [changes, embedded] = [changes, embedded].map(|table| table.as_ref().map_or(0, |table| table.pointer().address()));
        let proximal = rule.proximal.contains(&true);
        Fingerprint {
            rule,
            tables: [
                counter.pointer().address(),
                counts.pointer().address(),
                samples.pointer().address(),
                scores.pointer().address(),
                keys,
                rates.pointer().address(),
                changes,
                embedded,
            ],
            offset: self.offset.as_ref().filter(|_| proximal).map_or(0, |offset| offset.pointer().address()),
            data: data.labels().address(),
            hooks: self.hooks.fingerprint(),
            contrasting: self.contrasting.as_ref().map(Contrasting::fingerprint),
        }
    }

    /// A step whose parts are waited for one by one, to see where the time goes.
    fn launched_step(&mut self, home: &Home, data: &DeviceData, rule: StepRule) -> Result<()> {
        let seconds = {
            let run = self.run(home, data);
            let timed = |work: &dyn Fn() -> Result<()>| -> Result<f64> {
                let begun = Instant::now();
                work()?;
                home.device.synchronize()?;
                Ok(begun.elapsed().as_secs_f64())
            };
            [
                timed(&|| self.forward(&run, data))?,
                timed(&|| self.executor.backward(&run))?,
                timed(&|| self.update(home, &run, rule))?,
            ]
        };
        let all: f64 = seconds.iter().sum();
        self.shares = seconds.map(|part| if all > 0.0 { part / all } else { 1.0 / 3.0 });
        Ok(())
    }

    fn step(&self, home: &Home, data: &DeviceData, rule: StepRule) -> Result<()> {
        let run = self.run(home, data);
        self.forward(&run, data)?;
        self.executor.backward(&run)?;
        self.update(home, &run, rule)
    }

    /// The next batch, and its loss.
    pub(crate) fn forward(&self, run: &PassContext<'_>, data: &DeviceData) -> Result<()> {
        let (size, executor) = (self.executor.purpose.size, &self.executor);
        let Tables { counter, counts, samples, .. } = &self.tables;
        launch!(run.device, Launch::new("begin_step", [size.lanes, 1, 1], 128);
            counter.pointer(), counts.pointer(), samples.pointer(), executor.spans.pointer(), executor.rows.pointer(), executor.indices.pointer(),
            size.lanes as i32, size.most as i32)?;
        executor.load(run, data)?;
        executor.forward(run)?;
        executor.loss(run, data)?;
        self.contrast(run)
    }

    /// The loss on embeddings beside that on predictions, if there is one.
    fn contrast(&self, run: &PassContext<'_>) -> Result<()> {
        let plan = &self.executor.plan;
        let (Some(contrasting), Some(z), Some(gradient)) = (&self.contrasting, plan.embedding, plan.embedding_gradient) else {
            return Ok(());
        };
        let (Some(losses), Some(embedded)) = (&self.losses, &self.tables.embedded) else { return Ok(()) };
        let tables = [embedded.pointer(), self.counter(), self.executor.counts.pointer()];
        let width = self.embedding_width;
        let call = contrasting.call(run, [z, gradient].map(|slot| run.at(slot)), tables, losses.pointer(), width);
        let (length, lanes) = (run.size.length, run.size.lanes);
        launch!(run.device, Launch::new("contrast", run.by_sample(length), 128); call)?;
        launch!(run.device, Launch::new("add_losses", [lanes, 1, 1], 128);
            losses.pointer(), self.executor.scores.pointer(), run.cohort, length as i32)
    }

    /// Notes the scores of the batch, and continues with the next.
    pub(crate) fn end_step(&self, run: &PassContext<'_>) -> Result<()> {
        let (lanes, Tables { counter, scores, .. }) = (self.executor.purpose.size.lanes, &self.tables);
        launch!(run.device, Launch::new("end_step", [1, 1, 1], 128);
            counter.pointer(), self.executor.scores.pointer(), scores.pointer(), lanes as i32)
    }

    fn update(&self, home: &Home, run: &PassContext<'_>, rule: StepRule) -> Result<()> {
        let trains = self.executor.purpose.trains.unwrap_or(Trains::Everything);
        let ranges = moved_ranges(home, trains, rule);
        if let (Some(norms), Some((first, _)), Some((last, _))) = (&self.norms, ranges.first(), ranges.last())
            && rule.clip.is_some()
        {
            norms.take(run, first.start..last.end)?;
        }
        for (range, proximal) in ranges {
            if rule.is_plain() {
                self.plain_step(run, range, rule, proximal)?;
            } else {
                self.optimise(run, range, rule, proximal)?;
            }
        }
        let projection = rule.projection.filter(|_| trains.includes(Part::Shared));
        if let Some(projected) = projection.and_then(|projection| Projected::new(projection, &home.graph, &home.layout)) {
            projected.run(run.device, run.parameters, run.cohort, run.size.lanes)?;
        }
        self.end_step(run)
    }

    /// `p <- p - rate (gradient + strength p + offset)`
    fn plain_step(&self, run: &PassContext<'_>, range: Range<usize>, rule: StepRule, proximal: bool) -> Result<()> {
        let stride = run.stride();
        let offset = self.offset.as_ref().filter(|_| proximal).map_or(Pointer::NULL, |offset| offset.pointer().add(range.start));
        let strength = if proximal { rule.strength } else { 0.0 };
        let counts = if rule.per_prediction { self.executor.counts.pointer() } else { Pointer::NULL };
        let rates = if rule.scheduled { self.tables.rates.pointer() } else { Pointer::NULL };
        let (copy, lanes) = (Pointer::<half::f16>::NULL, self.executor.purpose.size.lanes);
        launch!(run.device, Launch::new("descend", [range.len().div_ceil(1024), lanes, 1], 256);
            run.parameters.add(range.start), run.gradients.add(range.start), offset, copy, run.cohort, counts, rates, self.counter(), stride, stride, range.len() as i64,
            rule.rate, strength)
    }

    /// A step of an optimiser along the gradient, shortened if asked for, with what the proximal term adds to it.
    fn optimise(&self, run: &PassContext<'_>, range: Range<usize>, rule: StepRule, proximal: bool) -> Result<()> {
        let here = |buffer: &Arc<Buffer<f32>>| buffer.pointer().add(range.start);
        let moment =
            |at: usize| self.moments[at].as_ref().filter(|_| at < moments_of(rule.optimiser)).map_or(Pointer::NULL, here);
        let norms = self.norms.as_ref().filter(|_| rule.clip.is_some()).map_or(Pointer::NULL, GradientNorms::pointer);
        let step = OptimiserStep {
            theta: here(&self.parameters),
            first: moment(0),
            second: moment(1),
            gradient: run.gradients.add(range.start),
            offset: self.offset.as_ref().filter(|_| proximal).map_or(Pointer::NULL, here),
            cohort: run.cohort,
            counts: if rule.per_prediction { self.executor.counts.pointer() } else { Pointer::NULL },
            norms,
            rates: self.tables.rates.pointer(),
            counter: self.counter(),
            stride: run.stride(),
            n: range.len() as i64,
            longest: rule.clip.unwrap_or_default(),
            strength: rule.strength,
            decay: 0.0,
        };
        optimiser_step(run, step, rule.optimiser)
    }
}

impl Tables {
    fn new(home: &Home, lanes: usize, most: usize, steps: usize) -> Result<Self> {
        Ok(Self {
            counter: Buffer::zeros(&home.device, 1)?,
            counts: Buffer::new(&home.device, steps * lanes)?,
            samples: Buffer::new(&home.device, steps * lanes * most)?,
            scores: Buffer::new(&home.device, steps * lanes)?,
            rates: Buffer::new(&home.device, Rates::MOST * steps * lanes)?,
            changes: None,
            embedded: None,
            keys: drops(home).then(|| Buffer::new(&home.device, 8 * steps * lanes)).transpose()?,
        })
    }
}

/// Writes what comes first in a table, which is made if it is not there yet.
fn written(home: &Home, table: &mut Option<Buffer<i32>>, room: usize, values: &[i32]) -> Result<()> {
    let there = match table.take() {
        Some(there) => there,
        None => Buffer::new(&home.device, room)?,
    };
    table.insert(there).write(&home.device, 0, values)
}

/// What of a lane is trained, and whether the proximal term acts on them: sections that lie beside each other are moved by one launch.
fn moved_ranges(home: &Home, trains: Trains, rule: StepRule) -> Vec<(Range<usize>, bool)> {
    let mut all: Vec<(Range<usize>, bool)> = Vec::new();
    for (section, proximal) in Section::PARAMETERS.into_iter().zip(rule.proximal) {
        let range = section.range(&home.layout);
        if range.is_empty() || !section.part().is_some_and(|part| trains.includes(part)) {
            continue;
        }
        match all.last_mut() {
            Some((last, as_before)) if last.end == range.start && *as_before == proximal => last.end = range.end,
            _ => all.push((range, proximal)),
        }
    }
    all
}

/// Whether a network drops anything in training.
fn drops(home: &Home) -> bool {
    home.graph.layers.iter().any(|layer| match layer {
        Layer::Transformer { layers, .. }
        | Layer::Equilibrium { cell: Cell::Transformer { layers, .. }, .. }
        | Layer::Repeat { cell: Cell::Transformer { layers, .. }, .. } => layers.dropout.rate > 0.0,
        _ => false,
    })
}

fn fresh(home: &Home) -> fedeq_core::Params {
    let array = |(name, values): (String, Vec<f32>)| (name, fedeq_core::Array::new(vec![values.len()], values));
    home.graph.initial_statistics().into_iter().map(array).collect()
}
