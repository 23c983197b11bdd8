//! A client's problem: its data, and the network that all clients share.
use std::num::NonZeroUsize;
use std::sync::Arc;

use fedeq_core::{
    ContrastModels, Examined, LocalProblem, Neighbours, Params, Phase, PhaseSeed, Portion, Projection, ProximalGradient, Result,
    Score, Search, TrainStats, Training, Weights,
};
use fedeq_data::Seed;
use fedeq_data::shard::{Augmentation, Remainder, Shard};
use fedeq_equilibrium::WarmMemory;
use fedeq_kernels::InstructionSet;
use fedeq_kernels::loss::cross_entropy_with_gradient;

use crate::contrast::Embeddings;
use crate::evaluate::{EVALUATION_BATCH, Evaluator};
use crate::fixed_points::{TOLERANCE, examine, precise};
use crate::network::{Network, classes, padding, predictions};
use crate::op::Start;
use crate::train::{Local, train};

/// The tolerance of fixed points and of adjoints through them where the true gradient is wanted: what 32 bits allow.
const GRADIENT_TOLERANCE: f64 = 1e-6;

/// A client's shards and a network to train on them.
#[derive(Debug)]
pub struct NetworkProblem {
    network: Arc<Network>,
    train: Shard,
    validation: Shard,
    test: Shard,
    batch_size: NonZeroUsize,
    remainder: Remainder,
    projection: Option<Projection>,
    /// Gradient steps an epoch.
    steps: usize,
    augment: Option<Augmentation>,
}

impl NetworkProblem {
    /// A client with these training, validation and test samples.
    pub fn new(network: Arc<Network>, [train, validation, test]: [Shard; 3], training: &Training) -> Self {
        let Training { batch_size, remainder, projection, augment, .. } = *training;
        let steps = training.steps(train.len());
        Self { network, train, validation, test, batch_size, remainder, projection, steps, augment }
    }

    /// What a model makes of any samples: the probability of every class, one row a sample, for text one row a position.
    pub fn probabilities(&self, weights: &Weights, of: &Shard, neighbours: Option<&Neighbours>) -> Result<Vec<Vec<f32>>> {
        let mut model = Evaluator::new(&self.network, weights)?;
        let voters = model.voters(&self.train, neighbours)?;
        model.probabilities(of, voters.as_ref())
    }

    /// What the network says before it becomes probabilities: one number a class, rows one after the other; for text one row a position. No neighbours vote along.
    pub fn logits(&self, weights: &Weights, of: &Shard) -> Result<Vec<f32>> {
        Evaluator::new(&self.network, weights)?.logits(of)
    }

    fn carry_out(
        &self,
        weights: &mut Weights,
        memory: &mut WarmMemory,
        (phase, proximal): (&Phase, Option<&ProximalGradient>),
        embeddings: Option<&Embeddings>,
        seed: PhaseSeed,
    ) -> Result<TrainStats> {
        let local = Local { network: &self.network, projection: self.projection, steps: self.steps, memory, embeddings };
        train(local, weights, (phase, proximal), seed, |epoch| {
            let samples = phase.samples(self.train.len());
            let batches = self.train.batches_of(samples, self.batch_size, self.remainder, epoch);
            batches.only(phase.batch).augmented(self.augment.unwrap_or_default(), epoch)
        })
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
        seed: PhaseSeed,
    ) -> Result<TrainStats> {
        self.carry_out(weights, memory, (phase, proximal), None, seed)
    }

    fn train_contrasting(
        &self,
        weights: &mut Weights,
        memory: &mut WarmMemory,
        phase: &Phase,
        contrast: &ContrastModels,
        seed: PhaseSeed,
    ) -> Result<TrainStats> {
        let embeddings = Embeddings::of(&self.network, &self.train, contrast)?;
        self.carry_out(weights, memory, (phase, None), Some(&embeddings), seed)
    }

    fn score(&self, weights: &Weights, on: Portion, neighbours: Option<&Neighbours>) -> Result<Score> {
        let mut model = Evaluator::new(&self.network, weights)?;
        let voters = model.voters(&self.train, neighbours)?;
        model.score(self.shard(on), voters.as_ref())
    }

    fn gradient(&self, weights: &Weights) -> Result<(f64, Params)> {
        let graph = self.network.graph().clone().with_equilibrium(&precise(GRADIENT_TOLERANCE));
        let mut model = Evaluator::of(&self.network, &graph, weights, true)?;
        let layout = self.network.layout();
        let (mut total, mut samples) = (0.0, 0.0);
        let (mut gradients, mut sum) = (vec![0.0; layout.len()], vec![0.0; layout.len()]);
        let mut flags = Vec::new();
        for batch in self.train.in_order(EVALUATION_BATCH) {
            let (targets, ignored, count) = (classes(&batch), padding(&batch, &mut flags), batch.len() as f64);
            let found = model.run(&batch, Start::Model)?.differentiate(|logits, gradient| {
                let predictions = predictions(logits, graph.task.classes, targets, ignored);
                let scale = 1.0 / predictions.count().max(1) as f32;
                cross_entropy_with_gradient(InstructionSet::best(), predictions, scale, gradient)
            });
            let loss = found.unwrap_or_default();
            model.backward(&batch, &mut gradients);
            total += count * loss.sum / loss.count.max(1) as f64;
            sum.iter_mut().zip(&gradients).for_each(|(sum, gradient)| *sum += count as f32 * gradient);
            samples += count;
        }
        sum.iter_mut().for_each(|sum| *sum /= f64::max(samples, 1.0) as f32);
        Ok((total / f64::max(samples, 1.0), self.network.named(layout, &sum)))
    }

    fn fixed_points(&self, weights: &Weights, on: Portion, search: &Search, seed: Seed) -> Result<Option<Vec<Examined>>> {
        let graph = self.network.graph().clone().with_equilibrium(&precise(TOLERANCE));
        let mut model = Evaluator::of(&self.network, &graph, weights, false)?;
        let size = NonZeroUsize::new(search.samples).unwrap_or(NonZeroUsize::MIN).min(EVALUATION_BATCH);
        let mut found = Vec::new();
        for batch in self.shard(on).in_order(size).take(search.samples.div_ceil(size.get())) {
            let seed = seed.derive("batch", [found.len() as u64]).to_u64();
            match examine(&mut model, &batch, search.starts, seed)? {
                Some(examined) => found.extend(examined),
                None => return Ok(None),
            }
        }
        found.truncate(search.samples);
        Ok(Some(found))
    }
}
