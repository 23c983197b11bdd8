//! kNN-Per: one model for all, mixed with each client's nearest neighbours.
use std::borrow::Cow;

use fedeq_models::Part;
use serde::{Deserialize, Serialize};

use super::{Algorithm, FedAvg, ServerState, Turn, Update, View, Weighting, Work};
use crate::error::{Error, Result};
use crate::site::{Descent, Neighbours, Site};
use crate::state::ClientState;
use crate::training::share;
use crate::weights::Weights;

/// kNN-Per (Marfoq et al., 2022): FedAvg; a prediction is `mixing * neighbours + (1 - mixing) * network`, where the nearest
/// training samples of the client, by the network's embedding, vote with weight `exp(-distance)`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
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
    fn travels(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Work> {
        FedAvg::train(received, me, turn, site)
    }

    fn server_update(&self, server: &mut ServerState, updates: &[Update]) -> Result<()> {
        server.average(updates, self.weighting);
        Ok(())
    }

    fn local_view<'a>(&self, received: &Weights, me: &'a ClientState) -> Cow<'a, Weights> {
        Cow::Owned(me.own.with(received)) // The network is the global one; only the neighbours are the client's own.
    }

    fn headline(&self) -> View {
        View::Local
    }

    fn neighbours(&self) -> Option<Neighbours> {
        Some(self.neighbours)
    }

    /// A new client needs no training, only its own samples to be near to.
    fn adopt(&self, received: &Weights, me: &mut ClientState, _: &Turn<'_>, _: &dyn Site) -> Result<Descent> {
        me.own = me.own.with(received);
        Ok(Descent::default())
    }

    fn validate(&self) -> Result<()> {
        if self.neighbours.count == 0 {
            return Err(Error::invalid("`method.neighbours.count` is `0`", "let at least one neighbour vote"));
        }
        share("method.neighbours.mixing", self.neighbours.mixing)
    }
}
