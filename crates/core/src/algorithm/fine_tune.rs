//! FedAvg and fine-tuning.
use fedeq_models::{Part, Preset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, FedAvg, View, Weighting};
use crate::error::Result;
use crate::training::{MOST_EPOCHS, at_most, share};
use crate::work::{ClientInfo, LocalUpdate, Phase, RoundContext, Slot, Trains, own, received};

/// FedAvg first; then every client fine-tunes the global model on its own data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FineTune {
    /// How much each client counts in the mean.
    pub weighting: Weighting,
    /// When and how long to fine-tune.
    pub tuning: FineTuning,
}

/// When and how long to fine-tune.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum FineTuning {
    /// All rounds are FedAvg; then every client fine-tunes for this many epochs.
    After {
        /// Passes over the local data.
        #[schemars(range(max = MOST_EPOCHS))]
        epochs: usize,
    },
    /// The rounds after this share of them are spent on fine-tuning by the clients sampled, each from the global model at first and then from
    /// where it was, without any averaging. What the authors' code does. Clients that are never drawn then fine-tune once all rounds
    /// are over, or they would be evaluated by what they had before the global model was finished.
    FromShare(#[schemars(range(min = 0.0, max = 1.0))] f64),
}

impl Default for FineTune {
    fn default() -> Self {
        Self { weighting: Weighting::Samples, tuning: FineTuning::After { epochs: 5 } }
    }
}

impl FineTune {
    /// The first round that is spent on fine-tuning.
    fn first_tuning_round(&self, rounds: u64) -> u64 {
        match self.tuning {
            FineTuning::After { .. } => rounds,
            FineTuning::FromShare(share) => (share * rounds as f64).floor() as u64,
        }
    }

    /// Whether what a client has still has to be fine-tuned from the global model.
    fn is_untuned(&self, me: &ClientInfo, rounds: u64) -> bool {
        me.last_round.is_none_or(|last| last < self.first_tuning_round(rounds))
    }

    /// The global model, fine-tuned.
    fn tuning(&self, round: &RoundContext<'_>) -> LocalUpdate {
        let epochs = match self.tuning {
            FineTuning::After { epochs } => epochs,
            FineTuning::FromShare(_) => round.training.epochs,
        };
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        work.train(Phase { name: "tune", epochs, ..round.body(Trains::Everything) });
        work
    }
}

impl Algorithm for FineTune {
    fn shares(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, me: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        if round.round < self.first_tuning_round(round.rounds) {
            return FedAvg::local_training(round);
        }
        let mut work = LocalUpdate::default();
        if self.is_untuned(me, round.rounds) {
            work.assign(Slot::Own, own().with(received())); // The global model no longer moves: this is where each client's own begins.
        }
        work.train(round.body(Trains::Everything));
        work.sending(received())
    }

    /// Of what was sent; in tuning rounds every client sends back what was received.
    fn weighting(&self) -> Weighting {
        self.weighting
    }

    fn sends_without_memory(&self) -> bool {
        true
    }

    fn spoils_privacy(&self) -> Option<(&'static str, &'static str)> {
        let tunes_in_rounds = matches!(self.tuning, FineTuning::FromShare(_));
        tunes_in_rounds.then_some((
            "method.tuning.from-share",
            "the global model is not to move in its last rounds, and noise would move it",
        ))
    }

    /// In tuning rounds the global model stays as it is, which an optimiser with a memory would not leave it.
    fn averages(&self) -> bool {
        matches!(self.tuning, FineTuning::After { .. })
    }

    fn default_view(&self) -> View {
        View::Local
    }

    fn finish(&self, me: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        if self.is_untuned(me, round.rounds) { self.tuning(round) } else { LocalUpdate::nothing() }
    }

    fn adopt(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        self.tuning(round)
    }

    fn apply_preset(&mut self, preset: Preset, _: bool) {
        if preset == Preset::Reference {
            self.tuning = FineTuning::FromShare(0.3);
        }
    }

    fn validate(&self) -> Result<()> {
        match self.tuning {
            FineTuning::After { epochs } => at_most("method.tuning.after.epochs", epochs, MOST_EPOCHS),
            FineTuning::FromShare(value) => share("method.tuning.from-share", value),
        }
    }
}
