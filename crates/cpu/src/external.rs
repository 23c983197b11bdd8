//! A client's problem whose network is computed elsewhere: batches, optimisers and scores are ours.
use std::sync::Arc;
use std::time::Instant;

use fedeq_core::{
    Array, ContrastModels, Error, LocalProblem, Neighbours, Params, Phase, PhaseSeconds, PhaseSeed, Portion, ProximalGradient,
    Result, Score, SolveTally, TrainStats, Training, Weights, diverged_in_phase,
};
use fedeq_data::shard::{Batch, Shard};
use fedeq_equilibrium::WarmMemory;
use fedeq_kernels::InstructionSet;
use fedeq_kernels::loss::{cross_entropy, negative_log_likelihood};
use fedeq_models::graph::{Parameter, ParameterId};

use crate::contrast::{Embeddings, Rows};
use crate::evaluate::{EVALUATION_BATCH, Voting};
use crate::network::{Network, classes, padding, predictions};
use crate::optimiser::{OptimiserMoments, PlainStep, add_proximal, clip};
use crate::parameters::ParameterLayout;
use crate::pool::Pool;

/// A network that is computed outside of fedeq, such as in Python.
///
/// It holds no state: the same parameters, batch and seed give the same numbers, whoever asks and in whatever order. It is asked from several threads.
/// `client` is who it is asked for, to be named if something goes wrong. What it gives is checked: names, shapes and whether it is finite.
pub trait ExternalNetwork: Send + Sync {
    /// Who computes it, as people are told: `Python`.
    fn computed_by(&self) -> &str;

    /// The mean loss over the predictions of a batch, and its gradient with respect to every parameter. What is drawn while training comes from the seed;
    /// without one nothing is drawn, as when the network is used.
    fn loss_and_gradient(&self, client: &str, parameters: &Params, batch: &Batch, seed: Option<u64>) -> Result<(f64, Params)>;

    /// The logits `[samples, classes]` of a batch, for text `[samples, length, classes]`.
    fn logits(&self, client: &str, parameters: &Params, batch: &Batch) -> Result<Vec<f32>>;

    /// Whether it says what it makes of samples before its last layer.
    fn has_features(&self) -> bool {
        false
    }

    /// What it makes of samples, `[samples, width]`, for text `[samples, length, width]`: nearest neighbours are found by it.
    fn features(&self, _client: &str, _parameters: &Params, _batch: &Batch) -> Result<Vec<f32>> {
        Err(Error::invalid("the network offers no features", "choose another method"))
    }

    /// Whether a loss on its features can be trained on.
    fn has_feature_gradient(&self) -> bool {
        false
    }

    /// The gradient, with respect to every parameter, of a loss on the features of a training pass. `loss` writes its own gradient, with respect to them, over
    /// its second argument. What is drawn is drawn as for [`Self::loss_and_gradient`] with the same seed.
    fn feature_gradient(
        &self,
        _client: &str,
        _parameters: &Params,
        _batch: &Batch,
        _seed: Option<u64>,
        _loss: &mut FeatureLoss<'_>,
    ) -> Result<(f64, Params)> {
        Err(Error::invalid("the network offers no gradient of features", "choose another method"))
    }
}

/// A loss on features: gives its value, and writes its gradient over the second argument.
pub type FeatureLoss<'a> = dyn FnMut(&[f32], &mut [f32]) -> Result<f64> + 'a;

/// A client's shards, and a network to train on them that is computed elsewhere.
pub struct ExternalProblem {
    external: Arc<dyn ExternalNetwork>,
    /// The parameters and the task.
    network: Arc<Network>,
    client: String,
    shards: [Shard; 3],
    training: Training,
}

impl ExternalProblem {
    /// A client of this name with these training, validation and test samples. The graph of the network says which parameters there are and needs no layers.
    pub fn new(
        external: Arc<dyn ExternalNetwork>,
        network: Arc<Network>,
        client: String,
        shards: [Shard; 3],
        training: &Training,
    ) -> Self {
        Self { external, network, client, shards, training: training.clone() }
    }

