//! MOON: FedAvg whose clients keep to what the global model makes of samples.
use fedeq_models::Part;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, Weighting};
use crate::error::Result;
use crate::training::{non_negative, positive};
use crate::work::{ClientInfo, ContrastTerm, LocalUpdate, RoundContext, Slot, Trains, own, received};

/// MOON (Li, He and Song, "Model-contrastive federated learning", CVPR 2021): FedAvg, whose clients minimise beside the loss `weight` times a
/// [contrastive term](ContrastTerm) that draws embeddings towards those of the global model and away from those of the client's own model of its last round.
/// The embedding is what the last layer is given; there is no projection head beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Moon {
    /// The weight of the contrastive term, `mu`.
    #[schemars(range(min = 0.0))]
    pub weight: f64,
    /// The temperature of the contrastive term, `tau`.
    #[schemars(extend("exclusiveMinimum" = 0))]
    pub temperature: f64,
    /// How much each client counts in the mean.
    pub weighting: Weighting,
}

impl Default for Moon {
    fn default() -> Self {
        Self { weight: 1.0, temperature: 0.5, weighting: Weighting::Samples }
    }
}

impl Algorithm for Moon {
    fn shares(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        let repels = work.keep("previous", own());
        work.assign(Slot::Own, own().with(received()));
        let attracts = work.keep("global", own());
        let Self { weight, temperature, .. } = *self;
        work.train(round.body(Trains::Everything).contrasting(ContrastTerm { weight, temperature, attracts, repels }));
        work.sending(own())
    }

    fn contrasts(&self) -> bool {
        true
    }

    fn weighting(&self) -> Weighting {
        self.weighting
    }

    fn adopt(&self, _: &ClientInfo, _: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        work
    }

    fn validate(&self) -> Result<()> {
        non_negative("method.weight", self.weight)?;
        positive("method.temperature", self.temperature)
    }
}
