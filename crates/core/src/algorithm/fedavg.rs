//! FedAvg: one model for all.
use fedeq_models::{Part, Preset};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, Weighting};
use crate::work::{ClientInfo, LocalUpdate, RoundContext, Slot, Trains, own, received};

/// FedAvg (McMahan et al., 2017): clients train the whole model from the global one; the server takes the mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedAvg {
    /// How much each client counts.
    pub weighting: Weighting,
    /// Whether an unseen client trains the global model on its data before it is evaluated.
    pub adapt_unseen: bool,
}

impl Default for FedAvg {
    fn default() -> Self {
        Self { weighting: Weighting::Samples, adapt_unseen: false }
    }
}

impl FedAvg {
    /// The client's side: the global model, trained on local data.
    pub(super) fn local_training(round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        work.train(round.body(Trains::Everything));
        work.sending(own())
    }
}

impl Algorithm for FedAvg {
    fn shares(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        Self::local_training(round)
    }

    fn weighting(&self) -> Weighting {
        self.weighting
    }

    fn sends_without_memory(&self) -> bool {
        true
    }

    fn adopt(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        if self.adapt_unseen {
            work.train(round.body(Trains::Everything));
        }
        work
    }

    fn apply_preset(&mut self, preset: Preset, _: bool) {
        self.adapt_unseen = preset != Preset::Reference;
    }

    fn draws_with_replacement(&self, preset: Preset, is_text: bool) -> bool {
        preset == Preset::Reference && is_text
    }
}
