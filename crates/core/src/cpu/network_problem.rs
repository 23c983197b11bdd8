//! A client's problem whose model is a network: the one local training loop.
use std::num::NonZeroUsize;
use std::time::Instant;

use burn::module::Module;
use burn::tensor::activation::softmax;
use burn::tensor::{Device, Tensor};
use fedeq_data::Seed;
use fedeq_data::shard::{Batch, Remainder, Shard};
use fedeq_equilibrium::{Outcome, Report, WarmMemory};
use fedeq_kernels::memory::{Meter, keep};
use fedeq_models::{Context, Network, Output, Part, Start, Statistics};

use super::bridge::{self, input_of};
use super::fixed_points::{examine, precise};
use super::loss::{Goal, Loss, loss_of};
use super::score::{Store, score};
use super::sgd;
use crate::divergence;
use crate::engine::LocalProblem;
use crate::error::{Error, Result};
use crate::fixed_points::{Examined, Search};
use crate::params::Params;
use crate::projection::Projection;
use crate::stats::{Neighbours, PhaseBytes, Portion, Score, SolveTally, TrainStats};
use crate::training::Training;
use crate::weights::Weights;
use crate::work::{Phase, ProximalGradient, Trains};

/// Samples a forward pass when nothing is trained: enough to keep the device busy, few enough to bound the memory.
const EVALUATION_BATCH: NonZeroUsize = const { NonZeroUsize::new(100).unwrap() };

/// The tolerance of fixed points and of adjoints through them where the true gradient is wanted: what 32 bits allow.
const GRADIENT_TOLERANCE: f64 = 1e-6;

/// A client's shards and a network to train on them.
pub struct NetworkProblem {
    template: Network,
    device: Device,
    train: Shard,
    validation: Shard,
    test: Shard,
    batch_size: NonZeroUsize,
    remainder: Remainder,
    projection: Option<Projection>,
}

impl NetworkProblem {
    /// A client on a device. `template` gives the architecture, not the numbers; it is one built with autodiff.
    pub fn new(template: Network, device: Device, [train, validation, test]: [Shard; 3], training: &Training) -> Self {
        let Training { batch_size, remainder, projection, .. } = *training;
        Self { template, device, train, validation, test, batch_size, remainder, projection }
    }

    fn network(&self, weights: &Weights) -> Network {
        bridge::network_with(self.template.clone(), &weights.params)
    }

    fn statistics(&self, weights: &Weights) -> Statistics {
        bridge::statistics_with(&self.template, &weights.statistics)
    }

    /// The forward pass of a model that is used, not trained.
    fn used(&self, weights: &Weights) -> impl Fn(&Batch) -> Result<Output> {
        let network = self.network(weights).valid();
        let statistics = self.statistics(weights);
        move |batch| {
            let mut context = Context::evaluate(statistics.clone());
            Ok(network.forward(&input_of(&batch.inputs, &self.device)?, &mut context)?)
        }
    }

    /// The training samples that vote along, where the method lets them.
    fn voters(&self, forward: impl Fn(&Batch) -> Result<Output>, neighbours: Option<&Neighbours>) -> Result<Option<Store>> {
        let Some(neighbours) = neighbours else { return Ok(None) };
        Store::build(self.train.in_order(EVALUATION_BATCH), forward, *neighbours, &self.device)
    }

    /// What a model makes of any samples: the probability of every class, one row a sample, for text one row a position.
    pub fn probabilities(&self, weights: &Weights, of: &Shard, neighbours: Option<&Neighbours>) -> Result<Vec<Vec<f32>>> {
        let forward = self.used(weights);
        let voters = self.voters(&forward, neighbours)?;
        let mut rows = Vec::new();
        for batch in of.in_order(EVALUATION_BATCH) {
            let output = forward(&batch)?;
            let network = || softmax(output.logits.clone(), 1);
            rows.extend(rows_of(voters.as_ref().map_or_else(network, |voters| voters.mixed(&output))));
        }
        Ok(rows)
    }

