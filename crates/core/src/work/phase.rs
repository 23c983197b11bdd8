//! Training phases.
use std::ops::Range;

use fedeq_data::Seed;
use fedeq_models::Part;

use super::expression::{Expression, Slot};
use crate::drift::DriftWindow;
use crate::optimiser::{Optimiser, Schedule};
use crate::params::Params;
use crate::weights::Weights;

/// Some epochs of stochastic gradient descent on the local loss.
#[derive(Clone, Debug, PartialEq)]
pub struct Phase {
    /// Tells the phases of a round apart in seeds and reports.
    pub name: &'static str,
    /// Whose numbers move.
    pub slot: Slot,
    /// Which of them.
    pub trains: Trains,
    /// Tells phases of the same name in one update apart in seeds, counted from 0.
    pub pass: u64,
    /// Passes over the local data.
    pub epochs: usize,
    /// The one batch that it trains on, if not all of them, counted from 0 in the order of the first epoch: the same in every epoch, each of which is one step.
    pub batch: Option<u64>,
    /// The step size, before its local schedule.
    pub learning_rate: f64,
    /// How the step size changes over the steps of the phase, if it does.
    pub schedule: Option<Schedule>,
    /// How a gradient becomes a step.
    pub optimiser: Optimiser,
    /// The longest gradient of the loss; a longer one is shortened to it.
    pub clip: Option<f64>,
    /// Which of the client's training samples it sees, if not all of them.
    pub window: Option<DriftWindow>,
    /// What is minimised beside the loss.
    pub proximal: Option<ProximalTerm>,
    /// What is minimised beside the loss on what the network makes of samples, its embeddings.
    pub contrast: Option<ContrastTerm>,
}

impl Phase {
    /// Plain steps of the client's own model.
    pub fn new(name: &'static str, trains: Trains, epochs: usize, learning_rate: f64) -> Self {
        let (slot, optimiser) = (Slot::Own, Optimiser::PLAIN);
        Self {
            name,
            slot,
            trains,
            pass: 0,
            epochs,
            batch: None,
            learning_rate,
            schedule: None,
            optimiser,
            clip: None,
            window: None,
            proximal: None,
            contrast: None,
        }
    }

    /// Whether every step goes along the gradient as it is.
    pub fn is_plain(&self) -> bool {
        self.optimiser == Optimiser::PLAIN && self.clip.is_none()
    }

    /// The places of the samples that it trains on, of a client with so many.
    pub fn samples(&self, of: usize) -> Range<usize> {
        self.window.map_or(0..of, |window| window.of(of))
    }

    /// The step size of a step, counted from 0, of so many in the whole phase.
    pub fn rate(&self, step: u64, of: u64) -> f64 {
        self.schedule.map_or(self.learning_rate, |schedule| self.learning_rate * schedule.factor_at(step, of))
    }

    /// The same phase with a term beside the loss.
    pub fn towards(self, proximal: ProximalTerm) -> Self {
        Self { proximal: Some(proximal), ..self }
    }

    /// The same phase with a term on embeddings beside the loss.
    pub fn contrasting(self, contrast: ContrastTerm) -> Self {
        Self { contrast: Some(contrast), ..self }
    }

    /// The same phase on another slot.
    pub fn on(self, slot: Slot) -> Self {
        Self { slot, ..self }
    }

    /// This phase on one batch alone, the `step`th of all those of `epochs` epochs of so many each. What the optimiser remembers starts over in each.
    pub(super) fn on_batch(&self, step: u64, epochs: usize, batches: usize) -> Self {
        let (batches, all) = (batches.max(1) as u64, (epochs * batches) as u64);
        let learning_rate = self.rate(step, all);
        Self { pass: step / batches, batch: Some(step % batches), learning_rate, schedule: None, ..self.clone() }
    }

    /// The sum of the step sizes of all its steps, where an epoch has so many.
    pub fn total_rate(&self, steps: usize) -> f64 {
        let all = (self.epochs * steps) as u64;
        match self.schedule {
            None => self.learning_rate * all as f64,
            Some(_) => (0..all).map(|step| self.rate(step, all)).sum(),
        }
    }

    /// The phase's randomness, given that of the client in the round.
    pub fn seed(&self, client: Seed) -> PhaseSeed {
        let PhaseSeed { seed, .. } = PhaseSeed::new(client, self.name);
        let seed = if self.pass == 0 { seed } else { seed.derive("pass", [self.pass]) };
        PhaseSeed { seed, batch: self.batch }
    }
}

