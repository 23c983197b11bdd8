//! A network that is used, not trained: scores, probabilities, nearest neighbours.
use std::num::NonZeroUsize;

use fedeq_core::{Neighbours, Result, Score, Weights};
use fedeq_data::shard::{Batch, Shard};
use fedeq_kernels::InstructionSet;
use fedeq_kernels::loss::{cross_entropy, negative_log_likelihood, softmax};
use fedeq_kernels::neighbours::{Voters, distances, vote};
use fedeq_memory::Meter;
use fedeq_models::Graph;
use fedeq_models::Mode;

use crate::executor::{Context, Executor};
use crate::network::{Network, classes, input_of, padding, predictions, size_of};
use crate::op::Start;
use crate::statistics::RunningMoments;
use crate::worker::{Plans, Purpose, Worker};

/// Samples a forward pass when nothing is trained: enough to use prepared weights often, few enough to bound the memory.
pub(crate) const EVALUATION_BATCH: NonZeroUsize = const { NonZeroUsize::new(100).unwrap() };

/// A model that is used.
#[derive(Debug)]
pub(crate) struct Evaluator<'a> {
    network: &'a Network,
    /// The network's own, or that with another way to its fixed point.
    graph: &'a Graph,
    statistics: Vec<RunningMoments>,
    /// Whether all parameters want gradients.
    differentiates: bool,
    worker: Box<Worker>,
    plans: Plans,
    /// What the thread held free before: it is to hold no more afterwards, since training needs less.
    free: usize,
    meter: Meter,
}

impl<'a> Evaluator<'a> {
    pub(crate) fn new(network: &'a Network, weights: &Weights) -> Result<Self> {
        Self::of(network, network.graph(), weights, false)
    }

    pub(crate) fn of(network: &'a Network, graph: &'a Graph, weights: &Weights, differentiates: bool) -> Result<Self> {
        let (statistics, meter) = (network.statistics(weights)?, Meter::start());
        let mut worker = Worker::take();
        let found = network.values(weights, &mut worker.parameters);
        let (free, plans) = (worker.memory.pool.bytes(), Plans::new(network.id(), Purpose::Evaluate));
        let mut new = Self { network, graph, statistics, differentiates, worker, plans, free, meter };
        if new.is_plain() {
            new.plans = new.worker.plans(network.id(), Purpose::Evaluate);
        }
        found.map(|()| new)
    }

    /// Whether its plans serve the next one too.
    fn is_plain(&self) -> bool {
        std::ptr::eq(self.graph, self.network.graph()) && !self.differentiates
    }

    /// Runs the network on a batch.
    pub(crate) fn run(&mut self, batch: &Batch, start: Start<'_>) -> Result<&mut Executor> {
        self.network.check(batch)?;
        let (size, wanted, graph) = (size_of(batch), self.differentiates, self.graph);
        let Worker { memory, parameters, .. } = &mut *self.worker;
        let new = || Executor::new(graph, size[0], size[1], Mode::Evaluate, |_| wanted);
        let executor = self.plans.executor(size, memory, new);
        let mut context = Context { parameters, statistics: &mut self.statistics, dropout: None, start };
        executor.forward(input_of(batch), &mut context);
        Ok(executor)
    }

    /// The gradients of all parameters, given that of the logits, of the batch that was run last.
    pub(crate) fn backward(&mut self, batch: &Batch, gradients: &mut [f32]) {
        let (parameters, statistics) = (&self.worker.parameters, &mut self.statistics);
        let mut context = Context { parameters, statistics, dropout: None, start: Start::Model };
        if let Some(executor) = self.plans.current() {
            executor.backward(input_of(batch), &mut context, gradients);
        }
    }

    /// As [`Executor::spectral_radius`], of the batch that was run last.
    pub(crate) fn spectral_radius(
        &mut self,
        batch: &Batch,
        probe: fedeq_equilibrium::HostStates,
        products: usize,
    ) -> Option<Vec<f64>> {
        let (parameters, statistics) = (&self.worker.parameters, &mut self.statistics);
        let mut context = Context { parameters, statistics, dropout: None, start: Start::Model };
        self.plans.current()?.spectral_radius(input_of(batch), &mut context, probe, products)
    }

    fn classes(&self) -> usize {
        self.graph.task.classes
    }

    /// How well the model does on batches, alone or together with the neighbours.
    pub(crate) fn score(&mut self, of: &Shard, voters: Option<&Voting>) -> Result<Score> {
        let (mut total, mut mixed, mut flags) = (Score::default(), Vec::new(), Vec::new());
        for batch in of.in_order(EVALUATION_BATCH) {
            let (count, targets, ignored) = (self.classes(), classes(&batch), padding(&batch, &mut flags));
            let executor = self.run(&batch, Start::Model)?;
            let (found, loss) = match voters {
                None => {
                    let found = predictions(executor.logits(), count, targets, ignored);
                    (found, cross_entropy(InstructionSet::best(), found))
                }
                Some(voters) => {
                    voters.mix(executor.logits(), executor.embedding(input_of(&batch)).unwrap_or_default(), count, &mut mixed);
                    let found = predictions(&mixed, count, targets, ignored);
                    (found, negative_log_likelihood(found))
                }
            };
            total = total.plus(Score { predictions: loss.count as u64, correct: found.correct() as u64, loss: loss.sum });
        }
        Ok(total)
    }

