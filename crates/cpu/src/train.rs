//! The local training loop.
use std::ops::Range;
use std::time::Instant;

use fedeq_core::{
    Error, Phase, PhaseBytes, PhaseSeed, Projection, ProximalGradient, Result, SolveTally, TrainStats, Weights, diverged_in_phase,
};
use fedeq_data::Seed;
use fedeq_data::shard::{Batch, Batches};
use fedeq_equilibrium::{Outcome, SolveReport, WarmMemory};
use fedeq_kernels::InstructionSet;
use fedeq_kernels::loss::cross_entropy_with_gradient;
use fedeq_kernels::sgd::SgdStep;
use fedeq_memory::Meter;
use fedeq_models::Mode;
use fedeq_models::Part;
use fedeq_models::graph::ParameterId;

use crate::executor::{Context, Executor};
use crate::network::{Network, classes, input_of, padding, predictions, size_of};
use crate::op::Start;
use crate::parameters::ParameterLayout;
use crate::projection::project;
use crate::statistics::RunningMoments;
use crate::worker::{Plans, Purpose, Worker};

/// What a client trains with.
#[derive(Debug)]
pub(crate) struct Local<'a> {
    pub(crate) network: &'a Network,
    pub(crate) projection: Option<Projection>,
    pub(crate) memory: &'a mut WarmMemory,
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
    fedeq_memory::keep();
    let meter = Meter::start();
    let mut worker = Worker::take();
    let plans = worker.plans(network.id(), Purpose::Train(phase.trains));
    let outcome = Run::begin(local, &mut worker, plans, weights, (phase, proximal), meter).and_then(|mut run| {
        run.epochs(seed, batches)?;
        run.end(weights)
    });
    if outcome.is_ok() {
        worker.put_back();
    }
    outcome
}

/// One phase under way.
struct Run<'a> {
    local: Local<'a>,
    worker: &'a mut Worker,
    plans: Plans,
    phase: &'a Phase,
    trained: ParameterLayout,
    gradients: Vec<f32>,
    moves: Vec<Move<'a>>,
    /// Of the proximal term.
    strength: f32,
    per_prediction: bool,
    statistics: Vec<RunningMoments>,
    stats: TrainStats,
    /// The solves of the first batch.
    first: Option<SolveTally>,
    meter: Meter,
}

/// Where a trained parameter, its gradient and what is added to that are.
struct Move<'a> {
    parameter: Range<usize>,
    gradient: Range<usize>,
    offset: Option<&'a [f32]>,
}

