//! The local training loop.
use std::cell::RefCell;
use std::ops::Range;
use std::time::Instant;

use fedeq_core::{
    Error, Phase, PhaseBytes, PhaseSeed, Projection, ProximalGradient, Result, SolveTally, TrainStats, Trains, Weights,
    diverged_in_phase,
};
use fedeq_data::Seed;
use fedeq_data::shard::Batch;
use fedeq_equilibrium::{Outcome, Report, WarmMemory};
use fedeq_kernels::InstructionSet;
use fedeq_kernels::loss::cross_entropy_with_gradient;
use fedeq_kernels::sgd::SgdStep;
use fedeq_memory::Meter;
use fedeq_models::Part;
use fedeq_models::graph::ParameterId;

use crate::executor::{Context, Executor};
use crate::network::{Network, classes, input_of, padding, predictions, size_of};
use crate::op::Start;
use crate::parameters::Layout;
use crate::plan::Mode;
use crate::projection::project;
use crate::statistics::Running;

/// Plans that a worker keeps between clients and rounds: one for each part of a network that is trained on its own, and some to spare.
const KEPT: usize = 4;

/// Batch sizes that a worker keeps plans for: whole batches and what is left of an epoch. Sequences may have different lengths.
const SIZES: usize = 4;

thread_local! {
    static TRAINERS: RefCell<Vec<Trainer>> = const { RefCell::new(Vec::new()) };
}

/// All that training a part of a network takes, ready to be used again.
#[derive(Debug)]
struct Trainer {
    network: u64,
    trains: Trains,
    parameters: Vec<f32>,
    gradients: Vec<f32>,
    executors: Vec<Executor>,
    trained: Layout,
    /// The bytes that it holds while nobody trains.
    held: u64,
}

impl Trainer {
    fn new(network: &Network, trains: Trains) -> Self {
        let trained = Layout::of_some(network.graph(), |parameter| trains.includes(parameter.part));
        let gradients = vec![0.0; trained.len()];
        let parameters = Vec::with_capacity(network.layout().len());
        Self { network: network.id(), trains, parameters, gradients, executors: Vec::new(), trained, held: 0 }
    }

    /// The one that this thread keeps, or a new one.
    fn take(network: &Network, trains: Trains) -> Self {
        TRAINERS.with_borrow_mut(|kept| {
            let here = kept.iter().position(|trainer| trainer.network == network.id() && trainer.trains == trains);
            here.map_or_else(|| Self::new(network, trains), |at| kept.remove(at))
        })
    }

    /// Keeps it for the next phase on this thread.
    fn keep(self) {
        TRAINERS.with_borrow_mut(|kept| {
            kept.insert(0, self);
            kept.truncate(KEPT);
        });
    }

    /// The place of the executor for batches of this size among the executors.
    fn executor(&mut self, network: &Network, [batch, length]: [usize; 2]) -> usize {
        let here = self.executors.iter().position(|executor| (executor.batch(), executor.length()) == (batch, length));
        here.unwrap_or_else(|| {
            if self.executors.len() == SIZES {
                self.executors.remove(0);
            }
            let trains = self.trains;
            self.executors.push(Executor::new(network.graph(), batch, length, Mode::Train, |p| trains.includes(p.part)));
            self.executors.len() - 1
        })
    }
}

/// What a client trains with.
#[derive(Debug)]
pub(crate) struct Local<'a> {
    pub(crate) network: &'a Network,
    pub(crate) projection: Option<Projection>,
    pub(crate) memory: &'a mut WarmMemory,
}

/// Carries out a phase on the batches that `batches` gives for the seed of each epoch, and moves the weights.
pub(crate) fn train<B: Iterator<Item = Batch>>(
    local: Local<'_>,
    weights: &mut Weights,
    (phase, proximal): (&Phase, Option<&ProximalGradient>),
    seed: PhaseSeed,
    batches: impl Fn(Seed) -> B,
) -> Result<TrainStats> {
    let network = local.network;
    if !network.graph().parameters.iter().any(|parameter| phase.trains.includes(parameter.part)) {
        return Ok(TrainStats::default()); // Such as the head of a network that has none.
    }
    fedeq_memory::keep();
    let meter = Meter::start();
    let mut trainer = Trainer::take(network, phase.trains);
    let outcome = Run::begin(local, &mut trainer, weights, (phase, proximal), meter).and_then(|mut run| {
        run.epochs(seed, batches)?;
        run.end(weights)
    });
    let (stats, held) = outcome?;
    trainer.held = held;
    trainer.keep();
    Ok(stats)
}

