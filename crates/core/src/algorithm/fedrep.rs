//! FedRep: personal heads, trained before the shared body.
use fedeq_models::Part;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, Weighting};
use crate::work::{ClientInfo, LocalUpdate, RoundContext, Slot, Trains, own, received};

/// FedRep (Collins et al., 2021): the head is trained on the received body, then the body with the head fixed; the body is
/// averaged.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct FedRep {
    /// How much each client counts in the mean.
    pub weighting: Weighting,
}

impl Default for FedRep {
    fn default() -> Self {
        Self { weighting: Weighting::Uniform }
    }
}

impl Algorithm for FedRep {
    fn shares(&self, part: Part) -> bool {
        part == Part::Shared
    }

    fn client_update(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        work.train(round.head());
        work.train(round.body(Trains::Shared));
        work.sending(own().only(Part::Shared))
    }

    fn weighting(&self) -> Weighting {
        self.weighting
    }
}