    fn train_shard(&self) -> &Shard {
        &self.shards[0]
    }

    fn shard(&self, on: Portion) -> &Shard {
        let [train, validation, test] = &self.shards;
        match on {
            Portion::Train => train,
            Portion::Validation => validation,
            Portion::Test => test,
        }
    }

    fn parameters(&self) -> &[Parameter] {
        &self.network.graph().parameters
    }

    /// The parameters by their paths, and nothing else that may stand beside them.
    fn model(&self, weights: &Weights) -> Result<Params> {
        let mut values = Vec::new();
        self.network.values(weights, &mut values)?;
        let array = |(parameter, values): (&Parameter, Arc<Vec<f32>>)| {
            (parameter.path.clone(), Array { shape: parameter.shape.clone(), values })
        };
        Ok(self.parameters().iter().zip(values).map(array).collect())
    }

    /// The loss and its gradient, which has the names and shapes of the parameters.
    fn loss_and_gradient(&self, model: &Params, batch: &Batch, seed: Option<u64>) -> Result<(f64, Params)> {
        self.network.check(batch)?;
        let (loss, gradient) = self.external.loss_and_gradient(&self.client, model, batch, seed)?;
        self.check_gradient(model, &gradient)?;
        Ok((loss, gradient))
    }

    /// Refuses a gradient without the names and shapes of the parameters.
    fn check_gradient(&self, model: &Params, gradient: &Params) -> Result<()> {
        for (path, array) in model.iter() {
            let found = gradient.get(path).ok_or_else(|| self.wrong(format!("lacks `{path}`")))?;
            if found.shape != array.shape {
                return Err(self.wrong(format!("has shape `{:?}` for `{path}`, which is {:?}", found.shape, array.shape)));
            }
        }
        let unknown = gradient.iter().find(|(path, _)| model.get(path).is_none());
        unknown.map_or(Ok(()), |(path, _)| Err(self.wrong(format!("has `{path}`, which is no parameter"))))
    }

    /// What a term on embeddings adds to the loss of a batch, and to its gradient.
    fn contrasted(&self, model: &Params, batch: &Batch, seed: Option<u64>, embeddings: &Embeddings) -> Result<(f64, Params)> {
        let mut flags = Vec::new();
        let ignored = padding(batch, &mut flags);
        let mut loss = |z: &[f32], gradient: &mut [f32]| {
            let width = self.width("features", z.len(), classes(batch).len())?;
            self.require_width(width, embeddings.width())?;
            Ok(embeddings.loss(&batch.ids, ignored, z, gradient))
        };
        let (added, gradient) = self.external.feature_gradient(&self.client, model, batch, seed, &mut loss)?;
        self.check_gradient(model, &gradient)?;
        Ok((added, gradient))
    }

    /// What a model makes of all training samples.
    fn embedded(&self, weights: &Weights) -> Result<Rows> {
        let (model, mut all, mut shape) = (self.model(weights)?, Vec::new(), None::<[usize; 2]>);
        for batch in self.train_shard().in_order(EVALUATION_BATCH) {
            let (features, width) = self.features(&model, &batch, shape.map(|[_, width]| width))?;
            shape = Some([classes(&batch).len() / batch.len(), width]);
            all.extend(features);
        }
        Ok((all, shape.unwrap_or([1, 1])))
    }

    fn wrong(&self, problem: String) -> Error {
        let by = self.external.computed_by();
        let remedy = "let the network give one array for every parameter, of its shape";
        Error::invalid(format!("client `{}`: the gradient that {by} gave {problem}", self.client), remedy)
    }

