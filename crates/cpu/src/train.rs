//! The local training loop.
use std::sync::Arc;
use std::time::{Duration, Instant};

use fedeq_core::{
    Error, Phase, PhaseBytes, PhaseSeed, Projection, ProximalGradient, Result, SolveTally, TrainStats, Trains, Weights,
    diverged_in_phase,
};
use fedeq_data::Seed;
use fedeq_data::shard::{Batch, Batches};
use fedeq_equilibrium::{Outcome, SolveReport, WarmMemory};
use fedeq_kernels::InstructionSet;
use fedeq_kernels::loss::cross_entropy_with_gradient;
use fedeq_memory::Meter;
use fedeq_models::Mode;
use fedeq_models::Part;
use fedeq_models::graph::{Parameter, ParameterId};

use crate::contrast::Embeddings;
use crate::executor::{Context, Executor};
use crate::network::{Network, classes, input_of, padding, predictions, size_of};
use crate::op::Start;
use crate::optimiser::{OptimiserMoments, PlainStep, add_proximal, clip};
use crate::parameters::ParameterLayout;
use crate::pool::Pool;
use crate::projection::project;
use crate::statistics::RunningMoments;
use crate::worker::{Plans, Purpose, Worker};

/// What a client trains with.
#[derive(Debug)]
pub(crate) struct Local<'a> {
    pub(crate) network: &'a Network,
    pub(crate) projection: Option<Projection>,
    /// Gradient steps an epoch.
    pub(crate) steps: usize,
    pub(crate) memory: &'a mut WarmMemory,
    /// What other models make of the samples, where there is a loss on that.
    pub(crate) embeddings: Option<&'a Embeddings>,
}

/// Carries out a phase on the batches that `batches` gives for the seed of each epoch, and moves the weights.
pub(crate) fn train<'b>(
    local: Local<'_>,
    weights: &mut Weights,
    (phase, proximal): (&Phase, Option<&ProximalGradient>),
    seed: PhaseSeed,
    batches: impl Fn(Seed) -> Batches<'b>,
) -> Result<TrainStats> {
    let network = local.network;
    if !network.graph().parameters.iter().any(|parameter| phase.trains.includes(parameter.part)) {
        return Ok(TrainStats::default()); // Such as the head of a network that has none.
    }
    let meter = Meter::start();
    let mut worker = Worker::take();
    let purpose = if local.embeddings.is_some() { Purpose::Contrast(phase.trains) } else { Purpose::Train(phase.trains) };
    let plans = worker.plans(network.id(), purpose);
    let mut run = PhaseRun::begin(local, &mut worker, plans, weights, (phase, proximal), meter)?;
    let outcome = run.epochs(seed, batches);
    let ended = run.end(weights);
    let stats = outcome.and(ended)?;
    worker.put_back();
    Ok(stats)
}

/// One phase under way.
struct PhaseRun<'a> {
    local: Local<'a>,
    worker: &'a mut Worker,
    plans: Plans,
    phase: &'a Phase,
    gradients: Vec<f32>,
    /// Where everything that is trained is, where the optimiser wants the gradient as a whole.
    trained: ParameterLayout,
    moments: OptimiserMoments,
    /// What is added to the gradient of every parameter, in the order of the graph.
    offsets: Vec<Option<&'a [f32]>>,
    /// The bytes of parameters that are not in memory of this phase: training takes them along.
    at_rest: u64,
    /// Of the proximal term.
    strength: f32,
    per_prediction: bool,
    statistics: Vec<RunningMoments>,
    stats: TrainStats,
    /// The solves of the first batch.
    first: Option<SolveTally>,
    meter: Meter,
}

impl<'a> PhaseRun<'a> {
    fn begin(
        local: Local<'a>,
        worker: &'a mut Worker,
        plans: Plans,
        weights: &mut Weights,
        (phase, proximal): (&'a Phase, Option<&'a ProximalGradient>),
        meter: Meter,
    ) -> Result<Self> {
        let network = local.network;
        network.values(weights, &mut worker.parameters)?;
        let statistics = network.statistics(weights)?;
        let trained = ParameterLayout::of_some(network.graph(), |parameter| phase.trains.includes(parameter.part));
        let at_rest = own_what_is_trained(network, phase.trains, weights, &mut worker.parameters);
        let offset = |parameter: &'_ Parameter| proximal.and_then(|proximal| proximal.offset.get(&parameter.path));
        let offsets = network.graph().parameters.iter().map(|parameter| offset(parameter).map(|offset| offset.values.as_slice()));
        Ok(Self {
            strength: proximal.map_or(0.0, |proximal| proximal.strength as f32),
            per_prediction: proximal.is_some_and(|proximal| proximal.per_prediction),
            gradients: Vec::new(),
            moments: OptimiserMoments::new(&phase.optimiser, trained.len(), &mut worker.memory.pool),
            trained,
            offsets: offsets.collect(),
            at_rest,
            local,
            worker,
            plans,
            phase,
            statistics,
            stats: TrainStats::default(),
            first: None,
            meter,
        })
    }