impl<'a> Run<'a> {
    fn begin(
        local: Local<'a>,
        worker: &'a mut Worker,
        plans: Plans,
        weights: &Weights,
        (phase, proximal): (&'a Phase, Option<&'a ProximalGradient>),
        meter: Meter,
    ) -> Result<Self> {
        let network = local.network;
        network.flat(weights, &mut worker.parameters)?;
        let statistics = network.statistics(weights)?;
        let trained = ParameterLayout::of_some(network.graph(), |parameter| phase.trains.includes(parameter.part));
        let moves = network.graph().parameters.iter().enumerate().map(|(index, parameter)| {
            let (id, offset) = (ParameterId(index), proximal.and_then(|proximal| proximal.offset.get(&parameter.path)));
            Move {
                parameter: network.layout().range(id),
                gradient: trained.range(id),
                offset: offset.map(|offset| offset.values.as_slice()),
            }
        });
        let moves = moves.filter(|each| !each.gradient.is_empty()).collect();
        Ok(Self {
            strength: proximal.map_or(0.0, |proximal| proximal.strength as f32),
            per_prediction: proximal.is_some_and(|proximal| proximal.per_prediction),
            gradients: worker.memory.pool.take(trained.len()),
            trained,
            local,
            worker,
            plans,
            phase,
            moves,
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
        let (parameters, statistics) = (&self.worker.parameters, &mut self.statistics);
        let mut context = Context { parameters, statistics, dropout: Some(dropout), start: Start::Model };
        if let Some(executor) = self.plans.current() {
            executor.backward(input_of(batch), &mut context, &mut self.gradients);
        }
        let (backed, backward) = (Instant::now(), self.lap());
        self.descend(count);
        self.note(begun, forwarded, backed);
        let taken = PhaseBytes { solve, backward, update: self.lap() };
        self.stats.memory = self.stats.memory.or_more(&taken);
        Ok(loss)
    }

    /// The mean loss, and how many predictions it is over.
    fn forward(&mut self, batch: &Batch, dropout: u64) -> Result<(f64, usize)> {
        let Worker { parameters, memory, ignored, .. } = &mut *self.worker;
        let (set, targets, ignored) = (InstructionSet::best(), classes(batch), padding(batch, ignored));
        let (graph, trains, size) = (self.local.network.graph(), self.phase.trains, size_of(batch));
        let new = || Executor::new(graph, size[0], size[1], Mode::Train, |parameter| trains.includes(parameter.part));
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
        Ok((loss.sum / loss.count.max(1) as f64, loss.count))
    }

    /// `p <- p - rate (gradient + strength p + offset)` for everything that is trained, then the projection if there is one. The gradient
    /// is that of a mean over so many predictions.
    fn descend(&mut self, predictions: usize) {
        let (set, rate) = (InstructionSet::best(), self.phase.learning_rate);
        let share = if self.per_prediction { predictions.max(1) as f64 } else { 1.0 };
        let (parameters, gradients) = (&mut self.worker.parameters, &mut self.gradients);
        for Move { parameter, gradient, offset } in &self.moves {
            let (p, gradient) = (&mut parameters[parameter.clone()], &mut gradients[gradient.clone()]);
            let (mut rate, mut strength) = (rate, 0.0);
            if offset.is_some() {
                strength = self.strength;
                if share != 1.0 {
                    // rate (gradient + pull / share) = (rate / share) (share gradient + pull)
                    gradient.iter_mut().for_each(|gradient| *gradient *= share as f32);
                    rate /= share;
                }
            }
            SgdStep { learning_rate: rate as f32, decay: strength, gradient, offset: *offset }.run(set, p);
        }
        if let Some(projection) = self.local.projection.filter(|_| self.phase.trains.includes(Part::Shared)) {
            project(projection, self.local.network, parameters);
        }
    }

    /// Leaves the numbers in the weights, and what is used again with the thread; says how it went.
    fn end(mut self, weights: &mut Weights) -> Result<TrainStats> {
        let network = self.local.network;
        self.lap();
        self.worker.held = self.lap();
        let (parameters, gradients) = (&self.worker.parameters, &mut self.gradients);
        // The gradients have served: the parameters take their place in the order of what is trained.
        for Move { parameter, gradient, .. } in &self.moves {
            gradients[gradient.clone()].copy_from_slice(&parameters[parameter.clone()]);
        }
        let named = network.named(&self.trained, gradients);
        self.worker.keep(self.plans);
        self.worker.memory.pool.give(self.gradients);
        weights.params.overwrite(&named);
        weights.statistics = network.named_statistics(&self.statistics);
        if !weights.params.is_finite() {
            let problem = "the parameters are no longer finite after local training";
            return Err(diverged(problem.into(), self.phase, self.first.as_ref()));
        }
        Ok(self.stats)
    }

    /// The most memory held since this was last asked, with what is kept between phases.
    fn lap(&mut self) -> u64 {
        self.meter.lap().map_or(0, |more| more + self.worker.held)
    }

    fn note(&mut self, begun: Instant, forwarded: Instant, backed: Instant) {
        let seconds = &mut self.stats.seconds;
        seconds.solve += (forwarded - begun).as_secs_f64();
        seconds.backward += (backed - forwarded).as_secs_f64();
        seconds.update += backed.elapsed().as_secs_f64();
        self.stats.steps += 1;
    }
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