    /// So many numbers a row of logits that were given.
    fn width(&self, what: &str, numbers: usize, rows: usize) -> Result<usize> {
        let width = numbers.checked_div(rows).unwrap_or_default();
        if width > 0 && width * rows == numbers {
            return Ok(width);
        }
        let problem = format!("client `{}`: {numbers} {what} do not go with {rows} predictions", self.client);
        Err(Error::invalid(problem, format!("let the network give as many {what} for every prediction")))
    }

    fn logits(&self, model: &Params, batch: &Batch) -> Result<Vec<f32>> {
        self.network.check(batch)?;
        let (logits, expected) = (self.external.logits(&self.client, model, batch)?, self.network.graph().task.classes);
        let width = self.width("logits", logits.len(), classes(batch).len())?;
        if width == expected {
            return Ok(logits);
        }
        let problem = format!("client `{}`: the network gave {width} logits for each of {expected} classes", self.client);
        Err(Error::invalid(problem, "let it give one logit a class"))
    }

    /// What stands for samples, as wide as what was given before.
    fn features(&self, model: &Params, batch: &Batch, before: Option<usize>) -> Result<(Vec<f32>, usize)> {
        let features = self.external.features(&self.client, model, batch)?;
        let width = self.width("features", features.len(), classes(batch).len())?;
        self.require_width(width, before.unwrap_or(width))?;
        Ok((features, width))
    }

    /// Refuses features that are not as wide as those before.
    fn require_width(&self, width: usize, before: usize) -> Result<()> {
        if width == before {
            return Ok(());
        }
        let problem = format!("client `{}`: the network gave `{width}` features, and other numbers before", self.client);
        Err(Error::invalid(problem, "let it give as many features for every sample"))
    }

    /// The training samples that vote along, and how many features each has.
    fn voters(&self, model: &Params, neighbours: Option<&Neighbours>) -> Result<Option<(Voting, usize)>> {
        let Some(neighbours) = neighbours.filter(|neighbours| neighbours.mixing != 0.0) else { return Ok(None) };
        let (mut voting, mut flags, mut width) = (Voting::new(*neighbours), Vec::new(), None);
        for batch in self.train_shard().in_order(EVALUATION_BATCH) {
            let (features, found) = self.features(model, &batch, width)?;
            voting.add(&features, classes(&batch), padding(&batch, &mut flags));
            width = Some(found);
        }
        Ok(voting.if_any().zip(width))
    }
}

impl ExternalProblem {
    fn carry_out(
        &self,
        weights: &mut Weights,
        (phase, proximal): (&Phase, Option<&ProximalGradient>),
        embeddings: Option<&Embeddings>,
        seed: PhaseSeed,
    ) -> Result<TrainStats> {
        let mut run = PhaseRun::begin(self, weights, (phase, proximal), embeddings);
        if run.trained.is_empty() {
            return Ok(TrainStats::default()); // Such as the head of a network that has none.
        }
        let (Training { batch_size, remainder, augment, .. }, mut batch) = (&self.training, Batch::default());
        for epoch in 0..phase.epochs as u64 {
            let shuffled = seed.epoch(epoch);
            let shard = self.train_shard();
            let batches = shard.batches_of(phase.samples(shard.len()), *batch_size, *remainder, shuffled);
            let mut batches = batches.only(phase.batch).augmented(augment.unwrap_or_default(), shuffled);
            let (mut loss, mut samples, mut index) = (0.0, 0, 0);
            while batches.read_next(&mut batch) {
                loss += run.step(&batch, seed.dropout(epoch, index))? * batch.len() as f64;
                samples += batch.len();
                index += 1;
            }
            run.stats.loss = loss / samples.max(1) as f64;
        }
        let stats = run.stats;
        if weights.params.is_finite() {
            return Ok(stats);
        }
        Err(diverged("the parameters are no longer finite after local training".into(), phase))
    }
}

impl LocalProblem for ExternalProblem {
    fn samples(&self) -> usize {
        self.train_shard().len()
    }