    fn epochs<'b>(&mut self, seed: PhaseSeed, batches: impl Fn(Seed) -> Batches<'b>) -> Result<()> {
        let mut batch = std::mem::take(&mut self.worker.batch);
        for epoch in 0..self.phase.epochs as u64 {
            let (mut loss, mut samples, mut batches, mut index) = (0.0, 0, batches(seed.epoch(epoch)), 0);
            while batches.read_next(&mut batch) {
                loss += self.step(&batch, seed.dropout(epoch, index))? * batch.len() as f64;
                samples += batch.len();
                index += 1;
            }
            self.stats.loss = loss / samples.max(1) as f64;
        }
        self.worker.batch = batch;
        Ok(())
    }

    /// One gradient step; returns the loss before it.
    fn step(&mut self, batch: &Batch, dropout: u64) -> Result<f64> {
        let begun = Instant::now();
        self.local.network.check(batch)?;
        let (loss, count) = self.forward(batch, dropout)?;
        if !loss.is_finite() {
            return Err(diverged(format!("the training loss is `{loss}`"), self.phase, self.first.as_ref()));
        }
        let (forwarded, solve) = (Instant::now(), self.lap());
        let updating = self.descend(batch, dropout, count);
        let backward = self.lap();
        self.project();
        self.note(begun, forwarded, updating);
        let taken = PhaseBytes { solve, backward, update: self.lap() };
        self.stats.memory = self.stats.memory.or_more(&taken);
        Ok(loss)
    }

    /// The mean loss, and how many predictions it is over.
    fn forward(&mut self, batch: &Batch, dropout: u64) -> Result<(f64, usize)> {
        let Worker { parameters, memory, ignored, .. } = &mut *self.worker;
        let (set, targets, ignored) = (InstructionSet::best(), classes(batch), padding(batch, ignored));
        let (graph, trains, size) = (self.local.network.graph(), self.phase.trains, size_of(batch));
        let embeddings = self.local.embeddings;
        let trained = |parameter: &Parameter| trains.includes(parameter.part);
        let new = || match embeddings {
            None => Executor::new(graph, size[0], size[1], Mode::Train, trained),
            Some(_) => Executor::contrasting(graph, size, trained),
        };
        let executor = self.plans.executor(size, memory, new);
        let start = Start::Recalled(self.local.memory, &batch.ids);
        let mut context = Context { parameters, statistics: &mut self.statistics, dropout: Some(dropout), start };
        executor.forward(input_of(batch), &mut context);
        if let Some(solved) = executor.solved() {
            let warm = self.local.memory.knows(&batch.ids, solved.z.width()) as u64;
            let solves = SolveTally { warm, ..tally(solved.report) };
            self.stats.solves = self.stats.solves.plus(&solves);
            self.local.memory.remember(&batch.ids, solved.z);
            self.first.get_or_insert(solves);
        }
        let classes = self.local.network.graph().task.classes;
        let found = executor.differentiate(|logits, gradient| {
            let predictions = predictions(logits, classes, targets, ignored);
            let scale = 1.0 / predictions.count().max(1) as f32;
            cross_entropy_with_gradient(set, predictions, scale, gradient)
        });
        let loss = found.unwrap_or_default();
        let contrasted = embeddings.and_then(|embeddings| {
            executor.differentiate_embedding(|z, gradient| embeddings.loss(&batch.ids, ignored, z, gradient))
        });
        Ok((loss.sum / loss.count.max(1) as f64 + contrasted.unwrap_or(0.0), loss.count))
    }

    /// A step of everything that is trained. The gradient is that of a mean over so many predictions. Says how long the updates took.
    fn descend(&mut self, batch: &Batch, dropout: u64, predictions: usize) -> Duration {
        let share = if self.per_prediction { predictions.max(1) as f64 } else { 1.0 };
        let rate = self.phase.rate(self.stats.steps, (self.phase.epochs * self.local.steps) as u64);
        if self.phase.is_plain() {
            self.plain_step(batch, dropout, (rate, share))
        } else {
            self.optimiser_step(batch, dropout, (rate, share))
        }
    }

    /// `p <- p - rate (gradient + (strength p + offset) / share)`, each parameter as soon as its gradient is known.
    fn plain_step(&mut self, batch: &Batch, dropout: u64, (learning_rate, share): (f64, f64)) -> Duration {
        let Self { plans, worker, gradients, statistics, offsets, strength, .. } = self;
        let Some(executor) = plans.current() else { return Duration::ZERO };
        let len = executor.gradient_len();
        make_room(gradients, len, executor.pool());
        let mut updating = Duration::ZERO;
        let step = PlainStep { rate: learning_rate, strength: *strength, share };
        let context = (&mut statistics[..], Some(dropout));
        executor.descend(input_of(batch), context, &mut worker.parameters, gradients, |id, at, p, gradient| {
            let (begun, offset) = (Instant::now(), offsets[id.0].map(|offset| &offset[at..][..p.len()]));
            step.run(p, gradient, offset);
            updating += begun.elapsed();
        });
        updating
    }

    /// The gradient of everything, clipped, with the proximal term `(strength p + offset) / share`, as the optimiser makes a step of it.
    fn optimiser_step(&mut self, batch: &Batch, dropout: u64, (rate, share): (f64, f64)) -> Duration {
        let Self { plans, worker, gradients, statistics, offsets, strength, trained, moments, phase, .. } = self;
        let Some(executor) = plans.current() else { return Duration::ZERO };
        make_room(gradients, trained.len(), executor.pool());
        let mut context = Context { parameters: &worker.parameters, statistics, dropout: Some(dropout), start: Start::Model };
        executor.backward(input_of(batch), &mut context, gradients);
        let begun = Instant::now();
        if let Some(most) = phase.clip {
            clip(gradients, most);
        }
        let step = moments.next(phase.optimiser, rate);
        for (index, (values, offset)) in worker.parameters.iter_mut().zip(offsets).enumerate() {
            let at = trained.range(ParameterId(index));
            if at.is_empty() {
                continue;
            }
            let p: &mut Vec<f32> = Arc::make_mut(values);
            let g = &mut gradients[at.clone()];
            if let Some(offset) = offset {
                add_proximal(g, p, offset, *strength, share as f32);
            }
            moments.step(&step, p, g, at);
        }
        begun.elapsed()
    }

    /// The projection, if there is one.
    fn project(&mut self) {
        if let Some(projection) = self.local.projection.filter(|_| self.phase.trains.includes(Part::Shared)) {
            let Worker { parameters, projection: memory, .. } = &mut *self.worker;
            project(projection, self.local.network, parameters, memory);
        }
    }

    /// Leaves the numbers in the weights, and what is used again with the thread; says how it went.
    fn end(mut self, weights: &mut Weights) -> Result<TrainStats> {
        let network = self.local.network;
        if let Some(executor) = self.plans.current() {
            executor.pool().give(self.gradients);
            self.moments.release(executor.pool());
        }
        for (parameter, values) in network.graph().parameters.iter().zip(self.worker.parameters.drain(..)) {
            if let Some(place) = weights.params.shared_values_mut(&parameter.path) {
                *place = values;
            }
        }
        weights.statistics = network.named_statistics(&self.statistics);
        self.worker.keep(self.plans);
        self.meter.lap();
        let copied = network.bytes() - self.at_rest;
        self.worker.held = self.meter.lap().map_or(0, |more| (more + self.worker.held).saturating_sub(copied));
        if !weights.params.is_finite() {
            let problem = "the parameters are no longer finite after local training";
            return Err(diverged(problem.into(), self.phase, self.first.as_ref()));
        }
        Ok(self.stats)
    }

    /// The most memory held since this was last asked, with what is kept between phases.
    fn lap(&mut self) -> u64 {
        self.meter.lap().map_or(0, |more| more + self.worker.held + self.at_rest)
    }

    fn note(&mut self, begun: Instant, forwarded: Instant, updating: Duration) {
        let seconds = &mut self.stats.seconds;
        seconds.solve += (forwarded - begun).as_secs_f64();
        seconds.backward += forwarded.elapsed().saturating_sub(updating).as_secs_f64();
        seconds.update += updating.as_secs_f64();
        self.stats.steps += 1;
    }
}