    /// The probability of every class, one row a sample, for text one row a position.
    pub(crate) fn probabilities(&mut self, of: &Shard, voters: Option<&Voting>) -> Result<Vec<Vec<f32>>> {
        let (mut rows, mut row) = (Vec::new(), Vec::new());
        for batch in of.in_order(EVALUATION_BATCH) {
            let count = self.classes();
            let executor = self.run(&batch, Start::Model)?;
            match voters {
                None => probabilities(executor.logits(), count, &mut row),
                Some(voters) => {
                    voters.mix(executor.logits(), executor.embedding(input_of(&batch)).unwrap_or_default(), count, &mut row);
                }
            }
            rows.extend(row.chunks_exact(count).map(<[f32]>::to_vec));
        }
        Ok(rows)
    }

    /// What the network itself says before it becomes probabilities: one number a class, for text one row of them a position.
    pub(crate) fn logits(&mut self, of: &Shard) -> Result<Vec<f32>> {
        let mut logits = Vec::new();
        for batch in of.in_order(EVALUATION_BATCH) {
            logits.extend_from_slice(self.run(&batch, Start::Model)?.logits());
        }
        Ok(logits)
    }

    /// The training samples that vote along, where the method lets them.
    pub(crate) fn voters(&mut self, train: &Shard, neighbours: Option<&Neighbours>) -> Result<Option<Voting>> {
        let Some(neighbours) = neighbours.filter(|neighbours| neighbours.mixing != 0.0) else { return Ok(None) };
        let (mut voting, mut flags) = (Voting::new(*neighbours), Vec::new());
        for batch in train.in_order(EVALUATION_BATCH) {
            let embeddings = self.run(&batch, Start::Model)?.embedding(input_of(&batch)).unwrap_or_default();
            voting.add(embeddings, classes(&batch), padding(&batch, &mut flags));
        }
        Ok(voting.if_any())
    }
}

/// What is used again stays with the thread.
impl Drop for Evaluator<'_> {
    fn drop(&mut self) {
        let is_plain = self.is_plain();
        let Self { network, worker, plans, free, meter, .. } = self;
        plans.release(&mut worker.memory);
        worker.parameters.clear();
        let plans = std::mem::replace(plans, Plans::new(network.id(), Purpose::Evaluate));
        if is_plain {
            worker.keep(plans);
        } else {
            drop(plans);
        }
        worker.memory.pool.shrink_to(*free);
        meter.lap();
        worker.held += meter.lap().unwrap_or_default();
        std::mem::take(worker).put_back();
    }
}

fn probabilities(logits: &[f32], classes: usize, rows: &mut Vec<f32>) {
    rows.resize(logits.len(), 0.0);
    softmax(InstructionSet::best(), classes, logits, rows);
}

/// The embedded training samples of a client.
#[derive(Debug)]
pub(crate) struct Voting {
    neighbours: Neighbours,
    width: usize,
    /// `[entries, width]`
    embeddings: Vec<f32>,
    /// `[entries]`
    labels: Vec<i32>,
}

/// Distances computed at a time, so that those of a whole batch of text to all positions of a client need not be held at once.
const DISTANCES: usize = 1 << 20;

impl Voting {
    /// None so far.
    pub(crate) fn new(neighbours: Neighbours) -> Self {
        Self { neighbours, width: 0, embeddings: Vec::new(), labels: Vec::new() }
    }

    /// Adds some samples; those that are `ignored` do not vote.
    pub(crate) fn add(&mut self, embeddings: &[f32], labels: &[i32], ignored: Option<&[bool]>) {
        self.width = embeddings.len() / labels.len().max(1);
        for (row, (embedding, label)) in embeddings.chunks_exact(self.width.max(1)).zip(labels).enumerate() {
            if !ignored.is_some_and(|ignored| ignored[row]) {
                self.embeddings.extend_from_slice(embedding);
                self.labels.push(*label);
            }
        }
    }

    /// Nothing where no neighbours vote.
    pub(crate) fn if_any(self) -> Option<Self> {
        (!self.labels.is_empty()).then_some(self)
    }

    /// `mixing * vote + (1 - mixing) * softmax(logits)`, of samples with these embeddings.
    pub(crate) fn mix(&self, logits: &[f32], embeddings: &[f32], classes: usize, rows: &mut Vec<f32>) {
        probabilities(logits, classes, rows);
        let set = InstructionSet::best();
        let voters = Voters { labels: &self.labels, neighbours: self.neighbours.count, classes };
        let (new, old) = (self.neighbours.mixing as f32, (1.0 - self.neighbours.mixing) as f32);
        let some = (DISTANCES / self.labels.len()).max(1);
        let (mut far, mut votes) = (Vec::new(), Vec::new());
        let queries = embeddings.chunks(some * self.width);
        for (queries, rows) in queries.zip(rows.chunks_mut(some * classes)) {
            far.resize(queries.len() / self.width * self.labels.len(), 0.0);
            votes.resize(rows.len(), 0.0);
            distances(set, self.width, queries, &self.embeddings, &mut far);
            vote(set, voters, &far, &mut votes);
            rows.iter_mut().zip(&votes).for_each(|(row, vote)| *row = vote * new + *row * old);
        }
    }
}