    fn shard(&self, on: Portion) -> &Shard {
        match on {
            Portion::Train => &self.train,
            Portion::Validation => &self.validation,
            Portion::Test => &self.test,
        }
    }
}

impl LocalProblem for NetworkProblem {
    fn samples(&self) -> usize {
        self.train.len()
    }

    fn train(
        &self,
        weights: &mut Weights,
        memory: &mut WarmMemory,
        phase: &Phase,
        proximal: Option<&ProximalGradient>,
        seed: Seed,
    ) -> Result<TrainStats> {
        if !weights.params.iter().any(|(path, _)| phase.trains.includes(Part::of(path))) {
            return Ok(TrainStats::default()); // Such as the head of a network that has none.
        }
        keep();
        let meter = Meter::start();
        let mut network = sgd::train_only(self.network(weights), phase.trains);
        let mut run = Run {
            device: &self.device,
            statistics: self.statistics(weights),
            memory,
            step: sgd::Step::new(phase, proximal, self.projection, &self.device),
            stats: TrainStats::default(),
            first: None,
            meter,
        };
        for epoch in 0..phase.epochs as u64 {
            let (mut loss, mut samples) = (0.0, 0);
            for (index, batch) in self.train.batches(self.batch_size, self.remainder, seed.derive("epoch", [epoch])).enumerate() {
                let dropout = seed.derive("dropout", [epoch, index as u64]).to_u64();
                let before;
                (network, before) = run.step(network, &batch, phase, dropout)?;
                loss += before * batch.len() as f64;
                samples += batch.len();
            }
            run.stats.loss = loss / samples.max(1) as f64;
        }
        weights.params = bridge::params_of(&network);
        weights.statistics = bridge::named_statistics(&run.statistics);
        if !weights.params.is_finite() {
            return Err(run.diverged("the parameters are no longer finite after local training".into(), phase));
        }
        Ok(run.stats)
    }

    fn score(&self, weights: &Weights, on: Portion, neighbours: Option<&Neighbours>) -> Result<Score> {
        let forward = self.used(weights);
        let voters = self.voters(&forward, neighbours)?;
        score(self.shard(on).in_order(EVALUATION_BATCH), forward, voters.as_ref(), &self.device)
    }

    fn gradient(&self, weights: &Weights) -> Result<(f64, Params)> {
        let network = sgd::train_only(self.network(weights).with_equilibrium(precise(GRADIENT_TOLERANCE)), Trains::Everything);
        let statistics = self.statistics(weights);
        let (mut total, mut sum, mut samples) = (0.0, weights.params.zeros_like(), 0.0);
        for batch in self.train.in_order(EVALUATION_BATCH) {
            let mut context = Context::evaluate(statistics.clone());
            let output = network.forward(&input_of(&batch.inputs, &self.device)?, &mut context)?;
            let count = batch.len() as f64;
            let loss = loss_of(&output.logits, &Goal::of(&batch, &self.device)).mean;
            total += count * loss.clone().into_scalar::<f64>();
            sum = sum.plus(count as f32, &sgd::gradient_of(&network, loss));
            samples += count;
        }
        Ok((total / f64::max(samples, 1.0), sum.map(|value| value / samples as f32)))
    }

    fn fixed_points(&self, weights: &Weights, on: Portion, search: &Search, seed: Seed) -> Result<Option<Vec<Examined>>> {
        let (network, statistics) = (self.network(weights).valid(), self.statistics(weights));
        let size = NonZeroUsize::new(search.samples).unwrap_or(NonZeroUsize::MIN).min(EVALUATION_BATCH);
        let mut found = Vec::new();
        for batch in self.shard(on).in_order(size).take(search.samples.div_ceil(size.get())) {
            let input = input_of(&batch.inputs, &self.device)?;
            let seed = seed.derive("batch", [found.len() as u64]).to_u64();
            match examine(&network, &statistics, (&input, &batch), search.starts, seed)? {
                Some(examined) => found.extend(examined),
                None => return Ok(None),
            }
        }
        found.truncate(search.samples);
        Ok(Some(found))
    }
}