/// Memory for so many gradients.
fn make_room(gradients: &mut Vec<f32>, len: usize, pool: &mut Pool) {
    if gradients.len() != len {
        pool.give(std::mem::take(gradients));
        *gradients = pool.take(len);
    }
}

/// Takes what is trained out of the weights, so that it can be changed where it is; what others hold too is copied. Says how many bytes of all parameters were not.
fn own_what_is_trained(network: &Network, trains: Trains, weights: &mut Weights, values: &mut [Arc<Vec<f32>>]) -> u64 {
    let (nothing, mut kept) = (Arc::new(Vec::new()), network.bytes());
    for (parameter, values) in network.graph().parameters.iter().zip(values) {
        if !trains.includes(parameter.part) {
            continue;
        }
        if let Some(place) = weights.params.shared_values_mut(&parameter.path) {
            *place = Arc::clone(&nothing);
        }
        if Arc::get_mut(values).is_none() {
            kept -= 4 * values.len() as u64;
            Arc::make_mut(values);
        }
    }
    kept
}

fn diverged(what: String, phase: &Phase, first: Option<&SolveTally>) -> Error {
    diverged_in_phase(what, phase, &first.cloned().unwrap_or_default())
}

pub(crate) fn tally(report: &SolveReport) -> SolveTally {
    SolveTally {
        samples: report.len() as u64,
        steps: report.steps.iter().sum::<usize>() as u64,
        residual: report.residual.iter().filter(|residual| residual.is_finite()).sum(),
        unconverged: (report.len() - report.count(Outcome::Converged)) as u64,
        not_finite: report.count(Outcome::NotFinite) as u64,
        warm: 0,
    }
}
