//! FedAvg and fine-tuning.
use fedeq_models::Part;
use serde::{Deserialize, Serialize};

use super::{Algorithm, FedAvg, ServerState, Turn, Update, View, Weighting, Work};
use crate::error::Result;
use crate::site::{Descent, Phase, Site, Trains};
use crate::state::ClientState;
use crate::training::{MOST_EPOCHS, at_most, share};
use crate::weights::Weights;

/// FedAvg first; then every client fine-tunes the global model on its own data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FineTune {
    /// How much each client counts in the mean.
    pub weighting: Weighting,
    /// When and how long to fine-tune.
    pub tuning: FineTuning,
}

/// When and how long to fine-tune.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FineTuning {
    /// All rounds are FedAvg; then every client fine-tunes for this many epochs.
    After {
        /// Passes over the local data.
        epochs: usize,
    },
    /// The rounds after this share of them are spent on fine-tuning by the clients sampled, each from the global model at first and then from
    /// where it was, without any averaging. What the authors' code does. Clients that are never drawn then fine-tune once all rounds
    /// are over, or they would be judged by what they had before the global model was finished.
    FromShare(f64),
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
    fn is_untuned(&self, me: &ClientState, rounds: u64) -> bool {
        me.last_round.is_none_or(|last| last < self.first_tuning_round(rounds))
    }

    /// The global model, fine-tuned.
    fn tune(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Descent> {
        me.own = me.own.with(received);
        let epochs = match self.tuning {
            FineTuning::After { epochs } => epochs,
            FineTuning::FromShare(_) => turn.training.epochs,
        };
        let learning_rate = turn.training.learning_rate;
        turn.run(&Phase { name: "tune", trains: Trains::Everything, epochs, learning_rate, pull: None }, me, site)
    }
}

impl Algorithm for FineTune {
    fn travels(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Work> {
        if turn.round < self.first_tuning_round(turn.rounds) {
            return FedAvg::train(received, me, turn, site);
        }
        if self.is_untuned(me, turn.rounds) {
            me.own = me.own.with(received); // The global model no longer moves: this is where everybody's own begins.
        }
        let descent = turn.body(Trains::Everything, None, me, site)?;
        Ok(Work { sent: received.clone(), gap: super::gap(&me.own, received), descent })
    }

    fn server_update(&self, server: &mut ServerState, updates: &[Update]) -> Result<()> {
        server.average(updates, self.weighting); // In tuning rounds everybody sends back what was received.
        Ok(())
    }

    fn headline(&self) -> View {
        View::Local
    }

    fn finish(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Descent> {
        if self.is_untuned(me, turn.rounds) { self.tune(received, me, turn, site) } else { Ok(Descent::default()) }
    }

    fn adopt(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Descent> {
        self.tune(received, me, turn, site)
    }

    fn validate(&self) -> Result<()> {
        match self.tuning {
            FineTuning::After { epochs } => at_most("method.tuning.after.epochs", epochs, MOST_EPOCHS),
            FineTuning::FromShare(value) => share("method.tuning.from-share", value),
        }
    }
}