fn rows_of(tensor: Tensor<2>) -> Vec<Vec<f32>> {
    let [_, width] = tensor.dims();
    let values = tensor.into_data().try_into_vec::<f32>().expect("networks give 32-bit floats");
    values.chunks_exact(width).map(<[f32]>::to_vec).collect()
}

/// One phase under way.
struct Run<'a> {
    device: &'a Device,
    statistics: Statistics,
    memory: &'a mut WarmMemory,
    step: sgd::Step,
    stats: TrainStats,
    /// The solves of the first batch.
    first: Option<SolveTally>,
    meter: Meter,
}

impl Run<'_> {
    /// One gradient step; returns the loss before it. The network comes and goes by value, so that its numbers can change in place.
    fn step(&mut self, network: Network, batch: &Batch, phase: &Phase, dropout: u64) -> Result<(Network, f64)> {
        let begun = Instant::now();
        let logits = self.forward(&network, batch, dropout)?.logits;
        let Loss { mean: loss, count: predictions } = loss_of(&logits, &Goal::of(batch, self.device));
        drop(logits);
        let value = loss.clone().into_scalar::<f64>();
        if !value.is_finite() {
            return Err(self.diverged(format!("the training loss is `{value}`"), phase));
        }
        let (forwarded, solve) = (Instant::now(), self.lap());
        let gradients = loss.backward();
        let (backed, backward) = (Instant::now(), self.lap());
        let network = self.step.apply(network, gradients, phase.trains, predictions);
        self.note(begun, forwarded, backed);
        let taken = PhaseBytes { solve, backward, update: self.lap() };
        self.stats.memory = self.stats.memory.or_more(&taken);
        Ok((network, value))
    }

    fn forward(&mut self, network: &Network, batch: &Batch, dropout: u64) -> Result<Output> {
        let statistics = std::mem::take(&mut self.statistics);
        let mut context = Context::train(statistics, dropout).starting(Start::Recalled(self.memory, &batch.ids));
        let output = network.forward(&input_of(&batch.inputs, self.device)?, &mut context)?;
        self.statistics = context.statistics;
        if let Some(equilibrium) = &output.equilibrium {
            let warm = self.memory.knows(&batch.ids, equilibrium.state.dims()[1]) as u64;
            let solves = SolveTally { warm, ..tally(&equilibrium.report) };
            self.stats.solves = self.stats.solves.plus(&solves);
            self.memory.remember_tensor(&batch.ids, &equilibrium.state);
            self.first.get_or_insert(solves);
        }
        Ok(output)
    }

    fn diverged(&self, what: String, phase: &Phase) -> Error {
        divergence::diverged_in_phase(what, phase, &self.first.clone().unwrap_or_default())
    }

    /// The most memory held since this was last asked.
    fn lap(&mut self) -> u64 {
        self.meter.lap().unwrap_or_default()
    }

    fn note(&mut self, begun: Instant, forwarded: Instant, backed: Instant) {
        let seconds = &mut self.stats.seconds;
        seconds.solve += (forwarded - begun).as_secs_f64();
        seconds.backward += (backed - forwarded).as_secs_f64();
        seconds.update += backed.elapsed().as_secs_f64();
        self.stats.steps += 1;
    }
}

fn tally(report: &Report) -> SolveTally {
    SolveTally {
        samples: report.len() as u64,
        steps: report.steps.iter().sum::<usize>() as u64,
        residual: report.residual.iter().filter(|residual| residual.is_finite()).sum(),
        unconverged: (report.len() - report.count(Outcome::Converged)) as u64,
        not_finite: report.count(Outcome::NotFinite) as u64,
        warm: 0,
    }
}