    fn train(
        &self,
        weights: &mut Weights,
        _: &mut WarmMemory,
        phase: &Phase,
        proximal: Option<&ProximalGradient>,
        seed: PhaseSeed,
    ) -> Result<TrainStats> {
        self.carry_out(weights, (phase, proximal), None, seed)
    }

    fn train_contrasting(
        &self,
        weights: &mut Weights,
        _: &mut WarmMemory,
        phase: &Phase,
        contrast: &ContrastModels,
        seed: PhaseSeed,
    ) -> Result<TrainStats> {
        let embeddings = Embeddings::by(self.train_shard(), contrast, |weights| self.embedded(weights))?;
        self.carry_out(weights, (phase, None), Some(&embeddings), seed)
    }

    fn score(&self, weights: &Weights, on: Portion, neighbours: Option<&Neighbours>) -> Result<Score> {
        let model = self.model(weights)?;
        let voters = self.voters(&model, neighbours)?;
        let (mut total, mut mixed, mut flags) = (Score::default(), Vec::new(), Vec::new());
        for batch in self.shard(on).in_order(EVALUATION_BATCH) {
            let (targets, ignored) = (classes(&batch), padding(&batch, &mut flags));
            let (logits, count) = (self.logits(&model, &batch)?, self.network.graph().task.classes);
            let (found, loss) = match &voters {
                None => {
                    let found = predictions(&logits, count, targets, ignored);
                    (found, cross_entropy(InstructionSet::best(), found))
                }
                Some((voters, width)) => {
                    let (features, _) = self.features(&model, &batch, Some(*width))?;
                    voters.mix(&logits, &features, count, &mut mixed);
                    let found = predictions(&mixed, count, targets, ignored);
                    (found, negative_log_likelihood(found))
                }
            };
            total = total.plus(Score { predictions: loss.count as u64, correct: found.correct() as u64, loss: loss.sum });
        }
        Ok(total)
    }

    fn gradient(&self, weights: &Weights) -> Result<(f64, Params)> {
        let model = self.model(weights)?;
        let (mut total, mut samples, mut sum) = (0.0, 0.0, model.zeros_like());
        for batch in self.train_shard().in_order(EVALUATION_BATCH) {
            let count = batch.len() as f64;
            let (loss, gradient) = self.loss_and_gradient(&model, &batch, None)?;
            sum = sum.plus(count as f32, &gradient);
            total += count * loss;
            samples += count;
        }
        let samples = f64::max(samples, 1.0);
        Ok((total / samples, sum.map(|value| value / samples as f32)))
    }
}

/// One phase under way.
struct PhaseRun<'a> {
    problem: &'a ExternalProblem,
    weights: &'a mut Weights,
    phase: &'a Phase,
    proximal: Option<&'a ProximalGradient>,
    /// What embeddings are to be near to, and far from.
    embeddings: Option<&'a Embeddings>,
    /// Where everything that is trained is in a gradient as a whole.
    trained: ParameterLayout,
    moments: OptimiserMoments,
    /// Gradient steps in all.
    steps: u64,
    stats: TrainStats,
}

impl<'a> PhaseRun<'a> {
    fn begin(
        problem: &'a ExternalProblem,
        weights: &'a mut Weights,
        (phase, proximal): (&'a Phase, Option<&'a ProximalGradient>),
        embeddings: Option<&'a Embeddings>,
    ) -> Self {
        let trained = ParameterLayout::of_some(problem.network.graph(), |parameter| phase.trains.includes(parameter.part));
        let moments = OptimiserMoments::new(&phase.optimiser, trained.len(), &mut Pool::default());
        let steps = (phase.epochs * problem.training.steps(problem.samples())) as u64;
        Self { problem, weights, phase, proximal, embeddings, trained, moments, steps, stats: TrainStats::default() }
    }

