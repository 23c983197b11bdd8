//! FedAvg: one model for all.
use fedeq_models::Part;
use serde::{Deserialize, Serialize};

use super::{Algorithm, ServerState, Turn, Update, Weighting, Work, gap};
use crate::error::Result;
use crate::site::{Descent, Site, Trains};
use crate::state::ClientState;
use crate::weights::Weights;

/// FedAvg (McMahan et al., 2017): clients train the whole model from the global one; the server takes the mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FedAvg {
    /// How much each client counts.
    pub weighting: Weighting,
    /// Whether a client that was not there during training trains the global model on its data before it is judged.
    pub adapt_unseen: bool,
}

impl Default for FedAvg {
    fn default() -> Self {
        Self { weighting: Weighting::Samples, adapt_unseen: false }
    }
}

impl FedAvg {
    /// The client's side: the global model, trained on local data.
    pub(super) fn train(received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Work> {
        me.own = me.own.with(received);
        let descent = turn.body(Trains::Everything, None, me, site)?;
        Ok(Work { sent: me.own.clone(), gap: gap(&me.own, received), descent })
    }
}

impl Algorithm for FedAvg {
    fn travels(&self, _: Part) -> bool {
        true
    }

    fn client_update(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Work> {
        Self::train(received, me, turn, site)
    }

    fn server_update(&self, server: &mut ServerState, updates: &[Update]) -> Result<()> {
        server.average(updates, self.weighting);
        Ok(())
    }

    fn adopt(&self, received: &Weights, me: &mut ClientState, turn: &Turn<'_>, site: &dyn Site) -> Result<Descent> {
        me.own = me.own.with(received);
        if self.adapt_unseen { turn.body(Trains::Everything, None, me, site) } else { Ok(Descent::default()) }
    }
}
