//! kNN-Per: one model for all, mixed with each client's nearest neighbours.
use fedeq_models::Part;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Algorithm, FedAvg, View, Weighting};
use crate::error::{Error, Result};
use crate::stats::Neighbours;
use crate::training::share;
use crate::work::{ClientInfo, Expression, LocalUpdate, RoundContext, Slot, own, received};

/// kNN-Per (Marfoq et al., 2022): FedAvg; a prediction is `mixing * neighbours + (1 - mixing) * network`, where the nearest
/// training samples of the client, by the network's embedding, vote with weight `exp(-distance)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct KnnPer {
    /// How much each client counts in the mean.
    pub weighting: Weighting,
    /// The vote.
    pub neighbours: Neighbours,
}

impl Default for KnnPer {
    fn default() -> Self {
        Self { weighting: Weighting::Samples, neighbours: Neighbours::default() }
    }
}

impl Algorithm for KnnPer {
    fn shares(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, _: &ClientInfo, round: &RoundContext<'_>) -> LocalUpdate {
        FedAvg::local_training(round)
    }

    fn weighting(&self) -> Weighting {
        self.weighting
    }

    fn sends_without_memory(&self) -> bool {
        true
    }

    /// The network is the global one; only the neighbours are the client's own.
    fn local_view(&self, _: &ClientInfo) -> Expression {
        own().with(received())
    }

    fn default_view(&self) -> View {
        View::Local
    }

    fn neighbours(&self) -> Option<Neighbours> {
        Some(self.neighbours)
    }

    /// A new client needs no training, only its own samples to be near to.
    fn adopt(&self, _: &ClientInfo, _: &RoundContext<'_>) -> LocalUpdate {
        let mut work = LocalUpdate::default();
        work.assign(Slot::Own, own().with(received()));
        work
    }

    fn validate(&self) -> Result<()> {
        if self.neighbours.count == 0 {
            return Err(Error::invalid("`method.neighbours.count` is `0`", "let at least one neighbour vote"));
        }
        share("method.neighbours.mixing", self.neighbours.mixing)
    }
}