    /// One gradient step; returns the loss before it.
    fn step(&mut self, batch: &Batch, seed: u64) -> Result<f64> {
        let begun = Instant::now();
        let model = self.problem.model(self.weights)?;
        let (mut loss, mut gradient) = self.problem.loss_and_gradient(&model, batch, Some(seed))?;
        if let Some(embeddings) = self.embeddings {
            let (added, more) = self.problem.contrasted(&model, batch, Some(seed), embeddings)?;
            (loss, gradient) = (loss + added, gradient.plus(1.0, &more));
        }
        drop(model); // What is trained is changed where it is, unless others hold it too.
        if !loss.is_finite() {
            return Err(diverged(format!("the training loss is `{loss}`"), self.phase));
        }
        if !gradient.is_finite() {
            return Err(diverged("the gradient of the training loss is not finite".into(), self.phase));
        }
        let computed = Instant::now();
        let mut flags = Vec::new();
        let count = predictions(&[], 1, classes(batch), padding(batch, &mut flags)).count();
        let share = if self.proximal.is_some_and(|proximal| proximal.per_prediction) { count.max(1) as f64 } else { 1.0 };
        let rate = self.phase.rate(self.stats.steps, self.steps);
        if self.phase.is_plain() {
            self.plain_step(&mut gradient, rate, share);
        } else {
            self.optimiser_step(&gradient, rate, share);
        }
        // Whoever computes the loss and its gradient does it in one go, so forward passes are among these.
        let seconds =
            PhaseSeconds { solve: 0.0, backward: (computed - begun).as_secs_f64(), update: computed.elapsed().as_secs_f64() };
        self.stats.seconds = self.stats.seconds.plus(&seconds);
        self.stats.steps += 1;
        Ok(loss)
    }

    fn offset(&self, path: &str) -> Option<&'a [f32]> {
        self.proximal.and_then(|proximal| proximal.offset.get(path)).map(|offset| offset.values.as_slice())
    }

    fn strength(&self) -> f32 {
        self.proximal.map_or(0.0, |proximal| proximal.strength as f32)
    }

    fn plain_step(&mut self, gradient: &mut Params, rate: f64, share: f64) {
        let step = PlainStep { rate, strength: self.strength(), share };
        for parameter in self.problem.parameters().iter().filter(|parameter| self.phase.trains.includes(parameter.part)) {
            let offset = self.offset(&parameter.path);
            let places = (self.weights.params.shared_values_mut(&parameter.path), gradient.shared_values_mut(&parameter.path));
            if let (Some(p), Some(g)) = places {
                let (p, g): (&mut Vec<f32>, &mut Vec<f32>) = (Arc::make_mut(p), Arc::make_mut(g));
                step.run(p, g, offset);
            }
        }
    }

    /// The gradient of everything, clipped, with the proximal term, as the optimiser makes a step of it.
    fn optimiser_step(&mut self, gradient: &Params, rate: f64, share: f64) {
        let trained = self.problem.parameters().iter().filter(|parameter| self.phase.trains.includes(parameter.part));
        let mut whole: Vec<f32> = trained
            .filter_map(|parameter| gradient.get(&parameter.path))
            .flat_map(|array| array.values.iter().copied())
            .collect();
        if let Some(most) = self.phase.clip {
            clip(&mut whole, most);
        }
        let (step, strength) = (self.moments.next(self.phase.optimiser, rate), self.strength());
        for (index, parameter) in self.problem.parameters().iter().enumerate() {
            let (at, offset) = (self.trained.range(ParameterId(index)), self.offset(&parameter.path));
            let Some(p) = self.weights.params.shared_values_mut(&parameter.path).filter(|_| !at.is_empty()) else { continue };
            let (p, g): (&mut Vec<f32>, &mut [f32]) = (Arc::make_mut(p), &mut whole[at.clone()]);
            if let Some(offset) = offset {
                add_proximal(g, p, offset, strength, share as f32);
            }
            self.moments.step(&step, p, g, at);
        }
    }
}

fn diverged(what: String, phase: &Phase) -> Error {
    diverged_in_phase(what, phase, &SolveTally::default())
}
