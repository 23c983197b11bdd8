//! FedBN: FedAvg of everything but normalisations.
use fedeq_models::Part;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, FedAvg, Weighting};
use crate::work::{ClientInfo, LocalUpdate, RoundContext, Slot, Trains, own, received};

/// FedBN (Li et al., "FedBN: federated learning on non-IID features via local batch normalization", ICLR 2021): FedAvg, but that scales, offsets and running
/// statistics of normalisations stay with their client. A network without normalisations makes it FedAvg.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedBn {
    /// How much each client counts in the mean.
    pub weighting: Weighting,
}

impl Default for FedBn {
    fn default() -> Self {
        Self { weighting: Weighting::Samples }
    }
}

impl Algorithm for FedBn {
    fn shares(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        FedAvg::local_training(round).sending(own().without_norms())
    }

    fn keeps_normalisations(&self) -> bool {
        true
    }

    fn weighting(&self) -> Weighting {
        self.weighting
    }

    /// There are no normalisations for a new client: it trains its own.
    fn adopt(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        work.train(round.body(Trains::Everything));
        work
    }
}
