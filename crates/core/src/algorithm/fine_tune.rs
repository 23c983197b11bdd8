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
    /// The rounds after this share of them are spent on fine-tuning by the clients sampled, each from where it was, without any
    /// averaging. What the authors' code does.
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
}

impl Algorithm for FineTune {
    fn travels(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Work> {
        let first = self.first_tuning_round(turn.rounds);
        if turn.round < first {
            return FedAvg::train(received, me, turn, site);
        }
        if me.last_round.is_none_or(|last| last < first) {
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
        match self.tuning {
            FineTuning::After { epochs } => {
                me.own = me.own.with(received);
                let learning_rate = turn.training.learning_rate;
                turn.run(&Phase { name: "tune", trains: Trains::Everything, epochs, learning_rate, pull: None }, me, site)
            }
            FineTuning::FromShare(_) if me.last_round.is_none() => {
                me.own = me.own.with(received);
                Ok(Descent::default())
            }
            FineTuning::FromShare(_) => Ok(Descent::default()),
        }
    }

    fn adopt(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Descent> {
        me.own = me.own.with(received);
        turn.body(Trains::Everything, None, me, site)
    }

    fn validate(&self) -> Result<()> {
        match self.tuning {
            FineTuning::After { epochs } => at_most("method.tuning.after.epochs", epochs, MOST_EPOCHS),
            FineTuning::FromShare(value) => share("method.tuning.from-share", value),
        }
    }
}