/// One phase under way.
struct Run<'a> {
    local: Local<'a>,
    trainer: &'a mut Trainer,
    phase: &'a Phase,
    moves: Vec<Move<'a>>,
    /// Of the proximal term.
    strength: f32,
    per_prediction: bool,
    statistics: Vec<Running>,
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
        trainer: &'a mut Trainer,
        weights: &Weights,
        (phase, proximal): (&'a Phase, Option<&'a ProximalGradient>),
        meter: Meter,
    ) -> Result<Self> {
        let network = local.network;
        network.flat(weights, &mut trainer.parameters)?;
        let statistics = network.statistics(weights)?;
        let moves = network.graph().parameters.iter().enumerate().map(|(index, parameter)| {
            let (id, offset) = (ParameterId(index), proximal.and_then(|proximal| proximal.offset.get(&parameter.path)));
            Move {
                parameter: network.layout().range(id),
                gradient: trainer.trained.range(id),
                offset: offset.map(|offset| offset.values.as_slice()),
            }
        });
        let moves = moves.filter(|each| !each.gradient.is_empty()).collect();
        Ok(Self {
            strength: proximal.map_or(0.0, |proximal| proximal.strength as f32),
            per_prediction: proximal.is_some_and(|proximal| proximal.per_prediction),
            local,
            trainer,
            phase,
            moves,
            statistics,
            stats: TrainStats::default(),
            first: None,
            meter,
        })
    }

    fn epochs<B: Iterator<Item = Batch>>(&mut self, seed: PhaseSeed, batches: impl Fn(Seed) -> B) -> Result<()> {
        for epoch in 0..self.phase.epochs as u64 {
            let (mut loss, mut samples) = (0.0, 0);
            for (index, batch) in batches(seed.epoch(epoch)).enumerate() {
                let dropout = seed.dropout(epoch, index as u64);
                loss += self.step(&batch, dropout)? * batch.len() as f64;
                samples += batch.len();
            }
            self.stats.loss = loss / samples.max(1) as f64;
        }
        Ok(())
    }

    /// One gradient step; returns the loss before it.
    fn step(&mut self, batch: &Batch, dropout: u64) -> Result<f64> {
        let begun = Instant::now();
        self.local.network.check(batch)?;
        let at = self.trainer.executor(self.local.network, size_of(batch));
        let (loss, count) = self.forward(at, batch, dropout)?;
        if !loss.is_finite() {
            return Err(self.diverged(format!("the training loss is `{loss}`")));
        }
        let (forwarded, solve) = (Instant::now(), self.lap());
        let Trainer { parameters, gradients, executors, .. } = &mut *self.trainer;
        let mut context = Context { parameters, statistics: &mut self.statistics, dropout: Some(dropout), start: Start::Model };
        executors[at].backward(input_of(batch), &mut context, gradients);
        let (backed, backward) = (Instant::now(), self.lap());
        self.descend(count);
        self.note(begun, forwarded, backed);
        let taken = PhaseBytes { solve, backward, update: self.lap() };
        self.stats.memory = self.stats.memory.or_more(&taken);
        Ok(loss)
    }

    /// The mean loss, and how many predictions it is over.
    fn forward(&mut self, at: usize, batch: &Batch, dropout: u64) -> Result<(f64, usize)> {
        let (set, targets, ignored) = (InstructionSet::best(), classes(batch), padding(batch));
        let Trainer { parameters, executors, .. } = &mut *self.trainer;
        let executor = &mut executors[at];
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
            let predictions = predictions(logits, classes, targets, ignored.as_deref());
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
        let Trainer { parameters, gradients, .. } = &mut *self.trainer;
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

    /// Leaves the numbers in the weights; says how it went, and how many bytes are held for the next phase.
    fn end(mut self, weights: &mut Weights) -> Result<(TrainStats, u64)> {
        let network = self.local.network;
        self.lap();
        let held = self.lap();
        let Trainer { parameters, gradients, trained, .. } = &mut *self.trainer;
        // The gradients have served: the parameters take their place in the order of what is trained.
        for Move { parameter, gradient, .. } in &self.moves {
            gradients[gradient.clone()].copy_from_slice(&parameters[parameter.clone()]);
        }
        weights.params.overwrite(&network.named(trained, gradients));
        weights.statistics = network.named_statistics(&self.statistics);
        if !weights.params.is_finite() {
            return Err(self.diverged("the parameters are no longer finite after local training".into()));
        }
        Ok((self.stats, held))
    }

    fn diverged(&self, what: String) -> Error {
        diverged_in_phase(what, self.phase, &self.first.clone().unwrap_or_default())
    }

    /// The most memory held since this was last asked, with what is kept between phases.
    fn lap(&mut self) -> u64 {
        self.meter.lap().map_or(0, |more| more + self.trainer.held)
    }

    fn note(&mut self, begun: Instant, forwarded: Instant, backed: Instant) {
        let seconds = &mut self.stats.seconds;
        seconds.solve += (forwarded - begun).as_secs_f64();
        seconds.backward += (backed - forwarded).as_secs_f64();
        seconds.update += backed.elapsed().as_secs_f64();
        self.stats.steps += 1;
    }
}

pub(crate) fn tally(report: &Report) -> SolveTally {
    SolveTally {
        samples: report.len() as u64,
        steps: report.steps.iter().sum::<usize>() as u64,
        residual: report.residual.iter().filter(|residual| residual.is_finite()).sum(),
        unconverged: (report.len() - report.count(Outcome::Converged)) as u64,
        not_finite: report.count(Outcome::NotFinite) as u64,
        warm: 0,
    }
}
