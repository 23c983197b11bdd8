//! Local work as data: what a method wants a client to do, said in plain values that any engine can carry out.
//!
//! # Layout
//! - this file: the steps of a client's work, and what a method may know when it writes them
//! - `expression`: the mathematics between training phases
//! - `phase`: training phases
//! - `batch_loop`: steps for every batch
mod batch_loop;
mod expression;
mod phase;

use crate::training::Training;

pub use batch_loop::{BatchLoop, Steps};
pub use expression::{Expression, Scaled, Slot, dual, nothing, own, received, second, temporary};
pub use phase::{ContrastModels, ContrastTerm, Phase, PhaseSeed, ProximalGradient, ProximalTerm, Trains};

/// What a client is to do: steps in their order, and what is sent when they are done.
///
/// ```
/// use fedeq_core::{LocalUpdate, RoundContext, Slot, Training, Trains, own, received};
///
/// // FedAvg: train the received model, and send it back.
/// let training = Training::default();
/// let round = RoundContext { round: 0, rounds: 10, rho: None, training: &training };
/// let mut work = LocalUpdate::default();
/// work.assign(Slot::Own, own().with(received()));
/// work.train(round.body(Trains::Everything));
/// let work = work.sending(own());
/// assert_eq!(work.phases().count(), 1);
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LocalUpdate {
    /// Carried out one after the other.
    pub steps: Vec<Step>,
    /// What is sent: parameters, with the statistics that go with them.
    pub sent: Expression,
}

/// One step of a client's work.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// A slot gets the value of an expression.
    Assign {
        /// What is replaced.
        slot: Slot,
        /// By what.
        value: Expression,
    },
    /// Gradient steps on local data.
    Train(Box<Phase>),
    /// A step of the client's [`mixing`](crate::ClientState::mixing) against `<along, gradient>`, kept within its bounds.
    Mix(Box<MixingStep>),
    /// Some steps for every batch.
    ForEachBatch(Box<BatchLoop>),
}

/// `mixing <- from - rate <along, gradient>`, at least `least` and at most 1.
#[derive(Clone, Debug, PartialEq)]
pub struct MixingStep {
    /// The value before.
    pub from: f64,
    /// How far.
    pub rate: f64,
    /// How the model changes with the mixing.
    pub along: Expression,
    /// How the loss changes with the model.
    pub gradient: Expression,
    /// The lower bound.
    pub least: f64,
}

impl LocalUpdate {
    /// Nothing is done and nothing is sent.
    pub fn nothing() -> Self {
        Self::default()
    }

    /// Adds an assignment.
    pub fn assign(&mut self, slot: Slot, value: Expression) {
        self.steps.push(Step::Assign { slot, value });
    }

    /// Keeps a value under a name for later steps of the same update.
    pub fn keep(&mut self, name: &'static str, value: Expression) -> Expression {
        self.assign(Slot::Temporary(name), value);
        temporary(name)
    }

    /// Adds a training phase.
    pub fn train(&mut self, phase: Phase) {
        self.steps.push(Step::Train(phase.into()));
    }

    /// Adds a step of the mixing.
    pub fn mix(&mut self, step: MixingStep) {
        self.steps.push(Step::Mix(step.into()));
    }

    /// Adds steps that are repeated for every batch.
    pub fn for_each_batch(&mut self, batches: BatchLoop) {
        self.steps.push(Step::ForEachBatch(batches.into()));
    }

    /// Says what is sent.
    pub fn sending(self, sent: Expression) -> Self {
        Self { sent, ..self }
    }

    /// All steps one by one as they are carried out, with those for every batch as often as there are batches.
    pub fn carried_out(&self) -> Steps {
        Steps::new(self.steps.clone())
    }

    /// All steps as they are written, with those for every batch once.
    pub fn written(&self) -> impl Iterator<Item = &Step> {
        self.steps.iter().flat_map(|step| match step {
            Step::ForEachBatch(batches) => batches.steps.iter(),
            step => std::slice::from_ref(step).iter(),
        })
    }

    /// The training phases as they are written.
    pub fn phases(&self) -> impl Iterator<Item = &Phase> {
        self.written().filter_map(|step| if let Step::Train(phase) = step { Some(phase.as_ref()) } else { None })
    }

    /// What is trained, and in how many passes over the data.
    pub fn passes(&self) -> impl Iterator<Item = (Trains, usize)> {
        let of = |steps: &[Step], times: usize| -> Vec<(Trains, usize)> {
            let phase =
                |step: &Step| if let Step::Train(phase) = step { Some((phase.trains, times * phase.epochs)) } else { None };
            steps.iter().filter_map(phase).collect()
        };
        self.steps.iter().flat_map(move |step| match step {
            Step::ForEachBatch(batches) => of(&batches.steps, batches.epochs),
            step => of(std::slice::from_ref(step), 1),
        })
    }
}

/// What a method may know of a client when it writes its work: no weights.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ClientInfo {
    /// How often the client has taken part.
    pub participations: u64,
    /// The last round it took part in.
    pub last_round: Option<u64>,
    /// Whether it keeps a second model.
    pub has_second: bool,
    /// The share of its second model in a mixture, where the method adapts it and has begun to.
    pub mixing: Option<f64>,
    /// Gradient steps of an epoch of its training.
    pub steps: usize,
}

/// What a method may know of the round that a client works in.
#[derive(Clone, Copy, Debug)]
pub struct RoundContext<'a> {
    /// The round, from 0.
    pub round: u64,
    /// How many there will be.
    pub rounds: u64,
    /// The penalty in force.
    pub rho: Option<f64>,
    /// How clients train.
    pub training: &'a Training,
}

impl RoundContext<'_> {
    /// Trains the personal parameters of the client's own model on its fixed representation.
    pub fn head(&self) -> Phase {
        let Training { personal_epochs, .. } = *self.training;
        self.phase("head", Trains::Personal, personal_epochs, self.training.personal_rate())
    }

    /// Trains some of the client's own model for as many epochs as the shared part gets.
    pub fn body(&self, trains: Trains) -> Phase {
        self.phase("body", trains, self.training.epochs, self.training.learning_rate)
    }

    /// What the training settings make of a phase. Once all rounds are over, the rate is the full one again.
    fn phase(&self, name: &'static str, trains: Trains, epochs: usize, rate: f64) -> Phase {
        let schedule = self.training.schedule.filter(|_| self.round < self.rounds);
        let rate = schedule.map_or(rate, |schedule| rate * schedule.factor_at(self.round, self.rounds));
        let Training { local_schedule, clip_gradient, .. } = *self.training;
        let optimiser = self.training.optimiser();
        let window = self.training.drift.map(|drift| drift.window(self.round, self.rounds));
        Phase { schedule: local_schedule, optimiser, clip: clip_gradient, window, ..Phase::new(name, trains, epochs, rate) }
    }
}