/// The randomness of a phase: which order the samples have in each epoch, and what dropout leaves out of each batch. Every engine asks here, so that all of them train on the same
/// batches with the same masks.
///
/// ```
/// use fedeq_core::{RoundContext, Training, Trains};
/// use fedeq_data::Seed;
///
/// let training = Training::default();
/// let round = RoundContext { round: 0, rounds: 10, rho: None, training: &training };
/// let seed = round.body(Trains::Everything).seed(Seed::new(7));
/// assert_ne!(seed.epoch(0), seed.epoch(1));
/// assert_ne!(seed.dropout(0, 1), seed.dropout(1, 0));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PhaseSeed {
    seed: Seed,
    /// The one batch of the phase, if it has not all of them.
    batch: Option<u64>,
}

impl PhaseSeed {
    /// That of a phase with this name, given the client's randomness in the round.
    pub fn new(client: Seed, phase: &str) -> Self {
        Self { seed: client.derive(phase, []), batch: None }
    }

    /// What an epoch, counted from 0, shuffles the samples by: a single batch is the same in all of them.
    pub fn epoch(&self, epoch: u64) -> Seed {
        self.seed.derive("epoch", [if self.batch.is_some() { 0 } else { epoch }])
    }

    /// What the dropout masks of a batch are drawn from; epochs and the batches of each that are trained on are counted from 0.
    pub fn dropout(&self, epoch: u64, batch: u64) -> u64 {
        self.seed.derive("dropout", [epoch, self.batch.unwrap_or(0) + batch]).to_u64()
    }
}

/// What a phase trains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trains {
    /// The shared parameters.
    Shared,
    /// The personal parameters; the representation stays fixed.
    Personal,
    /// Both.
    Everything,
}

impl Trains {
    /// Whether a part is trained.
    pub fn includes(self, part: Part) -> bool {
        match self {
            Self::Shared => part == Part::Shared,
            Self::Personal => part == Part::Personal,
            Self::Everything => true,
        }
    }
}

/// `<dual, p - anchor> + strength / 2 ||p - anchor||^2`, minimised beside the loss for every parameter `p` of the anchor.
#[derive(Clone, Debug, PartialEq)]
pub struct ProximalTerm {
    /// `rho` of an augmented Lagrangian, or the weight of a proximal term.
    pub strength: f64,
    /// Towards what.
    pub anchor: Expression,
    /// `lambda` of an augmented Lagrangian.
    pub dual: Option<Expression>,
    /// Whether the term is divided by the number of predictions in a batch (for text, symbols that are not padding).
    pub per_prediction: bool,
}

impl ProximalTerm {
    /// `strength / 2 ||p - anchor||^2`.
    pub fn new(strength: f64, anchor: Expression) -> Self {
        Self { strength, anchor, dual: None, per_prediction: false }
    }

    /// `<dual, p>`: the same is added to every gradient of the phase.
    pub fn linear(dual: Expression) -> Self {
        Self { dual: Some(dual.clone()), ..Self::new(0.0, dual) }
    }

    /// `<dual, p - anchor> + strength / 2 ||p - anchor||^2`.
    pub fn augmented(strength: f64, anchor: Expression, dual: Expression) -> Self {
        Self { dual: Some(dual), ..Self::new(strength, anchor) }
    }
}

/// `weight` times the mean over samples of `-log (exp(s / t) / (exp(s / t) + exp(r / t)))`, where `s` is the cosine between a sample's embedding (what the network's
/// last layer is given) and that by the model that `attracts`, `r` that with the one by the model that `repels`, and `t` the temperature. Those two models stay as
/// they are: they are evaluated once, on the samples as they are.
#[derive(Clone, Debug, PartialEq)]
pub struct ContrastTerm {
    /// How much it counts beside the loss.
    pub weight: f64,
    /// How much a difference of cosines counts.
    pub temperature: f64,
    /// A whole model.
    pub attracts: Expression,
    /// A whole model.
    pub repels: Expression,
}

/// A [`ContrastTerm`] whose expressions have been evaluated.
#[derive(Clone, Debug, PartialEq)]
pub struct ContrastModels {
    /// As in the term.
    pub weight: f64,
    /// As in the term.
    pub temperature: f64,
    /// As in the term.
    pub attracts: Weights,
    /// As in the term.
    pub repels: Weights,
}

/// A [`ProximalTerm`] whose expressions have been evaluated: `strength * p + offset` is added to the gradient of every parameter `p` that `offset` names.
#[derive(Clone, Debug, PartialEq)]
pub struct ProximalGradient {
    /// As in the term.
    pub strength: f64,
    /// `dual - strength * anchor`.
    pub offset: Params,
    /// As in the term.
    pub per_prediction: bool,
}

impl ProximalGradient {
    /// That of a term with this anchor and this dual.
    pub fn new(term: &ProximalTerm, anchor: &Params, dual: Option<&Params>) -> Self {
        let factor = -term.strength as f32;
        let offset = match dual {
            Some(dual) => dual.plus(factor, anchor),
            None => anchor.map(|value| factor * value),
        };
        Self { strength: term.strength, offset, per_prediction: term.per_prediction }
    }
}
